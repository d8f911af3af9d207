"""Find the velocity among the arrays of a file: those that the user names, or those that a few rules find."""

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

VelocityNames = str | Sequence[str | None]
"""One vector array, or one array for each component; None stands for a component that is zero."""

KNOWN = (
    *("velocity", "velocities", "velocityfield", "flowvelocity", "fluidvelocity", "vel"),
    *("u", "uvw", "wind", "current"),
)
"""Names of vectors that count as a velocity, without case, blanks and punctuation."""
OTHERS = (
    *("normal", "vorticit", "displacement", "grad", "force", "traction", "stress"),
    *("coord", "position", "color"),
)
"""Vectors whose names begin so are a velocity only if the user names them."""
COMPONENTS = (
    ("u", "v", "w"),
    ("uo", "vo", "wo"),
    ("ua", "va", "wa"),
    ("uvel", "vvel", "wvel"),
    ("ucur", "vcur", "wcur"),
    ("wateru", "waterv", "waterw"),
    ("ueastward", "vnorthward", "wupward"),
    ("vx", "vy", "vz"),
    ("ux", "uy", "uz"),
    ("u0", "u1", "u2"),
    ("velx", "vely", "velz"),
    ("velocityx", "velocityy", "velocityz"),
    ("xvelocity", "yvelocity", "zvelocity"),
    ("vozocrtx", "vomecrty", "vovecrtz"),
    ("ugos", "vgos", "wgos"),
    ("u10", "v10", "w10"),
    ("uas", "vas", "was"),
)
"""Names of the components along x, y and z, normalised in the same way."""
MOST_SETS = 8
"""At most this many sets of components are listed if several fit."""
_DIRECTIONS = (("eastward", "northward"), ("x", "y"))


class Choice(NamedTuple):
    """The arrays that make the velocity, and the reason why, as a clause."""

    names: tuple[str | None, ...]
    why: str


def plain(name: str) -> str:
    """A name without case, blanks and punctuation."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def choose_vector(widths: Mapping[str, int], wanted: VelocityNames | None, where: str) -> Choice:
    """The velocity among arrays with `widths` components each, as the user named it or by rule.

    Rules: the only vector with a known name; else the only vector that is not plainly something else; else the only set of
    scalars with known component names.
    """
    if wanted is not None:
        return _as_named(widths, wanted, where)
    vectors = [name for name, width in widths.items() if width in (2, 3)]
    known = [name for name in vectors if plain(name) in KNOWN]
    if len(known) == 1:
        return Choice((known[0],), "the only vector named like a velocity")
    usable = [name for name in vectors if not plain(name).startswith(OTHERS)]
    sets = component_sets(name for name, width in widths.items() if width == 1)
    if not known and len(usable) == 1 and not sets:
        return Choice((usable[0],), "the only vector")
    if not known and not usable and len(sets) == 1:
        return Choice(sets[0], "named like the components of a velocity")
    candidates: list[tuple[str, ...]] = [(name,) for name in known or usable]
    candidates += [] if known else sets
    if candidates:
        joint = "; " if any(len(names) > 1 for names in candidates) else ", "
        shown = joint.join(", ".join(names) for names in candidates)
        first = candidates[0][0] if len(candidates[0]) == 1 else candidates[0]
        raise ValueError(
            f"{where}: several arrays may be the velocity: {shown}. Pass `velocity={first!r}` or another."
        )
    raise ValueError(f"{where}: no array looks like a velocity. {_list_of(widths)} Pass `velocity=`.")


def _as_named(widths: Mapping[str, int], wanted: VelocityNames, where: str) -> Choice:
    names = (wanted,) if isinstance(wanted, str) else tuple(wanted)
    if len(names) > 3 or not any(names):
        raise ValueError(f"`velocity` must name one vector, or two or three components; got {wanted!r}.")
    for name in (name for name in names if name is not None):
        if name not in widths:
            raise ValueError(f"{where}: there is no array {name!r} as `velocity` demands. {_list_of(widths)}")
        if len(names) > 1 and widths[name] != 1:
            raise ValueError(f"{where}: array {name!r} has {widths[name]} components; a component has one.")
    if len(names) == 1 and (width := widths[names[0] or ""]) not in (2, 3):
        raise ValueError(
            f"{where}: array {wanted!r} has {width} components; a velocity has 2 or 3. "
            "Name the components one by one: `velocity=('u', 'v', 'w')`."
        )
    return Choice(names, "as named")


def is_component(name: str) -> bool:
    """Whether a variable is named like the first or second component of a velocity."""
    return any(plain(name) in names[:2] for names in COMPONENTS)


def component_sets(names: Iterable[str]) -> list[tuple[str, ...]]:
    """Sets of two or three scalars whose names are those of components, x first."""
    known = _by_label({name: plain(name) for name in names})
    found = []
    for components in COMPONENTS:
        if components[0] in known and components[1] in known:
            found += itertools.product(*(known[one] for one in components if one in known))
    return found[:MOST_SETS]


def standard_sets(standard_names: Mapping[str, str]) -> list[tuple[str, ...]]:
    """Sets of variables whose CF standard names differ only in the direction: eastward, northward and upward."""
    known = _by_label(standard_names)
    found = []
    for east, north in _DIRECTIONS:
        for standard, named in known.items():
            words = standard.split("_")
            if east not in words or not {"velocity", "wind"} & set(words):
                continue
            others = known.get("_".join(north if word == east else word for word in words), [])
            # The vertical velocities of the same medium, such as upward_sea_water_velocity, where there are any.
            medium = "_".join([word for word in words if word in ("sea", "water", "ice", "air")] or ["air"])
            vertical = [f"{way}_{medium}_velocity" for way in ("upward", "downward")]
            upward = [known[name] for name in vertical if name in known][:1]
            found += itertools.product(named, others, *upward)
    return found[:MOST_SETS]


def _by_label(labels: Mapping[str, str]) -> dict[str, list[str]]:
    """The names that share each label."""
    found: dict[str, list[str]] = {}
    for name, label in labels.items():
        found.setdefault(label, []).append(name)
    return found


def _list_of(widths: Mapping[str, int]) -> str:
    if not widths:
        return "It holds no arrays."
    named = ", ".join(f"{name} ({width})" for name, width in list(widths.items())[:20])
    return f"It holds {named} (with the number of components)."
