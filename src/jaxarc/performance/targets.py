"""The performance guide's targets, the figures it states, and the config it recommends."""

from typing import Any, Literal

from jaxworlds.static import unhashable_path

from ..envs.config import (
    EnvironmentConfig,
    JaxArcConfig,
    UnifiedActionConfig,
    UnifiedDatasetConfig,
    VisualizationConfig,
)

TARGET_STEP_TIME = 1.0
"""Milliseconds per step of one environment."""
TARGET_THROUGHPUT = 10000
"""Steps per second of a batch."""
TARGET_MEMORY_REDUCTION = 0.9
"""Share of memory saved, against the mask format."""
TARGET_BATCH_EFFICIENCY = 0.8
"""Share of the best throughput that the hardware allows."""

# The guide's records, field by field, at 30×30: operation, selection, timestamp, pair index, validity.
_FIELDS_PER_ACTION = {"point": 6, "bbox": 8, "mask": 904}


def get_fields_per_action(format_name: str) -> int:
    """Numbers in one record of the action history, as the guide counts them for 30×30 grids."""
    if format_name not in _FIELDS_PER_ACTION:
        choices = ", ".join(map(repr, _FIELDS_PER_ACTION))
        raise ValueError(f"`format_name` must be one of {choices}; got {format_name!r}.")
    return _FIELDS_PER_ACTION[format_name]


def verify_config_hashability(config: Any) -> bool:
    """Whether `config` can be a static argument; prints the answer, and the path of the part that cannot.

    >>> verify_config_hashability(("point", [3, 4]))
    ❌ Configuration is not hashable: `config[1]` has no hash. Use tuples, frozensets or a `@config` there.
    False
    """
    path = unhashable_path(config)
    if path is None:
        print("✅ Configuration is hashable")
        return True
    remedy = "Use tuples, frozensets or a `@config` there."
    print(f"❌ Configuration is not hashable: `{path}` has no hash. {remedy}")
    return False


def create_memory_optimized_config(
    max_episode_steps: int = 50,
    grid_size: int = 15,
    action_format: Literal["point", "bbox", "mask"] = "point",
) -> JaxArcConfig:
    """A config whose states are small: short episodes, a small canvas, the shortest history, no checks."""
    return JaxArcConfig(
        environment=EnvironmentConfig(max_episode_steps=max_episode_steps, debug_level=0),
        dataset=UnifiedDatasetConfig(max_grid_height=grid_size, max_grid_width=grid_size),
        action=UnifiedActionConfig(selection_format=action_format),
        visualization=VisualizationConfig(enabled=False),
    )
