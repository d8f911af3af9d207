"""Seeds: where particles begin, as (n, dim) arrays, and when.

With `inside=` (a field, a grid, a boundary, or a function of (n, dim) points that returns n flags) seeds lie only where that
holds: random ones are drawn until there are `n`; of lattices, lines and circles the points elsewhere are left out.
"""

import itertools
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from jaxworlds.arguments import short

from ..boundaries.base import AbstractBoundary, lie_inside
from ..boundaries.box import AXES, Bounds, box_corners, checked_point, checked_size
from ..fields.base import AbstractField, AbstractGrid, Vector
from ..integrators.base import AnyKey
from .checks import point_text

Seeds = Float[Array, "n dim"]
Point = Sequence[float] | Float[Array | np.ndarray, " dim"]
# Where randomness comes from: a key, or a number that one is made of.
Source = int | AnyKey
# Where seeds may lie: where a field has a finite velocity (streamed fields: in their grid), in a grid and not on land, within a
# boundary, or as a function of (n, dim) points says.
Inside = Any
# Rounds of random draws before too few seeds inside are an error, and points after which none inside is one.
_ROUNDS, _MOST_AT_ONCE = 40, 2_000_000


def seeds_inside(
    seeds: Float[Array | np.ndarray, "n dim"], inside: Inside, time: float | None = None
) -> Float[Array, "held dim"]:
    """The seeds that lie `inside` a field, a grid, a boundary, or where a function of the points says so.

    A field holds where it gives a finite velocity at `time`, by default its first.

    ```python
    wet = seeds_inside(uniform_grid_seeds((100, 100), bounds), field)
    ```
    """
    points = jnp.asarray(seeds, float)
    if inside is None:
        return points
    held = _lie_inside(np.asarray(points), inside, time)
    if not held.any():
        raise ValueError(
            f"`inside` must hold some of the {len(held):,} seeds; it holds none. They span {point_text(points.min(0))} to "
            f"{point_text(points.max(0))}: are they in the coordinates of `inside`?"
        )
    return points[jnp.asarray(np.flatnonzero(held))]


def _lie_inside(points: np.ndarray, inside: Inside, time: float | None = None) -> np.ndarray:
    """Which points lie inside."""
    if isinstance(inside, AbstractGrid):
        return lie_inside(inside, points)
    if isinstance(inside, AbstractBoundary):
        return inside._holds(points)
    if isinstance(inside, AbstractField):
        first = inside.time_range[0]
        when = (first if np.isfinite(first) else 0.0) if time is None else time
        return np.asarray(np.isfinite(np.asarray(inside(points, when))).all(axis=1))
    if isinstance(grid := getattr(inside, "grid", None), AbstractGrid):  # a field that is streamed
        return lie_inside(grid, points)
    if not callable(inside):
        raise TypeError(
            "`inside` must be a field, a grid, a boundary, or a function of (n, dim) points that returns n flags; got "
            f"{type(inside).__name__}."
        )
    held = np.asarray(inside(points))
    if held.shape != (len(points),):
        raise ValueError(
            f"`inside` must return one flag for each of {len(points)} points; got shape {held.shape}."
        )
    if held.dtype.kind not in "biu":  # NaN would count as inside
        raise TypeError(
            f"`inside` must return flags, True for points to keep; got numbers of type {held.dtype}. Compare them, as in "
            "`depth(x) > 0`."
        )
    return held.astype(bool)


def _draw_inside(n: int, inside: Inside, draw: Callable[[int, int], Seeds]) -> Seeds:
    """`n` points of `draw(count, round)`, those of them that lie inside; the first round alone where all may."""
    if inside is None:
        return draw(n, 0)
    kept: list[Seeds] = []
    drawn, count = 0, n
    for number in itertools.count():
        found = draw(count, number)
        kept.append(found[jnp.asarray(np.flatnonzero(_lie_inside(np.asarray(found), inside)))])
        drawn += count
        have = sum(map(len, kept))
        if have >= n:
            break
        if number + 1 == _ROUNDS or (have == 0 and drawn >= _MOST_AT_ONCE):
            low, high = point_text(found.min(0)), point_text(found.max(0))
            raise ValueError(
                f"`inside` must hold more of where seeds are drawn, {low} to {high}: of {drawn:,} points {have:,} lie inside, "
                f"and `n` is {n:,}. Choose other `bounds`."
            )
        count = int(min(max(1.2 * (n - have) * drawn / max(have, 0.1), n, 1000), _MOST_AT_ONCE))
    return jnp.concatenate(kept)[:n]


def uniform_grid_seeds(
    resolution: int | Sequence[int], bounds: Bounds, include_boundaries: bool = True, *, inside: Inside = None
) -> Seeds:
    """A regular lattice, the last axis fastest; only its points `inside`, if given.

    With `include_boundaries` the outermost points lie on the box; without, every point is the middle of its cell. An
    axis of resolution 1 gets its middle.

    ```python
    uniform_grid_seeds((30, 25, 10), [[0, 0, 0], [3, 2.5, 1]])  # (7500, 3)
    ```
    """
    low, high = box_corners(bounds)
    counts = _counts(resolution, len(low))
    lines = [
        np.linspace(a, b, n) if include_boundaries and n > 1 else a + (np.arange(n) + 0.5) * (b - a) / n
        for a, b, n in zip(low, high, counts, strict=True)
    ]
    return seeds_inside(_lattice(lines), inside)


def random_seeds(n: int, bounds: Bounds, key: Source = 0, *, inside: Inside = None) -> Seeds:
    """`n` points drawn evenly from a box, or from the part of it that lies `inside`.

    ```python
    random_seeds(1000, [[-5, 60], [5, 65]], inside=field)  # all of them in water
    ```
    """
    low, high = (jnp.asarray(corner, float) for corner in box_corners(bounds))

    def draw(count: int, number: int) -> Seeds:
        return low + jr.uniform(_key(key, number), (count, len(low))) * (high - low)

    return _draw_inside(_number(n), inside, draw)


def line_seeds(start: Point, end: Point, n: int, *, inside: Inside = None) -> Seeds:
    """`n` points evenly from `start` to `end`, both included; one point is the middle."""
    a, b = _same_length(start, end, "start", "end")
    share = np.linspace(0.0, 1.0, n) if _number(n) > 1 else np.array([0.5])
    return seeds_inside(a + share[:, None] * (b - a), inside)


def circle_seeds(
    center: Point, radius: float, n: int, normal: Point | None = None, *, inside: Inside = None
) -> Seeds:
    """`n` points evenly around a circle; in three dimensions across `normal`, by default the z axis."""
    centre = checked_point(center, "center")
    angle = 2 * np.pi * np.arange(_number(n)) / n
    first, second = _plane(len(centre), normal)
    ring = np.cos(angle)[:, None] * first + np.sin(angle)[:, None] * second
    return seeds_inside(centre + checked_size(radius) * ring, inside)


def sphere_seeds(
    center: Point, radius: float, n: int, key: Source | None = None, *, inside: Inside = None
) -> Seeds:
    """`n` points on a sphere: evenly spaced (a Fibonacci spiral), or at random when a `key` is given."""
    centre = checked_point(center, "center")
    if len(centre) != 3:
        raise ValueError(
            f"`center` must have three coordinates; got {len(centre)}. Use circle_seeds in two dimensions."
        )
    middle, size = jnp.asarray(centre, float), checked_size(radius)
    if key is None:
        height = 1 - (2 * np.arange(_number(n)) + 1) / n
        angle = np.pi * (3 - np.sqrt(5)) * np.arange(n)
        flat = np.sqrt(1 - height**2)
        unit = jnp.asarray(np.stack([flat * np.cos(angle), flat * np.sin(angle), height], -1), float)
        return seeds_inside(middle + size * unit, inside)
    return _draw_inside(
        _number(n),
        inside,
        lambda count, number: middle + size * _directions(_key(key, number), count, 3),
    )


def ball_seeds(center: Point, radius: float, n: int, key: Source = 0, *, inside: Inside = None) -> Seeds:
    """`n` points drawn evenly from a ball, in two dimensions a disc, or from the part of it that lies `inside`."""
    centre, size = checked_point(center, "center"), checked_size(radius)
    dim = len(centre)

    def draw(count: int, number: int) -> Seeds:
        key_direction, key_radius = jr.split(_key(key, number))
        reach = jr.uniform(key_radius, (count, 1)) ** (1 / dim)
        return jnp.asarray(centre, float) + size * reach * _directions(key_direction, count, dim)

    return _draw_inside(_number(n), inside, draw)


def rectangle_seeds(
    corner: Point, edge_u: Point, edge_v: Point, resolution: int | Sequence[int], *, inside: Inside = None
) -> Seeds:
    """A lattice on the parallelogram that two edges span from a corner, its borders included; `edge_v` fastest."""
    origin, u = _same_length(corner, edge_u, "corner", "edge_u")
    _, v = _same_length(corner, edge_v, "corner", "edge_v")
    counts = _counts(resolution, 2)
    shares = [np.linspace(0.0, 1.0, n) if n > 1 else np.array([0.5]) for n in counts]
    return seeds_inside(origin + _lattice(shares) @ np.stack([u, v]), inside)


def stratified_seeds(
    resolution: int | Sequence[int], bounds: Bounds, key: Source = 0, *, inside: Inside = None
) -> Seeds:
    """One random point in every cell of a lattice: as even as a lattice, without its regularity."""
    low, high = box_corners(bounds)
    counts = _counts(resolution, len(low))
    cell = jnp.asarray(_lattice([np.arange(n) for n in counts]), float)
    size = jnp.asarray((high - low) / np.array(counts), float)
    return seeds_inside(jnp.asarray(low, float) + (cell + jr.uniform(_key(key), cell.shape)) * size, inside)


def low_discrepancy_seeds(
    n: int, bounds: Bounds, key: Source | None = None, *, inside: Inside = None
) -> Seeds:
    """`n` points of the additive recurrence of the generalised golden ratio, which fill a box evenly for every `n`.

    A `key` shifts the sequence on the torus, so that several clouds differ. (M. Roberts, "The unreasonable
    effectiveness of quasirandom sequences", 2018.)
    """
    low, high = box_corners(bounds)
    dim = len(low)
    golden = 2.0
    for _ in range(64):
        golden = (1 + golden) ** (1 / (dim + 1))
    steps = golden ** -np.arange(1.0, dim + 1)
    shift = 0.5 if key is None else np.asarray(jr.uniform(_key(key), (dim,)), np.float64)
    begun = 0

    def draw(count: int, number: int) -> Seeds:
        nonlocal begun
        share = np.mod(shift + np.arange(begun + 1, begun + count + 1)[:, None] * steps, 1.0)
        begun += count
        return jnp.asarray(low + share * (high - low), float)

    return _draw_inside(_number(n), inside, draw)


def density_seeds(
    n: int,
    bounds: Bounds,
    density: Callable[[Vector], Any] | Float[Array | np.ndarray, "..."],
    key: Source = 0,
    resolution: int | Sequence[int] = 64,
    *,
    inside: Inside = None,
) -> Seeds:
    """`n` points drawn in proportion to a density over a box, or over the part of it that lies `inside`.

    `density` is an array with one value per cell of a lattice over the box, or a function of one point, which is read
    at the middles of a lattice of `resolution` cells. Within a cell points lie evenly.
    """
    low, high = box_corners(bounds)
    if callable(density):
        counts = _counts(resolution, len(low))
        middles = _lattice(
            [a + (np.arange(m) + 0.5) * (b - a) / m for a, b, m in zip(low, high, counts, strict=True)]
        )
        weights = np.asarray(jax.vmap(density)(jnp.asarray(middles, float)), np.float64).reshape(counts)
    else:
        weights = np.asarray(density, np.float64)
    if weights.ndim != len(low):
        raise ValueError(
            f"`density` must have one axis for each of the {len(low)} of `bounds`; got shape {weights.shape}."
        )
    if not np.isfinite(weights).all() or (weights < 0).any() or not weights.sum() > 0:
        raise ValueError("`density` must be finite, nowhere negative and somewhere positive; it is not.")
    edges = np.cumsum(weights.ravel())
    size = (high - low) / np.array(weights.shape)

    def draw(count: int, number: int) -> Seeds:
        key_cell, key_place = jr.split(_key(key, number))
        drawn = np.asarray(jr.uniform(key_cell, (count,)), np.float64) * edges[-1]
        cell = np.minimum(np.searchsorted(edges, drawn, side="right"), np.flatnonzero(weights.ravel())[-1])
        index = np.stack(np.unravel_index(cell, weights.shape), -1)
        inner = np.asarray(jr.uniform(key_place, index.shape), np.float64)
        return jnp.asarray(low + (index + inner) * size, float)

    return _draw_inside(_number(n), inside, draw)


def table_seeds(table: Any, columns: Sequence[str] | None = None) -> Seeds:
    """Positions from an array (n, dim), a data frame, a mapping of columns, or a CSV file with a header.

    `columns` names the coordinates; otherwise those of x, y, z that are there.
    """
    path = Path(table) if isinstance(table, str | Path) else None
    table = table if path is None else _read_csv(path)
    keys = getattr(table, "columns", table if isinstance(table, Mapping) else None)
    if keys is None:
        positions = np.asarray(table, np.float64)
    else:
        names = [name for name in AXES if name in keys] if columns is None else list(columns)
        lost = [name for name in names if name not in keys]
        if lost or not names:
            where = "" if path is None else f"{path}: "
            raise ValueError(
                f"{where}`columns` must be among the table's {', '.join(map(str, keys))[:300]}; got "
                f"{', '.join(lost) or 'none of x, y, z'}. {_column_remedy([str(key) for key in keys], path)}"
            )
        if path is not None:
            _tell_unused_times(path, [str(key) for key in keys if key not in names])
            table = {name: _numbers(path, name, table[name]) for name in names}
        positions = np.stack([np.asarray(table[name], np.float64) for name in names], -1)
    if positions.ndim != 2 or 0 in positions.shape:
        raise ValueError(f"`table` must hold (n, dim) positions; got shape {positions.shape}.")
    limit = float(jnp.finfo(jnp.result_type(float)).max)
    bad = np.flatnonzero(~(np.abs(positions) <= limit).all(axis=1))
    if len(bad):
        # The first line of a file is its header.
        place = "" if path is None else f" See {path} line {bad[0] + 2}: correct it, or leave the line out."
        raise ValueError(
            f"`table` must be finite in {jnp.result_type(float)}; row {bad[0]} is {positions[bad[0]].tolist()} "
            f"({len(bad)} such rows).{place}"
        )
    return jnp.asarray(positions, float)


def _tell_unused_times(path: Path, columns: Sequence[str]) -> None:
    """Warn of a column that may say when particles begin, which a table of seeds does not do."""
    times = [
        name
        for name in columns
        if re.fullmatch(r"(release|start)?[ _]?(times?|dates?)|t", name.strip().lower())
    ]
    if times:
        warnings.warn(
            f"{path}: the column {times[0]!r} is not used: all particles begin at the first time. In Python pass it as "
            "`release_times` of `track_particles`.",
            UserWarning,
            stacklevel=3,
        )


def release_times(
    n: int,
    start: float = 0.0,
    end: float | None = None,
    *,
    interval: float | None = None,
    per_release: int = 1,
) -> Float[Array, " n"]:
    """When each of `n` particles begins, by its number.

    All at `start`; or evenly from `start` to `end`, both included; or `per_release` particles every `interval`.
    """
    number = np.arange(_number(n))
    if interval is not None and end is not None:
        raise ValueError(
            "`end` and `interval` cannot both be given: one follows from the other. Leave one out."
        )
    if interval is not None:
        return jnp.asarray(start + interval * (number // _number(per_release, "per_release")), float)
    if end is None:
        return jnp.full(n, start, float)
    return jnp.asarray(np.linspace(start, end, n), float)


def repeated_seeds(seeds: Float[Array | np.ndarray, "places dim"], releases: int) -> Seeds:
    """The same places once for every release, release by release; times by `release_times(..., per_release=n)`."""
    return jnp.tile(jnp.asarray(seeds, float), (_number(releases, "releases"), 1))


def _lattice(lines: Sequence[np.ndarray]) -> np.ndarray:
    """All combinations of coordinates, the last axis fastest."""
    return np.stack([axis.ravel() for axis in np.meshgrid(*lines, indexing="ij")], -1).astype(np.float64)


def _directions(key: AnyKey, n: int, dim: int) -> Seeds:
    """Unit vectors without preference."""
    vectors = jr.normal(key, (n, dim))
    return vectors / jnp.linalg.norm(vectors, axis=-1, keepdims=True)


def _plane(dim: int, normal: Point | None) -> tuple[np.ndarray, np.ndarray]:
    """Two unit vectors that span the plane across `normal`."""
    if dim == 2:
        if normal is not None:
            raise ValueError(f"`normal` must be left out in two dimensions; got {normal!r}.")
        return np.array([1.0, 0.0]), np.array([0.0, 1.0])
    if dim != 3:
        raise ValueError(f"`center` must have two or three coordinates; got {dim}.")
    axis = np.array([0.0, 0.0, 1.0]) if normal is None else checked_point(normal, "normal")
    if axis.shape != (3,) or not np.linalg.norm(axis) > 0:
        raise ValueError(f"`normal` must be a direction of three numbers, not all 0; got {normal!r}.")
    axis = axis / np.linalg.norm(axis)
    # Across the axis and the coordinate direction that is least along it; chosen so that z gives x and y.
    least = np.eye(3)[1 if abs(axis[1]) <= min(abs(axis[0]), abs(axis[2])) else int(np.argmin(np.abs(axis)))]
    first = np.cross(least, axis)
    first /= np.linalg.norm(first)
    return first, np.cross(axis, first)


def _read_csv(path: Path) -> dict[str, list[str]]:
    """Columns of a CSV file by its header, as text: only the coordinates must be numbers."""
    import csv

    if not path.is_file():
        raise FileNotFoundError(f"`table` names {path}, which does not exist.")
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = list(csv.reader(file, skipinitialspace=True))
    except (csv.Error, UnicodeDecodeError) as error:
        raise ValueError(
            f"{path} must be a table of text in UTF-8, its values between commas; {error}."
        ) from error
    if len(rows) < 2:
        raise ValueError(f"{path} must hold a header and at least one row; its lines are {len(rows)}.")
    header, *body = rows
    for number, row in enumerate(body, start=2):
        if len(row) != len(header):
            raise ValueError(f"{path} line {number} has {len(row)} values; its header names {len(header)}.")
    return {name.strip(): [row[i] for row in body] for i, name in enumerate(header)}


def _column_remedy(names: list[str], path: Path | None) -> str:
    """How to say which columns of a table are coordinates: in the first line of a file, or by `columns`."""
    if path is not None and all(map(_is_number, names)):
        return f"The first line of {path} must name the columns: write x,y above it."
    places = sorted((name for name in names if name.lower().startswith(("lat", "lon"))), reverse=True)
    said = f"`columns={short(places or names[:2], 200)}`"
    return (
        f"Pass {said}."
        if path is None
        else f"Write x,y for them in the first line of {path}, or in Python pass {said}."
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _numbers(path: Path, name: str, column: Sequence[str]) -> list[float]:
    """A column of a file as numbers; a word among them is refused by its line."""
    for line, text in enumerate(column, start=2):
        if not _is_number(text):
            raise ValueError(
                f"{path} line {line}: `{name}` must be a number; got {text[:60]!r}. Correct it, or leave the line out."
            )
    return list(map(float, column))


def _key(source: Source, number: int = 0) -> AnyKey:
    """The key itself for the first draw, others for what is drawn after it."""
    key = jr.key(source) if isinstance(source, int) else source
    return key if number == 0 else jr.fold_in(key, number)


def _number(n: int, name: str = "n") -> int:
    if n < 1:
        raise ValueError(f"`{name}` must be at least 1; got {n}.")
    return n


def _counts(resolution: int | Sequence[int], dim: int) -> tuple[int, ...]:
    counts = (resolution,) * dim if isinstance(resolution, int) else tuple(int(n) for n in resolution)
    if len(counts) != dim or min(counts) < 1:
        raise ValueError(
            f"`resolution` must be one number or {dim} numbers of at least 1; got {resolution!r}."
        )
    return counts


def _same_length(first: Any, second: Any, one: str, other: str) -> tuple[np.ndarray, np.ndarray]:
    a, b = checked_point(first, one), checked_point(second, other)
    if a.shape != b.shape:
        raise ValueError(f"`{one}` and `{other}` must have equal length; got {len(a)} and {len(b)}.")
    return a, b
