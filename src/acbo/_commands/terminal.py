"""The commands `acbo optimize` and `acbo show`: experiments by a simulator or by prompts; files as tables or as plain data."""

import dataclasses
import math
from collections.abc import Callable
from json import loads
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from acbo.answers import likely_edges
from acbo.optimizer.advice import action_text
from acbo.optimizer.optimizer import Optimizer
from acbo.optimizer.simulators import run
from acbo.optimizer.state import FORMAT, Settings
from acbo.pictures import edge_table
from jaxworlds.commands import STOPPED, people_console, plain_text, print_json, say, show_status

from .problem_file import read_problem

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

BARS = "▁▂▃▄▅▆▇█"
SEEN = 0.005
"""Edges less likely than this are left out of the facts."""

_LONGEST_HEADER = 1 << 24


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


def interact(
    optimizer: Optimizer, console: "Console", trials: int | None = None, read: Callable[[str], str] = input
) -> None:
    """Show experiments and ask for their results until the budget, the strategy, `trials` or the user ends it."""
    done = 0
    console.print(
        "Type each measured value. [b]skip[/b] drops the experiment, [b]stop[/b] ends.", highlight=False
    )
    while trials is None or done < trials:
        if not optimizer.state.pending:
            if optimizer.remaining < 1:
                console.print("The budget or the number of experiments is used up.")
                return
            if not len(optimizer.ask()):
                console.print(f"Done: {optimizer.stop_reason}.", highlight=False, markup=False)
                return
        pending = optimizer.state.pending[0]
        console.print(_experiment_table(optimizer))
        said = _read_measurements(optimizer, console, read)
        if said == "stop":
            console.print(f"Stopped; experiment {pending.experiment} is pending.", highlight=False)
            return
        if said == "skip":
            optimizer.cancel(pending.experiment)
            continue
        assert isinstance(said, dict)
        optimizer.tell({**said, "experiment": pending.experiment})
        done += 1


def _read_measurements(
    optimizer: Optimizer, console: "Console", read: Callable[[str], str]
) -> dict[str, float] | str:
    """A value for each variable that is not set, or the word "stop" or "skip"."""
    values: dict[str, float] = {}
    for name in optimizer.state.settings.names:
        while name not in optimizer.state.pending[0].do and name not in values:
            try:
                said = read(f"{name}: ").strip()
            except EOFError:
                console.print()  # the prompt has no line of its own
                return "stop"
            if said in ("stop", "skip"):
                return said
            try:
                number = float(said)
            except ValueError:
                number = float("nan")
            if np.isfinite(number):
                values[name] = number
            else:
                console.print(
                    f"`{name}` must be a finite number; got {said!r}.", highlight=False, markup=False
                )
    return values


def _experiment_table(optimizer: Optimizer) -> "Table":
    from rich.markup import escape
    from rich.table import Table

    state = optimizer.state
    pending = state.pending[0]
    price = f"cost {state.settings.price(pending.do):g}"
    if state.settings.budget is not None:
        price += f", {state.money:g} left after it"
    table = Table("variable", "set to", title=f"experiment {pending.experiment} ({price})")
    for v in state.settings.variables:
        what = f"{pending.do[v.name]:.6g}" if v.name in pending.do else "leave, and measure"
        table.add_row(escape(v.name), what)  # "flow [m]" is a name, no markup
    return table


def show(path: Path, console: "Console") -> None:
    """Show a saved optimization, a file of weights, or a problem in the terminal."""
    if path.suffix == ".toml":
        show_settings(read_problem(path).settings(), console)
    elif path.suffix == ".safetensors":
        _show_weights(path, console)
    else:
        show_optimization(saved_optimization(path), console)


def show_settings(settings: Settings, console: "Console") -> None:
    """Show variables, target and known edges."""
    from rich.markup import escape
    from rich.table import Table

    goal = "least" if settings.objective == "min" else "greatest"
    table = Table("variable", "can be set to", "cost", title=f"{goal} {escape(settings.target)}")
    for v in settings.variables:
        values = "target" if v.name == settings.target else v.values_text
        table.add_row(escape(v.name), values, v.cost_text)
    console.print(table)
    edges = ", ".join(f"{a} → {b}" for a, b in settings.graph.required)
    kind = "graph" if settings.graph.known else "known edges"
    console.print(f"{kind}: {edges or 'none'}; strategy: {settings.strategy}", highlight=False, markup=False)


def show_optimization(optimizer: Optimizer, console: "Console") -> None:
    """Show settings, progress, the effect of each variable, edges, and the recommendation."""
    show_settings(optimizer.state.settings, console)
    console.print(repr(optimizer), highlight=False, markup=False)
    current_belief = optimizer.current_belief
    if optimizer.state.made:
        console.print(f"best so far: {sparkline(current_belief.progress.best)}", highlight=False)
    for curve in current_belief.curves:
        ends = f"{curve.x[0]:g} to {curve.x[-1]:g}"
        line = f"{curve.name} ({ends}): {sparkline(curve.mean)} {optimizer.target} {curve.mean[0]:.3g} to {curve.mean[-1]:.3g}"
        console.print(line, highlight=False, markup=False)
    console.print(
        edge_table({"probability, %": current_belief.edges}, optimizer.state.settings.names, title="edges")
    )
    console.print(advice(optimizer), highlight=False, markup=False, soft_wrap=True)


def advice(optimizer: Optimizer) -> str:
    """The recommendation in one line; notes about conflicting experiments in further lines."""
    if not optimizer.state.rows:
        return "No rows yet: nothing is recommended."
    found = optimizer.recommend()
    said = (
        f"recommended: {action_text(found.do)}; expected {found.target} {found.expected:.4g} "
        f"({found.low:.4g} to {found.high:.4g})"
    )
    return "\n".join([said, *found.notes])


def sparkline(values: Any) -> str:
    """Numbers as a row of bars.

    >>> sparkline([0.0, 1.0, 2.0])
    '▁▅█'
    """
    given = np.asarray(values, float)
    low, high = given.min(), given.max()
    part = (given - low) / (high - low) if high > low else np.zeros_like(given)
    return "".join(BARS[int(at)] for at in np.floor(part * (len(BARS) - 1) + 0.5))


def _show_weights(path: Path, console: "Console") -> None:
    from rich.markup import escape
    from rich.table import Table

    found = weights_facts(path)
    table = Table("array", "shape", "type", title=escape(plain_text(f"{path.name}: {found['format']}")))
    for name, row in found["arrays"].items():
        table.add_row(
            escape(plain_text(name)), "×".join(map(str, row["shape"])) or "1", plain_text(row["dtype"])
        )
    console.print(table)
    console.print(f"{found['numbers']:,} numbers", highlight=False)
    for name, fact in found["facts"].items():
        console.print(plain_text(f"{name}: {fact}"), highlight=False, markup=False, soft_wrap=True)


def file_facts(path: Path) -> dict[str, Any]:
    """Contents of a problem (.toml), a file of weights (.safetensors) or a saved optimization."""
    if path.suffix == ".toml":
        return {"kind": "problem", **settings_facts(read_problem(path).settings())}
    if path.suffix == ".safetensors":
        return {"kind": "weights", **weights_facts(path)}
    return {"kind": "optimization", **optimization_facts(saved_optimization(path))}


def saved_optimization(path: Path) -> Optimizer:
    """The optimization in a file, opened for reading only; raises for any other file."""
    with path.open("rb") as file:
        if FORMAT.encode() not in file.read(200):
            raise ValueError(
                f"`file` must be a saved optimization, a .safetensors file or a problem .toml; got {path}, which is none of them."
            )
    return Optimizer.load(path, keep=False)


def settings_facts(settings: Settings) -> dict[str, Any]:
    """The problem as plain data: variables with ranges and costs, target, strategy and graph."""
    facts = dataclasses.asdict(settings)
    return {
        word: facts[word] for word in ("target", "objective", "strategy", "mechanism", "variables", "graph")
    }


def optimization_facts(optimizer: Optimizer) -> dict[str, Any]:
    """The problem, its progress, the likely edges, and the recommendation."""
    state = optimizer.state
    facts = {
        **settings_facts(state.settings),
        "rows": len(state.rows),
        "experiments": len(state.made),
        "pending": [dataclasses.asdict(pending) for pending in state.pending],
        "spent": state.spent,
        "remaining": optimizer.remaining,
        "stopped": state.stopped,
        "edges": [],
        "recommended": None,
    }
    if state.rows:
        edges = np.asarray(optimizer.current_belief.edges)
        facts["edges"] = likely_edges(edges, list(state.settings.names), SEEN)
        facts["recommended"] = dataclasses.asdict(optimizer.recommend())
    return facts


class _SizeError(Exception):
    """The sizes of the arrays do not add up to the file."""


def _check_sizes(header: dict[str, Any], held: int) -> None:
    """Raise unless the arrays follow one another in `held` bytes, each as large as its type and shape say."""
    at = 0
    for name, row in sorted(header.items(), key=lambda pair: pair[1]["data_offsets"]):
        start, end = row["data_offsets"]
        digits = "".join(c for c in row["dtype"].split("_")[0] if c.isdigit())  # F32, BF16, F8_E4M3, BOOL
        bits = 8 if row["dtype"] == "BOOL" else int(digits)
        if any(n < 0 for n in row["shape"]) or 8 * (end - start) != bits * math.prod(row["shape"]):
            raise _SizeError(f"array {name[:60]!r} claims another size than its type and shape take")
        if start != at:
            raise _SizeError(f"array {name[:60]!r} does not lie behind the one before it")
        at = end
    if at != held:
        raise _SizeError(f"its arrays claim {at:,} bytes and the file holds {held:,} for them")


def weights_facts(path: Path) -> dict[str, Any]:
    """The arrays and the metadata of a safetensors file, read from its header alone."""
    with path.open("rb") as file:
        try:
            held = path.stat().st_size - 8
            length = int.from_bytes(file.read(8), "little")
            if length > max(held, 0):
                raise _SizeError(f"its header claims {length:,} bytes and {max(held, 0):,} follow")
            header = loads(file.read(min(length, _LONGEST_HEADER)))
            facts = dict(header.pop("__metadata__", {}))
            _check_sizes(header, held - length)
            arrays = {name: {"shape": row["shape"], "dtype": row["dtype"]} for name, row in header.items()}
            for row in arrays.values():
                if not isinstance(row["dtype"], str) or not all(type(n) is int for n in row["shape"]):
                    raise ValueError("an array has no type or shape")
        except _SizeError as error:
            raise ValueError(
                f"{path} must be a safetensors file; {error}. It is damaged: get it again."
            ) from error
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"{path} must be a safetensors file; its header cannot be read.") from error
    numbers = sum(math.prod(row["shape"]) for row in arrays.values())
    return {"format": facts.pop("format", "weights"), "numbers": numbers, "arrays": arrays, "facts": facts}
