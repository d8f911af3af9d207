"""The saved state of an optimization: an immutable value, and its file."""

import collections
import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from acbo._limits import require_at_least
from acbo.data import bucket
from acbo.names import number, place, require_distinct, short
from jaxworlds.special_files import demand_file
from jaxworlds.store import StoreError, atomic_write

from .graph_knowledge import GraphKnowledge, graph_of
from .variables import Variable

FORMAT, VERSION = "acbo optimization", 1
Levels = dict[str, float]


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings that hold from the first experiment to the last."""

    variables: tuple[Variable, ...]
    target: str
    objective: str = "min"
    graph: GraphKnowledge = dataclasses.field(default_factory=GraphKnowledge)
    strategy: str | None = "policy"
    """Its name; None for one that was given as an object."""
    budget: float | None = None
    experiments: int | None = None
    max_simultaneous: int = 1
    mechanism: str = "linear"
    seed: int = 0

    def __post_init__(self) -> None:
        for field in ("max_simultaneous", "seed", "experiments"):
            value = getattr(self, field)
            if (value is not None or field != "experiments") and not _is_whole(value):
                raise ValueError(f"`{field}` must be a whole number of 63 bits; got {short(value)}.")
        if self.budget is not None:
            number(self.budget, "budget")
        for field in ("target", "objective", "mechanism"):
            if not isinstance(getattr(self, field), str):
                raise ValueError(f"`{field}` must be a name; got {short(getattr(self, field))}.")
        if self.strategy is not None and not isinstance(self.strategy, str):
            raise ValueError(f"`strategy` must be a name or None; got {short(self.strategy)}.")
        place(self.target, self.names, "target")
        place(self.objective, ("min", "max"), "objective")
        place(self.mechanism, ("linear", "smooth"), "mechanism")
        if not self.settable:
            raise ValueError(
                "`variables` must have one that can be set beside the target; got none. Give one a range, as in "
                "{'dose': (0, 10)}."
            )
        require_at_least("max_simultaneous", self.max_simultaneous, 1)
        if self.experiments is not None:
            require_at_least("experiments", self.experiments, 1, "Leave it out for no limit.")
        if self.budget is not None:
            if not 0 < self.budget < float("inf"):
                raise ValueError(
                    f"`budget` must be a number above 0; got {self.budget}. Leave it out for no limit."
                )
            if self.experiments is None and not any(v.cost or v.cost_per_unit for v in self.settable):
                raise ValueError(
                    f"`budget` must be spent by something; got {self.budget:g}, and all variables are free to set. Give "
                    "them a cost, or pass `experiments=` instead."
                )

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(v.name for v in self.variables)

    @property
    def goal(self) -> int:
        """The index of the target."""
        return self.names.index(self.target)

    @property
    def sign(self) -> float:
        """1 where a small target is wanted, -1 where a large one is."""
        return 1.0 if self.objective == "min" else -1.0

    @property
    def settable(self) -> tuple[Variable, ...]:
        """Variables that experiments may set: never the target."""
        return tuple(v for v in self.variables if v.manipulable and v.name != self.target)

    def variable(self, name: str, argument: str) -> Variable:
        return self.variables[place(name, self.names, argument)]

    def price(self, do: Mapping[str, float]) -> float:
        """Cost of an experiment; setting nothing is free."""
        return sum(self.variable(name, "do").price(value) for name, value in do.items())


@dataclasses.dataclass(frozen=True)
class Row:
    """One row of measurements, in the order of the variables, and which of them were set."""

    values: tuple[float, ...]
    do: tuple[str, ...] = ()
    experiment: int | None = None
    given: bool = False
    """True for rows from before the optimization; they cost nothing."""


@dataclasses.dataclass(frozen=True)
class Pending:
    """An experiment without a result yet."""

    experiment: int
    do: Levels


@dataclasses.dataclass(frozen=True)
class State:
    """Settings, rows, pending experiments, and the number of experiments asked for."""

    settings: Settings
    rows: tuple[Row, ...] = ()
    pending: tuple[Pending, ...] = ()
    asked: int = 0
    """Number of the next experiment, and of the random key that chooses it."""
    cancelled: tuple[int, ...] = ()
    stopped: str | None = None
    """Reason why the strategy wants no further experiment."""

    def levels(self, row: Row) -> Levels:
        """The values that were set in a row."""
        return {name: row.values[self.settings.names.index(name)] for name in row.do}

    @property
    def observations(self) -> tuple[Row, ...]:
        """Rows in which nothing was set."""
        return tuple(row for row in self.rows if not row.do)

    @property
    def made(self) -> tuple[Row, ...]:
        """Rows of this optimization: experiments, and observations that were asked for."""
        return tuple(row for row in self.rows if not row.given and (row.do or row.experiment is not None))

    @property
    def spent(self) -> float:
        """Cost of the experiments made, those of pending ones not included."""
        return sum(self.settings.price(self.levels(row)) for row in self.made)

    @property
    def pending_cost(self) -> float:
        """Cost of the pending experiments."""
        return sum(self.settings.price(pending.do) for pending in self.pending)

    @property
    def money(self) -> float:
        """The rest of the budget after paying for pending experiments."""
        budget = self.settings.budget
        return float("inf") if budget is None else budget - self.spent - self.pending_cost

    @property
    def places(self) -> float:
        """Number of experiments that may still be asked for."""
        most = self.settings.experiments
        return float("inf") if most is None else most - len(self.made) - len(self.pending)


def write_state(path: str | os.PathLike[str], state: State) -> None:
    """Write one readable file, whole or not at all; numbers come back to the last bit."""
    facts = {"format": FORMAT, "version": VERSION, **dataclasses.asdict(state)}
    facts["settings"]["variables"] = [variable.to_json() for variable in state.settings.variables]
    lines = ",\n".join(f" {_json(name)}: {_json_text(fact)}" for name, fact in facts.items())
    with atomic_write(path, "w") as file:
        file.write(f"{{\n{lines}\n}}\n")


def read_state(path: str | os.PathLike[str]) -> State:
    """The state in a file of `write_state`."""
    demand_file(path)
    try:
        facts = json.loads(Path(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise StoreError(
            f"{path} must be a saved optimization; it is no JSON text ({str(error)[:200]}). Restore it from a copy."
        ) from error
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        raise StoreError(f"{path} must be a saved optimization; it does not say format {FORMAT!r}.")
    if facts.get("version") != VERSION:
        raise StoreError(
            f"{path} must be of version {VERSION}; got {short(facts.get('version'))}. Read it with the release that wrote it."
        )
    try:
        return _state(facts)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise StoreError(
            f"{path} must hold a whole optimization; {repr(error)[:300]}. Restore it from a copy."
        ) from error


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and abs(int(value)) < 1 << 63


def _json(fact: Any) -> str:
    return json.dumps(fact, ensure_ascii=False, allow_nan=False)


def _json_text(fact: Any) -> str:
    """A list with a line for each of its entries; anything else on one line, but a mapping with one for each field."""
    if isinstance(fact, tuple) and fact:
        return "[\n  " + ",\n  ".join(map(_json, fact)) + "\n ]"
    if isinstance(fact, dict):
        return "{\n  " + ",\n  ".join(f"{_json(name)}: {_json(part)}" for name, part in fact.items()) + "\n }"
    return _json(fact)


def _check_told(
    settings: Settings, rows: list[Row], pending: tuple[Pending, ...], facts: Mapping[str, Any]
) -> None:
    """Raise for rows, pending experiments and counts that no optimization can have."""
    require_distinct(settings.names, "variables")
    bucket(len(settings.names))
    for name, value in ((n, v) for p in pending for n, v in p.do.items()):
        if settings.variable(name, "pending") not in settings.settable:
            raise ValueError(f"a pending experiment sets {short(name)}, which cannot be set")
        number(value, f"pending: {name}")
    for row in rows:
        require_distinct(row.do, "do")
        for name in row.do:
            settings.variable(name, "do")
        if settings.target in row.do:
            raise ValueError("a row sets the target")
        for value in row.values:
            number(value, "rows: values")
        if row.experiment is not None and not _is_whole(row.experiment):
            raise ValueError(f"the experiment of a row is {short(row.experiment)}")
    counts = [facts["asked"], *facts["cancelled"], *(p.experiment for p in pending)]
    if not all(_is_whole(count) and count >= 0 for count in counts):
        raise ValueError(f"its counts are {short(counts)}")
    told = [row.experiment for row in rows if row.experiment is not None]
    used = [*told, *facts["cancelled"], *(p.experiment for p in pending)]
    for experiment, times in collections.Counter(used).items():
        if times > 1:
            raise ValueError(f"experiment {experiment} is there twice among rows, pending and cancelled ones")
        if not 0 <= experiment < facts["asked"]:
            raise ValueError(f"experiment {experiment} is there, and {facts['asked']} were asked for")
    if facts["stopped"] is not None and not isinstance(facts["stopped"], str):
        raise ValueError(f"the reason to stop is {short(facts['stopped'])}")
    graph_of(settings.graph, settings.names)


def _state(facts: Mapping[str, Any]) -> State:
    plain = dict(facts["settings"])
    plain["variables"] = tuple(Variable.from_json(variable) for variable in plain["variables"])
    plain["graph"] = GraphKnowledge.from_json(plain["graph"])
    for row in facts["rows"]:
        if not isinstance(row["do"], list) or not isinstance(row["given"], bool):
            raise ValueError(
                f"`do` of a row is {short(row['do'])} and `given` {short(row['given'])}, no list and no truth value"
            )
    rows = [
        Row(tuple(map(float, row["values"])), tuple(row["do"]), row["experiment"], row["given"])
        for row in facts["rows"]
    ]
    pending = tuple(Pending(int(p["experiment"]), dict(p["do"])) for p in facts["pending"])
    settings = Settings(**plain)
    _check_told(settings, rows, pending, facts)
    if any(len(row.values) != len(settings.variables) for row in rows):
        raise ValueError("a row has not one value for each variable")
    return State(
        settings, tuple(rows), pending, int(facts["asked"]), tuple(facts["cancelled"]), facts["stopped"]
    )
