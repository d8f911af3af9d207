"""diffrax on the common job: its solver, with the interpolation a user has to write; in float32.

diffrax brings no field. The one here is written for its speed: three component arrays on a CPU, kept apart
from what follows; on other devices all 8 corners × 2 times of a cell in one row of 48. All particles are one system with a
common constant step, which spares diffrax its loop per trajectory.
"""

from pathlib import Path
from typing import Any, ClassVar

import diffrax
import jax
import jax.numpy as jnp
import job
import numpy as np
import worker

CORNERS = [(i, j, k) for i in (0, 1) for j in (0, 1) for k in (0, 1)]


class RK4(diffrax.AbstractERK):
    """The classical fourth-order method, which diffrax leaves to its users."""

    tableau: ClassVar[diffrax.ButcherTableau] = diffrax.ButcherTableau(
        c=np.array([0.5, 0.5, 1.0]),
        b_sol=np.array([1 / 6, 1 / 3, 1 / 3, 1 / 6]),
        b_error=np.array([1 / 6, -1 / 3, 1 / 3, -1 / 6]),
        a_lower=(np.array([0.5]), np.array([0.0, 0.5]), np.array([0.0, 0.0, 1.0])),
    )
    interpolation_cls: ClassVar[Any] = diffrax.ThirdOrderHermitePolynomialInterpolation.from_k

    def order(self, terms: Any) -> int:
        return 4


class Diffrax:
    """`solver` is "RK4" (above) or the name of one of diffrax's own."""

    def __init__(self, folder: Path, solver: str = "RK4", packed: bool | None = None) -> None:
        velocities = np.load(folder / "velocities.npy")
        self.slices, *self.counts, _ = velocities.shape
        self.packed = jax.default_backend() != "cpu" if packed is None else packed
        self.field = jax.tree.map(
            jnp.asarray, _packed(velocities) if self.packed else _components(velocities)
        )
        self.solver = RK4() if solver == "RK4" else getattr(diffrax, solver)()
        self.seeds = np.load(folder / "seeds.npy")
        self.solve = jax.jit(self._solve, static_argnums=2)

    def versions(self) -> dict[str, str]:
        return {
            "diffrax": diffrax.__version__,
            "jax": jax.__version__,
            "device": jax.devices()[0].device_kind,
        }

    def run(self, n: int, steps: int) -> np.ndarray:
        start = tuple(jnp.asarray(column) for column in self.seeds[:n].T)
        return np.stack([np.asarray(column) for column in self.solve(self.field, start, steps)], -1)

    def _solve(self, field: Any, start: Any, steps: int) -> Any:
        found = diffrax.diffeqsolve(
            diffrax.ODETerm(self._velocity),
            self.solver,
            t0=job.SPAN[0],
            t1=job.SPAN[0] + steps * job.DT,
            dt0=job.DT,
            y0=start,
            args=field,
            max_steps=steps + 1,
        )
        return jax.tree.map(lambda leaf: leaf[-1], found.ys)

    def _velocity(self, t: Any, x: Any, field: Any) -> Any:
        if self.packed:
            return jax.lax.optimization_barrier(self._sample(t, jax.lax.optimization_barrier(x), field))
        # A branch that is always taken: XLA on a CPU fuses across barriers and repeats the gathers for every later stage.
        return jax.lax.cond(
            t > -jnp.inf, self._sample, lambda t, x, field: jax.tree.map(jnp.zeros_like, x), t, x, field
        )

    def _sample(self, t: Any, x: Any, field: Any) -> Any:
        """Linear in space and in time."""
        cell, share = [], []
        for axis, count in enumerate(self.counts):
            at = jnp.clip(
                (x[axis] - job.LOW[axis]) * ((count - 1) / (job.HIGH - job.LOW)[axis]), 0, count - 1
            )
            cell.append(jnp.minimum(at.astype(jnp.int32), count - 2))
            share.append(at - cell[-1])
        at = jnp.clip(
            (t - job.SPAN[0]) * ((self.slices - 1) / (job.SPAN[1] - job.SPAN[0])), 0, self.slices - 1
        )
        early = jnp.minimum(at.astype(jnp.int32), self.slices - 2)
        late = at - early
        weights = [
            (share[0] if i else 1 - share[0])
            * (share[1] if j else 1 - share[1])
            * (share[2] if k else 1 - share[2])
            for i, j, k in CORNERS
        ]
        nx, ny, nz = (count - 1 for count in self.counts) if self.packed else self.counts
        row = ((early * nx + cell[0]) * ny + cell[1]) * nz + cell[2]
        if self.packed:
            both = field.at[row].get(mode="promise_in_bounds")
            values = (1 - late) * both[:, :24] + late * both[:, 24:]
            result = tuple(sum(w * values[:, 3 * m + c] for m, w in enumerate(weights)) for c in range(3))
        else:
            places = [row + (i * ny + j) * nz + k for i, j, k in CORNERS]
            result = tuple(
                sum(
                    w * ((1 - late) * _take(component, place) + late * _take(component, place + nx * ny * nz))
                    for w, place in zip(weights, places, strict=True)
                )
                for component in field
            )
        return result


def _take(values: Any, rows: Any) -> Any:
    return values.at[rows].get(mode="promise_in_bounds")


def _components(velocities: np.ndarray) -> tuple[np.ndarray, ...]:
    return tuple(np.ascontiguousarray(velocities[..., axis]).reshape(-1) for axis in range(3))


def _packed(velocities: np.ndarray) -> np.ndarray:
    """One row for each interval of time and each cell: 2 times × 8 corners × 3 components."""
    _, nx, ny, nz, _ = velocities.shape
    cells = [velocities[:, i : nx - 1 + i, j : ny - 1 + j, k : nz - 1 + k] for i, j, k in CORNERS]
    corners = np.concatenate(cells, -1)
    return np.concatenate([corners[:-1], corners[1:]], -1).reshape(-1, 48)


if __name__ == "__main__":
    worker.serve(Diffrax)
