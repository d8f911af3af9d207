"""Checks of the values in configurations."""

from typing import Any


def require_between(name: str, value: float, low: float, high: float, why: str = "") -> None:
    """Raise unless `low <= value <= high`; `why` is a remedy for the message."""
    if not low <= value <= high:
        raise ValueError(f"`{name}` must be between {low} and {high}; got {value}.{why and ' ' + why}")


def require_at_least(name: str, value: float, low: float, why: str = "") -> None:
    """Raise unless `value >= low`; `why` is a remedy for the message."""
    if not value >= low:
        raise ValueError(f"`{name}` must be at least {low}; got {value}.{why and ' ' + why}")


def require_above(name: str, value: float, low: float, why: str = "") -> None:
    """Raise unless `value > low`; `why` is a remedy for the message."""
    if not value > low:
        raise ValueError(f"`{name}` must be above {low}; got {value}.{why and ' ' + why}")


def require_all_at_least(config: Any, low: float, *names: str) -> None:
    """Raise unless these fields of a configuration are at least `low`."""
    for name in names:
        require_at_least(name, getattr(config, name), low)


def require_one_of(name: str, value: Any, *choices: str, why: str = "") -> None:
    """Raise unless the value is one of two or more choices; `why` is a remedy for the message."""
    if value not in choices:
        *most, last = map(repr, choices)
        raise ValueError(f"`{name}` must be {', '.join(most)} or {last}; got {value!r}.{why and ' ' + why}")
