"""Velocities given by a formula, and the flows with known properties that tests and benchmarks use."""

import math
import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from .base import AbstractField, FieldAtTime, Flag, Sample, Scalar, Vector, copy_with
from .chart import MomentOfRates
from .sphere import Sphere


class AnalyticField(AbstractField):
    """The velocity `function(x, t)`, or `function(x, t, params)` where `params` are given.

    The function is part of the compiled program: keep arrays in `params`, a pytree that can be replaced and
    differentiated. `domain(x)`, or `domain(x, params)`, says whether a point lies inside; without it all do.
    With `sphere=Sphere()` the function takes longitude and latitude in degrees and returns m/s east and north.
    """

    function: Callable[..., Any] = eqx.field(static=True)
    dim: int = eqx.field(static=True)
    params: PyTree
    domain: Callable[..., Any] | None = eqx.field(static=True)
    globe: Sphere | None = eqx.field(static=True)

    def __init__(
        self,
        function: Callable[..., Any],
        dim: int,
        params: PyTree = None,
        domain: Callable[..., Any] | None = None,
        *,
        sphere: Sphere | None = None,
    ) -> None:
        if not callable(function):
            raise TypeError(f"`function` must be callable as function(x, t); got {function!r}.")
        if dim < 1:
            raise ValueError(f"`dim` must be at least 1; got {dim}.")
        if sphere is not None and dim < 2:
            raise ValueError(f"`dim` must be at least 2 on a sphere, for longitude and latitude; got {dim}.")
        self.function, self.dim, self.params, self.domain = function, dim, params, domain
        self.globe = sphere
        if params is None:  # otherwise they may be stacked, to be mapped over
            self._try()

    def _try(self) -> None:
        """Ask for the velocity's shape at one point, so that a wrong function is refused here and not within a run."""
        number = jnp.result_type(float)
        point = jax.ShapeDtypeStruct((self.dim,), number), jax.ShapeDtypeStruct((), number)
        try:
            made = [jax.make_jaxpr(lambda x, t: self.sample(x, t).velocity)(*point) for _ in range(2)]
        except _UNTRACEABLE as error:
            raise untraceable(error, "function") from error
        except (TypeError, IndexError, AttributeError) as error:
            if type(error) not in (TypeError, IndexError, AttributeError):
                raise  # of JAX's own, which say more
            raise type(error)(
                f"`function` must be callable as function(x, t), x one point of shape ({self.dim},) and not many; "
                f"it raised: {error}"
            ) from error
        if _differ(*made):
            warnings.warn(
                "`function` gives other numbers each time it is called, such as random ones of NumPy. It is compiled, so that "
                "one set of them would count for all particles at all times. For a random walk take the integrator "
                "'euler_maruyama' with `diffusivity=`.",
                UserWarning,
                stacklevel=3,
            )

    @property
    def sphere(self) -> Sphere | None:
        """Where the function returns m/s for longitude and latitude."""
        return self.globe

    @property
    def in_metres(self) -> "AnalyticField":
        """On a sphere the function's own values; else the field itself."""
        return self if self.globe is None else copy_with(self, globe=None)

    def start(self, x: Vector) -> PyTree:
        return ()

    def sample(self, x: Vector, t: Scalar, hint: PyTree = ()) -> Sample:
        if self.globe is not None:
            return MomentOfRates(FieldAtTime(self.in_metres, t), None, self.globe).sample(x, hint)
        extra = () if self.params is None else (self.params,)
        found = self.function(x, t, *extra)
        if found is None:
            raise ValueError(
                f"`function` must return shape {x.shape} for one point; got None. Does it `return`?"
            )
        velocity = jnp.asarray(found, x.dtype)
        if velocity.shape != x.shape:
            raise ValueError(f"`function` must return shape {x.shape} for one point; got {velocity.shape}.")
        inside = jnp.bool_(True) if self.domain is None else jnp.asarray(self.domain(x, *extra), bool)
        return Sample(velocity, inside, ())


_MOST_COMPARED = 1000
"""Constants of a formula that are larger are not compared."""


def _differ(one: Any, other: Any) -> bool:
    """Whether two traces of one formula hold other numbers."""
    texts = [re.sub(r"0x[0-9a-f]+", "", str(made.jaxpr)) for made in (one, other)]
    if texts[0] != texts[1]:
        return True
    pairs = zip(one.consts, other.consts, strict=True)
    return any(
        a is not b
        and np.size(a) <= _MOST_COMPARED
        and not np.array_equal(np.asarray(a), np.asarray(b), equal_nan=True)
        for a, b in pairs
        if jnp.issubdtype(jnp.result_type(a), jnp.number)
    )


_UNTRACEABLE = (jax.errors.TracerArrayConversionError, jax.errors.ConcretizationTypeError)
"""What JAX raises where a formula needs numbers that are not known while it is compiled."""


def untraceable(error: Exception, name: str) -> TypeError:
    """What to write instead, where the formula given as the argument `name` cannot be compiled."""
    if isinstance(error, jax.errors.TracerBoolConversionError):
        return TypeError(
            f"`{name}` must not branch on numbers by `if`, `while`, `and` or `or`, since it is compiled once for all. Write "
            "`jnp.where(x[0] > 0, a, b)` in place of `a if x[0] > 0 else b`."
        )
    return TypeError(
        f"`{name}` must compute with jax.numpy, since it is compiled; it calls NumPy, math or another library. Write "
        "`import jax.numpy as jnp` and `jnp.sin(...)` in place of `np.sin(...)` or `math.sin(...)`."
    )


def try_formula(call: Callable[..., Any], dim: int, name: str) -> None:
    """Refuse a formula of a point and a time that cannot be compiled, where it is given and not within a run."""
    number = jnp.result_type(float)
    try:
        jax.eval_shape(call, jax.ShapeDtypeStruct((dim,), number), jax.ShapeDtypeStruct((), number))
    except _UNTRACEABLE as error:
        raise untraceable(error, name) from error


Coordinates = Sequence[float] | Vector


def _numbers(**values: Any) -> dict[str, Array]:
    return {name: jnp.asarray(value, jnp.result_type(float)) for name, value in values.items()}


def linear_flow(
    matrix: Sequence[Sequence[float]] | Float[Array, "dim dim"],
    offset: Coordinates | None = None,
    rate: Coordinates | None = None,
) -> AnalyticField:
    """`matrix @ x + offset + rate * t`: what every interpolation must reproduce exactly."""
    square = jnp.asarray(matrix)
    dim = square.shape[0]
    zero = [0.0] * dim
    return AnalyticField(
        _linear,
        dim,
        _numbers(
            matrix=square, offset=zero if offset is None else offset, rate=zero if rate is None else rate
        ),
    )


def _linear(x: Array, t: Array, p: dict[str, Array]) -> Array:
    return p["matrix"] @ x + p["offset"] + p["rate"] * t


def constant_flow(velocity: Coordinates) -> AnalyticField:
    """The same velocity everywhere and always."""
    return AnalyticField(_constant, len(velocity), _numbers(velocity=velocity))


def _constant(x: Array, t: Array, p: dict[str, Array]) -> Array:
    return jnp.broadcast_to(p["velocity"], x.shape)


def solid_rotation(rate: float = 1.0, centre: Coordinates = (0.0, 0.0)) -> AnalyticField:
    """Rotation about `centre` with `rate` radians per time, in the plane of the first two axes."""
    return AnalyticField(_rotation, len(centre), _numbers(rate=rate, centre=centre))


def _rotation(x: Array, t: Array, p: dict[str, Array]) -> Array:
    away = x - p["centre"]
    return p["rate"] * jnp.zeros_like(x).at[0].set(-away[1]).at[1].set(away[0])


def double_gyre(
    amplitude: float = 0.1, swing: float = 0.25, frequency: float = 2 * math.pi / 10, dim: int = 2
) -> AnalyticField:
    """Two vortices in [0, 2] × [0, 1] whose border swings; in 3-D, × [0, 1] with a slow exchange along z.

    No flow crosses the walls. Shadden, Lekien, Marsden: Physica D 212 (2005). `swing=0` makes it steady.
    """
    if dim not in (2, 3):
        raise ValueError(f"`dim` must be 2 or 3; got {dim}.")
    params = _numbers(amplitude=amplitude, swing=swing, frequency=frequency)
    return AnalyticField(_double_gyre, dim, params)


def _double_gyre(x: Array, t: Array, p: dict[str, Array]) -> Array:
    s = p["swing"] * jnp.sin(p["frequency"] * t)
    f = s * x[0] ** 2 + (1 - 2 * s) * x[0]
    slope = 2 * s * x[0] + 1 - 2 * s
    scale = jnp.pi * p["amplitude"]
    u = -scale * jnp.sin(jnp.pi * f) * jnp.cos(jnp.pi * x[1])
    v = scale * jnp.cos(jnp.pi * f) * jnp.sin(jnp.pi * x[1]) * slope
    if x.shape[0] == 2:
        return jnp.stack([u, v])
    z = x[2]
    w = z * (1 - z) * (z - p["swing"] * jnp.sin(2 * p["frequency"] * t) - 0.5)
    return jnp.stack([u, v, w])


def abc_flow(
    a: float = math.sqrt(3.0), b: float = math.sqrt(2.0), c: float = 1.0, swing: float = 0.0
) -> AnalyticField:
    """Arnold–Beltrami–Childress flow, periodic with 2π: free of divergence, and chaotic.

    `swing` makes `a` vary in time as `a + swing × t × sin(π t)`. Haller: Physica D 149 (2001).
    """
    return AnalyticField(_abc, 3, _numbers(a=a, b=b, c=c, swing=swing))


def _abc(x: Array, t: Array, p: dict[str, Array]) -> Array:
    a = p["a"] + p["swing"] * t * jnp.sin(jnp.pi * t)
    return jnp.stack(
        [
            a * jnp.sin(x[2]) + p["c"] * jnp.cos(x[1]),
            p["b"] * jnp.sin(x[0]) + a * jnp.cos(x[2]),
            p["c"] * jnp.sin(x[1]) + p["b"] * jnp.cos(x[0]),
        ]
    )


def peninsula(speed: float = 1.0, radius: float = 0.32, centre: float = 0.5) -> AnalyticField:
    """Steady flow along the wall y = 0 around a half circle of `radius` at x = `centre`; the half circle is outside.

    Paths follow the lines of `peninsula_stream`. Ådlandsvik et al., ICES (2009).
    """
    params = _numbers(speed=speed, radius=radius, centre=centre)
    return AnalyticField(_peninsula, 2, params, _off_peninsula)


def peninsula_stream(field: AnalyticField, x: Float[Array, "*n 2"]) -> Float[Array, "*n"]:
    """The stream function of a `peninsula` field: u = ∂ψ/∂y, v = −∂ψ/∂x; constant along every path."""
    p = field.params
    away, y = x[..., 0] - p["centre"], x[..., 1]
    return p["speed"] * y * (1 - p["radius"] ** 2 / (away**2 + y**2))


def _peninsula(x: Array, t: Array, p: dict[str, Array]) -> Array:
    away, y = x[0] - p["centre"], x[1]
    square = away**2 + y**2
    # Inside the half circle, where nothing flows, the formula would divide by zero.
    square = jnp.maximum(square, 0.25 * p["radius"] ** 2)
    ratio = p["radius"] ** 2 / square**2
    return p["speed"] * jnp.stack([1 - ratio * (away**2 - y**2), -2 * ratio * away * y])


def _off_peninsula(x: Array, p: dict[str, Array]) -> Flag:
    return ((x[0] - p["centre"]) ** 2 + x[1] ** 2 >= p["radius"] ** 2) & (x[1] >= 0)
