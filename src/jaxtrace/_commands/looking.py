"""`jaxtrace info`: what a file holds, as a table or as JSON."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxworlds.commands import print_json, say, show_facts
from jaxworlds.measuring import format_bytes
from jaxworlds.memory import device_memory_limit

from ..fields.epoch import Epoch
from ..io import load_trajectory, open_dataset
from ..io.dataset import SHARE
from ..io.files import find_files, is_store
from ..io.vtk.frames import SUFFIXES
from ..tracking.trajectory import Trajectory
from .sources import FLOWS, dated_as_said, is_trajectory


def info(file: str, reading: Mapping[str, Any], json: bool) -> int:
    """Tell what a file holds."""
    if file in FLOWS:
        raise ValueError(
            f"`file` must name a file; {file} is a formula. `jaxtrace run {file}` moves particles through it."
        )
    if is_trajectory(file):
        found = dated_as_said(load_trajectory(file), reading.get("epoch"))
        if json:
            print_json(trajectory_facts(found))
        else:
            say(found.summary())
        return 0
    facts = field_facts(file, **reading)
    if json:
        print_json(facts)
        return 0
    say(file)
    show_facts(
        {
            name: format_bytes(value) if name.startswith("bytes") else _format_value(value)
            for name, value in facts.items()
            if name != "variables"
        }
    )
    say("variables of the first file")
    show_facts({f"  {name}": _format_value(shape) for name, shape in facts["variables"].items()})
    return 0


def field_facts(file: str, **reading: Any) -> dict[str, Any]:
    """Grid, times, memory and variables of a velocity field."""
    opened = open_dataset(file, **reading)
    sphere = opened.grid.sphere
    low, high = np.asarray(opened.grid.bounds, np.float64)
    total = len(opened) * opened.slice_bytes
    limit = device_memory_limit()
    return {
        "kind": "field",
        "grid": type(opened.grid).__name__,
        "notes": list(opened.notes),
        "dimensions": opened.grid.dim,
        "values in a slice": opened.grid.size,
        "lower corner": low.tolist(),
        "upper corner": high.tolist(),
        **({} if sphere is None else {"earth radius": sphere.radius}),
        "slices": len(opened),
        "first time": float(opened.times[0]),
        "last time": float(opened.times[-1]),
        **_dates(opened.epoch, opened.times),
        "steady": opened.steady,
        "bytes of a slice": opened.slice_bytes,
        "bytes in all": total,
        "bytes of the device": limit,
        "will be streamed": len(opened) > 2 and total > SHARE * limit,
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
        from ..io.vtk.frames import read_frame

        arrays = read_frame(first).arrays
        return {f"{name} ({place} data)": list(np.shape(values)) for (place, name), values in arrays.items()}
    if is_store(first[0]):
        from ..io.zarr.dataset import open_data

        return _shapes(open_data(first[0]))
    from ..io.cf.dataset import open_file

    with open_file(first[0]) as dataset:
        return _shapes(dataset)


def _shapes(dataset: Any) -> dict[str, Any]:
    return {
        str(name): dict(zip(map(str, variable.dims), variable.shape, strict=True))
        for name, variable in dataset.variables.items()
    }


def trajectory_facts(found: Trajectory) -> dict[str, Any]:
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
