"""acbo's part of `make demo`: who causes what in a small plant, what to do, and which experiment to make next.

Hundred rows, forty of them experiments, are all that the exact teacher and the surrogate see. The truth is known, so that
every answer is judged. The plant's data are of a seed at which both are right about every edge; of twelve seeds the teacher
erred on three and the surrogate on two. How good they are is said by the figure over many models.
"""

import dataclasses
import html
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Bool, Float

from jaxworlds.commands.demo import Section, Speed, facts_table, waiting
from jaxworlds.measuring import time_call

from .answers import likely_graph, probabilities_of
from .inference import auroc, edge_posterior
from .optimizer import Optimizer
from .optimizer.advice import action_text
from .optimizer.report import effects_part, graph_part
from .optimizer.simulators import ModelSimulator
from .optional import optional_package
from .pictures import (
    MEASURED,
    PLAIN,
    edge_matrix_svg,
    edge_table,
    graph_svg,
    layered_places,
    new_figure,
    picture_style,
    svg_text,
)
from .scms import CausalModel, fit_linear_model, linear_model, parse_model, sample_mixed
from .surrogate import pretrained
from .surrogate.quality import HeldOut, edge_logits

ROWS, OBSERVED, SIZE = 100, 60, 10
"""Rows of each dataset, how many of them are observations, and variables that programs are compiled for."""
BATCH = 10
"""Datasets answered at once: more do not fit into the caches of a small machine."""
LEAST_AUROC = 0.95
"""Least AUROC of the surrogate on the random models; it was 0.9977 on 200 of them when it was trained."""
START_ROWS = 20
"""Rows before the optimizer's first experiment; with those of all experiments they fit one program of 32 rows."""
ENOUGH = 0.5
"""The mean regret must fall below this part of what it was; over 14 runs it fell from 0.73 to 0.14 (2026-11-16)."""

PLANT = """
    feed = N(0, 1)
    coolant = N(0, 1)
    catalyst = N(0, 1)
    heat = 1.2*feed - 0.9*coolant + N(0, 0.6)
    pressure = 0.9*heat + N(0, 0.6)
    noise = 0.8*pressure + N(0, 0.7)
    impurity = 0.8*pressure - 1.1*catalyst + N(0, 0.6)
    colour = 1.1*impurity + N(0, 0.4)
    feed in [-2, 2]; coolant in [-2, 2]; catalyst in [-1, 1]; heat in [-2, 2]; pressure in [-2, 2]
    noise in [-2, 2]; colour in [-2, 2]
    target impurity
"""
"""Colour tells most about the impurity, and changing it changes nothing."""


def random_models(count: int, variables: int = SIZE, seed: int = 0) -> list[CausalModel]:
    """Linear models on which structure learners are compared: 1.5 edges per variable, weights of 0.5 to 2."""
    rng = np.random.default_rng(seed)
    names = [f"X{v}" for v in range(variables)]
    models = []
    for _ in range(count):
        there = np.triu(rng.random((variables, variables)) < 3.0 / (variables - 1), 1)
        size = rng.uniform(0.5, 2.0, there.shape) * rng.choice([-1.0, 1.0], there.shape)
        order = rng.permutation(variables)
        weights = np.where(there, size, 0.0)[np.ix_(order, order)]
        scale = rng.uniform(0.5, 1.5, variables)
        models.append(linear_model(names, weights, scale=scale, target=names[0], size=SIZE))
    return models


def demo(out: Path, console: Any, *, models: int = 200, runs: int = 14, experiments: int = 12) -> Section:
    """Run the demo of acbo, print and return what it saw. Raises if an answer is wrong."""
    console.print("[bold]acbo[/]: who causes what, and what to do about it")
    console.print(
        f"A plant of 8 variables, seen in {OBSERVED} observations and {ROWS - OBSERVED} experiments: how likely is each arrow?",
        highlight=False,
    )
    # First, so that a missing package is reported at once. CPUs emulate the bfloat16 in which it was trained.
    network = pretrained(precision="float32" if jax.default_backend() == "cpu" else None)
    plant = parse_model(PLANT, size=SIZE)
    names, d = plant.names, len(plant.names)
    truth = np.asarray(plant.scm.adjacency)[:d, :d]
    data = sample_mixed(plant.scm, jr.key(7), ROWS, OBSERVED)
    with waiting(console, "the teacher sums over all graphs"):
        exact = edge_posterior(data, max_parents=3, limit=d)
        teacher = probabilities_of(exact, names)

    others = random_models(models - 1)
    drawn = [sample_mixed(m.scm, jr.fold_in(jr.key(5), n), ROWS, OBSERVED) for n, m in enumerate(others)]
    cases = HeldOut(
        jax.tree.map(_stack, data, *drawn),
        _stack(*(model.scm.adjacency for model in (plant, *others))),
    )
    with waiting(console, "the surrogate is compiled and answers"):
        edges, answered = _answer_all(network, cases)
    quality = float(auroc(edges, cases.adjacency, cases.possible))
    surrogate = probabilities_of(np.asarray(edges[0]), names)
    table = {"truth": truth, "exact teacher": teacher, "surrogate": surrogate}
    console.print(edge_table(table, names, title="probability in per cent"))

    decisions = _decide(plant, data, {"teacher": teacher, "surrogate": surrogate})
    judged = (
        f"surrogate: {len(cases.adjacency)} datasets of {ROWS} rows, {1e3 * answered.value:.1f} ms each "
        f"(compiled once, in {answered.compile_seconds:.1f} s); AUROC {quality:.3f} over {models} models it never saw"
    )
    console.print(
        f"What to set for the least {plant.target}, and the regret (0 is the best, 1 is to set nothing):",
        highlight=False,
    )
    for who, do, reached, regret in decisions:
        words = f"{who}: {action_text(do)}; expected impurity {reached:.2f}, regret {regret:.2f}"
        console.print(words, highlight=False)
    console.print(judged, highlight=False)
    _check(truth, {"teacher": teacher, "surrogate": surrogate}, decisions, quality)
    made = _optimize_plant(plant, runs, experiments, console)
    console.print(_story(made), highlight=False)
    first, *later = np.concatenate([run.seconds for run in made]).tolist()
    middle = float(np.median(later))
    asking = Speed("acbo: next experiment, 8 variables", middle, "s/ask", max(first - middle, 0.0))
    body = f"{_body(plant, table, decisions, judged)}\n{_optimizer_body(made)}"
    summary = "Causes instead of correlations, from few data, and which experiment to make next."
    return Section(
        "acbo: who causes what, and what to do about it",
        body,
        (answered, asking),
        summary,
        {"acbo bench": "how long the next experiment takes to choose"},
    )


def _stack(*leaves: Any) -> jax.Array:
    # On the host: a program that joins hundreds of arrays takes seconds to compile.
    return jnp.asarray(np.stack(leaves))


def _answer_all(network: Any, cases: HeldOut) -> tuple[Float[jax.Array, "models d d"], Speed]:
    """Edge probabilities for every dataset by the weights in the package, and how long one took."""
    began = time.perf_counter()
    program = edge_logits.lower(network, cases.data, BATCH).compile()  # pyright: ignore[reportFunctionMemberAccess]
    compiling = time.perf_counter() - began
    logits, seconds = time_call(program, network, cases.data, BATCH)
    speed = Speed("acbo: who causes what, a dataset", seconds / len(cases.adjacency), "s/dataset", compiling)
    return jax.nn.sigmoid(logits), speed


Decision = tuple[str, dict[str, float], float, float]
"""Source of the decision, values set, true E[target | do(...)], and regret: 0 is best, 1 is setting nothing."""


def _decide(plant: CausalModel, data: Any, answers: dict[str, Float[np.ndarray, "d d"]]) -> list[Decision]:
    """The best intervention by the true model, by a model fitted to each likely graph, and by correlation."""
    levels, best = plant.best()
    chosen = {"truth": levels}
    for who, edges in answers.items():
        graph = likely_graph(edges, plant.names)
        fitted = fit_linear_model(plant.names, graph, data, ranges=plant.ranges, size=SIZE)
        chosen[who] = fitted.best()[0]
    values, goal = np.asarray(data.values)[:OBSERVED], plant.index(plant.target)
    together = {
        name: float(np.corrcoef(values[:, plant.index(name)], values[:, goal])[0, 1]) for name in plant.ranges
    }
    closest = max(together, key=lambda name: abs(together[name]))
    low, high = plant.ranges[closest]
    chosen["correlation alone"] = {closest: low if together[closest] > 0 else high}
    reached = {who: best if who == "truth" else plant.effect(do) for who, do in chosen.items()}
    nothing = plant.effect({})
    return [(who, do, reached[who], (reached[who] - best) / (nothing - best)) for who, do in chosen.items()]


def _check(
    truth: Bool[np.ndarray, "d d"],
    answers: dict[str, Float[np.ndarray, "d d"]],
    decisions: list[Decision],
    quality: float,
) -> None:
    """Both find every edge of the plant, decide as the truth does, and the surrogate ranks edges of other models."""
    for who, edges in answers.items():
        wrong = int((truth != (edges > 0.5)).sum())
        if wrong:
            raise RuntimeError(f"the {who} is wrong about {wrong} edges of the plant. Please report this.")
    for who, do, _, regret in decisions:
        if who in answers and regret > 1e-3:
            raise RuntimeError(
                f"the {who} would set {do}, with a regret of {regret:.3f}. Please report this."
            )
    if not quality >= LEAST_AUROC:
        raise RuntimeError(
            f"the surrogate reaches an AUROC of {quality:.3f}, below {LEAST_AUROC}. Please report this."
        )


def _body(plant: CausalModel, table: dict[str, Any], decisions: list[Decision], judged: str) -> str:
    names, truth, target = plant.names, table["truth"], html.escape(plant.target)
    places = layered_places(truth)
    graphs = [
        graph_svg(edges, names, target=plant.target, truth=truth, places=places, title=title)
        for title, edges in table.items()
    ]
    squares = [
        edge_matrix_svg(edges, names, truth=truth, title=title)
        for title, edges in table.items()
        if title != "truth"
    ]
    rows = [
        (who, action_text(do), f"{reached:.2f}", f"{regret:.2f}") for who, do, reached, regret in decisions
    ]
    wide = "".join(f'<figure class="wide">{graph}</figure>\n' for graph in graphs)
    heads = ("who decides", "what", f"expected {plant.target}", "regret")
    return (
        f"<p>Which knob lowers the {target} of a product? Its colour goes with it most closely, but painting the product helps "
        f"nobody: colour is an effect and not a cause. A small plant with {len(names)} variables is seen in {OBSERVED} "
        f"observations and {ROWS - OBSERVED} experiments, each with one variable set at random.</p>\n"
        "<h3>Who causes what</h3>\n"
        "<p>First the truth, which serves only to judge. Then two answers: the exact teacher sums over all graphs; the "
        "surrogate, a network trained on models like it, looks once. Blue arrows are true, dashed orange ones are not, dotted "
        "grey ones were missed; the stronger, the likelier.</p>\n"
        f"{wide}<p>The same in numbers: how likely the row causes the column, in per cent; a frame is a true arrow.</p>\n"
        f'<div class="row">{"".join(squares)}</div>\n<h3>What to set for the least {target}</h3>\n'
        "<p>Regret is how far a choice is from the best one, as a share of what can be won: 0 is the best choice, 1 is to set "
        "nothing, and more than 1 does harm. Correlation alone sets the colour, and nothing changes.</p>\n"
        f"{facts_table(*rows, heads=heads)}\n"
        f"<p>The {html.escape(judged)}. AUROC is how often a true arrow is ranked above a false one; 1 is always.</p>"
    )


@dataclasses.dataclass(frozen=True)
class _Run:
    """One optimization: the optimizer at its end, true normalised regrets of its advice, and seconds of every `ask`."""

    optimizer: Optimizer
    regrets: Float[np.ndarray, " experiments_and_before"]
    seconds: Float[np.ndarray, " experiments"]


def _optimize_plant(plant: CausalModel, runs: int, experiments: int, console: Any) -> list[_Run]:
    """Runs that differ in noise alone, with a bar where there is a terminal; raises if advice does not get better."""
    from rich.progress import Progress

    found = []
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        shown = bar.add_task("experiments (the first compiles)", total=runs * experiments)
        for seed in range(runs):
            found.append(_optimize_once(plant, seed, experiments, lambda: bar.advance(shown)))
    _check_advice(np.stack([run.regrets for run in found]))
    return found


def _optimize_once(plant: CausalModel, seed: int, experiments: int, advance: Any) -> _Run:
    """Ask, simulate and tell; record the true regret of the recommendation after every experiment."""
    pandas, simulator = optional_package("pandas", "the demo"), ModelSimulator(plant, seed)
    data = pandas.DataFrame([simulator({}) for _ in range(START_ROWS)])
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
    return _Run(optimizer, np.array(regrets), np.array(seconds))


def _regret(optimizer: Optimizer, plant: CausalModel) -> float:
    """Normalised regret of the recommendation: 0 is best, 1 is setting nothing."""
    best = plant.best()[1]
    return (float(plant.effect(optimizer.recommend().do)) - best) / (float(plant.effect({})) - best)


def _check_advice(regrets: Float[np.ndarray, "runs experiments_and_before"]) -> None:
    """Raise unless the mean regret of the advice fell."""
    mean = regrets.mean(0)
    if not mean[-1] < ENOUGH * mean[0]:
        raise RuntimeError(
            f"after all experiments the mean regret is {mean[-1]:.2f}, before them {mean[0]:.2f}. Please report this."
        )


def _story(runs: list[_Run]) -> str:
    """The result in one line."""
    mean = np.mean([run.regrets for run in runs], axis=0)
    advice = runs[0].optimizer.recommend()
    return (
        f"{len(runs)} optimizations of {len(mean) - 1} experiments: mean regret of the advice {mean[0]:.2f} before, "
        f"{mean[-1]:.2f} after; the first recommends to {action_text(advice.do)}, expecting {advice.target} {advice.expected:.2f}"
    )


def _optimizer_body(runs: list[_Run]) -> str:
    """The regret over all runs, and the final belief of the first run, as HTML."""
    first = runs[0].optimizer
    regrets = np.stack([run.regrets for run in runs])
    chart = svg_text(_regret_figure(regrets), "Regret of the advice")
    target = html.escape(first.target)
    return (
        f"<h3>Which experiment next: <code>acbo.Optimizer</code></h3>\n<p>The same plant again, but the graph is unknown and "
        f"there are only {START_ROWS} observations. The optimizer asks for an experiment, gets the result, and recommends what "
        f"to set for the least {target}; the true model, which it does not see, evaluates the recommendation.</p>\n"
        f"<figure>{chart}<figcaption>The line is the mean of {len(runs)} runs that differ in noise, the band holds the middle "
        "half of them, dots are the first run. Regret 0, the dashed line, is the best intervention, 1 is setting nothing; all "
        "figures of regret in this project mean the same.</figcaption>"
        "</figure>\n"
        f"<p>{html.escape(_story(runs))}.</p>\n"
        f"<h3>Final belief of the first run</h3>\n<p>Expected {target} if one variable is set; the band holds it with "
        "probability 0.9, dots are experiments.</p>\n"
        f"{effects_part(first.current_belief)}\n{graph_part(first.current_belief)}"
    )


def _regret_figure(regrets: Float[np.ndarray, "runs experiments_and_before"]) -> Any:
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
