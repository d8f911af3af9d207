"""Calibration: logits rescaled on held-out models, so that of the edges given 80 % eight in ten are there."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from acbo._limits import require_one_of

from .layers import MASKED


class Calibration(eqx.Module):
    """`scale * logit + shift`; what cannot be stays so. The identity until fitted."""

    scale: Float[Array, ""]
    shift: Float[Array, ""]

    def __init__(self, scale: float | Float[Array, ""] = 1.0, shift: float | Float[Array, ""] = 0.0) -> None:
        self.scale, self.shift = jnp.asarray(scale, jnp.float32), jnp.asarray(shift, jnp.float32)

    def __call__(self, logits: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        return jnp.where(logits <= MASKED / 2, MASKED, self.scale * logits + self.shift)

    @property
    def temperature(self) -> Float[Array, ""]:
        """The divisor of logits."""
        return 1 / self.scale


def fit_calibration(
    logits: Float[Array, "*shape"],
    labels: Float[Array, "*shape"] | Bool[Array, "*shape"],
    mask: Bool[Array, "*shape"] | None = None,
    kind: str = "temperature",
) -> Calibration:
    """The calibration with the least cross entropy to `labels`, which may be truth (0 or 1) or probabilities.

    - `kind="temperature"` fits the scale alone; `"vector"` the scale and the shift.

    The problem is convex; Newton's method finds its minimum in a few steps.
    """
    require_one_of("kind", kind, "temperature", "vector")
    mask = (logits > MASKED / 2) if mask is None else mask & (logits > MASKED / 2)
    x = jnp.where(mask, logits, 0.0).ravel().astype(jnp.float32)
    y = labels.astype(jnp.float32).ravel()
    weight = mask.ravel() / jnp.maximum(mask.sum(), 1)
    fitted = jnp.array([True, kind == "vector"])
    low, high = 1e-2, 1e2

    def loss(p: Float[Array, "2"]) -> Float[Array, ""]:
        rescaled = p[0] * x + p[1]
        return (weight * (jax.nn.softplus(rescaled) - y * rescaled)).sum()

    def newton(_: Array, p: Float[Array, "2"]) -> Float[Array, "2"]:
        slope = jax.grad(loss)(p)
        # At its limit the scale rests while the shift is fitted, if that is where the slope presses it.
        pressed = ((p[0] <= low) & (slope[0] > 0)) | ((p[0] >= high) & (slope[0] < 0))
        free = (fitted & jnp.array([True, True]).at[0].set(~pressed)).astype(p.dtype)
        curve = jax.hessian(loss)(p) * free[:, None] * free + jnp.diag(1 - free)
        step = jnp.linalg.solve(curve + 1e-8 * jnp.eye(2), slope * free)
        # A step of at most 1 keeps the scale from leaping over 0, where probabilities turn round.
        step = step / jnp.maximum(1.0, jnp.abs(step).max())
        return (p - step).at[0].set(jnp.clip(p[0] - step[0], low, high))

    scale, shift = jax.lax.fori_loop(0, 50, newton, jnp.array([1.0, 0.0], jnp.float32))
    return Calibration(scale, shift)
