"""The models a policy is trained on: easy ones first, then every size, family, mechanism and noise."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array

from acbo.data import Key
from acbo.scms.random_models import SCMPrior, sample_scm, scm_prior
from acbo.scms.scm import SCM

CHANGES = (0, 500, 1500)
"""Updates at which the shares of `curriculum_ratios` change."""


def curriculum_ratios(step: int) -> tuple[float, float, float]:
    """Shares of easy, medium and hard problems at a step of training.

    >>> curriculum_ratios(0), curriculum_ratios(700), curriculum_ratios(5000)
    ((0.8, 0.2, 0.0), (0.5, 0.4, 0.1), (0.3, 0.4, 0.3))
    """
    if step < 500:
        return (0.8, 0.2, 0.0)
    return (0.5, 0.4, 0.1) if step < 1500 else (0.3, 0.4, 0.3)


class Curriculum(eqx.Module):
    """Random models of at most `size` variables; the shares of easy, medium and hard ones follow the update."""

    priors: SCMPrior
    shares: Array
    size: int = eqx.field(static=True)
    units: int = eqx.field(static=True)

    def __init__(self, size: int = 10, units: int = 8) -> None:
        easy = scm_prior(mechanisms="linear", noises="gaussian", variables=(2, min(5, size)))
        medium = scm_prior(mechanisms="linear", variables=(3, size))
        hard = scm_prior(
            variables=(3, size), edges_per_variable=(1.0, 2.5), manipulable=0.8, bias=(-0.5, 0.5)
        )
        self.priors = jax.tree.map(lambda *leaves: jnp.stack(leaves), easy, medium, hard)
        self.shares = jnp.asarray([curriculum_ratios(step) for step in CHANGES])
        self.size, self.units = size, units

    def __call__(self, key: Key, step: Array) -> SCM:
        """A model for this update."""
        key_kind, key_scm = jr.split(key)
        row = jnp.sum(step >= jnp.asarray(CHANGES)) - 1
        kind = jnp.sum(jr.uniform(key_kind) > jnp.cumsum(self.shares[row])[:-1])
        prior = jax.tree.map(lambda leaf: leaf[kind], self.priors)
        return sample_scm(key_scm, prior, self.size, self.units)
