"""Checks of the numbers in configurations."""


def require_between(name: str, value: float, low: float, high: float, why: str = "") -> None:
    """Raise unless `low <= value <= high`; `why` is a remedy for the message."""
    if not low <= value <= high:
        raise ValueError(f"`{name}` must be between {low} and {high}; got {value}.{why and ' ' + why}")


def require_at_least(name: str, value: float, low: float, why: str = "") -> None:
    """Raise unless `value >= low`; `why` is a remedy for the message."""
    if not value >= low:
        raise ValueError(f"`{name}` must be at least {low}; got {value}.{why and ' ' + why}")
