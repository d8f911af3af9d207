"""Settings of surrogate training and of whole runs, with the fields and defaults of the guide."""

from typing import Any, Literal

from acbo._limits import require_all_at_least, require_between
from acbo.policy.grpo_config import ExplorationTrainingConfig, GRPOTrainingConfig, RewardTrainingConfig
from jaxworlds.static import config


@config
class SurrogateTrainingConfig:
    """Settings of a surrogate and its training.

    >>> SurrogateTrainingConfig(model_hidden_dim=16, model_n_layers=2).get_model_kwargs()["width"]
    16
    """

    model_hidden_dim: int = 128
    model_n_layers: int = 6
    learning_rate: float = 1e-3
    batch_size: int = 32
    max_epochs: int = 100
    early_stopping_patience: int = 10
    validation_frequency: int = 5
    weight_decay: float = 1e-4
    max_parent_size: int = 5
    dropout: float = 0.1
    max_grad_norm: float = 1.0
    total_steps: int = 1000
    """Updates over which the learning rate rises and falls."""
    encoder: Literal["axial", "statistics"] = "axial"
    precision: Literal["float32", "bfloat16"] = "float32"
    seed: int = 42

    def __post_init__(self) -> None:
        require_between("model_hidden_dim", self.model_hidden_dim, 4, 512, "Use a multiple of 4.")
        if self.model_hidden_dim % 4:
            raise ValueError(f"`model_hidden_dim` must be a multiple of 4; got {self.model_hidden_dim}.")
        require_between("model_n_layers", self.model_n_layers, 1, 16)
        require_between("learning_rate", self.learning_rate, 1e-12, 0.1)
        require_between("batch_size", self.batch_size, 1, 256, "Accumulate gradients for more.")
        require_between("max_parent_size", self.max_parent_size, 1, 10)
        require_between("dropout", self.dropout, 0, 0.5)
        counts = ("max_epochs", "early_stopping_patience", "validation_frequency", "total_steps")
        require_all_at_least(self, 1, *counts)
        require_all_at_least(self, 0, "weight_decay", "max_grad_norm")

    def get_model_kwargs(self) -> dict[str, Any]:
        """The settings of the network, as `create_parent_set_model(model_kwargs=...)` takes them."""
        return {
            "width": self.model_hidden_dim,
            "pair_width": self.model_hidden_dim,
            "layers": self.model_n_layers,
            "heads": 4,
            "dropout": self.dropout,
            "encoder": self.encoder,
            "precision": self.precision,
        }


@config
class EvaluationConfig:
    """When and on what a run is judged."""

    frequency: int = 50
    num_trajectories: int = 20
    scm_sizes: tuple[int, ...] = (5, 8, 10)

    def __post_init__(self) -> None:
        require_all_at_least(self, 1, "frequency", "num_trajectories")
        if not self.scm_sizes or min(self.scm_sizes) < 2:
            raise ValueError(f"`scm_sizes` must name sizes of at least 2 variables; got {self.scm_sizes}.")


@config
class TrainingConfig:
    """A whole run: its length, how often it reports and saves, and its parts."""

    total_steps: int = 1000
    warmup_steps: int = 100
    log_frequency: int = 10
    save_frequency: int = 100
    seed: int = 42
    surrogate: SurrogateTrainingConfig = SurrogateTrainingConfig()
    grpo: GRPOTrainingConfig = GRPOTrainingConfig()
    reward: RewardTrainingConfig = RewardTrainingConfig()
    exploration: ExplorationTrainingConfig = ExplorationTrainingConfig()
    evaluation: EvaluationConfig = EvaluationConfig()

    def __post_init__(self) -> None:
        require_all_at_least(self, 1, "total_steps", "log_frequency", "save_frequency")
        require_between("warmup_steps", self.warmup_steps, 0, self.total_steps)

    @property
    def learning_rate(self) -> float:
        """The surrogate's, as the guide reads it."""
        return self.surrogate.learning_rate

    @property
    def max_epochs(self) -> int:
        """The surrogate's, as the guide reads it."""
        return self.surrogate.max_epochs
