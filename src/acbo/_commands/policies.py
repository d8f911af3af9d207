"""The commands `acbo train`, `acbo eval` and `acbo bench`: train a policy, compare it with other strategies, time it."""

import csv
import io
import time
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

from acbo.data import BUCKETS, bucket
from acbo.experiments import Cell, Comparison, cells, compare, known_graph, problem_of
from acbo.names import suggestion
from acbo.policy.curriculum import Curriculum
from acbo.policy.grpo import PolicyLearning, train_policy
from acbo.policy.grpo_config import GRPOTrainingConfig
from acbo.policy.policy_network import PolicyConfig
from acbo.policy.policy_weights import save_policy
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
    _require_at_least(
        updates=(updates, 1),
        models=(models, 1),
        group=(group, 8),
        width=(width, 1),
        layers=(layers, 1),
        size=(size, 3),
    )
    _require_at_most(group=(group, 256), size=(size, BUCKETS[-1]))
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
    _require_at_least(models=(models, 2))
    if not sizes or min(sizes) < 2 or max(sizes) > BUCKETS[-1]:
        raise ValueError(
            f"`--sizes` must be numbers of variables, 2 at least and {BUCKETS[-1]} at most; got {tuple(sizes)}."
        )
    if out is not None:
        demand_suffix(out, (".csv",), "out")
    for family in families:
        if family not in FAMILIES:
            names = ", ".join(FAMILIES)
            raise ValueError(
                f"`--families` must be of {names}; got {family!r}.{suggestion(family, tuple(FAMILIES))}"
            )
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
        rows = [_cell_row(found, name, cell) for name in found.strategies for cell in found.cells]
        print_json({"strategies": _totals(found), "cells": rows, "out": out, **machine()})
    else:
        _show_totals(found)
        if out is not None:
            say(f"cells: {out}")
    return 0


def _totals(found: Comparison) -> list[dict[str, Any]]:
    """Mean regret of each strategy over all cells, with half-widths of 95 % intervals."""
    rows, count = [], len(found.regrets("policy"))
    for name in found.strategies:
        (regret, half), (gap, gap_half) = found.mean(name), found.difference(name, "policy")
        seconds = sum(found.results[name, cell].seconds for cell in found.cells) / count
        facts = {"strategy": name, "models": count, "regret": regret, "half": half}
        rows.append(
            facts | {"minus_policy": gap, "minus_policy_half": gap_half, "seconds_per_episode": seconds}
        )
    return rows


def _show_totals(found: Comparison) -> None:
    rows = [
        (
            f"{row['strategy']}, graph known" if row["strategy"] == "cbo" else row["strategy"],
            _interval_text((row["regret"], row["half"])),
            ""
            if row["strategy"] == "policy"
            else _interval_text((row["minus_policy"], row["minus_policy_half"]), "+"),
            f"{1e3 * row['seconds_per_episode']:.1f}",
        )
        for row in _totals(found)
    ]
    title = f"{len(found.regrets('policy'))} models, 95 % intervals; regret 0 is the best intervention, 1 is to do nothing"
    show_table(title, ("strategy", "regret", "minus the policy's", "ms an episode"), rows)


def _interval_text(estimate: tuple[float, float], sign: str = "") -> str:
    return f"{estimate[0]:{sign}.4f} ± {estimate[1]:.4f}"


def _write_cells(path: Path, found: Comparison) -> None:
    """Write a CSV file with one row for each strategy and cell."""
    columns = (
        "strategy",
        "variables",
        "family",
        "models",
        "regret",
        "half",
        "minus_policy",
        "minus_policy_half",
    )
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns)
    writer.writeheader()
    for name in found.strategies:
        for cell in found.cells:
            writer.writerow(_cell_row(found, name, cell))
    with atomic_write(path) as file:
        file.write(text.getvalue().encode())


def _cell_row(found: Comparison, name: str, cell: Cell) -> dict[Any, Any]:
    regret, within = found.mean(name, cell)
    gap, half = found.difference(name, "policy", cell)
    return {
        "strategy": name,
        "variables": cell.variables,
        "family": cell.family,
        "models": len(found.regrets(name, cell)),
        "regret": regret,
        "half": within,
        "minus_policy": gap,
        "minus_policy_half": half,
    }


def bench(policy: str, variables: int, rows: int, repeats: int, json: bool = False) -> int:
    """Time one choice of an experiment, from arrays on the host to values on the host."""
    _require_at_least(variables=(variables, 2), rows=(rows, 2), repeats=(repeats, 1))
    _require_at_most(variables=(variables, BUCKETS[-1]), rows=(rows, _MOST_ROWS))
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
        times = {"first": first, "median": float(np.median(later)), "slowest": max(later)}
        found.append({"strategy": name, **{f"{word}_seconds": seconds for word, seconds in times.items()}})
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


def _require_at_least(**given: tuple[int, int]) -> None:
    """Raise for a number below its minimum."""
    for name, (value, least) in given.items():
        if value < least:
            raise ValueError(f"`--{name}` must be at least {least}; got {value}.")


def _seconds(strategy: Any, problem: Any, data: Any, calls: int) -> Float[np.ndarray, " calls"]:
    choose = eqx.filter_jit(lambda s, p, d, left, key: s.choose(p, d, left, key))
    taken = []
    for turn in range(calls):
        began = time.perf_counter()
        there = jax.tree.map(jnp.asarray, data)
        choice = choose(strategy, problem, there, jnp.asarray(5.0), jr.key(turn))
        jax.device_get((choice.mask, choice.value))
        taken.append(time.perf_counter() - began)
    return np.array(taken)


def _require_at_most(**given: tuple[int, int]) -> None:
    """Raise for a number above its maximum."""
    for name, (value, most) in given.items():
        if value > most:
            raise ValueError(f"`--{name}` must be at most {most}; got {value}.")
