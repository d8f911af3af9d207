"""Staggered grids: find components that lie on different points of a cell."""

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
"""The reason why components cannot be used together, and the remedy."""

# Names of dimensions and coordinates that say U or V: depthu, eta_v, lon_u, glamv, west_east_stag, XG, xq.
_NAMED = re.compile(r"^(?:depth|dep|.*_|glam|gphi|x|y|z)_?([uv])$|^.*_stag$|^[xy](?:g|q|p1)$")
_TITLED = re.compile(r"grid[_ -]?([uv])\b|\b([uv])[_ -]?(?:grid|points?)\b", re.I)
_NATIVE = ("vozocrtx", "vomecrty")
"""NEMO's own names, which do not say at which points of a cell the values lie."""


def demand_common_points(names: Sequence[str | None], homes: Mapping[str, Any]) -> None:
    """Refuse horizontal components that do not share their points; `homes` has the data set of each."""
    pair = [name for name in names[:2] if name]
    if len(pair) == 2 and (reason := staggering(pair[0], homes[pair[0]], pair[1], homes[pair[1]])):
        raise ValueError(reason)


def staggering(one: str, first: Any, other: str, second: Any) -> str:
    """Why two components lie on different points, as a sentence; empty if they do not."""
    u, v = first.variables[one], second.variables[other]
    sizes = _spatial_sizes(first, u), _spatial_sizes(second, v)
    shared = set(sizes[0]) == set(sizes[1])
    named = [[name for name in named_coordinates(each) if _NAMED.match(name.lower())] for each in (u, v)]
    ends = [{name[-1].lower() for name in names} for names in named]
    points = point_of(first, one), point_of(second, other)
    if not shared and len(sizes[0]) == len(sizes[1]):
        told = f"on different grids ({', '.join(map(str, u.dims))} and {', '.join(map(str, v.dims))})"
    elif shared and sizes[0] != sizes[1]:
        values = ["×".join(map(str, size.values())) for size in sizes]
        told = f"on different grids ({values[0]} and {values[1]} values)"
    elif all(ends) and not ends[0] & ends[1]:
        told = f"at different places ({named[0][-1]} and {named[1][-1]})"
    elif all(points) and points[0] != points[1]:
        told = f"on different grids ({points[0]} and {points[1]} points)"
    else:
        return ""
    return f"variables {one!r} and {other!r} lie {told}, {REASON}"


def point_of(dataset: Any, name: str) -> str:
    """The point of its cell that a variable lies on, "U" or "V", by its dimensions, attributes or file; else an empty text."""
    variable = dataset.variables[name]
    location = str(variable.attrs.get("location", ""))
    if "grid" in variable.attrs and location in ("edge1", "edge2"):  # SGRID
        return "U" if location == "edge1" else "V"
    roles = dimension_roles(dataset, variable)
    for dim in map(str, variable.dims):
        along = dataset.variables.get(dim)
        shift = 0 if along is None else along.attrs.get("c_grid_axis_shift", 0)
        found = _NAMED.match(dim.lower())
        if found is not None or shift:
            across = dim.lower().startswith(("y", "south", "lat", "eta")) or roles.get(dim) == "Y"
            return ((found[1] if found is not None else None) or ("v" if across else "u")).upper()
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
    """Warn of components that have NEMO's names of its C-grid and lie on a curved grid."""
    if curved and tuple(name.lower() if name else "" for name in names[:2]) == _NATIVE:
        warnings.warn(
            f"{names[0]} and {names[1]} are NEMO's names of components on the U and V points of a C-grid; they are used as if "
            "both lay on the coordinates that the file gives. Bring them to common nodes first if they do not.",
            stacklevel=2,
        )


def _spatial_sizes(dataset: Any, variable: Any) -> dict[str, int]:
    """Sizes of the dimensions that are neither time nor single."""
    roles = dimension_roles(dataset, variable)
    return {str(dim): n for dim, n in variable.sizes.items() if roles.get(str(dim)) != "T" and n > 1}
