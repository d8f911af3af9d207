"""Settings of training under the names of the guide: frozen, validated, static for JAX (ledger 1.2)."""

from typing import Any, Literal

from jaxworlds.static import config


def _between(name: str, value: float, low: float, high: float, why: str = "") -> None:
    """Refuse a value outside [low, high]."""
    if not low <= value <= high:
        raise ValueError(f"`{name}` must be between {low} and {high}; got {value}.{why and ' ' + why}")


def _at_least(name: str, value: float, low: float) -> None:
    if not value >= low:
        raise ValueError(f"`{name}` must be at least {low}; got {value}.")


@config
class SurrogateTrainingConfig:
    """How a surrogate is built and trained.

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
        _between("model_hidden_dim", self.model_hidden_dim, 4, 512, "Use a multiple of 4.")
        if self.model_hidden_dim % 4:
            raise ValueError(f"`model_hidden_dim` must be a multiple of 4; got {self.model_hidden_dim}.")
        _between("model_n_layers", self.model_n_layers, 1, 16)
        _between("learning_rate", self.learning_rate, 1e-12, 0.1)
        _between("batch_size", self.batch_size, 1, 256, "Accumulate gradients for more.")
        _between("max_parent_size", self.max_parent_size, 1, 10)
        _between("dropout", self.dropout, 0, 0.5)
        for name in ("max_epochs", "early_stopping_patience", "validation_frequency", "total_steps"):
            _at_least(name, getattr(self, name), 1)
        _at_least("weight_decay", self.weight_decay, 0)
        _at_least("max_grad_norm", self.max_grad_norm, 0)

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
class GRPOTrainingConfig:
    """How a policy is improved from groups of episodes."""

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
        _between("group_size", self.group_size, 8, 256)
        _between("learning_rate", self.learning_rate, 1e-12, 0.1)
        _between("clip_ratio", self.clip_ratio, 1e-6, 1)
        for name in ("num_iterations", "total_steps"):
            _at_least(name, getattr(self, name), 1)
        for name in ("entropy_coeff", "kl_penalty_coeff", "max_grad_norm"):
            _at_least(name, getattr(self, name), 0)


@config
class RewardTrainingConfig:
    """What a policy is rewarded for, and how much."""

    optimization_weight: float = 1.0
    structure_weight: float = 0.5
    parent_weight: float = 0.3
    exploration_weight: float = 0.1

    def __post_init__(self) -> None:
        weights = (
            self.optimization_weight,
            self.structure_weight,
            self.parent_weight,
            self.exploration_weight,
        )
        if min(weights) < 0 or sum(weights) == 0:
            raise ValueError(
                f"The four weights must not be negative, and one must be positive; got {weights}."
            )


@config
class ExplorationTrainingConfig:
    """How exploration fades."""

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
        _at_least("exploration_weight", self.exploration_weight, 0)


@config
class EvaluationConfig:
    """When and on what a run is judged."""

    frequency: int = 50
    num_trajectories: int = 20
    scm_sizes: tuple[int, ...] = (5, 8, 10)

    def __post_init__(self) -> None:
        for name in ("frequency", "num_trajectories"):
            _at_least(name, getattr(self, name), 1)
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
        for name in ("total_steps", "log_frequency", "save_frequency"):
            _at_least(name, getattr(self, name), 1)
        _between("warmup_steps", self.warmup_steps, 0, self.total_steps)

    @property
    def learning_rate(self) -> float:
        """The surrogate's, as the guide reads it."""
        return self.surrogate.learning_rate

    @property
    def max_epochs(self) -> int:
        """The surrogate's, as the guide reads it."""
        return self.surrogate.max_epochs


def curriculum_ratios(step: int) -> tuple[float, float, float]:
    """Shares of easy, medium and hard problems at a step of training.

    >>> curriculum_ratios(0), curriculum_ratios(700), curriculum_ratios(5000)
    ((0.8, 0.2, 0.0), (0.5, 0.4, 0.1), (0.3, 0.4, 0.3))
    """
    if step < 500:
        return (0.8, 0.2, 0.0)
    return (0.5, 0.4, 0.1) if step < 1500 else (0.3, 0.4, 0.3)
