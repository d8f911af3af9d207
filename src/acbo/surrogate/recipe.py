"""The recipe of the pretrained surrogate: `python -m acbo.surrogate.recipe --out weights.safetensors --minutes 10`.

Training takes the time it is given: the first calls measure how many updates fit, and the learning rate follows that
number. What was done, with which versions and how good it became, is written into the file.
"""

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr

from jaxworlds.rollout import Chunk

from .layers import NetworkConfig
from .model_draws import benchmark_draws, exact_edges, training_draws
from .network import Network, count_parameters
from .quality import HeldOut, Quality, calibrate, evaluate, held_out
from .trainer import Learning, LearningConfig, Trained, train
from .weights import save_weights


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """The options of the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--out", default="weights.safetensors", help="file of weights to write")
    add("--minutes", type=float, default=10.0, help="wall time for training, compiling not counted")
    add("--updates", type=int, help="updates instead of minutes: the same weights on any machine")
    add("--encoder", choices=("axial", "statistics"), default="axial")
    add("--width", type=int, default=64)
    add("--pair-width", type=int, default=64)
    add("--layers", type=int, default=4)
    add("--heads", type=int, default=2)
    add("--widening", type=int, default=2)
    add("--precision", choices=("float32", "bfloat16"), default="bfloat16")
    add("--remat", choices=("none", "dots", "all"), default="dots", help="what is computed again")
    add("--batch", type=int, default=512)
    add("--accumulate", type=int, default=1)
    add("--learning-rate", type=float, default=1.5e-3)
    add("--size", type=int, default=10, help="largest number of variables")
    add("--rows", type=int, default=100)
    add("--nonlinear", type=float, default=0.25, help="share of models that are not linear Gaussian")
    add("--labels", choices=("truth", "teacher"), default="truth")
    add("--chunk", type=int, default=20, help="updates in one compiled call")
    add("--seed", type=int, default=0)
    add("--evaluate-every", type=float, default=60.0, help="seconds between evaluations")
    add("--probe", action="store_true", help="only measure how fast training is")
    add("--devices", type=int, default=1)
    return parser.parse_args(given)


def main(given: Sequence[str] | None = None) -> Quality | None:
    """Train, calibrate, judge and save; returns the quality on the benchmark, or nothing from a probe."""
    options = arguments(given)
    sizes = ("encoder", "width", "pair_width", "layers", "heads", "widening", "precision", "remat")
    config = NetworkConfig(**{name: getattr(options, name) for name in sizes})
    draw = training_draws(options.size, options.rows, options.rows * 3 // 5, nonlinear=options.nonlinear)
    benchmark = held_out(benchmark_draws(10, 100, 60))
    observations = held_out(benchmark_draws(10, 100, 100))
    key_network, key_run = jr.split(jr.key(options.seed))
    network = Network(config, key=key_network)
    print_start(network)
    learning = LearningConfig(
        updates=options.updates or options.chunk,
        batch=options.batch,
        accumulate=options.accumulate,
        learning_rate=options.learning_rate,
    )
    if options.updates is None or options.probe:
        learning = _fill_time(draw, network, learning, options)
    if options.probe:
        return None
    began = time.perf_counter()
    trained = _train(draw, network, learning, options, key_run, benchmark)
    seconds = time.perf_counter() - began
    # Keys that neither training nor the benchmark uses.
    surrogate = calibrate(trained.network, held_out(draw, jr.key(30_300), 2000), "vector")
    raw, quality = evaluate(trained.network, benchmark), evaluate(surrogate, benchmark)
    alone = evaluate(surrogate, observations)
    print(
        f"before calibration: {raw}\nafter calibration:  {quality}\nobservations only:  {alone}", flush=True
    )
    story = {
        **run_facts("acbo.surrogate.recipe", given, options),
        "updates": learning.updates,
        "datasets": learning.updates * learning.batch,
        "datasets_per_second": round(trained.datasets_per_second),
        "seconds": round(seconds, 1),
        "benchmark": dataclasses.asdict(quality),
        "observations_only": dataclasses.asdict(alone),
        "calibration": {
            "scale": float(surrogate.calibration.scale),
            "shift": float(surrogate.calibration.shift),
        },
    }
    print_file(save_weights(options.out, surrogate, story), story)
    return quality


def _fill_time(draw: Any, network: Network, learning: LearningConfig, options: Any) -> LearningConfig:
    """The number of updates that the given minutes hold, a whole number of chunks."""
    # Once to compile, once to measure; the number of updates is no part of the program.
    _, probe = (train(draw, network, learning, **_run_options(options)) for _ in range(2))
    rate = probe.datasets_per_second
    chunks = max(1, int(options.minutes * 60 * rate / (learning.batch * options.chunk)))
    print(
        f"{rate:,.0f} datasets/s ({probe.rollout.seconds - probe.rollout.compile_seconds:.2f} s for {options.chunk} "
        f"updates of {learning.batch}); {chunks * options.chunk:,} updates in {options.minutes} minutes",
        flush=True,
    )
    return dataclasses.replace(learning, updates=chunks * options.chunk)


def _train(
    draw: Any, network: Network, learning: LearningConfig, options: Any, key: Any, benchmark: HeldOut
) -> Trained:
    began = time.perf_counter()
    evaluated = began

    def report(chunk: Chunk) -> None:
        nonlocal evaluated
        now = time.perf_counter()
        if now - evaluated < options.evaluate_every and chunk.step < learning.updates:
            return
        evaluated = now
        quality = evaluate(jax.tree.map(jnp.asarray, chunk.observed), benchmark)
        rate = learning.batch * chunk.records["edge_loss"].shape[0] * options.chunk / chunk.seconds
        loss = float(chunk.records["edge_loss"].mean())
        print(
            f"{now - began:6.0f} s  update {chunk.step:7,}  loss {loss:.4f}  {rate:9,.0f} datasets/s  {quality}",
            flush=True,
        )

    return train(draw, network, learning, key=key, on_chunk=report, **_run_options(options))


def _run_options(options: Any) -> dict[str, Any]:
    from jaxworlds.batching import world_mesh

    mesh = world_mesh(options.devices) if options.devices > 1 else None
    return {
        "chunk": options.chunk,
        "record_every": options.chunk,
        "observe": _network_of,
        "mesh": mesh,
        "teach": exact_edges if options.labels == "teacher" else None,
        "progress": False,
    }


def _network_of(state: Learning) -> Network:
    return state.network


def print_start(network: Any) -> None:
    """Say what trains which network."""
    parameters = count_parameters(network)
    print(f"{jax.devices()[0].device_kind}, jax {jax.__version__}; {parameters:,} parameters", flush=True)


def print_file(path: Path, story: dict[str, Any]) -> None:
    """Say what was written."""
    print(f"{path}: {path.stat().st_size / 1e6:.2f} MB\n{json.dumps(story)}", flush=True)


def run_facts(module: str, given: Sequence[str] | None, options: argparse.Namespace) -> dict[str, Any]:
    """What ran where, for the story in a file of weights: command, options, device, versions."""
    return {
        "command": " ".join([f"python -m {module}", *(sys.argv[1:] if given is None else given)]),
        "options": vars(options),
        "device": jax.devices()[0].device_kind,
        "versions": {"python": sys.version.split()[0]}
        | {name: version(name) for name in ("jax", "equinox", "optax")},
    }


if __name__ == "__main__":
    main()
