"""A model written in the small language, so that reading it gives the same model."""

import keyword
import math

import numpy as np

from .causal_model import CausalModel
from .mechanisms import ACTIVATIONS, NOISES

_WORDS = ("target", "hidden", "cost")


def to_text(model: CausalModel) -> str:
    """The model's equations in the order of its variables, then ranges, costs, hidden variables and the target.

    >>> from acbo.scms import parse_model
    >>> print(to_text(parse_model("X = N(0, 1); Y = 2*X + 1; X in [-1, 1]")))
    X = N(0, 1)
    Y = 1 + 2*X
    X in [-1, 1]
    target Y
    """
    lines = [f"{quote_name(name)} = {equation(model, name)}" for name in model.names]
    for name, (low, high) in model.ranges.items():
        lines.append(f"{quote_name(name)} in [{_number(low)}, {_number(high)}]")
    for name in model.ranges:
        v = model.index(name)
        fixed, unit = float(model.scm.cost_fixed[v]), float(model.scm.cost_unit[v])
        if (fixed, unit) != (1.0, 0.0):
            lines.append(f"cost {quote_name(name)} = {_number(fixed)} + {_number(unit)}*{quote_name(name)}")
    if model.hidden:
        lines.append(f"hidden {', '.join(map(quote_name, model.hidden))}")
    return "\n".join([*lines, f"target {quote_name(model.target)}"])


def quote_name(name: str) -> str:
    """The name, in backquotes unless the language reads it as it stands."""
    plain = name.isidentifier() and not keyword.iskeyword(name) and name not in _WORDS
    return name if plain else f"`{name}`"


def equation(model: CausalModel, name: str) -> str:
    """The right-hand side of one variable's equation."""
    j, m, noise = model.index(name), model.scm.mechanism, model.scm.noise
    weight, inner = np.asarray(m.weight)[:, j], np.asarray(m.inner)[:, j]
    spread = np.asarray(noise.spread)[:, j]
    terms: list[str] = []
    bias, scale = float(m.bias[j]), float(noise.scale[j])
    if bias:
        terms.append(_number(bias))
    causes = np.flatnonzero(np.asarray(model.scm.adjacency)[:, j])
    used = set(np.flatnonzero(weight))
    for k, amplitude in enumerate(np.asarray(m.outer)[j].tolist()):
        if amplitude:
            inside = _sum(model, inner[:, k], float(m.phase[j, k]))
            function = (*ACTIVATIONS, *(own for own, _ in m.functions))[int(m.activation[j, k])]
            terms.append(f"{_number(amplitude)}*{_call(function, inside, float(m.reach[j, k]))}")
            used |= set(np.flatnonzero(inner[:, k]))
    # An edge whose every coefficient is zero is still an edge.
    linear = [v for v in causes if weight[v] or v not in used | set(np.flatnonzero(spread))]
    terms += [f"{_number(float(weight[v]))}*{quote_name(model.names[v])}" for v in linear]
    if scale:
        terms.append(_noise(NOISES[int(noise.kind[j])], scale, _sum(model, spread, 0.0)))
    return " + ".join(terms) or "0"


def _call(function: str, inside: str, reach: float) -> str:
    if function in ("square", "cube"):
        base = inside if math.isinf(reach) else f"clip({inside}, {_number(reach)})"
        return f"({base})**{2 if function == 'square' else 3}"
    return f"{function}({inside})"


def _sum(model: CausalModel, coefficients: np.ndarray, constant: float) -> str:
    terms = [
        f"{_number(float(coefficients[v]))}*{quote_name(model.names[v])}"
        for v in np.flatnonzero(coefficients)
    ]
    return " + ".join([*terms, *([_number(constant)] if constant or not terms else [])])


def _noise(kind: str, scale: float, spread: str) -> str:
    if kind == "laplace":
        return f"Laplace(0, {_number(scale / math.sqrt(2))})"
    if kind == "uniform":
        half = scale * math.sqrt(3)
        return f"U({_number(-half)}, {_number(half)})"
    return f"N(0, {_number(scale)})" if spread == "0" else f"N(0, {_number(scale)}, spread={spread})"


def _number(value: float) -> str:
    """The shortest text that reads back as the same number, in single precision where it has no more."""
    single = np.float32(value)
    return (str(single) if float(single) == value else repr(value)).removesuffix(".0")
