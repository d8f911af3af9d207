"""`jaxtrace run`: open, seed, track, write; stopped by Ctrl-C or SIGTERM and resumed from a checkpoint."""

import re
from pathlib import Path
from typing import Any

from jaxworlds.commands import checkpoint_option, demand_suffix, is_first, print_json, say
from jaxworlds.processes.exits import code_of, stopped_by

from ..tracking import create_tracker
from .info import trajectory_facts
from .problem import Problem, read_problem, ready, with_options


def run(
    problem: str,
    resume: bool,
    plan: bool,
    json: bool,
    checkpoint_every: float,
    reading: dict[str, Any],
    mesh: Any = None,
    **given: Any,
) -> int:
    """Solve a problem and report the outcomes of the particles."""
    start = read_problem(Path(problem)) if problem.endswith(".toml") else Problem(problem)
    wanted = with_options(start, reading, **given)
    if wanted.out is not None:
        demand_suffix(wanted.out, (".nc", ".zarr", ".npz", ".vtp", ".pvd"), "out")
    if resume and wanted.checkpoint is None:
        raise ValueError("`--resume` needs `--checkpoint`, the folder of the run that goes on; got none.")
    kept = checkpoint_option(wanted.checkpoint, checkpoint_every)
    scene = ready(wanted)
    tracker = _tracker(wanted, scene, mesh)
    if plan:
        report = tracker.explain(len(scene.seeds), wanted.times, scene.span, wanted.dt)
        print_json(vars(report)) if json else say(str(report))
        return 0
    progress = False if json else None
    found = tracker.track_particles(
        scene.seeds, scene.span, wanted.times, wanted.dt, checkpoint=kept, resume=resume, progress=progress
    )
    if wanted.out is not None and len(found) and is_first():
        degrees = wanted.out.suffix.lower() in (".nc", ".zarr") and not wanted.reading.get("origin")
        found.save(wanted.out, **({"units": "degrees"} if degrees and scene.field.sphere is not None else {}))
    if json:
        print_json({**trajectory_facts(found), "out": wanted.out, "checkpoint": wanted.checkpoint})
    else:
        say(found.summary())
        if wanted.out is not None and len(found):
            say(f"wrote {wanted.out}")
        if early := stopped_by(found.outcome, wanted.checkpoint):
            say(early)
    return code_of(found.outcome)


def _tracker(wanted: Problem, scene: Any, mesh: Any) -> Any:
    try:
        return create_tracker(
            wanted.integrator, scene.field, scene.walls, seed=wanted.seed, mesh=mesh, **dict(wanted.options)
        )
    except (TypeError, ValueError) as error:  # an option the integrator does not have, or text for a number
        if isinstance(error, ValueError) and "`" in str(error):
            raise
        # What it lacks or does not know, without the names of Python's own message.
        lacking = re.search(r"missing \d+ required [^:]*: (.*)", str(error))
        reason = f"it needs {lacking[1]}" if lacking else str(error)
        example = "`--option diffusivity=0.1`, or `options = {diffusivity = 0.1}` in a problem file"
        raise ValueError(
            f"`options` must be those of {wanted.integrator}; {reason.rstrip('.')}. Write them as {example}."
        ) from error
