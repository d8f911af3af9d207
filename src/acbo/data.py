"""Data as every part of acbo takes it: padded arrays, so that one program serves models of mixed size."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
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
    """Where the value was set (or its mechanism changed) by an intervention."""
    rows: Bool[Array, " n"]
    """Which rows are real."""
    live: Bool[Array, " d"]
    """Which variables are real."""
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
    """Refuse what is no `Dataset`, with the way to make one of it."""
    if isinstance(data, Dataset):
        return
    if isinstance(data, tuple) and data and isinstance(data[0], Dataset):
        remedy = "Take it apart: `data, names = acbo.from_frame(...)`."
    elif hasattr(data, "columns"):
        remedy = "Write `data, names = acbo.from_frame(frame, target=...)` first."
    else:
        remedy = "`acbo.dataset(values, intervened, target=0)` makes one of arrays."
    raise TypeError(f"`data` must be a Dataset; got {type(data).__name__}. {remedy}")


def bucket(variables: int) -> int:
    """The smallest bucket that holds so many variables.

    >>> bucket(5), bucket(16), bucket(17)
    (8, 16, 32)
    """
    for size in BUCKETS:
        if variables <= size:
            return size
    raise ValueError(
        f"`variables` must be at most {BUCKETS[-1]}; got {variables}. Leave out variables that cannot matter, or "
        "pass the padded size yourself."
    )


def dataset(
    values: Float[Array, "n d"],
    intervened: Bool[Array, "n d"] | None = None,
    *,
    target: int = 0,
) -> Dataset:
    """A dataset without padding."""
    n, d = values.shape
    return Dataset(
        values=values,
        intervened=jnp.zeros((n, d), bool) if intervened is None else intervened,
        rows=jnp.ones(n, bool),
        live=jnp.ones(d, bool),
        target=jnp.asarray(target, jnp.int32),
    )
