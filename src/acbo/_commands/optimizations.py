"""The commands `acbo optimize` and `acbo show`."""

from pathlib import Path

from acbo.optimizer.simulation import run
from jaxworlds.commands import STOPPED, people_console, print_json, say, show_status

from .facts import file_facts, optimization_facts
from .problem_file import read_problem
from .terminal import advice, interact, show


def optimize(problem: Path, state: Path | None, report: Path | None, trials: int | None, json: bool) -> int:
    """Run experiments with a simulator or a person, print the recommendation, and write the report if asked to."""
    if trials is not None and trials < 0:
        raise ValueError(f"`--trials` must be at least 0; got {trials}.")
    given = read_problem(problem)
    if json and given.simulator is None:
        raise ValueError(
            f"`--json` needs a simulator, and {problem} has none: its values are typed. Name a `simulator`, `model` or "
            "`benchmark` in it, or leave --json out."
        )
    for option, path in (("state", state), ("report", report)):
        if path is not None and not path.absolute().parent.is_dir():
            raise ValueError(
                f"`--{option}` must lie in a folder that exists; {path.parent} does not. Make it first."
            )
    if state is None and given.simulator is None:
        state = problem.with_suffix(".state.json")
    resumed = state is not None and state.exists()
    optimizer = given.resume(state) if state is not None and resumed else given.start(state)
    if state is not None and not json:
        say(f"{'going on with' if resumed else 'keeping'} {state}")
    stopped = False
    if given.simulator is None:
        interact(optimizer, people_console(), trials)
    elif optimizer.remaining >= 1 or optimizer.state.pending:
        stopped = run(optimizer, trials, progress=False if json else None)
    with show_status("computing the recommendation"):
        if report is not None:
            optimizer.report(report, optimum=given.optimum)
        said = "" if json else advice(optimizer)
    if json:
        print_json({**optimization_facts(optimizer), "state": state, "report": report})
    else:
        say(said)
        if report is not None:
            say(f"report: {report}")
    return STOPPED if stopped else 0


def show_file(path: Path, json: bool) -> int:
    """Show the contents of a file, as tables or as JSON."""
    if json:
        print_json(file_facts(path))
    else:
        show(path, people_console())
    return 0
