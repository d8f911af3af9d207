"""Where do four thousand Lorenz systems spend their time? Runs them, resumes from disk, and draws lorenz.png.

Run it twice: the second time it finds the finished run in the folder and only draws.
"""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from jaxworlds import Checkpoint, pictures, resume, run

WORLDS, STEPS = 4096, 3000


def lorenz(p: jax.Array, dt: float = 0.004) -> jax.Array:
    """One world: a fourth-order Runge-Kutta step of Lorenz' equations."""

    def flow(p: jax.Array) -> jax.Array:
        x, y, z = p
        return jnp.stack([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z])

    k1 = flow(p)
    k2 = flow(p + dt / 2 * k1)
    k3 = flow(p + dt / 2 * k2)
    k4 = flow(p + dt * k3)
    return p + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def step(worlds: jax.Array, t: jax.Array) -> tuple[jax.Array, jax.Array]:
    worlds = jax.vmap(lorenz)(worlds)
    return worlds, worlds[:, ::2]  # x and z, which make the butterfly


def main() -> None:
    start = jax.random.normal(jax.random.key(0), (WORLDS, 3)) + jnp.array([0.0, 0.0, 25.0])
    folder = Path("lorenz-run")
    if any(folder.glob("step-*")):
        result = resume(step, start, folder)
    else:
        result = run(step, start, STEPS, record_every=25, checkpoint=Checkpoint(folder, every_seconds=5))
    print(result)
    if not result.finished:
        print("run me again to go on")
        return
    x, z = result.records[len(result.records) // 3 :].reshape(-1, 2).T  # the first third is on its way
    density, _, _ = np.histogram2d(z, x, bins=(240, 320), range=((0, 50), (-22, 22)))
    picture = pictures.levels(np.log1p(density[::-1]), 0.0, float(np.log1p(density).max()))
    Path("lorenz.png").write_bytes(pictures.png(picture))
    print("lorenz.png: x to the right, z upwards, brighter where the systems stay longer")
    # Known of this attractor: both wings are visited alike, and z averages to 23.5 or so.
    assert abs(float(np.mean(x > 0)) - 0.5) < 0.05
    assert abs(float(np.mean(z)) - 23.5) < 0.5


if __name__ == "__main__":
    main()
