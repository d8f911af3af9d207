"""Random linear Gaussian models in a dozen lines of JAX, so that tests of the surrogate stand on nothing else."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from acbo.data import Dataset


@dataclasses.dataclass(frozen=True)
class LinearModels:
    """`draw(key)`: a random model's observations and single-variable experiments, and its adjacency."""

    variables: int
    observed: int = 60
    experiments: int = 40
    edges: float = 1.5

    def one(self, seed):
        """The model of a seed, compiled: dozens of small operations one by one take seconds."""
        return _compiled(self, jr.key(seed))

    def __call__(self, key):
        d, n = self.variables, self.observed + self.experiments
        # One draw for all compiles several times faster than one for each.
        sizes = np.cumsum([d, d, n, d * d, d * d, d * d, n * d])
        parts = jnp.split(jr.uniform(key, (sizes[-1] + n * d,), minval=1e-6, maxval=1 - 1e-6), sizes)
        place, scale, chosen, present, strength, sign, noise, given = parts
        square, table = (d, d), (n, d)
        rank = jnp.argsort(jnp.argsort(place))
        likely = present.reshape(square) < min(1.0, 2 * self.edges / (d - 1))
        adjacency = (rank[:, None] < rank) & likely
        signed = (0.5 + 1.5 * strength.reshape(square)) * jnp.where(sign.reshape(square) < 0.5, -1, 1)
        weights = jnp.where(adjacency, signed, 0.0)
        experiment = (jnp.arange(n) >= self.observed)[:, None]
        was_set = experiment & (jnp.arange(d) == (chosen * d).astype(int)[:, None])
        normal = np.sqrt(2) * jax.lax.erf_inv(2 * jnp.concatenate([noise, given]) - 1).reshape(2, *table)
        own = jnp.where(was_set, 2 * normal[1], normal[0] * (0.5 + scale))
        order = jnp.argsort(rank)

        def fill(i, x):
            v = order[i]
            return x.at[:, v].set(own[:, v] + jnp.where(was_set[:, v], 0.0, x @ weights[:, v]))

        values = jax.lax.fori_loop(0, d, fill, jnp.zeros(table))
        return Dataset(values, was_set, jnp.ones(n, bool), jnp.ones(d, bool), jnp.int32(0)), adjacency


@functools.partial(jax.jit, static_argnums=0)
def _compiled(models, key):
    return models(key)


def auroc(scores, labels):
    """Probability that a random edge scores above a random non-edge, ties counting half."""
    scores, labels = np.asarray(scores).ravel(), np.asarray(labels).ravel().astype(bool)
    _, place, count = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(count) - (count - 1) / 2)[place]
    positives = labels.sum()
    return (ranks[labels].sum() - positives * (positives + 1) / 2) / (positives * (len(labels) - positives))
