"""The recipe of the pretrained policy: `python -m acbo.policy.recipe --out policy.safetensors --minutes 8`.

First it imitates Thompson sampling from the exact posterior, then GRPO fills the time that is left. The command and the
versions are written into the file; `--judge FILE` adds its regret on held-out models.
"""

import argparse
import dataclasses
import json
import threading
import time
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from acbo.scms.random_models import sample_scm, scm_prior
from acbo.surrogate.recipe import print_file, print_start, run_facts

from .episodes import Curriculum, EpisodeConfig, new_case, run_steps
from .grpo import PolicyLearning, PolicyState, PolicyUpdate, begin
from .grpo_config import GRPOTrainingConfig
from .policy_network import PolicyConfig, PolicyNetwork, load_network, policy_metadata, save_policy


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """The options of the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--out", default="policy.safetensors", help="file of weights to write")
    add("--minutes", type=float, default=9.0, help="wall time of the whole command, compiling included")
    add("--updates", type=int, help="updates of GRPO instead of minutes: the same on any machine")
    add("--imitate", type=int, default=150, help="updates that imitate, before GRPO")
    add("--width", type=int, default=48)
    add("--layers", type=int, default=3)
    add("--places", type=int, default=7)
    add("--precision", choices=("float32", "bfloat16"), default="bfloat16")
    add("--models", type=int, default=128, help="causal models of one update")
    add("--group", type=int, default=16, help="episodes on each of them")
    add("--learning-rate", type=float, default=1.5e-3)
    add("--entropy", type=float, default=0.003)
    add("--kl", type=float, default=0.0)
    add("--size", type=int, default=10, help="largest number of variables")
    add("--units", type=int, default=8, help="units of nonlinear mechanisms; 0 for linear models")
    add("--seed", type=int, default=0)
    add("--patience", type=float, default=120.0, help="seconds to wait for the program that imitates")
    add("--probe", action="store_true", help="only measure how fast training is")
    add("--judge", metavar="FILE", help="only evaluate a trained policy, and write the result into its file")
    return parser.parse_args(given)


def main(given: Sequence[str] | None = None) -> dict[str, Any]:
    """Train and save, or judge; returns the story that is written into the file."""
    began = time.perf_counter()
    options = arguments(given)
    if options.judge:
        return judge(options.judge)
    sizes = {name: getattr(options, name) for name in ("width", "layers", "places", "precision")}
    config = PolicyConfig(**sizes, surrogate_layers=options.layers)
    grpo = GRPOTrainingConfig(
        group_size=options.group,
        num_iterations=1,
        learning_rate=options.learning_rate,
        entropy_coeff=options.entropy,
        kl_penalty_coeff=options.kl,
    )
    learning = PolicyLearning(models=options.models, grpo=grpo)
    key_network, key_run = jr.split(jr.key(options.seed))
    state = begin(PolicyNetwork(config, key=key_network), learning, key=key_run)
    print_start(state.network)
    draw = Curriculum(options.size, options.units)
    kinds = [False, True] if options.imitate > 0 and not options.probe else [False]
    improve, *imitate = _compile_together(draw, learning, state, kinds, options.patience)
    compiled = time.perf_counter() - began
    print(f"compiled after {compiled:.0f} s", flush=True)
    speed = _speed(improve, state, options)
    if options.probe:
        return {"episodes_per_second": speed}
    warm = options.imitate if imitate else 0
    updates = options.updates
    if updates is None:
        left = options.minutes * 60 - (time.perf_counter() - began)
        # An update that imitates takes about twice as long.
        updates = max(int(left * speed / (options.models * options.group)) - 2 * warm, 1)
    total = warm + updates
    started = time.perf_counter()
    for number in range(total):
        program = imitate[0] if number < warm else improve
        if number == warm and state.reference is not None:
            state = eqx.tree_at(lambda s: s.reference, state, state.network)
        state, figures = program(jnp.int32(total), state)
        if number % 25 == 24 or number == total - 1:
            _report(time.perf_counter() - began, number + 1, figures)
        if options.updates is None and time.perf_counter() - began > options.minutes * 60 + 20:
            print("stopped: slower than it was measured", flush=True)
            break
    jax.block_until_ready(state)
    seconds = time.perf_counter() - started
    done = int(state.step)
    story = {
        **run_facts("acbo.policy.recipe", given, options),
        "updates": done,
        "planned_updates": total,
        "episodes": done * options.models * options.group,
        "episodes_per_second": round(done * options.models * options.group / seconds),
        "grpo_episodes_per_second": round(speed),
        "seconds": round(seconds, 1),
        "compile_seconds": round(compiled, 1),
    }
    print_file(save_policy(options.out, state.network, story), story)
    return story


def _compile_together(
    draw: Any, learning: PolicyLearning, state: PolicyState, kinds: Sequence[bool], patience: float
) -> list[Any]:
    """Both programs, compiled at the same time; without the second where it is not ready after `patience` seconds."""
    ready: dict[bool, Any] = {}

    def compile_kind(teach: bool) -> None:
        ready[teach] = _compile(draw, learning, teach, state)

    threads = [threading.Thread(target=compile_kind, args=(teach,), daemon=True) for teach in kinds]
    for thread in threads:
        thread.start()
    threads[0].join()
    began = time.perf_counter()
    for thread in threads[1:]:
        thread.join(max(patience - (time.perf_counter() - began), 0))
        if thread.is_alive():
            print(f"imitation is left out: not compiled {patience:.0f} s after the other program", flush=True)
    return [ready[teach] for teach in kinds if teach in ready]


def _compile(draw: Any, learning: PolicyLearning, teach: bool, state: PolicyState) -> Any:
    """One update as a compiled function of the number of all updates and the state."""
    # The program knows no number of updates, nor how many of them imitate.
    part = dataclasses.replace(learning, updates=1, imitate=0.0)
    arrays, static = eqx.partition(state, eqx.is_array)

    def update(total: Any, arrays: Any) -> Any:
        after, figures = PolicyUpdate(draw, total, part, teach)(eqx.combine(arrays, static))
        return eqx.filter(after, eqx.is_array), figures

    program = jax.jit(update).lower(jnp.int32(1), arrays).compile()

    def run(total: Any, state: PolicyState) -> tuple[PolicyState, dict[str, Any]]:
        after, figures = program(total, eqx.filter(state, eqx.is_array))
        return eqx.combine(after, static), figures

    return run


def _speed(program: Any, state: PolicyState, options: argparse.Namespace) -> float:
    """Episodes per second over ten updates, after two that are not counted."""
    seconds = 1.0
    for count in (2, 10):
        began = time.perf_counter()
        for _ in range(count):
            state, _ = program(jnp.int32(1000), state)
        jax.block_until_ready(state)
        seconds = (time.perf_counter() - began) / count
    speed = options.models * options.group / seconds
    print(f"{seconds * 1e3:.1f} ms an update, {speed:,.0f} episodes/s with learning", flush=True)
    return speed


def _report(seconds: float, number: int, figures: dict[str, Any]) -> None:
    shown = ("first_regret", "regret", "edge_loss", "effect_loss", "entropy", "imitation_loss")
    words = "  ".join(f"{name} {float(figures[name]):.4f}" for name in shown if name in figures)
    print(f"{seconds:6.0f} s  update {number:6,}  {words}", flush=True)


def judge(path: str) -> dict[str, Any]:
    """Evaluate a policy on held-out models and write the result into its file."""
    story = policy_metadata(path)["metadata"]
    network = load_network(path)
    story["held_out_regret"] = held_out_regret(network)
    save_policy(path, network, story)
    print(json.dumps(story["held_out_regret"], indent=1), flush=True)
    return story


def held_out_regret(network: PolicyNetwork, models: int = 256, seed: int = 50_500) -> dict[str, float]:
    """Mean normalised regret on linear Gaussian models of ten variables, by the temperature of the policy."""
    prior = scm_prior(mechanisms="linear", noises="gaussian", variables=(10, 10))
    shape = EpisodeConfig(least=50, known=0.0)

    @eqx.filter_jit
    def play(network: PolicyNetwork, keys: Any, temperature: Any) -> Any:
        def one(key: Any) -> Any:
            key_scm, key_case, key_play = jr.split(key, 3)
            case = new_case(sample_scm(key_scm, prior, 10, 0), key_case, shape, network.config.places)
            return run_steps(network, case, key_play, shape, temperature).regret

        return jax.vmap(one)(keys)

    found = {}
    for temperature in (0.0, 0.3, 1.0):
        regret = np.asarray(play(network, jr.split(jr.key(seed), models), jnp.asarray(temperature)))
        found[f"start, temperature {temperature}"] = round(float(regret[:, 0].mean()), 4)
        found[f"end, temperature {temperature}"] = round(float(regret[:, -1].mean()), 4)
    return found


if __name__ == "__main__":
    main()
