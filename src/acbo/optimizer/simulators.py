"""Simulators of known models, and an optimization against a simulator: ask, simulate, tell."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax.random as jr
import numpy as np

from acbo.scms.causal_model import CausalModel
from acbo.scms.literature import Benchmark

from .state import Levels

if TYPE_CHECKING:
    from .optimizer import Optimizer


class ModelSimulator:
    """Rows of a causal model or a benchmark, hidden variables left out; row number `start` comes first.

    Noise follows from the seed and the number of the row, so a resumed run goes on where it left off.
    """

    def __init__(self, model: CausalModel | Benchmark, seed: int = 0, start: int = 0) -> None:
        self.model, self.seed, self.calls = model, seed, start

    @property
    def names(self) -> tuple[str, ...]:
        """The variables of each row."""
        known = self.model if isinstance(self.model, CausalModel) else self.model.model
        return tuple(name for name in known.names if name not in known.hidden)

    def __call__(self, do: Mapping[str, float]) -> Levels:
        key = jr.fold_in(jr.key(self.seed), self.calls)
        self.calls += 1
        if isinstance(self.model, Benchmark):
            found = self.model.simulate(key, 1, do)
            return {name: float(found[name][0]) for name in self.names}
        values = np.asarray(self.model.sample(1, key, do=do).values)[0]
        return {name: float(values[self.model.index(name)]) for name in self.names}


def run(optimizer: "Optimizer", n: int | None, progress: bool | None) -> bool:
    """Make up to `n` experiments, pending ones first; whether Ctrl-C ended it early."""
    if optimizer.simulator is None:
        raise ValueError(
            "`simulator` must be given to run; got None. Pass a function from values by name to one row of all "
            "variables, or use `ask` and `tell`."
        )
    if n is not None and n < 1:
        raise ValueError(f"`n` must be at least 1; got {n}. Pass None to go on to the end of the budget.")
    most = len(optimizer.state.pending) + optimizer.remaining
    if n is None and most == float("inf"):
        raise ValueError(
            "`n` must say how many experiments to make, because neither `budget` nor `experiments` does; got None."
        )
    total = int(most if n is None else min(most, n))
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    console = Console(stderr=True)
    shown = progress or (progress is None and (console.is_terminal or console.is_jupyter))
    with Progress(*columns, console=console, disable=not shown) as bar:
        task = bar.add_task(f"experiments on {escape(optimizer.target)}", total=total)
        try:
            for _ in range(total):
                if not _one(optimizer):
                    break
                bar.advance(task)
        except KeyboardInterrupt:
            console.print("stopped; results so far are kept")
            return True
        bar.update(task, total=bar.tasks[0].completed)
    return False


def _one(optimizer: "Optimizer") -> bool:
    """Make one experiment; False where the strategy or the means end it."""
    if not optimizer.state.pending and (optimizer.remaining < 1 or not len(optimizer.ask())):
        return False
    first = optimizer.state.pending[0]
    assert optimizer.simulator is not None
    answer = optimizer.simulator(dict(first.do))
    optimizer.tell({**one_row(answer), "experiment": first.experiment})
    return True


def one_row(answer: Any) -> dict[str, Any]:
    """One row by name from what a simulator gave; arrays of one number count as that number."""
    if hasattr(answer, "columns"):
        if len(answer) != 1:
            raise ValueError(f"`simulator` must return one row; got a frame of {len(answer)}. Average them.")
        answer = answer.iloc[0]
    if not hasattr(answer, "items"):
        raise TypeError(
            f"`simulator` must return values by name, such as {{'pain': 1.5}}; got {type(answer).__name__}."
        )
    return {str(name): value.item() if hasattr(value, "item") else value for name, value in answer.items()}
