"""A small task and a config to try things with, under the names the guides use."""

import numpy as np

from .envs.config import EnvironmentConfig, JaxArcConfig, UnifiedActionConfig, UnifiedDatasetConfig
from .tasks.bank import JaxArcTask
from .tasks.packed import pack
from .tasks.parser import RawTask


def create_mock_task(
    size: int = 15, *, canvas: int = 30, train_pairs: int = 3, test_pairs: int = 1, task_index: int = 0
) -> JaxArcTask:
    """A made-up but solvable task: every output is its input mirrored left to right.

    Grids are `size` × `size` on a canvas of `canvas` × `canvas`, the same at every call.
    """
    if not 1 <= size <= canvas <= 32:
        raise ValueError(f"`size` must be from 1 to `canvas`, and that at most 32; got {size} and {canvas}.")
    if train_pairs < 1 or test_pairs < 0:
        raise ValueError(
            "a task needs at least one train pair and no fewer than 0 test pairs; "
            f"got {train_pairs} and {test_pairs}."
        )
    draw, shape = np.random.default_rng(size), (train_pairs + test_pairs, size, size)
    inputs = np.where(draw.random(shape) < 0.3, draw.integers(1, 10, shape), 0).astype(np.int8)
    pairs = tuple(zip(inputs, inputs[:, :, ::-1], strict=True))
    task = RawTask("mock", pairs[:train_pairs], pairs[train_pairs:])
    return pack([task]).task(0, task_index, (canvas, canvas), (train_pairs, test_pairs))


def create_test_config(
    max_episode_steps: int = 100, grid_size: int = 30, selection_format: str = "point"
) -> JaxArcConfig:
    """A plain config: a square canvas, no autoreset, every operation from 0 to 34."""
    return JaxArcConfig(
        environment=EnvironmentConfig(max_episode_steps=max_episode_steps),
        dataset=UnifiedDatasetConfig(max_grid_height=grid_size, max_grid_width=grid_size),
        action=UnifiedActionConfig(selection_format=selection_format),  # pyright: ignore[reportArgumentType]
    )
