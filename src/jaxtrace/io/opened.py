"""A data set that is open but not loaded: its grid and times, and its slices one by one on request."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, Shaped

from ..fields.base import AbstractGrid, Interpolation
from ..fields.land import LandValues
from ..fields.sources import AbstractSlices
from .geometry import CellData
from .naming import VelocityNames
from .series import DatasetError, choose_slices, settle_times


@dataclasses.dataclass(frozen=True)
class Options:
    """How a data set is read; the fields are the arguments of `load_optimized_dataset` of the same names."""

    velocity: VelocityNames | None = None
    times: Sequence[float] | np.ndarray | None = None
    time_range: tuple[float, float] | None = None
    max_time_steps: int | None = None
    dim: int | None = None
    interpolation: Interpolation | None = None
    dtype: np.dtype = dataclasses.field(default_factory=lambda: np.dtype(np.float32))
    origin: Sequence[float] | None = None
    land_values: LandValues = "keep"
    missing: Literal["land", "zero", "fill"] = "land"
    partly_missing: Literal["land", "zero"] = "land"
    cell_data: CellData | None = None
    select: Mapping[str, int] = dataclasses.field(default_factory=dict)
    convert_units: bool = True
    earth_radius: float = 6_371_000.0

    @property
    def coordinate_dtype(self) -> np.dtype:
        """Coordinates are never shorter than 32 bits."""
        return np.dtype(np.float64 if self.dtype == np.float64 else np.float32)

    def shifted(self, points: np.ndarray) -> np.ndarray:
        """Coordinates (…, dim) counted from `origin`."""
        if self.origin is None:
            return points
        if len(self.origin) != points.shape[-1]:
            raise ValueError(
                f"`origin` must have {points.shape[-1]} coordinates here; got {tuple(self.origin)!r}."
            )
        return points - np.asarray(self.origin, float)


@dataclasses.dataclass(frozen=True)
class OpenedDataset(AbstractSlices):
    """What a field is made from. `read(k)` gives slice `k` (rows, dim); a `StreamedField` takes it as its source."""

    grid: AbstractGrid
    times: Float[np.ndarray, " times"]
    steady: bool
    numbers: Int[np.ndarray, " times"]
    reader: Callable[[int], Shaped[np.ndarray, "rows dim"]]
    names: tuple[str, ...]
    storage: np.dtype
    notes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.times)

    def read(self, number: int) -> Shaped[np.ndarray, "rows dim"]:
        """The velocities of slice `number`, one row for each value of the grid."""
        values = self.reader(int(self.numbers[number]))
        with np.errstate(over="ignore"):
            found = np.ascontiguousarray(values, self.storage)
        if not np.isfinite(found).all():
            raise DatasetError(
                f"{self.name(number)}: velocities up to {np.abs(values).max():.3g} do not fit {self.storage}. "
                "Pass another `dtype`, or mend the file."
            )
        return found

    @property
    def dtype(self) -> np.dtype:
        """How the velocities are stored."""
        return self.storage

    def name(self, number: int) -> str:
        """The file that holds a slice."""
        return self.names[self.numbers[number]]

    @property
    def slice_bytes(self) -> int:
        """Memory of one slice."""
        return self.grid.size * self.grid.dim * self.dtype.itemsize

    def __str__(self) -> str:
        span = f", t = {self.times[0]:g} … {self.times[-1]:g}" if len(self) > 1 else ""
        size = f"{len(self)} slice{'s' * (len(self) > 1)} of {self.slice_bytes / 1e6:.3g} MB{span}"
        return "; ".join([*self.notes, size])


def selected_times(
    found: Sequence[float | None], names: Sequence[str], options: Options
) -> tuple[Float[np.ndarray, " kept"], Int[np.ndarray, " kept"], str]:
    """Times and numbers of the slices that the options choose, and where the times come from."""
    times, order, why = settle_times(found, names, options.times)
    kept = choose_slices(times, options.time_range, options.max_time_steps)
    return times[kept], order[kept], why


def checked_dtype(dtype: Any) -> np.dtype:
    """The storage type of the velocities; double precision only where JAX has it."""
    found = jnp.dtype(dtype)
    if found.name not in ("float16", "bfloat16", "float32", "float64"):
        raise ValueError(f"`dtype` must be float16, bfloat16, float32 or float64; got {dtype!r}.")
    if found == np.float64 and jnp.result_type(float) != np.float64:
        raise ValueError(
            "`dtype='float64'` needs 64-bit numbers in JAX: call `jaxtrace.configure(dtype='float64')` first."
        )
    return found
