"""VTK series as a data set: one file for each moment, the same grid in all of them."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from ..files import DatasetError, Entry, named_errors
from ..geometry import Cells, Centring, Curved, Geometry, Lattice, in_dimensions, place, same
from ..slices import OpenedDataset, ReadOptions, selected_times
from ..velocity import Choice, choose_vector
from .frames import Frame, read_frame, read_time
from .process import FORMATS, time_steps

ACROSS = 1e-6
"""Flow across a flat grid up to this part of the largest speed is rounding."""


def open_vtk(entries: Sequence[Entry], options: ReadOptions) -> OpenedDataset:
    """Open VTK files. The grid and the velocity's name come from the first; the others must agree with it."""
    entries = _with_steps(entries)
    names = [entry.name for entry in entries]
    found = [entry.time for entry in entries]
    if options.times is None and len(entries) > 1 and all(time is None for time in found):
        found = [read_time(entry.paths[0]) for entry in entries]
    times, numbers, why, epoch = selected_times(found, names, options)
    first = entries[numbers[0]]
    frame = read_frame(first.paths, step=first.step)
    choice, centring = _choose(frame, options, first.name)
    with named_errors(first.name):
        geometry, kept = in_dimensions(_shift(frame.geometry, options), options.dim)
        placed = place(geometry, centring, options)
    wanted = frozenset(name for name in choice.names if name)
    frame = frame._replace(arrays={key: a for key, a in frame.arrays.items() if key[1] in wanted})

    def read(number: int) -> np.ndarray:
        entry = entries[number]
        here = frame if entry is first else read_frame(entry.paths, wanted, entry.step)
        if not same(here.geometry, frame.geometry):
            raise DatasetError(
                f"{entry.name}: the grid differs from that of {first.name} ({here.geometry.describe()} against "
                f"{frame.geometry.describe()}, or other places). A series must keep its grid."
            )
        values = _velocity(here, choice, centring, entry.name)
        if options.velocity is None and entry is not first:
            _demand_choice(here, choice, entry.name, first.name)
        with named_errors(f"{entry.name}: velocity {_title(choice)}"):
            return placed(_components(values, kept, options.dim))

    notes = (
        f"velocity {_title(choice)} ({centring} data, {choice.why})",
        *([_cells_told(geometry, options)] if centring == "cell" else ()),
        geometry.describe() + (f" in {'xyz'[kept[0]]}{'xyz'[kept[1]]}" if len(kept) == 2 else ""),
        why if len(times) > 1 else "steady",
    )
    return OpenedDataset(
        placed.grid, times, len(times) == 1, numbers, read, tuple(names), options.dtype, notes, epoch
    )


def _with_steps(entries: Sequence[Entry]) -> list[Entry]:
    """The moments in files; those of formats with time steps hold several."""
    found = []
    for entry in entries:
        path, suffix = entry.paths[0], entry.paths[0].suffix.lower()
        steps = time_steps(path) if suffix in FORMATS and suffix != ".vtk" else []
        if len(steps) > 1:
            found += [Entry((path,), time, number) for number, time in enumerate(steps)]
        else:
            found.append(entry._replace(time=steps[0]) if steps and entry.time is None else entry)
    return found


def _cells_told(geometry: Geometry, options: ReadOptions) -> str:
    """How values of cells are read, and what asks for it."""
    way = options.cell_data or ("nearest" if options.interpolation == "nearest" else "linear")
    how = {
        "linear": "linear between middles",
        "average": "node values are means of the cells around",
        "nearest": "each cell keeps its value",
    }[way]
    if way == "linear" and isinstance(geometry, Cells):
        how = "node values by a plane through the cells around"
    return f"cell_data={way!r}: {how}"


def _title(choice: Choice) -> str:
    return ", ".join(repr(name) if name else "zero" for name in choice.names)


def _choose(frame: Frame, options: ReadOptions, where: str) -> tuple[Choice, Centring]:
    """The arrays of the velocity, and whether they belong to nodes or cells; nodes where a name is used twice.

    All arrays that the files declare are candidates, also those that cannot be read.
    """
    widths: dict[str, int] = {}
    centrings: dict[str, set[Centring]] = {}
    for (centring, name), (width, _) in sorted(frame.declared.items(), key=lambda one: one[0][0] != "node"):
        if name not in widths or (widths[name] not in (2, 3) and width in (2, 3)):
            widths[name], centrings[name] = width, set()
        if widths[name] == width:
            centrings[name].add(centring)
    try:
        choice = choose_vector(widths, options.velocity, where)
    except ValueError as error:
        raise DatasetError(str(error)) from error
    common = set.intersection(*(centrings[name] for name in choice.names if name))
    if not common:
        raise DatasetError(f"{where}: {_title(choice)} are partly node data and partly cell data.")
    centring: Centring = (
        "node" if "node" in common and (not options.cell_data or len(common) == 1) else "cell"
    )
    if options.cell_data and centring == "node":
        raise ValueError(
            f"{where}: `cell_data={options.cell_data!r}` is for values of cells; {_title(choice)} are node data. Leave it out."
        )
    for name in filter(None, choice.names):
        reason = frame.declared[centring, name][1]
        if reason:
            raise DatasetError(f"{where}: {centring} array {name!r} {reason}.")
    if len(common) > 1:
        other = "cell" if centring == "node" else "node"
        choice = choice._replace(why=f"{choice.why}; {other} data of that name are not used")
    return choice, centring


def _demand_choice(frame: Frame, choice: Choice, where: str, first: str) -> None:
    """Refuse a file of a series in which the rule finds another velocity than in the first, or several."""
    widths = {name: width for (_, name), (width, _) in frame.declared.items()}
    try:
        here = choose_vector(widths, None, where)
    except ValueError as error:
        raise DatasetError(f"{error} In {first} there is only one.") from error
    if here.names != choice.names:
        argument = choice.names[0] if len(choice.names) == 1 else choice.names
        raise DatasetError(
            f"{where}: the velocity would be {_title(here)} ({here.why}), but in {first} it is {_title(choice)}. Pass "
            f"`velocity={argument!r}` or another."
        )


def _shift(geometry: Geometry, options: ReadOptions) -> Geometry:
    if options.origin is None:
        return geometry
    if isinstance(geometry, Lattice):
        zero = options.shift(np.zeros(len(geometry.axes)))
        return dataclasses.replace(
            geometry, axes=tuple(axis + shift for axis, shift in zip(geometry.axes, zero, strict=True))
        )
    assert isinstance(geometry, Curved | Cells)
    return dataclasses.replace(geometry, points=options.shift(geometry.points))


def _velocity(frame: Frame, choice: Choice, centring: Centring, where: str) -> Float[np.ndarray, "n width"]:
    """The values in the order of the file, a column for each component."""
    found = {}
    for name in filter(None, choice.names):
        reason = frame.declared.get((centring, name), (0, ""))[1]
        if reason:
            raise DatasetError(f"{where}: {centring} array {name!r} {reason}.")
        if (centring, name) not in frame.arrays:
            present = ", ".join(sorted({known for _, known in frame.declared})) or "none"
            raise DatasetError(
                f"{where}: there is no {centring} array {name!r} here (arrays: {present}), but other files have it."
            )
        values = frame.arrays[centring, name]
        found[name] = np.asarray(values, np.result_type(np.float32, values))
    (values, *_) = found.values()
    if len(choice.names) > 1:
        zero = np.zeros(len(values), np.float32)
        values = np.stack([found[name].reshape(-1) if name else zero for name in choice.names], -1)
    wrong = np.flatnonzero(~np.isfinite(values).all(-1))
    if wrong.size:
        raise DatasetError(
            f"{where}: velocity {_title(choice)} must be finite; {wrong.size} of {len(values)} values are not, "
            f"the first is number {wrong[0]}: {values[wrong[0]]}."
        )
    return values


def _components(
    values: Float[np.ndarray, "n width"], kept: tuple[int, ...], dim: int | None
) -> Float[np.ndarray, "n dim"]:
    """The components along the kept coordinates; flow across a flat grid is refused unless two dimensions were asked."""
    width = values.shape[1]
    if width == len(kept) and (width == 3 or kept == (0, 1)):
        return values
    if width == 2:
        raise ValueError(
            f"two components do not fit coordinates {', '.join('xyz'[k] for k in kept)}. Name three arrays, "
            "`velocity=('u', 'v', None)` for zero along z"
        )
    dropped = [k for k in range(3) if k not in kept]
    across, largest = np.abs(values[:, dropped]).max(initial=0), np.abs(values).max(initial=0)
    if dim is None and across > ACROSS * largest:
        raise ValueError(
            f"the grid lies in a plane but the flow crosses it with up to {across:.3g}. Pass `dim=2` to leave that out "
            "(or, on a lattice, `dim=3` to keep it)"
        )
    return values[:, list(kept)]
