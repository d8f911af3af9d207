"""Settings of GRPO: groups, rewards and exploration."""

import dataclasses
from typing import Literal

from acbo._limits import require_all_at_least, require_at_least, require_between
from jaxworlds.static import config


@config
class GRPOTrainingConfig:
    """Settings of GRPO updates from groups of episodes."""

    group_size: int = 64
    num_iterations: int = 4
    learning_rate: float = 3e-4
    clip_ratio: float = 0.2
    entropy_coeff: float = 0.01
    kl_penalty_coeff: float = 0.0
    max_grad_norm: float = 1.0
    scale_rewards: bool = True
    total_steps: int = 1000

    def __post_init__(self) -> None:
        require_between("group_size", self.group_size, 8, 256)
        require_between("learning_rate", self.learning_rate, 1e-12, 0.1)
        require_between("clip_ratio", self.clip_ratio, 1e-6, 1)
        require_all_at_least(self, 1, "num_iterations", "total_steps")
        require_all_at_least(self, 0, "entropy_coeff", "kl_penalty_coeff", "max_grad_norm")


@config
class RewardTrainingConfig:
    """Weights of the rewards of a policy."""

    optimization_weight: float = 1.0
    structure_weight: float = 0.5
    parent_weight: float = 0.3
    exploration_weight: float = 0.1

    def __post_init__(self) -> None:
        weights = dataclasses.astuple(self)
        if min(weights) < 0 or sum(weights) == 0:
            raise ValueError(
                f"The four weights must not be negative, and one must be positive; got {weights}."
            )


@config
class ExplorationTrainingConfig:
    """Decay of exploration."""

    strategy: Literal["adaptive", "fixed"] = "adaptive"
    exploration_weight: float = 1.0
    initial_temperature: float = 2.0
    final_temperature: float = 0.1

    def __post_init__(self) -> None:
        if not 0 < self.final_temperature < self.initial_temperature:
            raise ValueError(
                "`final_temperature` must be positive and below `initial_temperature`; got "
                f"{self.final_temperature} and {self.initial_temperature}."
            )
        require_at_least("exploration_weight", self.exploration_weight, 0)
