"""Simulators of known models: one row for each call, with noise that goes on where a resumed run left off."""

from collections.abc import Mapping

import jax.random as jr
import numpy as np

from acbo.scms.causal_model import CausalModel
from acbo.scms.literature import Benchmark

from .state import Levels


class ModelSimulator:
    """Rows of a causal model or a benchmark, hidden variables left out; row number `start` comes first."""

    def __init__(self, model: CausalModel | Benchmark, seed: int = 0, start: int = 0) -> None:
        self.model, self.seed, self.calls = model, seed, start

    @property
    def names(self) -> tuple[str, ...]:
        """The variables of each row."""
        known = self.model if isinstance(self.model, CausalModel) else self.model.model
        return tuple(name for name in known.names if name not in known.hidden)

    def __call__(self, do: Mapping[str, float]) -> Levels:
        key = jr.fold_in(jr.key(self.seed), self.calls)
        self.calls += 1
        if isinstance(self.model, Benchmark):
            found = self.model.simulate(key, 1, do)
            return {name: float(found[name][0]) for name in self.names}
        values = np.asarray(self.model.sample(1, key, do=do).values)[0]
        return {name: float(values[self.model.index(name)]) for name in self.names}
