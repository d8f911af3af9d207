"""The commands `acbo train`, `acbo eval` and `acbo bench`: train a policy, compare it with other strategies, time it."""

import csv
import io
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Float

from acbo._limits import require_at_least
from acbo.data import BUCKETS, bucket
from acbo.experiments import Cell, Comparison, cells, compare, known_graph, problem_of
from acbo.names import place
from acbo.policy.episodes import Curriculum
from acbo.policy.grpo import PolicyLearning, train_policy
from acbo.policy.grpo_config import GRPOTrainingConfig
from acbo.policy.policy_network import PolicyConfig, save_policy
from acbo.scms.families import FAMILIES
from acbo.scms.random_models import sample_scm, scm_prior
from acbo.scms.samples import sample_mixed
from acbo.strategies import CausalBO, strategy_named
from acbo.strategies.trained_policy import Policy, load_policy, pretrained_policy
from jaxworlds.commands import (
    checkpoint_option,
    demand_suffix,
    is_first,
    machine,
    machine_words,
    print_json,
    say,
    show_status,
    show_table,
)
from jaxworlds.measuring import time_call
from jaxworlds.processes.exits import code_of, stopped_by
from jaxworlds.rollout import holds_run
from jaxworlds.store import atomic_write

CHUNK = 10
"""Updates in one compiled call; Ctrl-C is checked between calls."""

_MOST_ROWS = 2**16
"""Most rows that `acbo bench` draws: each takes many times its size in memory."""


def policy_of(given: str) -> Policy:
    """The policy in a file, or the pretrained policy of this name."""
    if Path(given).suffix != ".safetensors":
        return pretrained_policy(given)
    if not Path(given).is_file():
        raise FileNotFoundError(f"`policy` must be a file of weights or 'default'; {given} is not there.")
    return load_policy(given)


def train(
    out: Path,
    updates: int,
    models: int,
    group: int,
    width: int,
    layers: int,
    size: int,
    seed: int,
    checkpoint: Path | None = None,
    checkpoint_every: float = 30.0,
    resume: bool = False,
    json: bool = False,
    mesh: Any = None,
) -> int:
    """Train on the curriculum and write the policy; a first Ctrl-C ends early and still writes."""
    demand_suffix(out, (".safetensors",), "out")
    _demand_bounds(
        updates=(updates, 1, None),
        models=(models, 1, None),
        group=(group, 8, 256),
        width=(width, 1, None),
        layers=(layers, 1, None),
        size=(size, 3, BUCKETS[-1]),
    )
    if resume and checkpoint is None:
        raise ValueError("`--resume` needs `--checkpoint`, the folder of the run that goes on; got none.")
    kept = checkpoint_option(checkpoint, checkpoint_every)
    config = PolicyConfig(width=width, layers=layers, surrogate_layers=layers)
    grpo = GRPOTrainingConfig(group_size=group, num_iterations=1, learning_rate=1e-3)
    learning = PolicyLearning(updates=updates, models=models, grpo=grpo)
    trained = train_policy(
        Curriculum(size),
        config,
        learning,
        key=jr.key(seed),
        chunk=CHUNK,
        mesh=mesh,
        checkpoint=kept,
        # The same line serves the first time and every time after.
        resuming=resume and checkpoint is not None and holds_run(checkpoint / "imitation"),
        progress=False if json else None,
    )
    history = trained.history
    assert history is not None, "every update is recorded"
    done = len(history["regret"])
    story = {
        "command": f"acbo train --updates {updates} --models {models} --group {group} --width {width} "
        f"--layers {layers} --size {size} --seed {seed}",
        "outcome": trained.rollout.outcome,
        "updates": done,
        "episodes": done * trained.episodes,
        "device": jax.devices()[0].device_kind,
        "versions": {name: version(name) for name in ("jax", "equinox", "optax")},
    }
    if is_first():
        save_policy(out, trained.network, story)
    last, rate = float(history["regret"][-CHUNK:].mean()), trained.episodes_per_second
    if json:
        print_json(
            {**story, "episodes_per_second": rate, "regret": last, "out": out, "checkpoint": checkpoint}
        )
    else:
        say(
            f"{trained.rollout.outcome} after {done:,} updates of {trained.episodes:,} episodes, "
            f"{rate:,.0f} a second; regret {last:.3f} in the last ones"
        )
        say(f"policy: {out}")
        if early := stopped_by(trained.rollout.outcome, checkpoint):
            say(early)
    return code_of(trained.rollout.outcome)


def evaluate(
    policy: str,
    strategies: Sequence[str],
    sizes: Sequence[int],
    families: Sequence[str],
    models: int,
    seed: int,
    out: Path | None,
    json: bool = False,
    mesh: Any = None,
) -> int:
    """Compare the policy with other strategies on the same models; print a table and write every cell to a file."""
    _demand_bounds(models=(models, 2, None))
    if not sizes or min(sizes) < 2 or max(sizes) > BUCKETS[-1]:
        raise ValueError(
            f"`--sizes` must be numbers of variables, 2 at least and {BUCKETS[-1]} at most; got {tuple(sizes)}."
        )
    if out is not None:
        demand_suffix(out, (".csv",), "out")
    for family in families or ("",):
        place(family, tuple(FAMILIES), "--families")
    others = [name for name in dict.fromkeys(strategies) if name != "policy"]
    compared = {"policy": policy_of(policy)} | {name: strategy_named(name) for name in others}
    with show_status("compiling and playing") as tell:
        found = compare(
            compared,
            cells(sizes, families),
            models=models,
            size=max(sizes),
            known=[name for name in compared if name == "cbo"],
            seed=seed,
            mesh=mesh,
            report=lambda name, cell, _: tell(f"{name}: {cell.variables} variables, {cell.family}"),
        )
    if out is not None and is_first():
        _write_cells(out, found)
    if json:
        print_json({"strategies": _totals(found), "cells": _cell_rows(found), "out": out, **machine()})
    else:
        _show_totals(found)
        if out is not None:
            say(f"cells: {out}")
    return 0


def _totals(found: Comparison) -> list[dict[str, Any]]:
    """Regrets of each strategy over all cells, and its seconds for an episode."""
    count = len(found.regrets("policy"))
    seconds = {
        name: sum(found.results[name, cell].seconds for cell in found.cells) for name in found.strategies
    }
    return [
        {"strategy": name, **_regrets(found, name), "seconds_per_episode": taken / count}
        for name, taken in seconds.items()
    ]


def _cell_rows(found: Comparison) -> list[dict[str, Any]]:
    """Regrets of each strategy in each cell."""
    return [
        {"strategy": name, "variables": cell.variables, "family": cell.family, **_regrets(found, name, cell)}
        for name in found.strategies
        for cell in found.cells
    ]


def _regrets(found: Comparison, name: str, cell: Cell | None = None) -> dict[str, float]:
    """Mean regret and its difference from the policy's, each with the half-width of its 95 % interval."""
    (regret, half), (gap, gap_half) = found.mean(name, cell), found.difference(name, "policy", cell)
    facts = {"models": len(found.regrets(name, cell)), "regret": regret, "half": half}
    return facts | {"minus_policy": gap, "minus_policy_half": gap_half}


def _show_totals(found: Comparison) -> None:
    rows = [
        (
            f"{row['strategy']}, graph known" if row["strategy"] == "cbo" else row["strategy"],
            f"{row['regret']:.4f} ± {row['half']:.4f}",
            ""
            if row["strategy"] == "policy"
            else f"{row['minus_policy']:+.4f} ± {row['minus_policy_half']:.4f}",
            f"{1e3 * row['seconds_per_episode']:.1f}",
        )
        for row in _totals(found)
    ]
    title = f"{len(found.regrets('policy'))} models, 95 % intervals; regret 0 is the best intervention, 1 is to do nothing"
    show_table(title, ("strategy", "regret", "minus the policy's", "ms an episode"), rows)


def _write_cells(path: Path, found: Comparison) -> None:
    """Write a CSV file with one row for each strategy and cell."""
    rows, text = _cell_rows(found), io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    with atomic_write(path) as file:
        file.write(text.getvalue().encode())


def bench(policy: str, variables: int, rows: int, repeats: int, json: bool = False) -> int:
    """Time one choice of an experiment, from arrays on the host to values on the host."""
    _demand_bounds(
        variables=(variables, 2, BUCKETS[-1]), rows=(rows, 2, _MOST_ROWS), repeats=(repeats, 1, None)
    )
    prior = scm_prior(mechanisms="linear", variables=(variables, variables))
    scm = sample_scm(jr.key(0), prior, bucket(variables), 0)
    data = jax.tree.map(np.asarray, sample_mixed(scm, jr.key(1), rows, rows - rows // 5))
    asked = {
        "policy": (policy_of(policy), problem_of(scm)),
        "cbo, graph known": (CausalBO(), problem_of(scm, knowledge=known_graph(scm.adjacency))),
    }
    where = machine()
    found = []
    for name, (strategy, problem) in asked.items():
        with show_status(f"{name}: compiling and timing"):
            first, *later = _seconds(strategy, problem, data, repeats + 1).tolist()
        times = {
            "first_seconds": first,
            "median_seconds": float(np.median(later)),
            "slowest_seconds": max(later),
        }
        found.append({"strategy": name, **times})
    if json:
        print_json({"variables": variables, "rows": rows, "repeats": repeats, "strategies": found, **where})
        return 0
    shown = [
        (
            row["strategy"],
            f"{row['first_seconds']:.2f}",
            f"{1e3 * row['median_seconds']:.2f}",
            f"{1e3 * row['slowest_seconds']:.2f}",
        )
        for row in found
    ]
    title = f"next experiment: {variables} variables, {rows} rows"
    show_table(title, ("strategy", "first call, s", "median, ms", "slowest, ms"), shown, machine_words(where))
    return 0


def _seconds(strategy: Any, problem: Any, data: Any, calls: int) -> Float[np.ndarray, " calls"]:
    choose = eqx.filter_jit(lambda s, p, d, left, key: s.choose(p, d, left, key))

    def one(turn: int) -> Any:
        there = jax.tree.map(jnp.asarray, data)
        choice = choose(strategy, problem, there, jnp.asarray(5.0), jr.key(turn))
        return jax.device_get((choice.mask, choice.value))

    return np.array([time_call(one, turn)[1] for turn in range(calls)])


def _demand_bounds(**given: tuple[int, int, int | None]) -> None:
    """Raise for a number below its minimum or above its maximum."""
    for name, (value, least, most) in given.items():
        require_at_least(f"--{name}", value, least)
        if most is not None and value > most:
            raise ValueError(f"`--{name}` must be at most {most}; got {value}.")
