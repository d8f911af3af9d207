"""How the policy in the package is made: `python -m acbo.policy.recipe --out policy.safetensors --minutes 8`.

First it imitates Thompson sampling from the exact posterior, then GRPO fills the time that is left. What was done, with
which versions, and how good it became on models that it never saw, is written into the file.
"""

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from acbo.configs import GRPOTrainingConfig
from acbo.scms.drawing import sample_scm
from acbo.scms.prior import scm_prior
from jaxworlds.rollout import Chunk

from .curriculum import Curriculum
from .episodes import EpisodeConfig, new_case, run_steps
from .network import PolicyNetwork
from .settings import PolicyConfig
from .training import PolicyLearning, train_policy
from .weights import save_policy


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """The options of the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", default="policy.safetensors", help="file of weights to write")
    parser.add_argument(
        "--minutes", type=float, default=8.0, help="wall time for GRPO, compiling not counted"
    )
    parser.add_argument("--updates", type=int, help="updates of GRPO instead of minutes")
    parser.add_argument("--imitate", type=int, default=300, help="updates that imitate, before GRPO")
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--places", type=int, default=7)
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="bfloat16")
    parser.add_argument("--models", type=int, default=128, help="causal models of one update")
    parser.add_argument("--group", type=int, default=16, help="episodes on each of them")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--entropy", type=float, default=0.01)
    parser.add_argument("--kl", type=float, default=0.0)
    parser.add_argument("--size", type=int, default=10, help="largest number of variables")
    parser.add_argument(
        "--units", type=int, default=8, help="units of nonlinear mechanisms; 0 for linear models"
    )
    parser.add_argument("--chunk", type=int, default=10, help="updates in one compiled call")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--probe", action="store_true", help="only measure how fast training is")
    return parser.parse_args(given)


def main(given: Sequence[str] | None = None) -> dict[str, Any]:
    """Train, judge and save; returns the story that is written into the file."""
    options = arguments(given)
    config = PolicyConfig(
        width=options.width,
        layers=options.layers,
        surrogate_layers=options.layers,
        places=options.places,
        precision=options.precision,
    )
    key_network, key_run = jr.split(jr.key(options.seed))
    network = PolicyNetwork(config, key=key_network)
    parameters = sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(network, eqx.is_array)))
    print(f"{jax.devices()[0].device_kind}, jax {jax.__version__}; {parameters:,} parameters", flush=True)
    draw = Curriculum(options.size, options.units)
    learning = PolicyLearning(
        updates=options.chunk,
        models=options.models,
        imitate=0.0,
        grpo=GRPOTrainingConfig(
            group_size=options.group,
            num_iterations=1,
            learning_rate=options.learning_rate,
            entropy_coeff=options.entropy,
            kl_penalty_coeff=options.kl,
        ),
    )
    run_options = {"chunk": options.chunk, "record_every": options.chunk, "progress": False}
    updates, speed = options.updates, None
    if updates is None or options.probe:
        for word in ("compiled and ran", "ran"):
            began = time.perf_counter()
            tried = train_policy(draw, network, learning, key=key_run, **run_options)
            jax.block_until_ready(tried.network)
            seconds = time.perf_counter() - began
            speed = tried.episodes_per_second
            print(f"{word} {options.chunk} updates in {seconds:.1f} s; {speed:,.0f} episodes/s", flush=True)
        if updates is None:
            updates = max(int(options.minutes * 60 * (speed or 1) / tried.episodes), options.chunk)
    if options.probe:
        return {"episodes_per_second": speed}
    total = options.imitate + updates
    learning = dataclasses.replace(learning, updates=total, imitate=options.imitate / total)
    began = time.perf_counter()

    def report(chunk: Chunk) -> None:
        rate = (
            learning.models * options.group * chunk.records["regret"].shape[0] * options.chunk / chunk.seconds
        )
        figures = "  ".join(
            f"{name} {float(chunk.records[name].mean()):.4f}"
            for name in ("first_regret", "regret", "edge_loss", "effect_loss", "entropy", "imitation_loss")
            if name in chunk.records
        )
        if chunk.step % (5 * options.chunk) == 0:
            print(
                f"{time.perf_counter() - began:6.0f} s  update {chunk.step:6,}  {rate:8,.0f} episodes/s  {figures}",
                flush=True,
            )

    trained = train_policy(draw, network, learning, key=key_run, on_chunk=report, **run_options)
    seconds = time.perf_counter() - began
    quality = held_out_regret(trained.network)
    print(f"held-out regret: {quality}", flush=True)
    story = {
        "command": "python -m acbo.policy.recipe " + " ".join(sys.argv[1:] if given is None else given),
        "options": vars(options),
        "updates": total,
        "episodes": total * learning.models * options.group,
        "episodes_per_second": round(trained.episodes_per_second),
        "seconds": round(seconds, 1),
        "device": jax.devices()[0].device_kind,
        "versions": _versions(),
        "held_out_regret": quality,
    }
    path = save_policy(options.out, trained.network, story)
    print(f"{path}: {path.stat().st_size / 1e6:.2f} MB\n{json.dumps(story)}", flush=True)
    return story


def held_out_regret(network: PolicyNetwork, models: int = 256, seed: int = 50_500) -> dict[str, float]:
    """Mean normalised regret on linear Gaussian models of ten variables, by the temperature of the policy."""
    prior = scm_prior(mechanisms="linear", noises="gaussian", variables=(10, 10))
    shape = EpisodeConfig(least=50, known=0.0)

    @eqx.filter_jit
    def judge(network: PolicyNetwork, keys: Any, temperature: Any) -> Any:
        def one(key: Any) -> Any:
            key_scm, key_case, key_play = jr.split(key, 3)
            case = new_case(sample_scm(key_scm, prior, 10, 0), key_case, shape, network.config.places)
            return run_steps(network, case, key_play, shape, temperature).regret

        return jax.vmap(one)(keys)

    found = {}
    for temperature in (0.0, 0.3, 1.0):
        regret = np.asarray(judge(network, jr.split(jr.key(seed), models), jnp.asarray(temperature)))
        found[f"start, temperature {temperature}"] = round(float(regret[:, 0].mean()), 4)
        found[f"end, temperature {temperature}"] = round(float(regret[:, -1].mean()), 4)
    return found


def _versions() -> dict[str, str]:
    import optax

    return {
        "python": sys.version.split()[0],
        "jax": jax.__version__,
        "equinox": eqx.__version__,
        "optax": optax.__version__,
    }


if __name__ == "__main__":
    main()
