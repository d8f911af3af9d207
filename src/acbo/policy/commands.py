"""What `acbo train`, `acbo eval` and `acbo bench` do: train a policy, judge it beside other strategies, time its answers."""

import csv
import io
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Float

from acbo.configs import GRPOTrainingConfig
from acbo.data import bucket
from acbo.experiments import Cell, Comparison, cells, compare, known_graph, problem_of
from acbo.experiments.evaluation import NORMAL
from acbo.scms.drawing import sample_scm
from acbo.scms.families import FAMILIES
from acbo.scms.names import suggestion
from acbo.scms.prior import scm_prior
from acbo.scms.sampling import sample_mixed
from acbo.strategies import CausalBO, strategy_named
from jaxworlds._commands import is_first
from jaxworlds._ending import cause_of
from jaxworlds.checkpoints import Checkpoint
from jaxworlds.store import atomic_write

from .curriculum import Curriculum
from .settings import PolicyConfig
from .strategy import Policy
from .training import PolicyLearning, train_policy
from .weights import load_policy, pretrained_policy, save_policy

if TYPE_CHECKING:
    from rich.console import Console

CHUNK = 10
"""Updates between two looks at the keyboard."""


def policy_of(given: str) -> Policy:
    """The policy in a file, or the one of this name in the package."""
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
    console: "Console",
    checkpoint: Path | None = None,
    resume: bool = False,
    mesh: Any = None,
) -> str:
    """Train on the curriculum and write the policy; a first Ctrl-C ends early and still writes. The outcome of the run."""
    if not out.absolute().parent.is_dir():
        raise ValueError(f"`out` must lie in a folder that exists; got {out}. Make the folder first.")
    if size < 3:
        raise ValueError(f"`size`, the most variables of a model, must be at least 3; got {size}.")
    if resume and checkpoint is None:
        raise ValueError("`--resume` needs `--checkpoint`, the folder of the run that goes on; got none.")
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
        checkpoint=checkpoint,
        # The same line serves the first time and every time after.
        resuming=resume and checkpoint is not None and _begun(checkpoint),
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
    last = history["regret"][-CHUNK:].mean()
    console.print(
        f"{trained.rollout.outcome} after {done:,} updates of {trained.episodes:,} episodes, "
        f"{trained.episodes_per_second:,.0f} a second; regret {last:.3f} in the last ones",
        highlight=False,
        soft_wrap=True,
    )
    console.print(f"policy: {out}", highlight=False, soft_wrap=True)
    cause = cause_of(trained.rollout.outcome)
    if cause is not None:
        go_on = (
            "the same command with --resume goes on" if checkpoint else "--checkpoint makes runs resumable"
        )
        console.print(f"stopped early by {cause}; {go_on}", highlight=False, soft_wrap=True)
    return trained.rollout.outcome


def _begun(folder: Path) -> bool:
    return any(Checkpoint(place).holds_run for place in (folder, folder / "imitation"))


def evaluate(
    policy: str,
    strategies: Sequence[str],
    sizes: Sequence[int],
    families: Sequence[str],
    models: int,
    seed: int,
    out: Path | None,
    console: "Console",
    mesh: Any = None,
) -> None:
    """The policy and others on the same models; a table in the terminal, and every cell in a file."""
    if models < 2:
        raise ValueError(f"`models` must be at least 2, for an interval; got {models}.")
    if not sizes or min(sizes) < 2:
        raise ValueError(f"`sizes` must be numbers of variables, 2 at least; got {tuple(sizes)}.")
    for family in families:
        if family not in FAMILIES:
            names = ", ".join(FAMILIES)
            raise ValueError(
                f"`families` must be of {names}; got {family!r}.{suggestion(family, tuple(FAMILIES))}"
            )
    others = [name for name in dict.fromkeys(strategies) if name != "policy"]
    compared = {"policy": policy_of(policy)} | {name: strategy_named(name) for name in others}
    with console.status("compiling and playing") as status:
        found = compare(
            compared,
            cells(sizes, families),
            models=models,
            size=max(sizes),
            known=("cbo",),
            seed=seed,
            mesh=mesh,
            report=lambda name, cell, _: status.update(f"{name}: {cell.variables} variables, {cell.family}"),
        )
    console.print(_regret_table(found))
    if out is not None:
        if is_first():
            _write_cells(out, found)
        console.print(f"cells: {out}", highlight=False, soft_wrap=True)


def _regret_table(found: Comparison) -> Any:
    from rich.table import Table

    count = len(found.regrets("policy"))
    table = Table(
        "strategy", "regret", "minus the policy's", "ms an episode", title=f"{count} models, 95 % intervals"
    )
    for name in found.strategies:
        seconds = sum(found.results[name, cell].seconds for cell in found.cells)
        gap = "" if name == "policy" else _written(found.difference(name, "policy"), "+")
        label = f"{name}, graph known" if name == "cbo" else name
        table.add_row(label, _written(found.mean(name)), gap, f"{1e3 * seconds / count:.1f}")
    return table


def _written(estimate: tuple[float, float], sign: str = "") -> str:
    return f"{estimate[0]:{sign}.4f} ± {estimate[1]:.4f}"


def _write_cells(path: Path, found: Comparison) -> None:
    """A row for every strategy and cell."""
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
    regrets = found.regrets(name, cell)
    gap, half = found.difference(name, "policy", cell)
    return {
        "strategy": name,
        "variables": cell.variables,
        "family": cell.family,
        "models": len(regrets),
        "regret": float(regrets.mean()),
        "half": float(NORMAL * regrets.std(ddof=1) / np.sqrt(len(regrets))),
        "minus_policy": gap,
        "minus_policy_half": half,
    }


def bench(policy: str, variables: int, rows: int, repeats: int, console: "Console") -> None:
    """How long the next experiment takes, from arrays on the host to values on the host."""
    from rich.table import Table

    for name, value, least in (("variables", variables, 2), ("rows", rows, 2), ("repeats", repeats, 1)):
        if value < least:
            raise ValueError(f"`{name}` must be at least {least}; got {value}.")
    prior = scm_prior(mechanisms="linear", variables=(variables, variables))
    scm = sample_scm(jr.key(0), prior, bucket(variables), 0)
    data = jax.tree.map(np.asarray, sample_mixed(scm, jr.key(1), rows, rows - rows // 5))
    asked = {
        "policy": (policy_of(policy), problem_of(scm)),
        "cbo, graph known": (CausalBO(), problem_of(scm, knowledge=known_graph(scm.adjacency))),
    }
    table = Table(
        "strategy",
        "first call, s",
        "median, ms",
        "slowest, ms",
        title=f"next experiment: {variables} variables, {rows} rows, {jax.devices()[0].device_kind}",
    )
    for name, (strategy, problem) in asked.items():
        first, *later = _seconds(strategy, problem, data, repeats + 1)
        table.add_row(name, f"{first:.2f}", f"{1e3 * np.median(later):.2f}", f"{1e3 * max(later):.2f}")
    console.print(table)


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
