"""A small task and a config to try things with, under the names the guides use."""

import numpy as np

from .envs.config import EnvironmentConfig, JaxArcConfig, UnifiedActionConfig, UnifiedDatasetConfig
from .tasks.bank import JaxArcTask


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
    draw = np.random.default_rng(size)
    pairs = train_pairs + test_pairs
    inputs = np.zeros((pairs, canvas, canvas), np.int8)
    active = inputs[:, :size, :size]
    active[...] = np.where(draw.random(active.shape) < 0.3, draw.integers(1, 10, active.shape), 0)
    outputs = np.zeros_like(inputs)
    outputs[:, :size, :size] = active[:, :, ::-1]
    mask = np.zeros(inputs.shape, bool)
    mask[:, :size, :size] = True
    train, test = slice(0, train_pairs), slice(train_pairs, pairs)
    return JaxArcTask(
        input_grids_examples=inputs[train],
        input_masks_examples=mask[train],
        output_grids_examples=outputs[train],
        output_masks_examples=mask[train],
        num_train_pairs=train_pairs,
        test_input_grids=inputs[test],
        test_input_masks=mask[test],
        true_test_output_grids=outputs[test],
        true_test_output_masks=mask[test],
        num_test_pairs=test_pairs,
        task_index=task_index,
    )


def create_test_config(
    max_episode_steps: int = 100, grid_size: int = 30, selection_format: str = "point"
) -> JaxArcConfig:
    """A plain config: a square canvas, no autoreset, every operation from 0 to 34."""
    return JaxArcConfig(
        environment=EnvironmentConfig(max_episode_steps=max_episode_steps),
        dataset=UnifiedDatasetConfig(max_grid_height=grid_size, max_grid_width=grid_size),
        action=UnifiedActionConfig(selection_format=selection_format),  # pyright: ignore[reportArgumentType]
    )
