"""A data set that is open but not loaded: its grid and times, and its slices one by one on request."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, Shaped

from ..fields.base import AbstractGrid, Interpolation
from ..fields.epoch import Epoch, as_epoch, first_and_seconds, has_dates, in_seconds
from ..fields.land import LandValues
from ..fields.streams.slices import AbstractSlices
from .files import DatasetError, choose_slices, settle_times
from .geometry import CellData
from .velocity import VelocityNames


@dataclasses.dataclass(frozen=True)
class ReadOptions:
    """How a data set is read; the fields are the arguments of `open_dataset` of the same names."""

    velocity: VelocityNames | None
    times: Sequence[Any] | np.ndarray | None
    time_range: Sequence[Any] | None
    max_time_steps: int | None
    dim: int | None
    interpolation: Interpolation | None
    dtype: np.dtype
    origin: Sequence[float] | None
    land_values: LandValues
    missing: Literal["land", "zero", "fill"]
    partly_missing: Literal["land", "zero"]
    cell_data: CellData | None
    select: Mapping[str, int]
    attributes: Mapping[str, Mapping[str, Any]]
    convert_units: bool
    earth_radius: float
    epoch: Any

    @property
    def coordinate_dtype(self) -> np.dtype:
        """The type of coordinates: at least 32 bits."""
        return np.dtype(np.float64 if self.dtype == np.float64 else np.float32)

    def shift(self, points: np.ndarray) -> np.ndarray:
        """Coordinates (…, dim) counted from `origin`."""
        if self.origin is None:
            return points
        if len(self.origin) != points.shape[-1]:
            raise ValueError(
                f"`origin` must have {points.shape[-1]} coordinates here; got {tuple(self.origin)!r}."
            )
        origin = np.asarray(self.origin, float)
        if not np.isfinite(origin).all():
            raise ValueError(f"`origin` must be finite; got {tuple(self.origin)!r}.")
        return points - origin


@dataclasses.dataclass(frozen=True)
class OpenedDataset(AbstractSlices):
    """An open data set. `read(k)` gives slice `k` (rows, dim); a `StreamedField` takes it as its source."""

    grid: AbstractGrid
    times: Float[np.ndarray, " times"]
    steady: bool
    numbers: Int[np.ndarray, " times"]
    reader: Callable[[int], Shaped[np.ndarray, "rows dim"]]
    names: tuple[str, ...]
    storage: np.dtype
    notes: tuple[str, ...]
    epoch: Epoch | None = None
    """The date of time 0, from the files or the caller; None without one."""

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
        if self.epoch is not None:
            span += f", {' … '.join(self.epoch.texts([self.times[0], self.times[-1]][: len(self)]))}"
        size = f"{len(self)} slice{'s' * (len(self) > 1)} of {self.slice_bytes / 1e6:.3g} MB{span}"
        return "; ".join([*self.notes, size])


def selected_times(
    found: Sequence[float | None], names: Sequence[str], options: ReadOptions, epoch: Epoch | None = None
) -> tuple[Float[np.ndarray, " kept"], Int[np.ndarray, " kept"], str, Epoch | None]:
    """Times and numbers of the slices that the options choose, the source of the times, and the date of time 0.

    `epoch` belongs to the times found in the files; times that the caller gives count from the epoch of the caller.
    """
    given = options.times
    wanted = as_epoch(options.epoch)
    if given is not None:
        epoch = wanted
        if has_dates(given):
            epoch, given = first_and_seconds(given, epoch, "times")
    elif wanted is not None:
        if epoch is not None and epoch != wanted:
            raise ValueError(
                f"`epoch` must be {str(epoch)!r}, the date of the first slice in the files, or left out; got "
                f"{str(wanted)!r}. To move the dates pass `times=` as well."
            )
        epoch = wanted
    times, order, why = settle_times(found, names, given)
    time_range = options.time_range
    if time_range is not None:
        remedy = "The files say no date: pass `epoch=`, the date of time 0, or give numbers."
        time_range = tuple(in_seconds(time_range, epoch, "time_range", remedy))
    kept = choose_slices(times, time_range, options.max_time_steps)
    return times[kept], order[kept], why, epoch


def checked_dtype(dtype: Any) -> np.dtype:
    """The storage type of the velocities; double precision only if it is on in JAX."""
    found = jnp.dtype(dtype)
    if found.name not in ("float16", "bfloat16", "float32", "float64"):
        raise ValueError(f"`dtype` must be float16, bfloat16, float32 or float64; got {dtype!r}.")
    if found == np.float64 and jnp.result_type(float) != np.float64:
        raise ValueError(
            "`dtype='float64'` needs 64-bit numbers in JAX, which are off. Call `jaxtrace.configure(dtype='float64')` before."
        )
    return found
