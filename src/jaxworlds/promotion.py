"""Run code under JAX's default promotion rules, even if the user has set stricter ones."""

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import jax

P = ParamSpec("P")
R = TypeVar("R")


def with_usual_promotion(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Call `function` with ranks and dtypes promoted as JAX does by default.

    `jax_numpy_rank_promotion="raise"` and `jax_numpy_dtype_promotion="strict"` are for finding mistakes in one's own code.
    Left on, they would refuse sound arithmetic inside a compiled step of ours, and say so in terms of lines that the user
    did not write.
    """
    settings: Any = jax.config
    ranks, dtypes = settings.jax_numpy_rank_promotion, settings.jax_numpy_dtype_promotion
    if ranks == "allow" and dtypes == "standard":  # the usual case costs nothing
        return function(*args, **options)
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        return function(*args, **options)


def usual_promotion(function: Callable[P, R]) -> Callable[P, R]:
    """`function`, called by `with_usual_promotion`."""

    @functools.wraps(function)
    def call(*args: P.args, **options: P.kwargs) -> R:
        return with_usual_promotion(function, *args, **options)

    return call
