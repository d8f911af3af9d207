"""The part of acbo's demo in which `Optimizer` chooses experiments on the plant."""

import dataclasses
import html
from typing import Any

import numpy as np
from jaxtyping import Float

from jaxworlds.measuring import time_call

from .optimizer import Optimizer
from .optimizer.advice import action_text
from .optimizer.report import effects_part, graph_part
from .optimizer.simulators import ModelSimulator
from .optional import optional_package
from .pictures import MEASURED, PLAIN, new_figure, picture_style, svg_text
from .scms import CausalModel

OBSERVED = 20
"""Rows before the first experiment; with those of all experiments they fit one program of 32 rows."""
ENOUGH = 0.5
"""The mean regret must fall below this part of what it was; over 14 runs it fell from 0.73 to 0.14 (2026-11-16)."""


@dataclasses.dataclass(frozen=True)
class Run:
    """One optimization: the optimizer at its end, true normalised regrets of its advice, and seconds of every `ask`."""

    optimizer: Optimizer
    regrets: Float[np.ndarray, " experiments_and_before"]
    seconds: Float[np.ndarray, " experiments"]


def optimize(plant: CausalModel, runs: int, experiments: int, console: Any) -> list[Run]:
    """Runs that differ in noise alone, with a bar where there is a terminal; raises if advice does not get better."""
    from rich.progress import Progress

    found = []
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        shown = bar.add_task("experiments (the first compiles)", total=runs * experiments)
        for seed in range(runs):
            found.append(one_run(plant, seed, experiments, lambda: bar.advance(shown)))
    check(np.stack([run.regrets for run in found]))
    return found


def one_run(plant: CausalModel, seed: int, experiments: int, advance: Any = lambda: None) -> Run:
    """Ask, simulate and tell; record the true regret of the recommendation after every experiment."""
    pandas, simulator = optional_package("pandas", "the demo"), ModelSimulator(plant, seed)
    data = pandas.DataFrame([simulator({}) for _ in range(OBSERVED)])
    variables = {name: plant.ranges.get(name) for name in plant.names}
    optimizer = Optimizer(variables, target=plant.target, data=data, experiments=experiments, seed=seed)
    regrets, seconds = [_regret(optimizer, plant)], []
    for _ in range(experiments):
        asked, taken = time_call(optimizer.ask)
        seconds.append(taken)
        if not len(asked):  # the strategy expects nothing of a further one: its advice stands
            regrets += [regrets[-1]] * (experiments + 1 - len(regrets))
            break
        pending = optimizer.state.pending[0]
        optimizer.tell({**simulator(pending.do), "experiment": pending.experiment})
        regrets.append(_regret(optimizer, plant))
        advance()
    return Run(optimizer, np.array(regrets), np.array(seconds))


def _regret(optimizer: Optimizer, plant: CausalModel) -> float:
    """Normalised regret of the recommendation: 0 is best, 1 is setting nothing."""
    best = plant.best()[1]
    return (float(plant.effect(optimizer.recommend().do)) - best) / (float(plant.effect({})) - best)


def check(regrets: Float[np.ndarray, "runs experiments_and_before"]) -> None:
    """Raise unless the mean regret of the advice fell."""
    mean = regrets.mean(0)
    if not mean[-1] < ENOUGH * mean[0]:
        raise RuntimeError(
            f"after all experiments the mean regret is {mean[-1]:.2f}, before them {mean[0]:.2f}. Please report this."
        )


def ask_seconds(runs: list[Run]) -> tuple[float, float]:
    """Median seconds of an `ask`, and the extra seconds of the first one for tracing and compiling."""
    first, *later = np.concatenate([run.seconds for run in runs]).tolist()
    middle = float(np.median(later))
    return middle, max(first - middle, 0.0)


def story(runs: list[Run]) -> str:
    """The result in one line."""
    mean = np.mean([run.regrets for run in runs], axis=0)
    advice = runs[0].optimizer.recommend()
    return (
        f"{len(runs)} optimizations of {len(mean) - 1} experiments: mean regret of the advice {mean[0]:.2f} before, "
        f"{mean[-1]:.2f} after; the first recommends to {action_text(advice.do)}, expecting {advice.target} {advice.expected:.2f}"
    )


def body(runs: list[Run]) -> str:
    """The regret over all runs, and the final belief of the first run, as HTML."""
    first = runs[0].optimizer
    regrets = np.stack([run.regrets for run in runs])
    chart = svg_text(regret_figure(regrets), "Regret of the advice")
    target = html.escape(first.target)
    return (
        f"<h3>Which experiment next: <code>acbo.Optimizer</code></h3>\n<p>The same plant again, but the graph is unknown and "
        f"there are only {OBSERVED} observations. The optimizer asks for an experiment, gets the result, and recommends what "
        f"to set for the least {target}; the true model, which it does not see, evaluates the recommendation.</p>\n"
        f"<figure>{chart}<figcaption>The line is the mean of {len(runs)} runs that differ in noise, the band holds the middle "
        "half of them, dots are the first run. Regret 0, the dashed line, is the best intervention, 1 is setting nothing; all "
        "figures of regret in this project mean the same.</figcaption>"
        "</figure>\n"
        f"<p>{html.escape(story(runs))}.</p>\n"
        f"<h3>Final belief of the first run</h3>\n<p>Expected {target} if one variable is set; the band holds it with "
        "probability 0.9, dots are experiments.</p>\n"
        f"{effects_part(first.current_belief)}\n{graph_part(first.current_belief)}"
    )


def regret_figure(regrets: Float[np.ndarray, "runs experiments_and_before"]) -> Any:
    """The mean regret of the advice after each experiment, the middle half of the runs, and the first run."""
    mean, number = regrets.mean(0), np.arange(regrets.shape[1])
    low, high = np.quantile(regrets, (0.25, 0.75), axis=0)
    with picture_style():
        figure = new_figure(420, 260, layout="constrained")
        axes = figure.add_subplot(title="Regret of the advice", xlabel="experiments made")
        axes.set_ylabel("regret (0 best, 1 nothing set)")
        axes.axhline(0.0, color="#9aa0a6", linestyle="--")
        axes.fill_between(
            number, np.minimum(low, mean), np.maximum(high, mean), color=PLAIN, alpha=0.2, linewidth=0
        )
        axes.plot(number, mean, color=PLAIN, linewidth=2)
        axes.plot(number, regrets[0], "o", color=MEASURED, markersize=6, alpha=0.9)
    return figure
