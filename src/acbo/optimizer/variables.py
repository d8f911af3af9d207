"""Variables as their owner describes them: what may be set, to which values, and at which price."""

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any

from acbo.names import number, require_distinct, short

RESERVED = ("experiment", "cost", "do", "set")
"""Columns of the tables that go in and out."""


@dataclasses.dataclass(frozen=True)
class Variable:
    """One measured variable. It can be set within `[low, high]`, or to one of `levels`, or not at all.

    Setting it to x costs `cost + cost_per_unit * abs(x)`. Without a range and without levels it is only measured.

        Variable("dose", low=0, high=10, cost_per_unit=0.5)
        Variable("coating", levels=(0, 1, 2))
        Variable("age")
    """

    name: str
    low: float | None = None
    high: float | None = None
    levels: tuple[float, ...] | None = None
    cost: float = 1.0
    cost_per_unit: float = 0.0
    manipulable: bool | None = None
    """True if it may be set: where it is not said, if it has a range or levels."""

    def __post_init__(self) -> None:
        def settle(field: str, value: Any) -> None:
            object.__setattr__(self, field, value)

        if not isinstance(self.name, str) or not self.name.strip() or len(self.name) > 200:
            raise ValueError(f"`name` must be a text of 1 to 200 letters; got {short(self.name)}.")
        if self.manipulable is not None and not isinstance(self.manipulable, bool):
            raise ValueError(
                f"`manipulable` of {self.name!r} must be true or false; got {short(self.manipulable)}."
            )
        if self.name in RESERVED or "," in self.name:
            raise ValueError(
                f"`name` must not be one of {', '.join(RESERVED)} and must have no comma; got {self.name!r}. "
                "Tables of experiments use these: rename the variable."
            )
        for field in ("cost", "cost_per_unit"):
            price = _number(getattr(self, field), f"{self.name}: {field}")
            if price < 0:
                raise ValueError(
                    f"`{field}` of {self.name!r} must be at least 0; got {price:g}. Use 0 for free."
                )
            settle(field, price)
        if self.levels is not None:
            if self.low is not None or self.high is not None:
                raise ValueError(
                    f"`levels` of {self.name!r} must come without `low` and `high`; got both. Drop one of the two."
                )
            levels = sorted(_number(level, f"{self.name}: levels") for level in self.levels)
            if len(levels) < 2 or len(set(levels)) < len(levels):
                raise ValueError(
                    f"`levels` of {self.name!r} must be two or more different numbers; got {short(self.levels)}."
                )
            settle("levels", tuple(levels))
            settle("low", levels[0])
            settle("high", levels[-1])
        if (self.low is None) != (self.high is None):
            raise ValueError(
                f"`low` and `high` of {self.name!r} must be given together; got {self.low} and {self.high}."
            )
        if self.low is not None and self.high is not None:
            settle("low", _number(self.low, f"{self.name}: low"))
            settle("high", _number(self.high, f"{self.name}: high"))
            if not self.low < self.high:
                raise ValueError(
                    f"`low` of {self.name!r} must be below `high`; got {self.low:g} and {self.high:g}."
                )
        if self.manipulable is None:
            settle("manipulable", self.low is not None)
        elif self.manipulable and self.low is None:
            raise ValueError(
                f"`manipulable` needs a range; {self.name!r} has none. Give `low` and `high`, or `levels`."
            )

    @property
    def span(self) -> float:
        """Length of the range; 0 without a range."""
        return 0.0 if self.low is None or self.high is None else self.high - self.low

    def price(self, value: float) -> float:
        """Cost of setting the variable to this value."""
        return self.cost + self.cost_per_unit * abs(value)

    def refuse(self, value: float, argument: str) -> None:
        """An error where the variable cannot be set to this value."""
        if not self.manipulable or self.low is None or self.high is None:
            raise ValueError(
                f"`{argument}` must set variables that can be set; {self.name!r} is only measured. Give it a range."
            )
        if not self.low <= value <= self.high:
            raise ValueError(
                f"`{argument}` must set {self.name!r} within [{self.low:g}, {self.high:g}]; got {value:g}. "
                "Correct the value, or give the variable a wider range."
            )
        if self.levels is not None and value not in self.levels:
            raise ValueError(
                f"`{argument}` must set {self.name!r} to one of its levels, {_number_list(self.levels)}; got {value:g}."
            )

    def nearest(self, value: float) -> float:
        """The value that may be set nearest to this one: a level, or rounded to a millionth of the range."""
        if self.levels is not None:
            return min(self.levels, key=lambda level: abs(level - value))
        if self.low is None or self.high is None:
            return value
        digits = 6 - math.floor(math.log10(self.span))
        return min(max(round(value, digits), self.low), self.high)

    @property
    def values_text(self) -> str:
        """The values that may be set, as text."""
        if not self.manipulable or self.low is None or self.high is None:
            return "only measured"
        return f"{self.low:g} to {self.high:g}" if self.levels is None else _number_list(self.levels)

    @property
    def cost_text(self) -> str:
        """The cost of setting the variable, as text; empty for one that is only measured."""
        per_unit = f" + {self.cost_per_unit:g} per unit" if self.cost_per_unit else ""
        return f"{self.cost:g}{per_unit}" if self.manipulable else ""

    def to_json(self) -> dict[str, Any]:
        facts = dataclasses.asdict(self)
        if self.levels is not None:
            facts = {**facts, "low": None, "high": None, "levels": list(self.levels)}
        return facts

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> "Variable":
        levels = facts.get("levels")
        if levels is not None and not isinstance(levels, list | tuple | range):
            raise ValueError(
                f"`levels` of {short(facts.get('name'))} must be a list of numbers; got {short(levels)}."
            )
        return cls(**{**facts, "levels": None if levels is None else tuple(levels)})


Variables = Mapping[Any, Any] | Iterable[Variable | str]


def variables_of(given: Variables) -> tuple[Variable, ...]:
    """Variables from any of their descriptions.

    In a mapping, a tuple of two is a range, a list or a range are levels, None is only measured, a mapping holds fields of
    `Variable`. In a list, names alone are only measured.

    >>> [v.levels or (v.low, v.high) for v in variables_of({"dose": (0, 10), "sex": [0, 1], "age": None})]
    [(0.0, 10.0), (0.0, 1.0), (None, None)]
    """
    if isinstance(given, Mapping):
        found = tuple(_variable(str(name), what) for name, what in given.items())
    else:
        found = tuple(v if isinstance(v, Variable) else Variable(v) for v in given)
    require_distinct([v.name for v in found], "variables")
    if len(found) < 2:
        raise ValueError(
            f"`variables` must be at least two, one of them the target; got {len(found)}. Describe what is measured."
        )
    return found


def _variable(name: str, what: Any) -> Variable:
    if isinstance(what, Variable):
        if what.name != name:
            raise ValueError(
                f"`variables` must hold variables under their own names; got {what.name!r} under {name!r}."
            )
        return what
    if what is None or what is False:
        return Variable(name)
    if isinstance(what, Mapping):
        known = {field.name for field in dataclasses.fields(Variable)} - {"name"}
        unknown = sorted(set(what) - known)
        if unknown:
            raise ValueError(
                f"`variables` must describe {name!r} by {', '.join(sorted(known))}; got {short(unknown[0])}."
            )
        return Variable.from_json({**what, "name": name})
    if isinstance(what, tuple) and len(what) == 2:
        return Variable(name, low=what[0], high=what[1])
    if isinstance(what, list | range):
        return Variable(name, levels=tuple(what))
    raise ValueError(
        f"`variables` must describe {name!r} by a tuple (low, high), a list of levels, None or a Variable; got {short(what)}."
    )


def _number(value: Any, argument: str) -> float:
    if isinstance(value, bool):
        raise ValueError(f"`{argument}` must be a finite number; got {value!r}.")
    return number(value, argument)


def _number_list(numbers: Iterable[float]) -> str:
    return ", ".join(f"{number:g}" for number in numbers)
