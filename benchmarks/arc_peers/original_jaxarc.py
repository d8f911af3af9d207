"""Random play in the original, `jaxarc` 1.0.3: runs where that is installed, or with a folder of its packages in PYTHONPATH.

The same program as ours: actions drawn once per batch and step inside one compiled scan, autoreset to a random task,
sums of rewards and ends. Its observation is the state's grid. Its own `AutoResetWrapper` drops the parameters, whereupon
the 47 MB of tasks become constants of the program; here they are passed, as that wrapper meant to.
"""

# ruff: noqa: I001 its `jaxarc` is not the one beside this folder
import importlib.metadata
import time
from typing import Any

import arc_worker
import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxarc.configs import JaxArcConfig
from jaxarc.configs.dataset_config import DatasetConfig
from jaxarc.configs.environment_config import EnvironmentConfig
from jaxarc.envs import BboxActionWrapper, Environment, PointActionWrapper
from jaxarc.types import JaxArcTask
from jaxarc.utils.buffer import stack_task_list

STEP_LIMIT = 100


class Original:
    """A batch of its environments."""

    def __init__(self, tasks: list[dict[str, Any]]) -> None:
        self._tasks = tasks

    def versions(self) -> dict[str, str]:
        return {name: importlib.metadata.version(name) for name in ("jaxarc", "jax", "equinox")}

    def prepare(self, form: str, side: int, batch: int) -> dict[str, Any]:
        on_cpu = jax.default_backend() == "cpu"
        self._work = int(np.clip((2**12 if on_cpu else 2**22) // batch, 4, 256)), batch
        config = JaxArcConfig(
            environment=EnvironmentConfig(max_episode_steps=STEP_LIMIT, debug_level="off"),
            dataset=DatasetConfig(max_grid_height=side, max_grid_width=side),
        )
        core = Environment(
            config, stack_task_list([_task(i, raw, side) for i, raw in enumerate(self._tasks)])
        )
        self._arrays, static = eqx.partition(core.params, eqx.is_array)
        env = {"point": PointActionWrapper, "bbox": BboxActionWrapper}[form](core)
        self._key, key = jr.split(jr.key_data(jr.key(0)))
        reset = lambda keys, arrays: jax.vmap(env.reset, (0, None))(keys, eqx.combine(arrays, static))  # noqa: E731
        states, _ = jax.jit(reset)(jr.split(key, batch), self._arrays)
        self._carry: Any = (states, jnp.zeros(batch, jnp.float32), jnp.zeros(batch, jnp.int32))
        began = time.perf_counter()
        program = jax.jit(_random_play(env, static, form, side, *self._work), donate_argnums=0)
        self._play = program.lower(self._carry, self._arrays, self._key).compile()
        return {"compile_s": time.perf_counter() - began}

    def play(self) -> int:
        self._key, key = jr.split(self._key)
        self._carry = jax.block_until_ready(self._play(self._carry, self._arrays, key))
        steps, batch = self._work
        return steps * batch

    def ends(self) -> int:
        return int(jnp.sum(self._carry[2]))


def _random_play(env: Any, static: Any, form: str, side: int, steps: int, batch: int) -> Any:
    def step_one(state: Any, action: Any, params: Any) -> Any:
        state, seen = env.step(state, action, params)
        done = seen.done()
        key, _ = jr.split(state.key)
        state = jax.lax.cond(done, lambda: env.reset(key, params)[0], lambda: state)
        return state, seen.reward, done

    def play(carry: Any, arrays: Any, key: Any) -> Any:
        params = eqx.combine(arrays, static)

        def step(carry: Any, key: Any) -> Any:
            states, reward, ended = carry
            actions = _random_actions(key, form, side, batch)
            states, gained, done = jax.vmap(lambda s, a: step_one(s, a, params))(states, actions)
            return (states, reward + gained, ended + done), None

        return jax.lax.scan(step, carry, jr.split(key, steps))[0]

    return play


def _random_actions(key: Any, form: str, side: int, batch: int) -> dict[str, Any]:
    words = jr.bits(key, (5, batch), jnp.uint32)
    below = lambda word, count: (((word >> 16) * jnp.uint32(count)) >> 16).astype(jnp.int32)  # noqa: E731
    names = ("row", "col") if form == "point" else ("r1", "c1", "r2", "c2")
    places = {name: below(words[1 + at], side) for at, name in enumerate(names)}
    return {"operation": below(words[0], 35), **places}


def _task(index: int, raw: dict[str, Any], side: int) -> JaxArcTask:
    """A task as the parser of the package would pad it: 10 demonstrations, 3 tests, −1 outside of the grids."""

    def padded(pairs: list[dict[str, Any]], which: str, slots: int) -> tuple[Any, Any]:
        cells, mask = np.full((slots, side, side), -1, np.int32), np.zeros((slots, side, side), bool)
        for at, pair in enumerate(pairs[:slots]):
            grid = np.array(pair[which], np.int32)
            cells[at, : grid.shape[0], : grid.shape[1]] = grid
            mask[at, : grid.shape[0], : grid.shape[1]] = True
        return jnp.asarray(cells), jnp.asarray(mask)

    return JaxArcTask(
        *padded(raw["train"], "input", 10),
        *padded(raw["train"], "output", 10),
        min(len(raw["train"]), 10),
        *padded(raw["test"], "input", 3),
        *padded(raw["test"], "output", 3),
        min(len(raw["test"]), 3),
        jnp.asarray(index, jnp.int32),
    )


if __name__ == "__main__":
    arc_worker.serve(Original)
