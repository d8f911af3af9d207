"""The guide's training data as Python objects: examples with an expert's posterior, batches, and figures of training."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, Int32

from acbo.data import Dataset, Key, bucket
from acbo.inference import ParentSets
from acbo.inference.posterior import plan_for, posterior_by
from acbo.names import place, require_distinct
from acbo.scms.causal_model import CausalModel
from acbo.scms.random_models import SCMPrior, sample_scm, scm_prior
from acbo.scms.samples import sample
from acbo.scms.scm import SCM

Difficulty = Literal["easy", "medium", "hard"]
DIFFICULTIES: tuple[Difficulty, ...] = get_args(Difficulty)
SIZE = 16
"""Padded size that holds models of every difficulty."""


def difficulty_prior(difficulty: str | Int32[Array, ""]) -> SCMPrior:
    """The models of a difficulty, by name, or by index inside a compiled program.

    - easy: 3 to 5 variables, simple shapes, linear, Gaussian, little noise;
    - medium: 5 to 10 variables, every family, polynomials and tanh networks too, every noise but heteroscedastic;
    - hard: 10 to 16 variables, dense graphs, every mechanism and noise, some variables out of reach.
    """
    if isinstance(difficulty, str):
        return _priors()[place(difficulty, DIFFICULTIES, "difficulty")]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *_priors())
    return jax.tree.map(lambda leaf: leaf[difficulty], stacked)


def _priors() -> tuple[SCMPrior, SCMPrior, SCMPrior]:
    easy = scm_prior(
        ("erdos_renyi", "chain", "fork", "collider"),
        "linear",
        "gaussian",
        variables=(3, 5),
        edges_per_variable=(0.8, 1.2),
        noise_scale=(0.2, 0.5),
    )
    medium = scm_prior(
        mechanisms=("linear", "polynomial", "tanh"),
        noises=("gaussian", "laplace", "uniform"),
        variables=(5, 10),
        edges_per_variable=(1.0, 1.5),
        noise_scale=(0.3, 0.8),
    )
    hard = scm_prior(
        ("erdos_renyi", "scale_free", "two_layer", "mixed"),
        variables=(10, 16),
        edges_per_variable=(1.5, 2.5),
        noise_scale=(0.5, 1.2),
        manipulable=0.7,
    )
    return easy, medium, hard


def generate_scm_for_difficulty(
    difficulty: str, key: Key | None = None, *, size: int = SIZE, units: int = 8
) -> CausalModel:
    """A named random model of the difficulty; without a key, always the same one.

    >>> model = generate_scm_for_difficulty("easy")
    >>> model.target in model.names, len(model.names) <= 5
    (True, True)
    """
    scm = sample_scm(jr.key(0) if key is None else key, difficulty_prior(difficulty), size, units)
    return CausalModel.named(scm)


def collect_observational_data(scm: CausalModel | SCM, rows: int = 100, key: Key | None = None) -> Dataset:
    """Rows of the model without any intervention; without a key, always the same ones."""
    arrays = scm.scm if isinstance(scm, CausalModel) else scm
    return sample(arrays, None, jr.key(1) if key is None else key, rows)


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
        require_distinct(self.variable_order, "variable_order")
        place(self.target_variable, self.variable_order, "target_variable")
        place(self.problem_difficulty, DIFFICULTIES, "problem_difficulty")

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


Expert = Callable[[Dataset, int], Any]
"""`expert(dataset, max_parents)`: members `[sets, d]` of the target's parent sets and their probabilities `[sets]`, or a
mapping from frozensets of names."""


def exact_expert(data: Dataset, max_parents: int = 3) -> ParentSets:
    """The exact Bayesian posterior of the target's parents, whatever the units; above 16 variables orders are sampled."""
    limit = bucket(max(int(np.asarray(data.live).sum()), 1))
    # The labels of a linear teacher, on bent models too: training asks for thousands and wants no warning from each.
    plan = plan_for(data, "bge", None, max_parents, method="auto", limit=limit)
    return posterior_by(plan, data).target_parents()


def create_training_batch(
    samples: Dataset | Sequence[Dataset],
    *,
    variable_order: Sequence[str] | None = None,
    true_parents: Sequence[str] | None = None,
    problem_difficulty: Difficulty = "medium",
    max_parent_size: int = 3,
    expert: Expert = exact_expert,
) -> TrainingBatch:
    """Examples from datasets, each with the expert's posterior of its target's parents.

    - `samples`: a dataset, for example of `collect_observational_data`, or several.
    - `variable_order`: names of the live variables; by default X0, X1, …
    - `true_parents`: where they are known, the expert's accuracy is the probability that it gives them; otherwise it is
      that of its likeliest set.
    """
    given = [samples] if isinstance(samples, Dataset) else list(samples)
    if not given:
        raise ValueError("`samples` must hold at least one dataset; got none.")
    return TrainingBatch(
        tuple(
            _example(data, variable_order, true_parents, problem_difficulty, max_parent_size, expert)
            for data in given
        )
    )


def _example(
    data: Dataset,
    order: Sequence[str] | None,
    parents: Sequence[str] | None,
    difficulty: Difficulty,
    max_size: int,
    expert: Expert,
) -> TrainingExample:
    live, rows = np.flatnonzero(data.live), np.flatnonzero(data.rows)
    names = [f"X{v}" for v in range(len(live))] if order is None else list(order)
    if len(names) != len(live):
        raise ValueError(
            f"`variable_order` must name the {len(live)} live variables; got {len(names)} names."
        )
    target = int(np.flatnonzero(live == int(data.target))[0])
    posterior = _by_name(data, expert(data, max_size), live, names)
    truth = None if parents is None else frozenset(parents)
    likeliest = posterior.top_k_sets[0][1]
    values, was_set = (np.asarray(part)[np.ix_(rows, live)] for part in (data.values, data.intervened))
    marks = np.broadcast_to(np.arange(len(live)) == target, values.shape)
    return TrainingExample(
        np.stack([values, was_set, marks], axis=-1).astype(np.float32),
        names[target],
        names,
        posterior,
        likeliest if truth is None else float(posterior.parent_set_probs.get(truth, 0.0)),
        {} if truth is None else {"parents": sorted(truth)},
        difficulty,
    )


def _by_name(
    data: Dataset, opinion: Any, live: Int[np.ndarray, " live"], names: Sequence[str]
) -> ParentSetPosterior:
    """An expert's sets by name."""
    place = {int(v): name for v, name in zip(live, names, strict=True)}
    target = place[int(data.target)]
    if isinstance(opinion, ParentSetPosterior):
        return opinion
    if isinstance(opinion, Mapping):
        return ParentSetPosterior(target, opinion)
    members, probabilities = (np.asarray(part) for part in opinion)
    # Sets with padding among their members, or met before, have no probability of their own.
    table: dict[frozenset[str], float] = {}
    for row, probability in zip(members, probabilities.astype(float), strict=True):
        chosen = np.flatnonzero(row).tolist()
        if set(chosen) <= set(place):
            named = frozenset(place[v] for v in chosen)
            table[named] = table.get(named, 0.0) + probability
    total = sum(table.values())
    return ParentSetPosterior(target, {named: probability / total for named, probability in table.items()})


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
