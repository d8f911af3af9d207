"""Staggered grids: which components lie on different points of a cell, found before anything else is said about them."""

import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from .axes import dimension_roles, named_coordinates

REASON = (
    "on different points of a staggered C-grid, as in files of NEMO, ROMS, MITgcm or WRF. Velocity components on different "
    "points are not read yet: bring both to common nodes, turn them to east and north where the rows are turned, and read a "
    "file or an xarray data set with both"
)
"""Why components cannot be used together, and what helps."""

# Names of dimensions and coordinates that say U or V: depthu, eta_v, lon_u, glamv, west_east_stag, XG, xq.
_NAMED = re.compile(r"^(?:depth|dep|.*_|glam|gphi|x|y|z)_?([uv])$|^.*_stag$|^[xy](?:g|q|p1)$")
_TITLED = re.compile(r"grid[_ -]?([uv])\b|\b([uv])[_ -]?(?:grid|points?)\b", re.I)
_NATIVE = ("vozocrtx", "vomecrty")
"""NEMO's own names: the points of a cell are said by the file they stand in, if at all."""


def demand_common_points(names: Sequence[str | None], homes: Mapping[str, Any]) -> None:
    """Refuse horizontal components that do not share their points; `homes` has the data set of each."""
    pair = [name for name in names[:2] if name]
    if len(pair) == 2 and (reason := staggering(pair[0], homes[pair[0]], pair[1], homes[pair[1]])):
        raise ValueError(reason)


def staggering(one: str, first: Any, other: str, second: Any) -> str:
    """Why two components lie on different points, as a sentence; empty where nothing says so."""
    u, v = first.variables[one], second.variables[other]
    dims = _spatial(first, u), _spatial(second, v)
    if set(dims[0]) != set(dims[1]) and len(dims[0]) == len(dims[1]):
        return f"variables {one!r} and {other!r} lie on different grids ({_list_of(u)} and {_list_of(v)}), {REASON}"
    sizes = [{dim: variable.sizes[dim] for dim in own} for variable, own in ((u, dims[0]), (v, dims[1]))]
    if sizes[0] != sizes[1] and set(dims[0]) == set(dims[1]):
        told = ["×".join(map(str, size.values())) for size in sizes]
        return f"variables {one!r} and {other!r} lie on different grids ({told[0]} and {told[1]} values), {REASON}"
    named = [
        [name for name in named_coordinates(variable) if _NAMED.match(name.lower())] for variable in (u, v)
    ]
    ends = [{name[-1].lower() for name in names} for names in named]
    if all(ends) and not ends[0] & ends[1]:
        return f"variables {one!r} and {other!r} lie at different places ({named[0][-1]} and {named[1][-1]}), {REASON}"
    points = point_of(first, one), point_of(second, other)
    if all(points) and points[0] != points[1]:
        return f"variables {one!r} and {other!r} lie on different grids ({points[0]} and {points[1]} points), {REASON}"
    return ""


def point_of(dataset: Any, name: str) -> str:
    """The point of its cell that a variable lies on, "U" or "V", where its dimensions, attributes or file say so."""
    variable = dataset.variables[name]
    location = str(variable.attrs.get("location", ""))
    if "grid" in variable.attrs and location in ("edge1", "edge2"):  # SGRID
        return "U" if location == "edge1" else "V"
    roles = dimension_roles(dataset, tuple(map(str, variable.dims)))
    for dim in map(str, variable.dims):
        along = dataset.variables.get(dim)
        shift = 0 if along is None else along.attrs.get("c_grid_axis_shift", 0)
        found = _NAMED.match(dim.lower())
        if found is not None or shift:
            said = found[1] if found is not None else None
            across = dim.lower().startswith(("y", "south", "lat", "eta")) or roles.get(dim) == "Y"
            return (said or ("v" if across else "u")).upper()
    for along in named_coordinates(variable):
        found = _NAMED.match(along.lower())
        if found is not None and found[1]:
            return found[1].upper()
    for key in ("name", "title", "description"):
        found = _TITLED.search(str(getattr(dataset, "attrs", {}).get(key, "")))
        if found is not None:
            return (found[1] or found[2]).upper()
    return ""


def tell_native_names(names: Sequence[str | None], curved: bool) -> None:
    """Warn of components under the names that NEMO gives to those of its C-grid, on rows that are not regridded."""
    if curved and tuple(name.lower() if name else "" for name in names[:2]) == _NATIVE:
        warnings.warn(
            f"{names[0]} and {names[1]} are NEMO's names of components on the U and V points of a C-grid; they are used as if "
            "both lay on the coordinates that the file gives. Bring them to common nodes first if they do not.",
            UserWarning,
            stacklevel=2,
        )


def _spatial(dataset: Any, variable: Any) -> tuple[str, ...]:
    """Dimensions that are neither time nor single."""
    roles = dimension_roles(dataset, tuple(map(str, variable.dims)))
    return tuple(str(dim) for dim, size in variable.sizes.items() if roles.get(str(dim)) != "T" and size > 1)


def _list_of(variable: Any) -> str:
    return ", ".join(map(str, variable.dims))
