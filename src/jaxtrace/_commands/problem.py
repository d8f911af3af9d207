"""A problem for `jaxtrace run`, from a TOML file or from options: field, seeds, walls, times, and where to write.

field = "flow_*.nc"                 # or "ocean.zarr"; in the folder of this file; or a flow by its name, such as "double_gyre"
velocity = ["u", "v"]               # where several could be meant
integrator = "dopri5"
options = {rtol = 1e-6}             # of the integrator
span = [0, 10]                      # or dates: [2015-11-16, 2015-11-20T12:00:00]
since = 2015-11-16                  # the date of time 0, where the files say none
times = 101
dt = 0.05
out = "paths.nc"
[seeds]
kind = "circle"                     # any of `jaxtrace.tracking.seeding`, with its arguments
center = [1, 0.5]
radius = 0.1
n = 200
[[boundary]]                        # one or several, in turn
kind = "reflective"                 # any of `jaxtrace.tracking.boundary`, with its arguments
"""

import dataclasses
import datetime
import inspect
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxworlds.arguments import short, suggestion

from ..fields.epoch import as_epoch
from ..io.files import is_elsewhere
from ..tracking import boundary, seeding
from .sources import FLOWS, box_of, open_field, span_of, velocity_names

SEEDINGS: dict[str, Callable[..., Any]] = {
    "lattice": seeding.uniform_grid_seeds,
    "random": seeding.random_seeds,
    "even": seeding.low_discrepancy_seeds,
    "stratified": seeding.stratified_seeds,
    "line": seeding.line_seeds,
    "circle": seeding.circle_seeds,
    "sphere": seeding.sphere_seeds,
    "ball": seeding.ball_seeds,
    "rectangle": seeding.rectangle_seeds,
    "table": seeding.table_seeds,
}
WALLS: dict[str, Callable[..., Any]] = {
    "reflective": boundary.reflective_boundary,
    "periodic": boundary.periodic_boundary,
    "absorbing": boundary.absorbing_boundary,
    "clamping": boundary.clamping_boundary,
    "sphere": boundary.spherical_boundary,
    "cylinder": boundary.cylindrical_boundary,
    "coast": boundary.masked_walls,
}
PARTICLES, TIMES = 1000, 101
"""Defaults of their numbers."""


@dataclasses.dataclass(frozen=True)
class Problem:
    """What to track, where, and where to put it; each field is a word of the file."""

    field: str
    velocity: Sequence[str] = ()
    reading: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Further arguments of `load_optimized_dataset`."""
    bounds: Sequence[float] = ()
    seeds: Mapping[str, Any] = dataclasses.field(default_factory=lambda: {"kind": "even", "n": PARTICLES})
    boundary: Sequence[Mapping[str, Any]] = ()
    integrator: str = "rk4"
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    dt: float | None = None
    span: Sequence[Any] | None = None
    since: Any = None
    """The date of time 0."""
    times: int = TIMES
    seed: int = 0
    out: Path | None = None
    checkpoint: Path | None = None


@dataclasses.dataclass(frozen=True)
class Ready:
    """A problem with its field open."""

    field: Any
    seeds: Any
    walls: Any
    span: tuple[float, float]


def read_problem(path: Path) -> Problem:
    """The problem in a TOML file; files that it names are looked for in its folder."""
    if not path.is_file():
        raise FileNotFoundError(f"`problem` must be a file or a field; {path} is not there.")
    try:
        said = tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} must be TOML; {str(error)[:200]}.") from error
    _check_word(said, tuple(field.name for field in dataclasses.fields(Problem)), str(path))
    if not isinstance(said.get("field"), str):
        raise ValueError(f"{path} must say `field`: a file, a pattern, or one of {', '.join(FLOWS)}.")
    walls = said.get("boundary", [])
    said["boundary"] = [walls] if isinstance(walls, dict) else walls
    for word, value in said.items():
        fits, demand = _DEMANDS[word]
        if not fits(value):
            raise ValueError(f"`{word}` in {path} must be {demand}; got {short(value, 80)}.")
    folder = path.parent
    if said["field"] not in FLOWS and not is_elsewhere(said["field"]):
        said["field"] = str(folder / said["field"])
    for name in ("out", "checkpoint"):
        if name in said:
            said[name] = folder / str(said[name])
    if isinstance(said.get("seeds", {}).get("table"), str):
        said["seeds"]["table"] = str(folder / said["seeds"]["table"])
    return Problem(**said)


def _is_number(value: Any) -> bool:
    """A finite number of 64 bits, so that no array refuses it."""
    return type(value) in (int, float) and abs(value) < 1e300


def _is_moment(value: Any) -> bool:
    return _is_number(value) or isinstance(value, datetime.date) or _is_text(value)


def _is_count(least: int) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and least <= value < 2**31


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value) and len(value) < 1000 and "\0" not in value


_TABLE = (lambda value: isinstance(value, dict), "a table")
_DEMANDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "field": (_is_text, "a file, a pattern, or the name of a flow"),
    "velocity": (
        lambda v: _is_text(v) or (isinstance(v, list) and all(map(_is_text, v)) and len(v) < 4),
        "one to three names",
    ),
    "reading": _TABLE,
    "bounds": (lambda v: isinstance(v, list) and all(map(_is_number, v)), "a list of numbers"),
    "seeds": _TABLE,
    "boundary": (
        lambda v: isinstance(v, list) and all(isinstance(wall, dict) for wall in v),
        "a table or a list of tables",
    ),
    "integrator": (_is_text, "a name"),
    "options": _TABLE,
    "dt": (lambda v: _is_number(v) and v != 0, "a number, not 0"),
    "span": (
        lambda v: isinstance(v, list) and len(v) == 2 and all(map(_is_moment, v)),
        "two numbers or dates, the first and the last time",
    ),
    "since": (lambda v: isinstance(v, datetime.date) or _is_text(v), "a date, such as 2015-11-16"),
    "times": (_is_count(1), "a whole number from 1"),
    "seed": (_is_count(0), "a whole number from 0"),
    "out": (_is_text, "the name of a file"),
    "checkpoint": (_is_text, "the name of a folder"),
}


def with_options(
    problem: Problem,
    reading: Mapping[str, Any],
    *,
    particles: int | None,
    lattice: tuple[int, ...],
    seeds: Path | None,
    boundary: str | None,
    option: tuple[str, ...],
    **given: Any,
) -> Problem:
    """The problem with what the command line says in place of what the file says; None and () say nothing."""
    if sum(one not in (None, ()) for one in (particles, lattice, seeds)) > 1:
        raise ValueError("`--particles`, `--lattice` and `--seeds` say the same thing; give one of them.")
    kept = dict(reading)
    given |= {"velocity": kept.pop("velocity", None), "since": kept.pop("epoch", None)}
    changed = {name: value for name, value in given.items() if value not in (None, ())}
    if particles is not None:
        if particles < 1:
            raise ValueError(f"`--particles` must be at least 1; got {particles}.")
        changed["seeds"] = {"kind": "even", "n": particles}
    elif lattice:
        resolution = lattice[0] if len(lattice) == 1 else lattice
        changed["seeds"] = {"kind": "lattice", "resolution": resolution, "include_boundaries": False}
    elif seeds is not None:
        changed["seeds"] = {"kind": "table", "table": str(seeds)}
    if boundary is not None:
        changed["boundary"] = [] if boundary == "none" else [{"kind": boundary}]
    changed["reading"] = {**problem.reading, **kept}
    changed["options"] = {**problem.options, **dict(map(_option, option))}
    return dataclasses.replace(problem, **changed)


def _option(said: str) -> tuple[str, Any]:
    """A name and a value as TOML writes it, from `rtol=1e-6`; what is no value of TOML is a text."""
    name, equals, value = said.partition("=")
    if not name.isidentifier() or not equals:
        raise ValueError(f"`--option` must be a name and a value, such as rtol=1e-6; got {said!r}.")
    try:
        return name, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return name, value


def ready(problem: Problem) -> Ready:
    """Open the field, place the seeds and put up the walls."""
    reading = dict(problem.reading)
    if (names := velocity_names(problem.velocity)) is not None:
        reading["velocity"] = names
    if problem.since is not None:
        reading["epoch"] = as_epoch(problem.since, "since")
    try:
        field = open_field(problem.field, **reading)
    except TypeError as error:
        raise ValueError(f"`reading` must hold arguments of load_optimized_dataset; {error}.") from error
    box = box_of(problem.field, field, problem.bounds)
    wanted = dict(problem.seeds)
    if wanted.get("inside", "field") != "field":
        raise ValueError(
            f"`inside` of `seeds` must be 'field', to draw them in its water; got {short(wanted['inside'], 80)}."
        )
    if "inside" in wanted:
        wanted["inside"] = field
    seeds = np.asarray(_made(wanted, SEEDINGS, "seeds", box))
    if seeds.shape[-1] != field.dim:
        remedy = f" {'Add' if field.dim == 3 else 'Leave out'} the column z."
        remedy = remedy if wanted.get("kind") == "table" else ""
        raise ValueError(
            f"`seeds` must have {field.dim} coordinates like the field; got {seeds.shape[-1]}.{remedy}"
        )
    grid = getattr(field, "grid", None)
    coasts = [wall.get("kind") == "coast" for wall in problem.boundary]
    if any(coasts) and not hasattr(grid, "layout"):
        raise ValueError(
            "`boundary` of kind coast needs a field on a structured grid, whose missing values are land; this one has "
            f"{'no grid' if grid is None else 'a mesh'}. Take another kind, such as 'absorbing'."
        )
    walls = [
        _made({**wall, "grid": grid} if coast else wall, WALLS, "boundary", box)
        for wall, coast in zip(problem.boundary, coasts, strict=True)
    ]
    together = boundary.composed_boundary(*walls) if len(walls) > 1 else next(iter(walls), None)
    return Ready(field, seeds, together, span_of(problem.field, field, problem.span))


def _made(said: Mapping[str, Any], kinds: Mapping[str, Callable[..., Any]], where: str, box: Any) -> Any:
    """What a table describes: the function of its `kind`, called with the rest; `bounds` are the problem's unless said."""
    arguments = dict(said)
    kind = str(arguments.pop("kind", None))
    _check_word({kind: None}, tuple(kinds), f"`{where}`")
    parameters = inspect.signature(kinds[kind]).parameters
    _check_word(arguments, tuple(parameters), f"`{where}` of kind {kind}")
    if "bounds" in parameters:
        bounds = arguments.get("bounds", box)
        try:
            flat = np.asarray(bounds, np.float64)
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"`bounds` must be numbers; got {short(bounds, 80)}.") from error
        arguments["bounds"] = flat.reshape(2, -1) if flat.ndim == 1 and flat.size % 2 == 0 else flat
    required = [name for name, one in parameters.items() if one.default is one.empty]
    if missing := [name for name in required if name not in arguments]:
        raise ValueError(f"`{where}` of kind {kind} must say {', '.join(missing)}; it does not.")
    try:
        return kinds[kind](**arguments)
    except (TypeError, ValueError, OverflowError, MemoryError, RuntimeError, OSError) as error:
        plain = isinstance(error, ValueError | OSError) and not isinstance(error, UnicodeError)
        if plain and "`" in str(error):
            raise
        remedy = " Memory is too short for it: ask for fewer." if isinstance(error, MemoryError) else ""
        raise ValueError(
            f"`{where}` of kind {kind} cannot be made: {str(error)[:200].rstrip('.')}.{remedy}"
        ) from error


def _check_word(said: Mapping[str, Any], words: tuple[str, ...], where: str) -> None:
    for word in said:
        if word not in words:
            raise ValueError(
                f"{where} knows {', '.join(words)}; got {short(word, 80)}.{suggestion(str(word), words)}"
            )
