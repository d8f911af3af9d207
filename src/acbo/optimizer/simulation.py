"""An optimization against a simulator: ask, simulate, tell, with a progress bar, and a clean end on Ctrl-C."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .optimizer import Optimizer


def run(optimizer: "Optimizer", n: int | None, progress: bool | None) -> bool:
    """Make up to `n` experiments, pending ones first; whether Ctrl-C ended it early."""
    if optimizer.simulator is None:
        raise ValueError(
            "`simulator` must be given to run; got None. Pass a function from values by name to one row of all "
            "variables, or use `ask` and `tell`."
        )
    if n is not None and n < 1:
        raise ValueError(f"`n` must be at least 1; got {n}. Pass None to go on to the end of the budget.")
    total = _total(optimizer, n)
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


def _total(optimizer: "Optimizer", n: int | None) -> int:
    waiting = len(optimizer.state.pending)
    most = waiting + optimizer.remaining
    if n is None and most == float("inf"):
        raise ValueError(
            "`n` must say how many experiments to make, because neither `budget` nor `experiments` does; got None."
        )
    return int(min(most, float("inf") if n is None else n))


def _one(optimizer: "Optimizer") -> bool:
    """Make one experiment; False where the strategy or the means end it."""
    state = optimizer.state
    if not state.pending:
        if optimizer.remaining < 1 or not len(optimizer.ask()):
            return False
        state = optimizer.state
    first = state.pending[0]
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
