"""`jaxtrace info`: what a file holds, as a table or as JSON."""

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import numpy as np

from jaxworlds.commands import print_json, say, show_facts
from jaxworlds.measuring import format_bytes
from jaxworlds.memory import device_memory_limit

from ..fields.epoch import Epoch
from ..io import open_dataset
from ..io.cf.dataset import open_file
from ..io.dataset import should_stream
from ..io.files import find_files, is_store
from ..io.vtk.frames import SUFFIXES, read_frame
from ..io.zarr.dataset import open_data
from ..tracking.trajectory import Trajectory
from .sources import FLOWS, is_trajectory, read_trajectory


def info(file: str, reading: Mapping[str, Any], json: bool) -> int:
    """Tell what a file holds."""
    if file in FLOWS:
        raise ValueError(
            f"`file` must name a file; {file} is a formula. `jaxtrace run {file}` moves particles through it."
        )
    if is_trajectory(file):
        found = read_trajectory(file, reading.get("epoch"))
        print_json(trajectory_facts(found)) if json else say(found.summary())
        return 0
    facts = field_facts(file, **reading)
    if json:
        print_json(facts)
        return 0
    variables = facts.pop("variables")
    say(file)
    show_facts(
        {
            name: format_bytes(value) if name.startswith("bytes") else _format_value(value)
            for name, value in facts.items()
        }
    )
    say("variables of the first file")
    show_facts({f"  {name}": _format_value(shape) for name, shape in variables.items()})
    return 0


def field_facts(file: str, **reading: Any) -> dict[str, Any]:
    """Grid, times, memory and variables of a velocity field."""
    opened = open_dataset(file, **reading)
    low, high = np.asarray(opened.grid.bounds, np.float64).tolist()
    sphere = opened.grid.sphere
    return {
        "kind": "field",
        "grid": type(opened.grid).__name__,
        "notes": list(opened.notes),
        "dimensions": opened.grid.dim,
        "values in a slice": opened.grid.size,
        "lower corner": low,
        "upper corner": high,
        **({} if sphere is None else {"earth radius": sphere.radius}),
        "slices": len(opened),
        "first time": float(opened.times[0]),
        "last time": float(opened.times[-1]),
        **_dates(opened.epoch, opened.times),
        "steady": opened.steady,
        "bytes of a slice": opened.slice_bytes,
        "bytes in all": len(opened) * opened.slice_bytes,
        "bytes of the device": device_memory_limit(),
        "will be streamed": should_stream(opened),
        "files": len(find_files(file)),
        "variables": _variables(file),
    }


def _dates(epoch: Epoch | None, times: Any) -> dict[str, str]:
    """The first and the last date, where the date of time 0 is known."""
    if epoch is None or not len(times):
        return {}
    first, last = epoch.texts([times[0], times[-1]])
    return {"first date": first, "last date": last, "calendar": epoch.calendar}


def _variables(file: str) -> dict[str, Any]:
    """The arrays of the first file, with their shapes."""
    first = find_files(file)[0].paths
    if first[0].suffix.lower() in SUFFIXES:
        arrays = read_frame(first).arrays
        return {f"{name} ({place} data)": list(np.shape(values)) for (place, name), values in arrays.items()}
    with nullcontext(open_data(first[0])) if is_store(first[0]) else open_file(first[0]) as dataset:
        return {
            str(name): dict(zip(map(str, variable.dims), variable.shape, strict=True))
            for name, variable in dataset.variables.items()
        }


def trajectory_facts(found: Trajectory) -> dict[str, Any]:
    """Size, times, outcomes and counts of trajectories."""
    codes, counts = np.unique(found.outcomes, return_counts=True)
    return {
        "kind": "trajectories",
        "particles": found.particles,
        "times": len(found),
        "first time": found.times[0] if len(found) else None,
        "last time": found.times[-1] if len(found) else None,
        **_dates(found.epoch, found.times),
        "dimensions": None if found.positions is None else found.positions.shape[-1],
        "outcome": found.outcome,
        "outcomes": {found.outcome_names[c]: int(n) for c, n in zip(codes, counts, strict=True)},
        "patches": found.patch_counts,
        "velocities": found.velocities is not None,
        "bytes": 0 if found.positions is None else found.positions.nbytes,
        "info": found.info,
    }


def _format_value(value: Any) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:g}"
        case dict():
            return ", ".join(f"{name} {_format_value(part)}" for name, part in value.items())
        case list() | tuple():
            joint = "; " if value and isinstance(value[0], str) else ", "
            return joint.join(map(_format_value, value))
    return str(value)
