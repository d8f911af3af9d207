"""Which experiment next: the trained policy beside baselines, on random models and on benchmarks of the literature.

    python benchmarks/bench_acbo_policy.py                      # all parts; about an hour on two cores
    python benchmarks/bench_acbo_policy.py --only linear
    python benchmarks/bench_acbo_policy.py --quick              # tiny sizes: does it run?

Parts: linear, nonlinear, bent, literature, ask. Part `bent` plays nonlinear models with the settings that smooth strategies
have by default, the graph unknown; `nonlinear` has smaller ones. Results go to results/<device>/acbo-policy.json; a part
replaces what was there of it and leaves the others. Episodes a second of training are measured by
`python -m acbo.policy.recipe --probe`.
"""

import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

import acbo
import harness
from acbo.beliefs import BeliefSettings
from acbo.experiments import Comparison, cells, compare, known_graph, problem_of
from acbo.optimizer import Optimizer
from acbo.scms.literature import Benchmark, complete_graph, health_graph, toy_graph
from acbo.strategies import (
    CausalBO,
    ExpectedImprovement,
    GaussianProcessEI,
    InformationGain,
    KnowledgeGradient,
    LatinHypercube,
    Random,
    Thompson,
)
from acbo.strategies.trained_policy import pretrained_policy

KNOWN = ("causal BO, graph known", "expected improvement, graph known")
QUICK_ASK = ("policy", "causal BO, graph known", "GP-EI, no graph", "random")
"""Those that `--quick` times: the others take a minute to compile."""
PAPER_NOISE = 0.02
"""Of a trial that reports a mean, in standard deviations of the target."""


def strategies(smooth: bool) -> dict[str, Any]:
    """All that are compared; `smooth` for nonlinear models."""
    belief = BeliefSettings(models=32, mechanism="smooth", units=12) if smooth else BeliefSettings(models=48)
    return {
        "policy": pretrained_policy(),
        "causal BO, graph known": CausalBO(settings=belief, memory=12),
        "expected improvement, graph known": ExpectedImprovement(settings=belief),
        "GP-EI, no graph": GaussianProcessEI(memory=12),
        "random": Random(),
        "Latin hypercube": LatinHypercube(),
        "expected improvement": ExpectedImprovement(settings=belief),
        "Thompson": Thompson(settings=belief),
        "information gain": InformationGain(settings=belief),
        "knowledge gradient": KnowledgeGradient(settings=belief),
    }


# Dear ones, on fewer models of each cell; the bar asks for 100 of those it names.
FEW = {"information gain": 20, "knowledge gradient": 20, "Thompson": 50, "expected improvement": 50}
SMOOTH = {
    "expected improvement": ExpectedImprovement,
    "knowledge gradient": KnowledgeGradient,
    "Thompson": Thompson,
}
NONLINEAR = 8
"""Models of each cell that are not linear, on a CPU: an episode of causal BO then takes seconds. 100 on an accelerator."""


def random_models(report: harness.PartsReport, quick: bool, mechanism: str) -> None:
    """Held-out models of every size and family."""
    chosen = cells((3, 10), ("chain",), mechanism) if quick else cells(mechanism=mechanism)
    if mechanism == "nonlinear" and not quick:
        chosen = cells((5, 10), mechanism=mechanism)
    named = strategies(mechanism == "nonlinear")
    wanted = 100
    if mechanism == "nonlinear" and jax.default_backend() == "cpu":
        named, wanted = {name: s for name, s in named.items() if name not in FEW}, NONLINEAR
    table: dict[str, Any] = {}
    found: dict[str, Comparison] = {}
    for name, strategy in named.items():
        models = 4 if quick else FEW.get(name, wanted)
        began = time.perf_counter()
        found[name] = compare({name: strategy}, chosen, models=models, known=KNOWN, seed=60_600)
        mean, half = found[name].mean(name)
        first = np.concatenate([found[name].results[name, cell].regret[:, 0] for cell in chosen])
        seconds = sum(found[name].results[name, cell].seconds for cell in chosen)
        table[name] = {
            "regret": mean,
            "± 95 %": half,
            "median": float(np.median(found[name].regrets(name))),
            "before experiments": float(first.mean()),
            "models": models * len(chosen),
            "s per episode": seconds / (models * len(chosen)),
        }
        print(f"{name}: {mean:.4f} ± {half:.4f} in {time.perf_counter() - began:.0f} s", flush=True)
        report.add(f"{mechanism} models", table, f"{_SETTING}; models in all, {len(chosen)} cells")
        if name == "random":  # the last of those that the policy is paired with
            _paired(report, mechanism, found, chosen)


_SETTING = (
    "normalised simple regret after 10 interventions on one variable each, 50 observations before; graph unknown where it "
    "is not said; sizes × families as in the next table; the same models and noise for all"
)


def _paired(report: harness.PartsReport, mechanism: str, found: dict[str, Comparison], chosen: Any) -> None:
    """Differences on the same models, cell by cell."""
    others = ("causal BO, graph known", "expected improvement, graph known", "GP-EI, no graph", "random")
    rows: dict[str, Any] = {}
    for cell in (None, *chosen):
        label = "all cells" if cell is None else f"{cell.variables} variables, {cell.family}"
        own = found["policy"].regrets("policy", cell)
        rows[label] = {"policy": float(own.mean())}
        for name in others:
            theirs = found[name].regrets(name, cell)
            gap = own - theirs
            half = 1.959964 * gap.std(ddof=1) / np.sqrt(len(gap))
            rows[label][name] = float(theirs.mean())
            rows[label][f"policy − {name}"] = f"{gap.mean():+.4f} ± {half:.4f}"
    report.add(f"{mechanism} models: policy beside others", rows, "paired differences, 95 % intervals")


def bent_models(report: harness.PartsReport, quick: bool) -> None:
    """Smooth strategies as `Optimizer(mechanism="smooth")` makes them, on bent models whose graph nobody knows."""
    chosen = cells((3,), ("chain",), "nonlinear") if quick else cells((5, 10), mechanism="nonlinear")
    models = 2 if quick else NONLINEAR if jax.default_backend() == "cpu" else 50
    table: dict[str, Any] = {}
    for name, kind in SMOOTH.items():
        strategy = kind(settings=BeliefSettings(mechanism="smooth"))
        found = compare({name: strategy}, chosen, models=models, seed=60_600)
        mean, half = found.mean(name)
        table[name] = {
            "regret": mean,
            "± 95 %": half,
            "median": float(np.median(found.regrets(name))),
            "worse than nothing": float((found.regrets(name) > 1).mean()),
            "models": models * len(chosen),
            "s per episode": sum(one.seconds for one in found.results.values()) / (models * len(chosen)),
        }
        report.add("bent models, default settings", table, f"{_SETTING}; models in all, {len(chosen)} cells")


def literature(report: harness.PartsReport, quick: bool) -> None:
    """The papers' setting: 200 observations, hidden confounders, joint interventions; each trial reports means."""
    smooth = BeliefSettings(models=16, mechanism="smooth", units=20)
    makers: dict[str, Callable[[], Any]] = {
        "causal BO, graph known": lambda: CausalBO(
            settings=smooth, sets=160, noise=PAPER_NOISE, from_observations=True, memory=32
        ),
        "GP-EI, no graph": lambda: GaussianProcessEI(noise=PAPER_NOISE, memory=32),
        "policy, graph unknown, one variable at a time": pretrained_policy,
    }
    rows: dict[str, Any] = {}
    for benchmark in (toy_graph(), complete_graph(), health_graph()):
        for name, make in makers.items():
            strategy, regrets, spent = make(), [], []
            for seed in range(2 if quick else 10):
                known = "graph known" in name
                most = 1 if "one variable" in name else 2
                regret, seconds = _paper_run(benchmark, strategy, seed, known, most, 3 if quick else 30)
                regrets.append(regret)
                spent.append(seconds)
            rows[f"{benchmark.name}, {name}"] = {
                "regret": float(np.mean(regrets)),
                "largest": float(np.max(regrets)),
                "median": float(np.median(regrets)),
                "optimum": benchmark.optimum,
                "seeds": len(regrets),
                "s per ask": float(np.median(spent)),
            }
            print(benchmark.name, name, np.round(regrets, 3).tolist(), flush=True)
            report.add(
                "literature", rows, "absolute regret of the recommendation after 30 trials, 200 observations"
            )


def _paper_run(
    benchmark: Benchmark, strategy: Any, seed: int, known: bool, most: int, trials: int
) -> tuple[float, float]:
    import pandas as pd

    model = benchmark.model
    names = [name for name in benchmark.names if name not in model.hidden]
    edges = [(a, b) for a, b in benchmark.edges if a in names and b in names]
    key = jr.key(1000 + seed)
    seen = benchmark.simulate(key, 200)
    data = pd.DataFrame({name: np.asarray(seen[name], float) for name in names})

    def simulator(do: dict[str, float]) -> dict[str, float]:
        rows = benchmark.simulate(jr.key(77), 20_000, do)
        return {name: float(rows[name].mean()) if name not in do else do[name] for name in names}

    optimizer = Optimizer(
        {name: model.ranges.get(name) for name in names},
        target=model.target,
        graph=edges if known else None,
        data=data,
        strategy=strategy,
        max_simultaneous=most,
        mechanism="smooth",
        experiments=trials,
        seed=seed,
    )
    seconds = []
    for _ in range(trials):
        began = time.perf_counter()
        asked = optimizer.ask()
        seconds.append(time.perf_counter() - began)
        if asked.empty:
            break
        do = {name: float(v) for name, v in asked.iloc[0].drop("cost").items() if v == v}
        row = simulator(do)
        optimizer.tell(pd.DataFrame([row], index=asked.index))
    advice = optimizer.recommend()
    reached = float(benchmark.simulate(jr.key(99), 400_000, advice.do)[model.target].mean())
    return reached - benchmark.optimum, float(np.median(seconds))


def ask(report: harness.PartsReport, quick: bool) -> None:
    """How long the next experiment takes, after the first: from arrays on the host to values on the host."""
    scm = acbo.sample_scm(
        jr.key(0), acbo.scm_prior(mechanisms="linear", variables=(10, 10)), size=16, units=0
    )
    data = acbo.sample_mixed(scm, jr.key(1), 64, 50)
    known, unknown = problem_of(scm, knowledge=known_graph(scm.adjacency)), problem_of(scm)
    rows = {}
    asked = strategies(False)
    for name, strategy in {n: asked[n] for n in QUICK_ASK}.items() if quick else asked.items():
        choose = eqx.filter_jit(lambda s, p, d, r, k: s.choose(p, d, r, k))
        problem = known if name in KNOWN else unknown
        host = jax.tree.map(np.asarray, data)
        seconds = []
        for turn in range(4 if quick else 31):
            began = time.perf_counter()
            there = jax.tree.map(jnp.asarray, host)
            choice = choose(strategy, problem, there, jnp.asarray(5.0), jr.key(turn))
            np.asarray(choice.mask), np.asarray(choice.value)
            seconds.append(time.perf_counter() - began)
        rows[name] = {"first, s": seconds[0], "median, ms": 1e3 * float(np.median(seconds[1:]))}
        report.add("ask", rows, "10 variables padded to 16, 64 rows")


def main() -> None:
    options = harness.parse(__doc__ or "")
    report = harness.PartsReport("acbo-policy", options)
    if options.only in ("", "linear"):
        random_models(report, options.quick, "linear")
    if options.only in ("", "nonlinear"):
        random_models(report, options.quick, "nonlinear")
    if options.wants("bent"):
        bent_models(report, options.quick)
    if options.wants("literature"):
        literature(report, options.quick)
    if options.wants("ask"):
        ask(report, options.quick)
    report.finish()


if __name__ == "__main__":
    main()
