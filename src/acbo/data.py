"""Datasets as padded arrays, so that one compiled program serves models of mixed size."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int32, Shaped

Key = Shaped[Array, "..."]
"""A random key, of the new style or the old."""

BUCKETS = (8, 16, 32, 64)
"""Numbers of variables that programs are compiled for."""


class Dataset(eqx.Module):
    """Rows of observed variables, some of them set by an experimenter.

    Padded rows and variables hold 0 and False. A row in which nothing is intervened is an observation.
    """

    values: Float[Array, "n d"]
    intervened: Bool[Array, "n d"]
    """True where an intervention set the value or changed its mechanism."""
    rows: Bool[Array, " n"]
    """True for real rows."""
    live: Bool[Array, " d"]
    """True for real variables."""
    target: Int32[Array, ""]

    def __check_init__(self) -> None:
        if self.values.shape != self.intervened.shape:
            raise ValueError(
                f"`intervened` must have the shape of `values`, {self.values.shape}; got {self.intervened.shape}."
            )

    @property
    def size(self) -> int:
        """Number of variables, the padded ones included."""
        return self.values.shape[-1]


def demand_dataset(data: Any) -> None:
    """Raise unless `data` is a `Dataset`; the message says how to make one."""
    if isinstance(data, Dataset):
        return
    if isinstance(data, tuple) and data and isinstance(data[0], Dataset):
        remedy = "Take it apart: `data, names = acbo.from_frame(...)`."
    elif hasattr(data, "columns"):
        remedy = "Write `data, names = acbo.from_frame(frame, target=...)` first."
    else:
        remedy = "`acbo.dataset(values, intervened, target=0)` makes one of arrays."
    raise TypeError(f"`data` must be a Dataset; got {type(data).__name__}. {remedy}")


def demand_digits(values: Float[np.ndarray, "n d"], names: Sequence[str | int], argument: str) -> None:
    """Raise for columns whose differences are lost, or whose squares overflow, in the precision of the arrays."""
    kind = jnp.finfo(jnp.result_type(float))
    largest = np.abs(values).max(0, initial=0.0)
    spread = values.std(0) if len(values) else np.zeros(len(names))
    for name, most, one in zip(names, largest.tolist(), spread.tolist(), strict=True):
        if one <= 1e-12 * most:  # a constant, or what rounding leaves of one
            continue
        if one < 100 * float(kind.eps) * most:
            raise ValueError(
                f"`{argument}` must keep its digits in {kind.dtype}; {name!r} has a deviation of {one:.3g} at values up to "
                f"{most:.7g}. Subtract its mean, or call `jax.config.update('jax_enable_x64', True)` first."
            )
        if not 1e-15 < one < 1e15:
            raise ValueError(
                f"`{argument}` must have deviations from 1e-15 to 1e15, whose squares are numbers; {name!r} has {one:.3g}. "
                "Give it in other units."
            )


def bucket(variables: int) -> int:
    """The smallest bucket that holds this many variables.

    >>> bucket(5), bucket(16), bucket(17)
    (8, 16, 32)
    """
    for size in BUCKETS:
        if variables <= size:
            return size
    raise ValueError(
        f"`variables` must be at most {BUCKETS[-1]}; got {variables}. Leave out variables that cannot matter."
    )


def dataset(
    values: Float[Array | np.ndarray, "n d"],
    intervened: Bool[Array | np.ndarray, "n d"] | None = None,
    *,
    target: int | Array = 0,
) -> Dataset:
    """A dataset without padding. NumPy's double precision becomes JAX's, where its digits survive that."""
    n, d = values.shape
    if not isinstance(target, Tracer) and not 0 <= int(target) < d:
        raise ValueError(f"`target` must be a column, from 0 to {d - 1}; got {target}.")
    if isinstance(values, np.ndarray) and values.dtype == float:
        demand_digits(values, range(d), "values")
        values = jnp.asarray(values, jnp.result_type(float))
    return Dataset(
        values=jnp.asarray(values),
        intervened=jnp.zeros((n, d), bool) if intervened is None else jnp.asarray(intervened),
        rows=jnp.ones(n, bool),
        live=jnp.ones(d, bool),
        target=jnp.asarray(target, jnp.int32),
    )
