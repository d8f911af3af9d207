"""A causal model with names, for people: the arrays stay apart, so that renaming compiles nothing."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from acbo.data import Dataset, Key
from acbo.names import place, require_distinct, short

from .interventions import Intervention
from .mechanisms import MECHANISMS, NOISES
from .samples import demand_rows, key_of, largest_value, sample
from .scm import SCM, permute
from .true_effects import SAMPLES, best_intervention, true_effect

Level = float | Float[Array, " rows"] | Float[np.ndarray, " rows"]
Levels = Mapping[str, Level]


@dataclasses.dataclass(frozen=True)
class CausalModel:
    """Names for the live variables of an `SCM`, which come first in it.

    It is no pytree: hand `model.scm` to compiled functions.
    """

    names: tuple[str, ...]
    scm: SCM

    def __post_init__(self) -> None:
        require_distinct(self.names, "names")
        live = np.asarray(self.scm.live)
        if live.ndim != 1:
            raise ValueError(
                f"`scm` must be a single model; got a batch of shape {live.shape[:-1]}. Take one: "
                "`jax.tree.map(lambda a: a[0], scm)`."
            )
        if live.sum() != len(self.names) or not live[: len(self.names)].all():
            raise ValueError(
                f"`names` must name the {int(live.sum())} live variables, which must come first; got "
                f"{len(self.names)} names and live variables {np.flatnonzero(live).tolist()}. "
                "`CausalModel.named` brings them to the front."
            )

    @classmethod
    def named(cls, scm: SCM, names: Sequence[str] | None = None) -> "CausalModel":
        """The model with its live variables brought to the front; without names they are X1, X2, … and the target Y."""
        live, target = np.asarray(scm.live), int(scm.target)
        front = np.concatenate([np.flatnonzero(live), np.flatnonzero(~live)]).astype(np.int32)
        if not (front == np.arange(live.size)).all():
            scm, target = permute(scm, jnp.asarray(front)), int(np.flatnonzero(front == target)[0])
        if names is None:
            others = iter(range(1, live.size + 1))
            names = ["Y" if v == target else f"X{next(others)}" for v in range(int(live.sum()))]
        return cls(tuple(names), scm)

    @property
    def target(self) -> str:
        return self.names[int(self.scm.target)]

    @property
    def edges(self) -> list[tuple[str, str]]:
        """Cause and effect of each edge."""
        return [(self.names[i], self.names[j]) for i, j in np.argwhere(np.asarray(self.scm.adjacency))]

    @property
    def order(self) -> tuple[str, ...]:
        """The names so that causes come first."""
        return tuple(self.names[v] for v in np.asarray(self.scm.order)[: len(self.names)])

    @property
    def hidden(self) -> tuple[str, ...]:
        """Variables that datasets do not show."""
        return tuple(np.asarray(self.names)[~self._of(self.scm.observed)].tolist())

    @property
    def ranges(self) -> dict[str, tuple[float, float]]:
        """Least and greatest value of each manipulable variable."""
        low, high, can = (self._of(a) for a in (self.scm.low, self.scm.high, self.scm.manipulable))
        return {n: (float(a), float(b)) for n, a, b, c in zip(self.names, low, high, can, strict=True) if c}

    @property
    def mechanisms(self) -> dict[str, str]:
        """Kind of each variable's mechanism."""
        kinds = self._of(self.scm.mechanism.kind)
        return {name: MECHANISMS[kind] for name, kind in zip(self.names, kinds, strict=True)}

    @property
    def noises(self) -> dict[str, str]:
        """Kind of each variable's noise."""
        return {n: NOISES[k] for n, k in zip(self.names, self._of(self.scm.noise.kind), strict=True)}

    def _of(self, array: Array) -> np.ndarray:
        return np.asarray(array)[: len(self.names)]

    def index(self, name: str, argument: str = "name") -> int:
        """Number of a variable in the arrays."""
        return place(name, self.names, argument)

    def parents(self, name: str) -> tuple[str, ...]:
        """Direct causes of a variable."""
        column = self._of(self.scm.adjacency[:, self.index(name)])
        return tuple(np.asarray(self.names)[column].tolist())

    def rename(self, names: Mapping[str, str]) -> "CausalModel":
        """The same arrays under other names; variables that are not mentioned keep theirs."""
        for name in names:
            self.index(name, "names")
        return CausalModel(tuple(names.get(name, name) for name in self.names), self.scm)

    def intervention(
        self,
        do: Levels | None = None,
        *,
        soft: Mapping[str, tuple[Level, float]] | None = None,
        shift: Levels | None = None,
    ) -> Intervention:
        """Values set, values drawn towards with a strength, and shifts, by name; numbers, or one number per row.

        model.intervention({"X": 1.0}, soft={"Z": (2.0, 0.5)}, shift={"W": -1.0})
        """
        given = [
            *(("do", name, level, 1.0, 0.0) for name, level in (do or {}).items()),
            *(("soft", name, level, strength, 0.0) for name, (level, strength) in (soft or {}).items()),
            *(("shift", name, 0.0, 0.0, amount) for name, amount in (shift or {}).items()),
        ]
        require_distinct([name for _, name, *_ in given], "do, soft and shift together")
        rows = np.broadcast_shapes(*(np.shape(part) for _, _, *parts in given for part in parts))
        shape = (*rows, self.scm.size)
        mask, numbers = np.zeros(shape, bool), np.zeros((3, *shape))
        for word, name, *parts in given:
            v = self.index(name, word)
            mask[..., v] = True
            for k, part in enumerate(parts):
                numbers[k, ..., v] = _numbers(part, word, name)
        if not ((numbers[1] >= 0) & (numbers[1] <= 1)).all():
            raise ValueError(
                f"`soft` must give strengths from 0 (nothing) to 1 (set); got {soft}. Write "
                "{'Z': (value, strength)}."
            )
        most = largest_value(self.scm.mechanism.units)
        if (np.abs(numbers) > most).any():
            raise ValueError(
                f"`do`, `soft` and `shift` must lie within ±{most:.0e}, where values are held; got {np.abs(numbers).max():.3g}. "
                "Use other units."
            )
        dtype = jnp.result_type(float)
        return Intervention(jnp.asarray(mask), *(jnp.asarray(part, dtype) for part in numbers))

    def sample(self, rows: int, key: Key | int = 0, do: Levels | None = None, **others: Mapping) -> Dataset:
        """Rows under an intervention, named as in `intervention`; an integer key is a seed."""
        demand_rows(rows)
        return sample(self.scm, self.intervention(do, **others), key_of(key), rows)

    def effect(self, do: Levels | None = None, *, samples: int = SAMPLES, **others: Mapping) -> float:
        """Expected target under an intervention, named as in `intervention`."""
        return float(true_effect(self.scm, self.intervention(do, **others), samples=samples))

    def best(
        self, max_simultaneous: int = 1, *, minimize: bool = True, samples: int = SAMPLES
    ) -> tuple[dict[str, float], float]:
        """The best values to set, by name, and the expected target they give; `{}` is to leave everything alone."""
        found = best_intervention(self.scm, max_simultaneous, minimize, samples=samples)
        done = jax.device_get(found.intervention)
        levels = {n: float(v) for n, v, m in zip(self.names, done.value, done.mask, strict=False) if m}
        return levels, float(found.value)

    def __str__(self) -> str:
        from .dsl import to_text

        return to_text(self)


def _numbers(value: Any, word: str, name: str) -> Any:
    """A number, or one for each row; words, NaN and infinity are refused."""
    try:
        found = np.asarray(value, float)
    except (TypeError, ValueError) as error:
        raise ValueError(f"`{word}` must hold numbers by name; got {value!r} for {name!r}.") from error
    if not np.isfinite(found).all():
        raise ValueError(
            f"`{word}` must hold finite numbers by name; got {short(value)} for {name!r}. Leave {name!r} out of `{word}` to "
            "let it follow its mechanism."
        )
    return found
