"""`jaxarc bench`: steps of random play a second on this machine, without compile time."""

import time
from typing import Any

import jax
import jax.random as jr
import numpy as np

from jaxworlds.commands import machine, machine_words, print_json, show_status, show_table
from jaxworlds.measuring import format_seconds

from ..dispatch import batch_reset
from ..envs.state import join_tasks
from ..tasks.taskset import TaskSet
from .options import Bench
from .rollout import compiled_play, demand_room, settings
from .sources import load_tasks


def bench(options: Bench) -> int:
    """Time every format and print a table, or one JSON object."""
    canvas, environments = options.canvas, options.environments
    sizes = {"environments": environments, "steps": options.steps, "rounds": options.rounds}
    for name, value in sizes.items():
        if value < 1:
            raise ValueError(f"`--{name}` must be at least 1; got {value}.")
    if not options.formats:
        raise ValueError("`--formats` must name at least one of point, bbox, mask; got none.")
    if not 1 <= canvas <= 32:
        raise ValueError(f"`--canvas` must be from 1 to 32; got {canvas}.")
    tasks = tasks_within(options)
    where = machine()
    found = {}
    for form in dict.fromkeys(options.formats):  # a second time would be compiled already
        with show_status(f"{form}: compiling and timing"):
            found[form] = time_format(tasks, form, **sizes)
    if options.json:
        print_json({**sizes, "canvas": canvas, "tasks": len(tasks), "formats": found, **where})
        return 0
    rows = [
        (
            form,
            f"{row['steps_per_second']:,.0f}",
            format_seconds(row["step_seconds"]),
            format_seconds(row["compile_seconds"]) + (" (from the disk cache)" if row["from_disk"] else ""),
        )
        for form, row in found.items()
    ]
    title = (
        f"random play, {environments:,} environments at {canvas}×{canvas}, {len(tasks)} tasks of {tasks.name}"
    )
    show_table(title, ("actions", "steps/s", "one step of all", "compiling"), rows, machine_words(where))
    return 0


def tasks_within(options: Bench) -> TaskSet:
    """The tasks whose grids fit the canvas, laid out on it."""
    tasks, canvas = load_tasks(options.dataset, "--dataset"), options.canvas
    try:
        fitting = tasks.fits(canvas, canvas)
    except ValueError as error:
        raise ValueError(
            f"`--canvas` must be the side of a square that holds some of the tasks; none of the {len(tasks):,} of "
            f"{tasks.name} fits {canvas}×{canvas} cells. Type a larger one."
        ) from error
    return fitting.with_canvas(canvas, canvas)


def time_format(tasks: TaskSet, form: Any, environments: int, steps: int, rounds: int) -> dict[str, Any]:
    """Steps a second: the median of `rounds` calls, each waited for; the first call is not counted."""
    config = settings(tasks, form, "random", steps)
    demand_room(environments, config, tasks)
    states, _ = batch_reset(jr.split(jr.key(0), environments), config, tasks)
    program = compiled_play(config, states, steps)
    bare, bank, taken = join_tasks(states, None), states.task_data, []
    for number in range(rounds + 1):
        began = time.perf_counter()
        played = jax.block_until_ready(program.call(bare, bank, jr.key(number)))
        taken.append(time.perf_counter() - began)
        bare = played.states
    middle = float(np.median(taken[1:]))
    return {
        "steps_per_second": environments * steps / middle,
        "step_seconds": middle / steps,
        "fastest_steps_per_second": environments * steps / min(taken[1:]),
        "compile_seconds": program.seconds,
        "from_disk": program.from_disk,
    }
