"""Dormand–Prince 5(4): every particle chooses its own steps so that each one's error stays below a tolerance."""

import math
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from equinox.internal import while_loop
from jax.lax import stop_gradient
from jaxtyping import PyTree

from ..fields.base import AbstractField, Flag, Index, Scalar, Vector
from ..fields.chart import InChart
from .base import AbstractIntegrator, AnyKey, ParticleState, Progress

# J. R. Dormand, P. J. Prince, "A family of embedded Runge-Kutta formulae", J. Comput. Appl. Math. 6 (1980), table 2.
NODES = (1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0, 1.0)
ROWS = (
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
# Fifth-order weights minus the embedded fourth-order ones.
ERROR = (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)

# The PI controller of E. Hairer, G. Wanner, "Solving ODEs II" (1996), IV.2, with exponents 0.7/5 and 0.4/5.
SAFETY, SHRINK, GROW = 0.9, 0.2, 10.0
# Before a place without a finite velocity, steps shrink to this share of the interval and end there.
_LEAST_SHARE = 1e-6
PROPORTIONAL, INTEGRAL = 0.4 / 5, 0.7 / 5


class StepControl(eqx.Module):
    """One particle's step control."""

    size: Scalar  # the next step to try; 0 before the first one
    error: Scalar  # error of the last accepted step, in units of the tolerance
    accepted: Index
    rejected: Index
    forced: Index  # accepted above the tolerance because `min_step` forbade a smaller one
    # Whether `max_steps` ever ended an interval early: the position is then not at its end.
    exhausted: Flag
    broken: Flag  # whether it ended early because the field gives no finite velocity further on
    reached: Scalar  # the share of the last interval that was taken


class _Walk(eqx.Module):
    """The loop's carry: how far inside the interval, and with which velocity (the last stage is the next first)."""

    elapsed: Scalar
    position: Vector
    velocity: Vector
    hint: PyTree
    control: StepControl


class Dopri5(AbstractIntegrator):
    """Order 5 with an error estimate of order 4; the interval's end is met exactly.

    A step is accepted when the root mean square of `error / (atol + rtol |x|)` is at most 1. `max_steps` bounds the
    attempts within one interval; a particle that needs more stops early and says so (`memory.exhausted`).
    On longitudes and latitudes `atol` is in degrees and `rtol` a share of the step's way.
    `differentiable=True` makes reverse-mode gradients possible (a checkpointed loop, slower); steps count as constants.
    """

    rtol: float = 1e-4
    atol: float = 1e-6
    min_step: float = 0.0
    max_step: float = math.inf
    max_steps: int = eqx.field(static=True, default=1000)
    differentiable: bool = eqx.field(static=True, default=False)

    order: ClassVar[int] = 5
    adaptive: ClassVar[bool] = True
    steps_in_metres: ClassVar[bool] = True

    def __check_init__(self) -> None:
        """Refuses tolerances and limits that cannot work."""
        for name in ("rtol", "atol", "min_step"):
            value = getattr(self, name)
            if not value >= 0:
                raise ValueError(f"`{name}` must be at least 0; got {value}.")
        if self.rtol + self.atol <= 0:
            raise ValueError("`rtol` and `atol` cannot both be 0; got 0 and 0. Raise one of them.")
        if not self.max_step > self.min_step:
            raise ValueError(f"`max_step` must exceed `min_step` = {self.min_step}; got {self.max_step}.")
        if self.max_steps < 1:
            raise ValueError(f"`max_steps` must be at least 1; got {self.max_steps}.")

    def remember(self, position: Vector) -> StepControl:
        """No step yet."""
        real, none = jnp.zeros((), position.dtype), jnp.zeros((), jnp.int32)
        no, one = jnp.zeros((), bool), jnp.ones_like(real)
        return StepControl(real, one, none, none, none, no, no, one)

    def progress(self, memory: StepControl) -> Progress:
        """As the last step left it."""
        return Progress(memory.exhausted, memory.broken, memory.reached)

    def in_chart(self, view: InChart) -> "Dopri5":
        """Tolerances are given for degrees; in metres they are those of the step's way: 0° is no nearer to zero than 180°."""
        atol = self.atol + self.rtol * jnp.abs(view.chart.origin)  # of other coordinates, such as depth
        atol = atol.at[:2].set(self.atol * view.chart.sphere.metres_per_degree)
        return eqx.tree_at(lambda i: i.atol, self, atol)

    def step(
        self, field: AbstractField, state: ParticleState, t: Scalar, dt: Scalar, key: AnyKey | None = None
    ) -> ParticleState:
        """As many steps as the tolerance asks for."""
        x = state.position
        span, sign = jnp.abs(dt).astype(x.dtype), jnp.sign(dt).astype(x.dtype)
        first = field.sample(x, t, state.hint)
        control = self._begin(state.memory, x, first.velocity, span)
        walk = _Walk(jnp.zeros_like(span), x, first.velocity, first.hint, control)
        end = while_loop(
            lambda walk: (walk.elapsed < span) & ~(walk.control.broken & self._too_short(walk, span)),
            lambda walk: self._attempt(field, walk, t, span, sign),
            walk,
            max_steps=self.max_steps,
            kind="checkpointed" if self.differentiable else "lax",
        )
        unfinished = end.elapsed < span
        reached = jnp.where(unfinished, end.elapsed / jnp.where(span > 0, span, 1.0), 1.0).astype(x.dtype)
        control = eqx.tree_at(
            lambda c: (c.exhausted, c.broken, c.reached),
            end.control,
            (end.control.exhausted | unfinished, end.control.broken & unfinished, stop_gradient(reached)),
        )
        return ParticleState(end.position, first.velocity, end.hint, first.inside, control)

    def _too_short(self, walk: _Walk, span: Scalar) -> Flag:
        """Whether a step that met no finite velocity is not worth another try: one at its beginning is not finite either."""
        floor = jnp.maximum(self.min_step, _LEAST_SHARE * span)
        return (walk.control.size <= floor) | ~jnp.isfinite(jnp.sum(walk.velocity))

    def _begin(self, memory: StepControl, x: Vector, v: Vector, span: Scalar) -> StepControl:
        """The remembered step, or a first guess: a hundredth of the way the tolerance's scale allows at this speed."""
        scale = self.atol + self.rtol * jnp.abs(x)
        guess = 0.01 * _norm(x, scale) / jnp.maximum(_norm(v, scale), jnp.finfo(x.dtype).tiny)
        guess = jnp.where(guess > 0, jnp.maximum(guess, 1e-3 * span), 1e-3 * span)
        size = jnp.where(memory.size > 0, memory.size, guess)
        return eqx.tree_at(lambda c: c.size, memory, stop_gradient(size).astype(x.dtype))

    def _attempt(self, field: AbstractField, walk: _Walk, t: Scalar, span: Scalar, sign: Scalar) -> _Walk:
        """One step tried; the walk moves on only if its error is small enough."""
        control, x = walk.control, walk.position
        wanted = jnp.clip(control.size, self.min_step, self.max_step).astype(x.dtype)
        left = span - walk.elapsed
        # A remainder of a hundredth of a step is taken along; it could vanish in rounding otherwise.
        last = left <= 1.01 * wanted
        size = jnp.where(last, left, stop_gradient(wanted))
        new, velocity, hint, delta = _stages(field, walk, t + sign * walk.elapsed, sign * size)

        scale = self.atol + self.rtol * jnp.maximum(jnp.abs(x), jnp.abs(new))
        error = stop_gradient(_norm(delta, scale)).astype(x.dtype)
        fits = error <= 1
        forced = ~fits & (wanted <= self.min_step) & jnp.isfinite(error)
        good = fits | forced

        advised = stop_gradient(size) * _factor(error, control.error, fits)
        # The last piece of an interval is cut short by the clock, not by the error: it must not shrink the memory.
        advised = jnp.where(good & last, jnp.maximum(advised, jnp.minimum(wanted, control.size)), advised)
        control = StepControl(
            size=jnp.clip(advised, self.min_step, self.max_step).astype(x.dtype),
            error=jnp.where(good, jnp.maximum(error, 1e-4), control.error),
            accepted=control.accepted + good,
            rejected=control.rejected + ~good,
            forced=control.forced + forced,
            exhausted=control.exhausted,
            broken=~jnp.isfinite(jnp.sum(delta)),
            reached=control.reached,
        )
        elapsed = jnp.where(last, span, walk.elapsed + size)
        moved = _Walk(elapsed, new, velocity, hint, control)
        kept = _Walk(walk.elapsed, x, walk.velocity, walk.hint, control)
        return jax.tree.map(lambda new, old: jnp.where(good, new, old), moved, kept)


def _stages(field: AbstractField, walk: _Walk, t: Scalar, h: Scalar) -> tuple[Vector, Vector, PyTree, Vector]:
    """New position, velocity there, where the field looked last, and the estimated error."""
    x, slopes, hint = walk.position, [walk.velocity], walk.hint
    point = x
    for node, row in zip(NODES, ROWS, strict=True):
        point = x + h * _combine(row, slopes)
        sample = field.sample(point, t + node * h, hint)
        slopes.append(sample.velocity)
        hint = sample.hint
    # The second stage has no weight of its own; without a finite velocity there the others mean nothing.
    return point, slopes[-1], hint, h * _combine(ERROR, slopes) + 0 * slopes[1]


def _combine(weights: tuple[float, ...], slopes: list[Vector]) -> Vector:
    """Weighted sum without the zero weights."""
    terms = [weight * slope for weight, slope in zip(weights, slopes, strict=True) if weight]
    return sum(terms[1:], start=terms[0])


def _norm(values: Vector, scale: Vector) -> Scalar:
    """Root mean square in units of the tolerance; gradients never pass here."""
    return jnp.sqrt(jnp.mean((stop_gradient(values) / stop_gradient(scale)) ** 2))


def _factor(error: Scalar, before: Scalar, fits: Flag) -> Scalar:
    """Factor for the next step; NaN shrinks it, and a rejected step never grows."""
    bounded = jnp.maximum(error, 1e-10)
    smooth = SAFETY * bounded**-INTEGRAL * before**PROPORTIONAL
    plain = jnp.minimum(SAFETY * bounded ** (-1 / 5), 1.0)
    factor = jnp.clip(jnp.where(fits, smooth, plain), SHRINK, GROW)
    return jnp.where(jnp.isfinite(error), factor, SHRINK)
