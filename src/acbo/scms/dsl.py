"""A small language for causal models, read and written: arrows, equations, ranges, and which variable counts.

    X = N(0, 1)                     an equation; noise is N(mean, deviation), Laplace(mean, scale) or U(low, high)
    Z = exp(-X) + N(0, 1)           exp, cos, sin, tanh, sigmoid of weighted sums; powers 2 and 3; products
    Y = cos(Z) - exp(-Z/20) + N(0, 1, spread=0.5*Z)
    X in [-5, 5]                    may be set within this range
    target Y                        the default is Y, or the only variable that causes nothing
    hidden U; cost X = 1 + 0.5*X    not observed; price of an intervention: fixed, and per unit
    A -> B -> C; A, B -> D          edges alone: linear with weight 1 and N(0, 1)
    C <-> D                         a hidden common cause, called U_C_D

Statements end at a semicolon or the end of the line; `#` starts a comment. Names that are no identifiers stand in
backquotes.
"""

import dataclasses
import keyword
import math
import re
from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Bool

from acbo.names import place, short

from .builders import Ranges, model_from_equations
from .causal_model import CausalModel
from .equations import Expression, Functions, NoiseTerm, demand_new_names, read_expression
from .graphs import require_acyclic
from .mechanisms import ACTIVATIONS, NOISES

_NAME = r"[^\W\d]\w*"
_ARROW = re.compile(r"<->|->|<-")
_QUOTED = re.compile(r"`([^`]+)`")
_WORDS = ("target", "hidden", "cost")
_LONGEST = 200_000
"""Letters of a text: a model of a thousand variables has fewer."""


@dataclasses.dataclass
class _Statements:
    """The statements of a text, in the order of first mention."""

    names: list[str] = dataclasses.field(default_factory=list)
    edges: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    equations: dict[str, str] = dataclasses.field(default_factory=dict)
    ranges: dict[str, tuple[float, float]] = dataclasses.field(default_factory=dict)
    costs: dict[str, str] = dataclasses.field(default_factory=dict)
    hidden: list[str] = dataclasses.field(default_factory=list)
    target: str | None = None
    quoted: dict[str, str] = dataclasses.field(default_factory=dict)

    def mention(self, name: str) -> str:
        if name not in self.names:
            self.names.append(name)
        return name

    @property
    def identifiers(self) -> dict[str, str]:
        """Names of variables by the identifiers in expressions."""
        known = {name: name for name in self.names}
        return known | {stand_in: name for stand_in, name in self.quoted.items() if name in known}


def parse_graph(text: str) -> tuple[tuple[str, ...], Bool[np.ndarray, "d d"]]:
    """Names in the order of first mention, and `adjacency[i, j]` for i causes j.

    >>> names, adjacency = parse_graph("X -> Z -> Y; X -> Y")
    >>> names, adjacency.astype(int).tolist()
    (('X', 'Z', 'Y'), [[0, 1, 1], [0, 0, 1], [0, 0, 0]])
    """
    said = _read(text)
    names = tuple(said.names)
    adjacency = np.zeros((len(names), len(names)), bool)
    for cause, effect in said.edges:
        adjacency[names.index(cause), names.index(effect)] = True
    for effect, equation in said.equations.items():
        for cause in read_expression(equation, said.identifiers).names:
            adjacency[names.index(cause), names.index(effect)] = True
    require_acyclic(adjacency, names, "text")
    return names, adjacency


def parse_model(
    text: str,
    *,
    target: str | None = None,
    ranges: Ranges | None = None,
    hidden: Sequence[str] = (),
    size: int | None = None,
    units: int | None = None,
    functions: Functions | None = None,
) -> CausalModel:
    """The model a text describes; arguments add to what it says, or take its place.

    `functions` are functions of your own that the text may call on weighted sums of variables, by name:
    `{"relu": jax.nn.relu}`. They work on each number of an array, in compiled code. Name them once: another function is
    another program.

    >>> model = parse_model("X = N(0, 1); Z = 2*X + N(0, 1); Y = Z - X")
    >>> model.target, model.effect({"Z": 1.5})
    ('Y', 1.5)
    """
    own = dict(functions or {})
    demand_new_names(own)
    said = _read(text)
    known = said.identifiers
    equations = {name: read_expression(equation, known, own) for name, equation in said.equations.items()}
    for cause, effect in said.edges:
        if effect in said.equations and cause not in equations[effect].names:
            raise ValueError(
                f"`text` must use every cause in the equation of its effect; {cause} -> {effect} is stated, and "
                f"{effect} = {said.equations[effect]} has no {cause}. Add the term, or drop the edge."
            )
    for name in said.names:
        if name not in equations:
            causes = {(cause,): 1.0 for cause, effect in said.edges if effect == name}
            equations[name] = Expression(causes, noise=NoiseTerm("gaussian", 1.0))
    costs = {}
    for name, price in said.costs.items():
        terms = read_expression(price, known).monomials
        if set(terms) - {(), (name,)}:
            raise ValueError(
                f"`text` must give a cost as fixed + per unit, as in cost {name} = 1 + 0.5*{name}; got {price!r}."
            )
        costs[name] = (terms.get((), 0.0), terms.get((name,), 0.0))
    return model_from_equations(
        said.names,
        equations,
        target=target or said.target,
        ranges={**said.ranges, **(ranges or {})} if said.ranges or ranges is not None else None,
        hidden=[*said.hidden, *hidden],
        costs=costs,
        size=size,
        units=units,
        functions=own,
    )


def _read(text: str) -> _Statements:
    said = _Statements()

    def quote(match: re.Match[str]) -> str:
        stand_ins = {name: stand_in for stand_in, name in said.quoted.items()}
        stand_in = stand_ins.get(match[1], f"_quoted_{len(said.quoted)}_")
        said.quoted[stand_in] = match[1]
        return stand_in

    if not isinstance(text, str) or len(text) > _LONGEST:
        raise ValueError(f"`text` must be a text of at most {_LONGEST:,} letters; got {short(text)}.")
    lines = [line.split("#")[0] for line in _QUOTED.sub(quote, text).splitlines()]
    for statement in filter(None, (part.strip() for line in lines for part in line.split(";"))):
        _read_statement(statement, said)
    if not said.names:
        raise ValueError(f"`text` must describe at least one variable; got {short(text)}.")
    target = [said.target] if said.target else []
    mentions = {"target": target, "hidden": said.hidden, "in [...]": said.ranges, "cost": said.costs}
    for word, name in ((word, name) for word, names in mentions.items() for name in names):
        place(name, said.names, f"text: {word}")
    return said


def _read_statement(statement: str, said: _Statements) -> None:
    def name_of(identifier: str) -> str:
        if not re.fullmatch(_NAME, identifier.strip()):
            raise ValueError(
                f"`text` must name variables by identifiers, or in backquotes; got {short(identifier.strip())} in "
                f"{short(statement)}."
            )
        return said.quoted.get(identifier.strip(), identifier.strip())

    if match := re.fullmatch(rf"cost\s+({_NAME})\s*=(.*)", statement):
        said.costs[name_of(match[1])] = match[2]
    elif match := re.fullmatch(rf"target:?\s+({_NAME})", statement):
        said.target = name_of(match[1])
    elif match := re.fullmatch(r"hidden:?\s+(.*)", statement):
        said.hidden += [name_of(part) for part in match[1].split(",")]
    elif match := re.fullmatch(rf"({_NAME})\s+in\s*\[([^,\]]+),([^,\]]+)\]", statement):
        try:
            said.ranges[name_of(match[1])] = (float(match[2]), float(match[3]))
        except ValueError:
            raise ValueError(
                f"`text` must give ranges as [low, high], two numbers; got {short(statement)}."
            ) from None
    elif match := re.fullmatch(rf"({_NAME})\s*[=~](.*)", statement):
        name = said.mention(name_of(match[1]))
        if name in said.equations:
            raise ValueError(
                f"`text` must have one equation per variable; got a second one for {short(name)}: {short(statement)}."
            )
        said.equations[name] = match[2].strip()
    elif _ARROW.search(statement):
        _read_arrows(statement, said, name_of)
    else:
        said.mention(name_of(statement))


def _read_arrows(statement: str, said: _Statements, name_of: Callable[[str], str]) -> None:
    groups = [[name_of(part) for part in group.split(",")] for group in _ARROW.split(statement)]
    arrows = _ARROW.findall(statement)
    for name in (name for group in groups for name in group):
        said.mention(name)
    for left, arrow, right in zip(groups, arrows, groups[1:], strict=False):
        for a, b in ((a, b) for a in left for b in right):
            if arrow == "<->":
                confounder = said.mention(f"U_{a}_{b}")
                said.hidden.append(confounder)
                pairs = [(confounder, a), (confounder, b)]
            else:
                pairs = [(a, b) if arrow == "->" else (b, a)]
            for cause, effect in pairs:
                if cause == effect:
                    raise ValueError(
                        f"`text` must have no directed cycle; got {cause[:60]} -> {effect[:60]} in {short(statement)}."
                    )
                if (cause, effect) in said.edges:
                    raise ValueError(
                        f"`text` must state each edge once; got {cause[:60]} -> {effect[:60]} again in {short(statement)}."
                    )
                said.edges.append((cause, effect))


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
