"""Training and test data of a surrogate: models from a prior, with observations and experiments."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int32

from acbo.data import Dataset, Key
from acbo.inference import edge_posterior
from acbo.scms.interventions import random_interventions
from acbo.scms.random_models import SCMPrior, linear_gaussian_prior, sample_scm, scm_prior
from acbo.scms.samples import sample


class ModelDraws(eqx.Module):
    """`draw(key)`: the data of a random model and its adjacency, padded to `size` variables and `rows` rows.

    A prior is chosen with `shares`; with probability `whole` all `rows` are real, `observed` of them observations,
    otherwise both numbers are random. Priors and numbers are arrays: changing them compiles nothing.
    """

    priors: SCMPrior
    """Stacked along a leading axis."""
    shares: Float[Array, " priors"]
    observed: Int32[Array, ""]
    whole: Float[Array, ""]
    size: int = eqx.field(static=True)
    rows: int = eqx.field(static=True)
    units: int = eqx.field(static=True)

    def __init__(
        self,
        priors: SCMPrior | Sequence[SCMPrior],
        shares: Sequence[float] | None = None,
        *,
        size: int = 10,
        rows: int = 100,
        observed: int = 60,
        whole: float = 1.0,
        units: int = 8,
    ) -> None:
        given = [priors] if isinstance(priors, SCMPrior) else list(priors)
        if shares is not None and len(shares) != len(given):
            raise ValueError(
                f"`shares` must have one entry for each of the {len(given)} priors; got {len(shares)}."
            )
        if not 0 <= observed <= rows:
            raise ValueError(f"`observed` must be from 0 to `rows`={rows}; got {observed}.")
        self.priors = jax.tree.map(lambda *leaves: jnp.stack(leaves), *given)
        self.shares = jnp.asarray([1.0] * len(given) if shares is None else shares, jnp.float32)
        self.observed = jnp.asarray(observed, jnp.int32)
        self.whole = jnp.asarray(whole, jnp.float32)
        self.size, self.rows, self.units = size, rows, units

    def __call__(self, key: Key) -> tuple[Dataset, Bool[Array, "d d"]]:
        key_prior, key_model, key_rows, key_do, key_data = jr.split(key, 5)
        chosen = jr.categorical(key_prior, jnp.log(self.shares))
        prior = jax.tree.map(lambda leaf: leaf[chosen], self.priors)
        scm = sample_scm(key_model, prior, self.size, self.units)
        count, observed = self._numbers(key_rows)
        done = random_interventions(key_do, scm, self.rows, observational=observed)
        data = sample(scm, done, key_data, self.rows, jnp.arange(self.rows) < count)
        seen = data.live
        return data, scm.adjacency & seen[:, None] & seen

    def _numbers(self, key: Key) -> tuple[Int32[Array, ""], Int32[Array, ""]]:
        """Number of real rows, and number of observations among them."""
        key_kind, key_count, key_observed = jr.split(key, 3)
        # A third of the rest has no experiments at all, as much data have none.
        share = jr.uniform(key_kind)
        whole, alone = share < self.whole, share > 1 - (1 - self.whole) / 3
        count = jr.randint(key_count, (), self.rows // 5, self.rows + 1)
        count = jnp.where(whole | alone, self.rows, count)
        observed = jr.randint(key_observed, (), 0, count + 1)
        observed = jnp.where(whole, self.observed, jnp.where(alone, count, observed))
        return count.astype(jnp.int32), observed.astype(jnp.int32)


def benchmark_draws(variables: int = 10, rows: int = 100, observed: int = 60) -> ModelDraws:
    """The linear Gaussian models on which structure learners are compared (ledger 7.2), without padding."""
    return ModelDraws(linear_gaussian_prior(variables), size=variables, rows=rows, observed=observed, units=0)


def training_draws(
    size: int = 10, rows: int = 100, observed: int = 60, *, nonlinear: float = 0.25
) -> ModelDraws:
    """The training data of the pretrained surrogate: linear Gaussian models of 3 to `size` variables, half of them
    of the largest size, and a share of every other family, mechanism and noise."""
    priors = (
        linear_gaussian_prior(size),
        linear_gaussian_prior((3, size)),
        scm_prior(variables=(3, size)),
    )
    linear = (1 - nonlinear) / 2
    return ModelDraws(
        priors,
        (linear, linear, nonlinear),
        size=size,
        rows=rows,
        observed=observed,
        whole=0.5,
        units=8 if nonlinear else 0,
    )


def exact_edges(data: Dataset) -> Float[Array, "d d"]:
    """The exact posterior of every edge, for `train(..., teach=exact_edges)`: labels in place of the true graph."""
    return edge_posterior(data).edges
