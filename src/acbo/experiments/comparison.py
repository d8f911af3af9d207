"""Strategies compared on the same models with the same noise: regrets, and paired differences with intervals."""

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.random as jr
import numpy as np
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Float

from acbo.data import Key
from acbo.problem import known_graph, problem_of
from acbo.scms.families import FAMILIES
from acbo.scms.random_models import SCMPrior, sample_scm, scm_prior
from acbo.scms.scm import SCM
from acbo.scms.true_effects import best_intervention
from jaxworlds.batching import per_device, shard_worlds
from jaxworlds.measuring import time_call
from jaxworlds.rollout import to_host

from .episode import run_episode

if TYPE_CHECKING:
    import pandas as pd


@dataclasses.dataclass(frozen=True)
class Cell:
    """Models of one size and family."""

    variables: int
    family: str
    mechanism: str = "linear"

    def prior(self) -> SCMPrior:
        """The distribution of the cell's models."""
        kinds = "linear" if self.mechanism == "linear" else ("polynomial", "fourier", "tanh")
        return scm_prior(self.family, kinds, "gaussian", variables=(self.variables, self.variables))


def cells(
    sizes: Sequence[int] = (3, 5, 8, 10), families: Sequence[str] = FAMILIES, mechanism: str = "linear"
) -> list[Cell]:
    """Every size with every family."""
    return [Cell(size, family, mechanism) for size in sizes for family in families]


class Judged(eqx.Module):
    """Regrets, costs and seconds of one strategy on the models of one cell."""

    regret: Float[np.ndarray, "models more"]
    cost: Float[np.ndarray, " models"]
    seconds: float
    """Wall time for all models, compilation excluded."""


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Result of `compare`."""

    results: Mapping[tuple[str, Cell], Judged]
    strategies: tuple[str, ...]
    cells: tuple[Cell, ...]

    def regrets(self, strategy: str, cell: Cell | None = None) -> Float[np.ndarray, " models"]:
        """Final regrets of all models, or of one cell's."""
        chosen = self.cells if cell is None else (cell,)
        return np.concatenate([self.results[strategy, one].regret[:, -1] for one in chosen])

    def frame(self) -> "pd.DataFrame":
        """Mean final regret of every strategy in every cell."""
        import pandas as pd

        regrets = {
            cell: {name: self.regrets(name, cell).mean() for name in self.strategies} for cell in self.cells
        }
        return pd.DataFrame([dataclasses.asdict(cell) | means for cell, means in regrets.items()])

    def mean(self, strategy: str, cell: Cell | None = None) -> tuple[float, float]:
        """Mean final regret over all cells, or in one, and half the width of its 95 % interval."""
        return _mean(self.regrets(strategy, cell))

    def difference(self, first: str, second: str, cell: Cell | None = None) -> tuple[float, float]:
        """Mean difference of regrets, first minus second, on the same models, and half-width of its 95 % interval."""
        return _mean(self.regrets(first, cell) - self.regrets(second, cell))


def _mean(values: Float[np.ndarray, " n"]) -> tuple[float, float]:
    """Mean and half of its 95 % interval by Student's t, which few models make wide and one infinite."""
    from scipy.special import stdtrit

    n = len(values)
    half = stdtrit(n - 1, 0.975) * values.std(ddof=1) / np.sqrt(n) if n > 1 else np.inf
    return float(values.mean()), float(half)


def compare(
    strategies: Mapping[str, Any],
    chosen: Sequence[Cell],
    *,
    models: int = 100,
    observations: int = 50,
    trials: int = 10,
    size: int = 10,
    units: int | None = None,
    known: Sequence[str] = (),
    seed: int = 0,
    each: bool = False,
    batch: int | None = None,
    mesh: Mesh | None = None,
    report: Any = None,
) -> Comparison:
    """Every strategy on `models` models of every cell, all padded to `size`: one program for each strategy.

    - `chosen`: cells; duplicates count once.
    - `known`: names of the strategies that know the graph.
    - `each`: recommend after every experiment, for curves.
    - `batch`: models at once; one by one on CPUs, all on accelerators, if not given.
    - `mesh`: devices to spread the models over.
    - `report`: called with the name, the cell and its result, as they come.
    """
    chosen = tuple(dict.fromkeys(chosen))
    _check(strategies, chosen, size, units, known)
    if units is None:
        units = 0 if all(cell.mechanism == "linear" for cell in chosen) else 8
    if batch is None:
        batch = 1 if jax.default_backend() == "cpu" else models
    if mesh is not None and models % mesh.size:
        raise ValueError(f"`models` must be a multiple of the {mesh.size} devices; got {models}.")
    results: dict[tuple[str, Cell], Judged] = {}
    drawn = {
        cell: _models(jr.fold_in(jr.key(seed), place), cell.prior(), models, size, units)
        for place, cell in enumerate(chosen)
    }
    for name, strategy in strategies.items():
        for place, cell in enumerate(chosen):
            scms, best = drawn[cell]
            keys = jr.split(jr.fold_in(jr.key(seed + 1), place), models)
            turns = (scms, best, keys)
            if mesh is not None:
                strategy, turns = shard_worlds((strategy, turns), mesh, axes=(None, 0))
            arguments = (strategy, turns, observations, trials, name in known, each, batch, mesh)
            if place == 0:
                jax.block_until_ready(_play(*arguments))
            (regret, cost), seconds = time_call(_play, *arguments)
            results[name, cell] = Judged(to_host(regret), to_host(cost), seconds)
            if report is not None:
                report(name, cell, results[name, cell])
    return Comparison(results, tuple(strategies), chosen)


def _check(
    strategies: Mapping[str, Any], chosen: Sequence[Cell], size: int, units: int | None, known: Sequence[str]
) -> None:
    """Raise for options that contradict the cells, or that name an unknown strategy."""
    most = max((cell.variables for cell in chosen), default=0)
    if most > size:
        raise ValueError(f"`size` must be at least {most}, the variables of a cell; got {size}.")
    bent = [cell.mechanism for cell in chosen if cell.mechanism != "linear"]
    if bent and units is not None and units < 1:
        raise ValueError(f"`units` must be at least 1 for {bent[0]!r} cells; got {units}. Leave it out.")
    for name in known:
        if name not in strategies:
            raise ValueError(f"`known` must name strategies, {', '.join(strategies)}; got {name!r}.")


@eqx.filter_jit
def _models(
    key: Key, prior: SCMPrior, count: int, size: int, units: int
) -> tuple[SCM, Float[Array, " count"]]:
    """Random models and their true optima."""

    def one(key: Key) -> tuple[SCM, Float[Array, ""]]:
        scm = sample_scm(key, prior, size, units)
        return scm, best_intervention(scm).value

    return jax.lax.map(one, jr.split(key, count))


@eqx.filter_jit
def _play(
    strategy: Any,
    turns: tuple[SCM, Float[Array, " models"], Key],
    observations: int,
    trials: int,
    known: bool,
    each: bool,
    batch: int,
    mesh: Mesh | None,
) -> tuple[Float[Array, "models more"], Float[Array, " models"]]:
    def one(strategy: Any, turn: tuple[SCM, Array, Key]) -> tuple[Array, Array]:
        scm, best, key = turn
        problem = problem_of(scm, knowledge=known_graph(scm.adjacency) if known else None)
        episode = run_episode(strategy, scm, problem, best, key, observations, trials, each)
        return episode.regret, episode.cost[-1]

    def some(strategy: Any, turns: Any) -> tuple[Array, Array]:
        return jax.lax.map(partial(one, strategy), turns, batch_size=None if batch == 1 else batch)

    if mesh is None:
        return some(strategy, turns)
    arrays, rest = eqx.partition(strategy, eqx.is_array)
    split = PartitionSpec(mesh.axis_names)
    each_device = per_device(
        lambda arrays, turns: some(eqx.combine(arrays, rest), turns), mesh, (PartitionSpec(), split), split
    )
    return each_device(arrays, turns)
