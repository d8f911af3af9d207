"""Sources of a streamed field's slices: arrays, folders of files, functions; each slice is checked when it is read."""

import abc
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Bool, Shaped

from jaxworlds.store import open_array

from ..base import AbstractGrid

Slice = Shaped[np.ndarray, "..."]


class SliceError(RuntimeError):
    """A slice could not be read or used; the message names it."""


class AbstractSlices(abc.ABC):
    """A series of slices that are read one at a time. Readers of file formats implement this.

    `read` is called in a thread of its own, for one slice after the other and mostly in order.
    """

    @abc.abstractmethod
    def __len__(self) -> int:
        """How many slices there are."""

    @abc.abstractmethod
    def read(self, number: int) -> Slice:
        """The values of one slice, (rows, dim) or with one axis for each axis of a structured grid."""

    @property
    def dtype(self) -> np.dtype | None:
        """The type of the values where it is known without reading them."""
        return None

    def name(self, number: int) -> str:
        """The slice's name in messages, beside its number: a file, for example."""
        return ""


class ArraySlices(AbstractSlices):
    """Slices of one array, of a memory-mapped file, or of a list of arrays."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __len__(self) -> int:
        return len(self.array)

    def read(self, number: int) -> Slice:
        return np.asarray(self.array[number])

    @property
    def dtype(self) -> np.dtype | None:
        first = self.array[0] if isinstance(self.array, list | tuple) and len(self.array) else self.array
        return getattr(first, "dtype", None)


class FileSlices(AbstractSlices):
    """One `.npy` file for each slice: those given, or those of a folder in the order of the numbers in their names."""

    def __init__(self, files: str | Path | Sequence[str | Path]) -> None:
        if isinstance(files, str | Path):
            folder = Path(files).expanduser()
            if not folder.is_dir():
                raise FileNotFoundError(
                    f"`source` must be a folder of .npy files, or a list of them; {folder} is not a folder."
                )
            files = sorted(folder.glob("*.npy"), key=lambda file: natural_key(Path(file).name))
            if not files:
                raise FileNotFoundError(f"`source` must be a folder of .npy files; {folder} holds none.")
        self.files = [Path(file).expanduser() for file in files]
        missing = [number for number, file in enumerate(self.files) if not file.is_file()]
        if missing:
            raise FileNotFoundError(
                f"`source` must name files that exist; {len(missing)} of {len(self.files)} do not, the first is slice "
                f"{missing[0]}, {self.files[missing[0]]}."
            )

    def __len__(self) -> int:
        return len(self.files)

    def read(self, number: int) -> Slice:
        return np.array(self._memory_map(number))

    @property
    def dtype(self) -> np.dtype | None:
        return self._memory_map(0).dtype

    def _memory_map(self, number: int) -> np.ndarray:
        found = open_array(self.files[number])
        if found.dtype.kind not in "fiub":
            raise ValueError(f"{self.files[number]} must hold numbers; it holds {found.dtype}")
        return found

    def name(self, number: int) -> str:
        return str(self.files[number])


class FunctionSlices(AbstractSlices):
    """Slices that a function returns: `function(number)`."""

    def __init__(self, function: Callable[[int], Any], count: int) -> None:
        self.function, self.count = function, count

    def __len__(self) -> int:
        return self.count

    def read(self, number: int) -> Slice:
        return np.asarray(self.function(number))

    def name(self, number: int) -> str:
        return getattr(self.function, "__qualname__", "")


class ReaderSlices(AbstractSlices):
    """Slices of any object that has `read(number)` and a length."""

    def __init__(self, reader: Any) -> None:
        self.reader = reader

    def __len__(self) -> int:
        return len(self.reader)

    def read(self, number: int) -> Slice:
        return self.reader.read(number)

    @property
    def dtype(self) -> np.dtype | None:
        return getattr(self.reader, "dtype", None)

    def name(self, number: int) -> str:
        name = getattr(self.reader, "name", None)
        return str(name(number)) if callable(name) else ""


def as_slices(source: Any, count: int) -> AbstractSlices:
    """A series of `count` slices from an array, files, a function or a reader."""
    if isinstance(source, AbstractSlices):
        found = source
    elif isinstance(source, str | Path) or (
        isinstance(source, Sequence) and len(source) and isinstance(source[0], str | Path)
    ):
        found = FileSlices(source)
    elif hasattr(source, "read") and hasattr(source, "__len__"):
        found = ReaderSlices(source)
    elif callable(source):
        found = FunctionSlices(source, count)
    elif isinstance(source, np.ndarray | Array | list | tuple):
        found = ArraySlices(source)
    else:
        raise TypeError(
            "`source` must be an array, a memory map, a folder or list of .npy files, a function of the slice's number, "
            f"or have `read(number)` and a length; got {type(source).__name__}."
        )
    if len(found) != count:
        raise ValueError(
            f"`times` must hold the time of each of the {len(found)} slices; got {count}. "
            "Leave out files or times that do not belong."
        )
    return found


def natural_key(name: str) -> list[tuple[bool, int, str]]:
    """A sorting key that puts `u_2` before `u_10`."""
    parts = re.findall(r"\d+|\D+", name)
    return [(not part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts]


def checked_slice(
    values: Any, grid: AbstractGrid, dtype: np.dtype, land: Bool[np.ndarray, " rows"] | None
) -> Shaped[np.ndarray, "rows dim"]:
    """A copy of a slice's values as (rows, dim), refused unless it fits the grid and is finite off the land."""
    given = np.asarray(values)
    fits = (grid.size, grid.dim)
    counts = getattr(grid, "counts", None)
    if given.shape != fits and given.shape != (*(counts or fits[:1]), grid.dim):
        also = f" or {(*counts, grid.dim)}" if counts is not None else ""
        raise ValueError(f"it must have shape {fits}{also} for this grid; it has {given.shape}")
    # A copy in any case: the source may use its memory again, and a mapped file must be read here and not later.
    with np.errstate(over="ignore"):
        found = np.array(given.reshape(fits), dtype=dtype, order="C")
    finite = np.isfinite(found)
    if not finite.all():
        wet = ~finite.all(axis=1) if land is None else ~finite.all(axis=1) & ~land
        if wet.any():
            raise ValueError(
                f"it must be finite in {dtype}; {wet.sum()} of {grid.size} rows are not, the first is row "
                f"{np.flatnonzero(wet)[0]}; mark land with the grid's `mask`"
            )
        found[~finite] = 0  # never read with a weight, but it must not turn a sum into NaN
    return found


def canonical(dtype: Any) -> np.dtype:
    """The type in which values of `dtype` lie on the device; whole numbers become floating-point ones."""
    kind = np.dtype(np.float32 if dtype is None else dtype)
    if not jax.numpy.issubdtype(kind, np.floating):
        kind = np.dtype(np.float32)
    return np.dtype(jax.dtypes.canonicalize_dtype(kind))
