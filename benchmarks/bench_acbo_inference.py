"""Who causes whom: our teacher and our surrogate beside DiBS, PC and GES on the same data, and what ours cost.

    python benchmarks/bench_acbo_inference.py --setup-peers .peers       # makes the peers' environments where missing
    python benchmarks/bench_acbo_inference.py --peers .peers --only peers   # one part, with the environments there
    python benchmarks/bench_acbo_inference.py --only quality             # parts that need no peers
    python benchmarks/bench_acbo_inference.py --quick                    # tiny sizes: does it run?

Parts: quality, peers, generation, training, eager, compiles, large, nonlinear. Results go to
results/<device>/acbo-inference.json; a part replaces what was there of it and leaves the others, and each says when and
from which commit it was measured. What peers answer is kept in DIR/answers after every dataset, so that a run may be
broken off: DiBS takes minutes each.
"""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.random as jr
import numpy as np

import harness

PEERS = Path(__file__).resolve().parent / "acbo_peers"
sys.path.insert(0, str(PEERS))  # its modules also run alone, in environments without this project

import costs  # noqa: E402
import large  # noqa: E402
import ours  # noqa: E402
from judging import each_auroc, judge, judge_classes  # noqa: E402
from peer_environments import Missing, answers_of, set_up  # noqa: E402

from acbo.surrogate import benchmark_draws, held_out, pretrained  # noqa: E402

# Variables, rows, observations among them; whether the exact teacher is asked too: above 12 see the part `large`.
SETTINGS = (
    (10, 100, 60, True),
    (10, 100, 100, True),
    (5, 100, 60, True),
    (5, 100, 100, True),
    (10, 200, 120, True),
    (10, 500, 300, True),
    (16, 100, 60, False),
    (20, 100, 60, False),
)
# name: environment, script, options. 20 particles and 1000 steps are those of ledger 7.2.
DIBS = {"particles": 20, "steps": 1000, "edges_per_node": 1.5}
LEARNERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "DiBS, marginal BGe": ("dibs", "dibs_svgd.py", {"kind": "marginal", **DIBS}),
    "DiBS, joint linear, told the noise": (
        "dibs",
        "dibs_svgd.py",
        {"kind": "joint", "noise_variance": 1.0, **DIBS},
    ),
    "PC, Fisher z 0.05": ("causal-learn", "pc_ges.py", {"kind": "pc"}),
    "GES, BIC": ("causal-learn", "pc_ges.py", {"kind": "ges"}),
}
SEED = 7_200
PARTS = ("quality", "peers", "generation", "training", "eager", "compiles", "large", "nonlinear")


class Bench:
    """Sizes, and where the peers are."""

    def __init__(self, found: argparse.Namespace, report: harness.PartsReport) -> None:
        self.report, self.quick = report, found.quick
        self.peers = found.setup_peers or found.peers
        self.run_peers = not found.answered
        self.models = 8 if found.quick else 200
        self.seeds = found.seeds or (2 if found.quick else 10)
        self.repeats = 3 if found.quick else 20
        self.surrogate = pretrained()


def quality(bench: Bench) -> None:
    """The teacher and the surrogate on models they have not seen, also where the surrogate was not trained."""
    rows: dict[str, dict[str, Any]] = {}
    for variables, n, observed, exact in SETTINGS[:1] if bench.quick else SETTINGS:
        cases = held_out(benchmark_draws(variables, n, observed), models=bench.models)
        label = f"{variables} variables, {observed} + {n - observed} rows"
        found = {"surrogate": ours.surrogate_edges(bench.surrogate, cases.data)}
        if exact:
            found["teacher"] = ours.teacher_edges(cases.data)
        for name, edges in found.items():
            rows[f"{name}, {label}"] = {
                "models": bench.models,
                **judge(edges, cases.adjacency, cases.possible),
            }
        note = (
            "linear Gaussian models of ledger 7.2; observations + rows with one variable set; the surrogate was trained on "
            "3 to 10 variables and 20 to 100 rows"
        )
        bench.report.add("quality", rows, note)
    few = ours.first(held_out(benchmark_draws(10, 100, 60), models=bench.models).data, 8)
    gap = {"largest difference of an edge": ours.rounding_of_teacher(few)}
    bench.report.add("quality: float64 against float32", gap, "teacher, 10 variables, 8 models")


def peers(bench: Bench) -> None:
    """All learners on the same 100 observations of each model."""
    for variables in (5,) if bench.quick else (10, 5):
        cases = held_out(benchmark_draws(variables, 100, 100), jr.key(SEED), max(bench.models, bench.seeds))
        common = ours.first(cases, bench.seeds)
        values, truth = np.asarray(common.data.values), np.asarray(common.adjacency)
        rows: dict[str, dict[str, Any]] = {}
        skipped: dict[str, Any] = {}
        versions: dict[str, Any] = {}
        peers_said: dict[str, list[Any]] = {}
        for name, (environment_name, script, options) in LEARNERS.items():
            less = options | ({"steps": 20} if bench.quick and "steps" in options else {})
            try:
                said = answers_of(bench.peers, environment_name, script, values, less, bench.run_peers)
            except Missing as reason:
                skipped[name] = {"reason": str(reason)}
                continue
            versions[name] = {"versions": ", ".join(f"{k} {v}" for k, v in said["versions"].items())}
            peers_said[name] = said["answers"]
            rows |= _peer_rows(name, said["answers"], truth)
        own, edges = _our_rows(bench, cases, common)
        rows |= own
        part = f"peers, {variables} variables"
        note = "per dataset; DiBS's seconds hold its compiling, which comes with every dataset; ours do not; s.e. over models"
        bench.report.add(part, rows, note)
        if any("DiBS" in name for name in peers_said):
            ratios = _ratios(rows, peers_said, np.asarray(edges), truth)
            note = "DiBS over the surrogate, seconds per dataset; AUROC per model on the models that DiBS answered"
            bench.report.add(f"{part}: DiBS over surrogate", ratios, note)
        if versions:
            bench.report.add(f"{part}: versions", versions)
        if skipped:
            bench.report.add(f"{part}: skipped", skipped)


def _peer_rows(name: str, answers: list[Any], truth: np.ndarray) -> dict[str, Any]:
    """One row for a learner; two for particles, which can be counted or weighted."""
    truth = truth[: len(answers)]
    possible = np.broadcast_to(~np.eye(truth.shape[-1], dtype=bool), truth.shape)
    costs = {
        key: float(np.mean([a[key] for a in answers]))
        for key in ("wall_s", "cpu_s", "compile_s")
        if key in answers[0]
    }
    costs = {"models": len(answers)} | costs
    if "edges_empirical" not in answers[0]:
        return {name: judge_classes(np.array([a["edges"] for a in answers]), truth) | costs}
    kinds = {"mixture": "edges", "empirical": "edges_empirical"}
    return {
        f"{name}, {kind}": judge(np.array([a[key] for a in answers]), truth, possible) | costs
        for kind, key in kinds.items()
    }


def _our_rows(bench: Bench, cases: Any, common: Any) -> tuple[dict[str, Any], Any]:
    """Ours on the common models and on all; and what the surrogate says of the common ones."""
    spent = {
        "surrogate": ours.surrogate_costs(bench.surrogate, cases.data, min(32, bench.models), bench.repeats),
        "teacher": ours.teacher_costs(cases.data, min(8, bench.models), bench.repeats),
    }
    edges = {
        "surrogate": ours.surrogate_edges(bench.surrogate, cases.data),
        "teacher": ours.teacher_edges(cases.data),
    }
    rows: dict[str, Any] = {}
    for some in (common, cases):
        count = some.adjacency.shape[0]
        for name, found in edges.items():
            figures = judge(found[:count], some.adjacency, some.possible) | {"models": count}
            rows[name if some is common else f"{name}, more models"] = figures | spent[name]
    return rows, edges["surrogate"][: common.adjacency.shape[0]]


def _ratios(
    rows: Mapping[str, Any], said: Mapping[str, Any], edges: np.ndarray, truth: np.ndarray
) -> dict[str, Any]:
    """How many times as long DiBS takes: all of it, and without compiling; and who ranks better, model by model."""
    own = rows["surrogate"]
    found = {}
    for name, answers in said.items():
        if not name.startswith("DiBS"):
            continue
        count = len(answers)
        row = rows[f"{name}, mixture"]
        # Particles weighted or counted, whichever ranks better: the choice is the peer's best.
        ways = (
            each_auroc(np.array([a[key] for a in answers]), truth[:count])
            for key in ("edges", "edges_empirical")
        )
        theirs = max(ways, key=np.mean)
        gain = each_auroc(edges[:count], truth[:count]) - theirs
        found[name] = {
            "models": count,
            "wall": row["wall_s"] / own["wall_s"],
            "CPU": row["cpu_s"] / own["cpu_s"],
            "CPU, compiling left out": max(row["cpu_s"] - row["compile_s"], 0.0) / own["cpu_s"],
            "CPU, surrogate asked one by one": row["cpu_s"] / own["alone CPU_s"],
            "AUROC, DiBS at its best": theirs.mean(),
            "AUROC, surrogate": (theirs + gain).mean(),
            "s.e. of the difference": gain.std(ddof=1) / np.sqrt(count) if count > 1 else None,
            "surrogate ahead in": int((gain > 0).sum()),
        }
    return found


def generation(bench: Bench) -> None:
    rows = costs.generation(10, 16 if bench.quick else 256, bench.repeats)
    bench.report.add("generation", rows, "100 rows × 10 variables; waits for every call; compiling apart")


def training(bench: Bench) -> None:
    small = (4, 2, 16, 1) if bench.quick else (16, 8, 64, 4)
    batch, updates, width, layers = small
    note = f"batch {batch}, 100 × 10, {layers} layers {width} wide, float32, labels from the true graph"
    bench.report.add("training", costs.training(batch, updates, width, layers), note)


def eager(bench: Bench) -> None:
    rows: dict[str, Any] = {}
    width, layers, batch, rounds = (16, 1, 2, 2) if bench.quick else (64, 4, 4, 3)
    note = f"the same step, {layers} layers {width} wide; uncompiled, JAX compiles the scan over layers anew in every step"
    for encoder in ("statistics", "axial"):
        rows |= costs.compiled_against_eager(encoder, batch, rounds, width, layers)
        bench.report.add("training: jit against eager", rows, note)


def compiles(bench: Bench) -> None:
    rows = costs.compiles(bench.surrogate, 20 if bench.quick else 1_000, (8,) if bench.quick else (8, 16))
    bench.report.add(
        "compiles", rows, "programs compiled over a stream of models of mixed size, names, graphs and data"
    )


def beyond_exact(bench: Bench) -> None:
    note = "60 + 40 rows, linear Gaussian; seconds per dataset, one after the other; gaps to the exact posterior's edges"
    rows: dict[str, Any] = {}
    for method in ("exact", "restricted", "order_mcmc"):
        rows |= large.at(5 if bench.quick else 12, 2 if bench.quick else 10, method)
        bench.report.add("large", rows, note)
    for variables in (6,) if bench.quick else (16, 24, 32):
        rows |= large.at(variables, 2 if bench.quick else 5, "restricted")
        bench.report.add("large", rows, note)


def nonlinear(bench: Bench) -> None:
    """Both scores where mechanisms are linear and where not; a CPU takes minutes to compile and few models."""
    models = 2 if bench.quick else 10 if jax.default_backend() == "cpu" else bench.models
    rows: dict[str, Any] = {}
    for kind in ("nonlinear", "linear"):
        for score in ("BGe", "Gaussian process"):
            rows |= large.nonlinear(4 if bench.quick else 5, models, kind, score)
            bench.report.add("nonlinear", rows, "60 + 40 rows, Gaussian noise, exact sums over orders")


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does everything run?")
    parser.add_argument("--peers", type=Path, metavar="DIR", help="folder of the peers' virtual environments")
    parser.add_argument(
        "--setup-peers", type=Path, metavar="DIR", help="the same; make those that are missing first"
    )
    parser.add_argument("--only", default="", metavar="PART", help=f"one of {', '.join(PARTS)}")
    parser.add_argument(
        "--answered", action="store_true", help="run no peers: judge what they answered before"
    )
    parser.add_argument("--seeds", type=int, help="models that all peers are given, by default 10")
    parser.add_argument(
        "--out", type=Path, default=harness.RESULTS, metavar="FOLDER", help="folder of the results"
    )
    return parser.parse_args(arguments)


def main() -> None:
    found = parse()
    if found.setup_peers:
        set_up(found.setup_peers)
    options = harness.Options(found.quick, found.only, found.out)
    report = harness.PartsReport("acbo-inference", options)
    bench = Bench(found, report)
    runs = (quality, peers, generation, training, eager, compiles, beyond_exact, nonlinear)
    for name, part in zip(PARTS, runs, strict=True):
        if options.wants(name):
            part(bench)
            jax.clear_caches()  # programs of one part are not needed by the next
    report.finish()


if __name__ == "__main__":
    main()
