"""The guide's training data as Python objects: examples, batches, and figures of training."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float

from .difficulty import DIFFICULTIES as DIFFICULTIES
from .difficulty import Difficulty as Difficulty


@dataclasses.dataclass(frozen=True)
class ParentSetPosterior:
    """Probabilities of the parent sets of one target, by the names of their members."""

    target_variable: str
    parent_set_probs: Mapping[frozenset[str], float]

    def __post_init__(self) -> None:
        table = {frozenset(members): float(p) for members, p in self.parent_set_probs.items()}
        total = sum(table.values())
        if not table or min(table.values()) < 0 or not abs(total - 1) < 1e-3:
            raise ValueError(
                "`parent_set_probs` must be probabilities that sum to 1; "
                f"got {len(table)} entries with sum {total:.6g}. Divide them by their sum."
            )
        object.__setattr__(self, "parent_set_probs", table)

    @property
    def top_k_sets(self) -> list[tuple[frozenset[str], float]]:
        """The sets with their probabilities, the likeliest first."""
        return sorted(self.parent_set_probs.items(), key=lambda item: (-item[1], sorted(item[0])))

    @property
    def uncertainty(self) -> float:
        """Entropy in nats."""
        values = np.array([p for p in self.parent_set_probs.values() if p > 0])
        return float(-(values * np.log(values)).sum())

    def marginals(self) -> dict[str, float]:
        """Probability of each variable to be a parent."""
        found: dict[str, float] = {}
        for members, probability in self.parent_set_probs.items():
            for name in members:
                found[name] = found.get(name, 0.0) + probability
        return found


@dataclasses.dataclass(frozen=True)
class TrainingExample:
    """One problem: its data, and the expert's posterior.

    `observational_data[row, variable]` holds the value, whether it was set, and whether the variable is the target.
    """

    observational_data: Float[Array | np.ndarray, "n d 3"]
    target_variable: str
    variable_order: Sequence[str]
    expert_posterior: Any
    """A `ParentSetPosterior`, or a mapping from frozensets of names to probabilities."""
    expert_accuracy: float = 1.0
    scm_info: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    problem_difficulty: str = "medium"

    def __post_init__(self) -> None:
        shape = self.observational_data.shape
        if shape[1] != len(self.variable_order):
            raise ValueError(
                f"`variable_order` must name the {shape[1]} variables of `observational_data`; "
                f"got {len(self.variable_order)} names."
            )
        if len(set(self.variable_order)) != len(self.variable_order):
            raise ValueError(f"`variable_order` must not repeat a name; got {list(self.variable_order)}.")
        if self.target_variable not in self.variable_order:
            raise ValueError(
                f"`target_variable` must be one of {list(self.variable_order)}; got {self.target_variable!r}."
            )
        if self.problem_difficulty not in DIFFICULTIES:
            raise ValueError(
                f"`problem_difficulty` must be one of {DIFFICULTIES}; got {self.problem_difficulty!r}."
            )

    @property
    def parent_set_probs(self) -> Mapping[frozenset[str], float]:
        """The expert's probabilities by parent set."""
        return getattr(self.expert_posterior, "parent_set_probs", self.expert_posterior)


@dataclasses.dataclass(frozen=True)
class TrainingBatch:
    """A batch of examples."""

    examples: Sequence[TrainingExample]

    @property
    def batch_size(self) -> int:
        """Number of examples."""
        return len(self.examples)

    def __len__(self) -> int:
        return len(self.examples)


@dataclasses.dataclass(frozen=True)
class TrainingMetrics:
    """The figures of one update, as numbers."""

    total_loss: float
    kl_loss: float
    regularization_loss: float
    mean_expert_accuracy: float
    predicted_entropy: float
    expert_entropy: float
    gradient_norm: float
    learning_rate: float
    step_time: float = 0.0

    @classmethod
    def of(cls, metrics: Mapping[str, Any], step_time: float = 0.0) -> "TrainingMetrics":
        """The metrics that a step returned, fetched in one transfer."""
        fetched = jax.device_get(dict(metrics))
        names = [field.name for field in dataclasses.fields(cls) if field.name != "step_time"]
        return cls(**{name: float(fetched[name]) for name in names}, step_time=step_time)


@dataclasses.dataclass(frozen=True)
class ValidationResults:
    """Distance of a network from its expert, as measured by `acbo.validate_surrogate`."""

    posterior_kl: float
    """KL(expert ‖ network), mean over examples, in nats."""
    reverse_kl: float
    """KL(network ‖ expert), where the expert's probabilities are at least 1e-12."""
    total_variation: float
    calibration_error: float
    """Expected calibration error of parent probabilities against the expert's."""
    uncertainty_correlation: float
    """Correlation of the entropies of network and expert over examples."""
    accuracy_drop: float
    """Share of examples in which the network's likeliest set is not the expert's."""
    inference_speedup: float
    """Seconds of the expert over seconds of the network; NaN where the expert was not timed."""
    easy_accuracy: float
    """Share of easy examples in which the likeliest set is the expert's; NaN where there are none."""
    medium_accuracy: float
    hard_accuracy: float
