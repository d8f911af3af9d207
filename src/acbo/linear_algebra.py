"""Linear systems by elementwise elimination: thousands of small ones are one program, without a library call for each.

On accelerators that is far faster than a batch of library calls. On CPUs, programs that call LAPACK from several loops
were seen to hang (jaxlib 0.10.2, two cores: every thread of the pool asleep).
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def solve_positive(
    matrix: Float[Array, "m m"], right: Float[Array, "m k"]
) -> tuple[Float[Array, "m k"], Float[Array, ""]]:
    """`matrix⁻¹ right` and log det of a positive definite matrix, by Gauss–Jordan elimination."""
    m = matrix.shape[0]
    index = jnp.arange(m)

    def eliminate(k: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        both, log = carry
        row = jax.lax.dynamic_index_in_dim(both, k, axis=0, keepdims=False)
        column = jax.lax.dynamic_index_in_dim(both, k, axis=1, keepdims=False)
        # Rounding must not make a positive pivot zero.
        pivot = jnp.maximum(jax.lax.dynamic_index_in_dim(row, k, keepdims=False), 1e-30)
        scaled = row / pivot
        here = (index == k)[:, None]
        both = jnp.where(here, scaled, both - column[:, None] * scaled)
        return both, log + jnp.log(pivot)

    both = jnp.concatenate([matrix, right], axis=1)
    both, log = jax.lax.fori_loop(0, m, eliminate, (both, jnp.zeros((), matrix.dtype)))
    return both[:, m:], log


def whiten(
    matrix: Float[Array, "m m"], right: Float[Array, "m k"]
) -> tuple[Float[Array, "m k"], Float[Array, ""]]:
    """`L⁻¹ right` and log det for a positive definite matrix `L Lᵀ`, by forward elimination alone.

    Products of the columns are those with the inverse between them. Rounding is then like a little noise on the matrix,
    however nearly alike its rows are, which is not so for `solve_positive`.
    """
    m = matrix.shape[0]
    index = jnp.arange(m)
    # Nothing below this share of a diagonal survives the rounding.
    least = jnp.finfo(matrix.dtype).eps * jnp.max(jnp.diagonal(matrix))

    def eliminate(k: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        both, log = carry
        row = jax.lax.dynamic_index_in_dim(both, k, axis=0, keepdims=False)
        column = jax.lax.dynamic_index_in_dim(both, k, axis=1, keepdims=False)
        pivot = jnp.maximum(jax.lax.dynamic_index_in_dim(row, k, keepdims=False), least)
        scaled = row / jnp.sqrt(pivot)
        below = jnp.where(index > k, column / jnp.sqrt(pivot), 0)[:, None]
        both = jnp.where((index == k)[:, None], scaled, both - below * scaled)
        return both, log + jnp.log(pivot)

    both = jnp.concatenate([matrix, right], axis=1)
    both, log = jax.lax.fori_loop(0, m, eliminate, (both, jnp.zeros((), matrix.dtype)))
    return both[:, m:], log
