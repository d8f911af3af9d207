"""Right-hand sides such as `0.5*X + exp(-Z) + N(0, 1)`, read into sums of monomials, units and one noise."""

import ast
import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from acbo.names import short, suggestion

from .mechanisms import ACTIVATIONS, Activation, NoiseKind

Affine = dict[str, float]
"""Coefficients by name; the empty name holds the constant."""


@dataclasses.dataclass(frozen=True)
class Unit:
    """`amplitude · function(affine)`, with the input held within ±reach; a name that is no activation is the model's own."""

    amplitude: float
    function: str
    affine: Affine
    reach: float = math.inf


@dataclasses.dataclass(frozen=True)
class NoiseTerm:
    """Noise of mean zero: its kind, its standard deviation, and what widens it."""

    kind: NoiseKind
    scale: float
    spread: Affine = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Expression:
    """A sum of monomials of degree 3 at most, of units, and of at most one noise."""

    monomials: dict[tuple[str, ...], float] = dataclasses.field(default_factory=dict)
    units: tuple[Unit, ...] = ()
    noise: NoiseTerm | None = None
    held: tuple[Affine, float] | None = None
    """Result of `clip`: an affine input and its reach, which only a power may use."""

    @property
    def names(self) -> set[str]:
        """Variables on the right-hand side, also where their coefficient is zero."""
        inside = [*(u.affine for u in self.units), *([self.noise.spread] if self.noise else [])]
        return {n for m in self.monomials for n in m} | {n for a in inside for n in a if n}

    @property
    def constant(self) -> float | None:
        """Its value where it depends on nothing."""
        alone = not self.names and not self.noise and not self.held
        return self.monomials.get((), 0.0) if alone else None


Functions = Mapping[str, Callable[[Any], Any]]
"""Functions of one's own, by the names that a text calls them by."""


def demand_new_names(functions: Functions) -> None:
    """Raise for functions that a text could not call, or that would hide a built-in one."""
    for name, function in functions.items():
        taken = name in (*_FUNCTIONS, *_NOISES, *ACTIVATIONS, "clip")
        if taken or not str(name).isidentifier() or not callable(function):
            raise ValueError(
                f"`functions` must give functions names of their own, other than {', '.join(_FUNCTIONS)}; "
                f"got {name!r}: {function!r}."
            )


def read_expression(text: str, known: Mapping[str, str], functions: Functions | None = None) -> Expression:
    """The expression of `text`, in which identifiers stand for the names that `known` gives them."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(
            f"`text` must hold arithmetic such as 0.5*X + N(0, 1); got {short(text.strip())}."
        ) from error
    try:
        expression = _Reader(text.strip(), known, functions or {}).read(tree)
    except (RecursionError, OverflowError, ZeroDivisionError) as error:
        raise ValueError(
            f"`text` must hold arithmetic that can be worked out; {error} in {short(text.strip())}."
        ) from error
    if expression.held:
        raise ValueError(f"`clip` must stand under a power, as in clip(X, 3)**2; got {short(text.strip())}.")
    return expression


class _Reader:
    """Reads one tree; it keeps the text for messages."""

    def __init__(self, text: str, known: Mapping[str, str], functions: Functions) -> None:
        self.text, self.known = text, known
        own = {name: _Function(name, lambda x, f=f: float(f(x))) for name, f in functions.items()}
        self.functions = _FUNCTIONS | own

    def refuse(self, demand: str, hint: str = "") -> ValueError:
        return ValueError(f"`text` must {demand}; got {short(self.text)}.{hint}")

    def read(self, node: ast.expr) -> Expression:
        match node:
            case ast.Constant(value=int() | float() as number):
                return Expression({(): float(number)})
            case ast.Name(id=identifier):
                if identifier in self.known:
                    return Expression({(self.known[identifier],): 1.0})
                if identifier in ("pi", "e"):
                    return Expression({(): getattr(math, identifier)})
                hint = suggestion(identifier, self.known.values())
                raise ValueError(
                    f"`text` must give every variable an equation; {short(identifier)} in {short(self.text)} has none.{hint} "
                    f"A variable without causes is written `{identifier[:60]} = N(0, 1)`."
                )
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return scale_expression(self.read(operand), -1)
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self.read(operand)
            case ast.BinOp(left=left, op=op, right=right):
                return self.combine(op, self.read(left), self.read(right))
            case ast.Call(func=ast.Name(id=function), args=args, keywords=keywords):
                named = {k.arg or "": self.read(k.value) for k in keywords}
                return self.call(function, [self.read(a) for a in args], named)
        raise self.refuse(
            "use numbers, names, + - * / ** and the functions exp, cos, sin, tanh, sigmoid, clip"
        )

    def combine(self, op: ast.operator, left: Expression, right: Expression) -> Expression:
        match op:
            case ast.Add():
                return self.add(left, right)
            case ast.Sub():
                return self.add(left, scale_expression(right, -1))
            case ast.Mult():
                return self.multiply(left, right)
            case ast.Div() if right.constant:
                return scale_expression(left, 1 / right.constant)
            case ast.Div():
                raise self.refuse("divide by numbers other than 0 only")
            case ast.Pow() if right.constant in (1, 2, 3):
                return self.power(left, int(right.constant))
            case ast.Pow() if left.constant is not None and right.constant is not None:
                return Expression({(): left.constant**right.constant})
        raise self.refuse("use the powers 1, 2 and 3 only")

    def add(self, left: Expression, right: Expression) -> Expression:
        if left.noise and right.noise:
            raise self.refuse("have one noise per equation")
        if left.held or right.held:
            raise self.refuse("put `clip` under a power, as in clip(X, 3)**2")
        monomials = dict(left.monomials)
        for monomial, value in right.monomials.items():
            monomials[monomial] = monomials.get(monomial, 0.0) + value
        return Expression(monomials, left.units + right.units, left.noise or right.noise)

    def multiply(self, left: Expression, right: Expression) -> Expression:
        for number, other in ((left.constant, right), (right.constant, left)):
            if number is not None:
                return scale_expression(other, number)
        if left.units or right.units or left.noise or right.noise or left.held or right.held:
            raise self.refuse(
                "multiply functions and noise by numbers only; name a part as a variable of its own"
            )
        monomials: dict[tuple[str, ...], float] = {}
        for (a, x), (b, y) in itertools.product(left.monomials.items(), right.monomials.items()):
            monomial = tuple(sorted(a + b))
            if len(monomial) > 3:
                raise self.refuse("have products of at most 3 variables")
            monomials[monomial] = monomials.get(monomial, 0.0) + x * y
        return Expression(monomials)

    def power(self, base: Expression, exponent: int) -> Expression:
        if exponent == 1:
            return base
        function: Activation = "square" if exponent == 2 else "cube"
        if base.held:
            return Expression(units=(Unit(1.0, function, *base.held),))
        if base.constant is not None:
            return Expression({(): base.constant**exponent})
        if len(base.names) > 1 and not base.units and not base.noise:
            return Expression(units=(Unit(1.0, function, self.affine(base, "a power of several variables")),))
        product = base
        for _ in range(exponent - 1):
            product = self.multiply(product, base)
        return product

    def affine(self, inner: Expression, where: str) -> Affine:
        if inner.units or inner.noise or inner.held or any(len(m) > 1 for m in inner.monomials):
            raise self.refuse(
                f"have a weighted sum inside {where}; name the inner part as a variable of its own"
            )
        return {(m[0] if m else ""): value for m, value in inner.monomials.items()}

    def call(self, function: str, args: list[Expression], named: dict[str, Expression]) -> Expression:
        if function in _NOISES:
            return self.noise(function, args, named)
        if function == "clip" and len(args) == 2 and (args[1].constant or 0) > 0 and not named:
            return Expression(held=(self.affine(args[0], "clip"), args[1].constant or math.inf))
        if function not in self.functions or len(args) != 1 or named:
            known = [*self.functions, *_NOISES, "clip"]
            hint = suggestion(function, known)
            raise self.refuse(
                f"call one of {', '.join(known)}, with its arguments, and not {short(function)}", hint
            )
        found = self.functions[function]
        if (number := args[0].constant) is not None:
            return Expression({(): found.of_number(number)})
        affine = self.affine(args[0], f"{function}()")
        inner = {name: found.stretch * value for name, value in affine.items()}
        inner[""] = inner.get("", 0.0) + found.phase
        unit = Unit(found.amplitude, found.activation, inner)
        return Expression({(): found.constant} if found.constant else {}, (unit,))

    def noise(self, function: str, args: list[Expression], named: dict[str, Expression]) -> Expression:
        kind, usage, moments = _NOISES[function]
        numbers = [a.constant for a in args]
        if len(numbers) != 2 or None in numbers or named.keys() - {"spread"}:
            raise self.refuse(f"give {function} two numbers: {usage}")
        first, second = (float(n or 0) for n in numbers)
        if (function == "U" and second < first) or (function != "U" and second < 0):
            raise self.refuse(f"give {function} a width of at least 0: {usage}")
        spread = self.affine(named["spread"], "spread") if "spread" in named else {}
        if spread.pop("", 0.0) or (spread and function != "N"):
            raise self.refuse("give a spread to N only, without a constant, as in N(0, 1, spread=0.5*X)")
        mean, scale = moments(first, second)
        return Expression({(): mean}, noise=NoiseTerm("heteroscedastic" if spread else kind, scale, spread))


def scale_expression(expression: Expression, factor: float) -> Expression:
    """The expression times a number."""
    units = tuple(dataclasses.replace(u, amplitude=factor * u.amplitude) for u in expression.units)
    noise = expression.noise
    if noise:
        noise = dataclasses.replace(noise, scale=abs(factor) * noise.scale)
    held = expression.held
    if held:
        held = ({n: factor * v for n, v in held[0].items()}, abs(factor) * held[1])
    return Expression({m: factor * v for m, v in expression.monomials.items()}, units, noise, held)


class _Function(NamedTuple):
    """A function of the language: constant + amplitude · activation(stretch · x + phase)."""

    activation: str
    of_number: Callable[[float], float]
    amplitude: float = 1.0
    stretch: float = 1.0
    phase: float = 0.0
    constant: float = 0.0


_FUNCTIONS = {
    "exp": _Function("exp", math.exp),
    "cos": _Function("cos", math.cos),
    "sin": _Function("cos", math.sin, phase=-math.pi / 2),
    "tanh": _Function("tanh", math.tanh),
    "sigmoid": _Function("tanh", lambda x: 0.5 + 0.5 * math.tanh(x / 2), 0.5, 0.5, constant=0.5),
}
_NOISES: dict[str, tuple[NoiseKind, str, Callable[[float, float], tuple[float, float]]]] = {
    "N": ("gaussian", "N(mean, standard deviation)", lambda mean, scale: (mean, scale)),
    "Laplace": ("laplace", "Laplace(mean, scale)", lambda mean, scale: (mean, math.sqrt(2) * scale)),
    "U": ("uniform", "U(low, high)", lambda low, high: ((low + high) / 2, (high - low) / math.sqrt(12))),
}


def units_of(expression: Expression) -> list[Unit]:
    """All units of an expression, products of variables written as sums of powers of sums."""
    units = list(expression.units)
    for monomial, value in expression.monomials.items():
        units += [Unit(value * share, function, inner) for share, function, inner in _powers(monomial)]
    return units


def _powers(monomial: tuple[str, ...]) -> list[tuple[float, Activation, Affine]]:
    """A monomial of degree 2 or 3 as powers: xy = ((x+y)² - (x-y)²)/4, and the like for degree 3."""
    match sorted(monomial, key=lambda name: (-monomial.count(name), name)):
        case [x, y] if x == y:
            return [(1.0, "square", {x: 1.0})]
        case [x, y]:
            return [(0.25, "square", {x: 1.0, y: 1.0}), (-0.25, "square", {x: 1.0, y: -1.0})]
        case [x, y, z] if x == z:
            return [(1.0, "cube", {x: 1.0})]
        case [x, y, z] if x == y:
            sums = [(1 / 6, {x: 1.0, z: 1.0}), (1 / 6, {x: -1.0, z: 1.0}), (-1 / 3, {z: 1.0})]
            return [(share, "cube", inner) for share, inner in sums]
        case [x, y, z]:
            signs = [(1.0, 1.0, 1.0), (1.0, 1.0, -1.0), (1.0, -1.0, 1.0), (-1.0, 1.0, 1.0)]
            return [(a * b * c / 24, "cube", {x: a, y: b, z: c}) for a, b, c in signs]
    return []
