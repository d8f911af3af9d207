"""Learning from easy models to hard ones, with one compiled step for all."""

import dataclasses
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.random as jr
import numpy as np

from acbo.configs import SurrogateTrainingConfig
from acbo.data import Key, bucket
from acbo.scms.difficulty import collect_observational_data, generate_scm_for_difficulty
from acbo.scms.model import CausalModel

from .batches import TrainingBatchJAX, convert_to_jax_batch, padded_sets
from .examples import DIFFICULTIES, Difficulty, TrainingBatch, TrainingMetrics
from .experts import Expert, create_training_batch, exact_expert
from .steps import TrainingState, TrainStep, create_jax_surrogate_train_step

logger = logging.getLogger("acbo")


@dataclasses.dataclass(frozen=True)
class ProgressiveResult:
    """What progressive learning came to."""

    state: TrainingState
    step: TrainStep
    metrics: dict[str, TrainingMetrics]
    """The last update of each difficulty."""
    history: dict[str, list[float]]
    """The loss of each epoch."""
    seconds: dict[str, float]

    @property
    def params(self) -> Any:
        """The trained parameters."""
        return self.state.params


def optimized_progressive_learning(
    scms: Mapping[str, Sequence[CausalModel]] | Sequence[CausalModel] | None = None,
    config: SurrogateTrainingConfig | None = None,
    *,
    rows: int = 100,
    expert: Expert = exact_expert,
    key: Key | None = None,
) -> ProgressiveResult:
    """Train a surrogate on easy, then medium, then hard models, `config.max_epochs` epochs on each.

    - `scms`: models by difficulty, or models alone, which are easy with up to 5 variables and medium with up to 10.
      Without any, `config.batch_size` models of each difficulty are drawn.
    - `rows`: observations of each model; `expert` judges them once, before training.

    A difficulty ends early when its loss has not fallen in `config.early_stopping_patience` looks, one in
    every `config.validation_frequency` epochs. Everything is padded to one size, so the step compiles once.
    """
    config = SurrogateTrainingConfig() if config is None else config
    key = jr.key(config.seed) if key is None else key
    key_models, key_state, key_steps = jr.split(key, 3)
    models = _by_difficulty(scms, config, key_models)
    examples: dict[Difficulty, TrainingBatch] = {
        difficulty: _examples(found, difficulty, rows, config.max_parent_size, expert)
        for difficulty, found in models.items()
        if found
    }
    if not examples:
        raise ValueError("`scms` must hold at least one model, or be None to draw some; got none.")
    batches = _padded_alike(examples)
    step = create_jax_surrogate_train_step(config=config)
    state = step.init(key_state)
    metrics, history, seconds = {}, {}, {}
    for number, (difficulty, batch) in enumerate(batches.items()):
        began = time.perf_counter()
        state, last, losses = _epochs(step, state, batch, config, jr.fold_in(key_steps, number))
        metrics[difficulty], history[difficulty] = last, losses
        seconds[difficulty] = time.perf_counter() - began
        logger.info("Difficulty %s: %.2fs, loss %.4f", difficulty, seconds[difficulty], last.total_loss)
    return ProgressiveResult(state, step, metrics, history, seconds)


def _by_difficulty(
    scms: Any, config: SurrogateTrainingConfig, key: Key
) -> dict[Difficulty, list[CausalModel]]:
    if isinstance(scms, Mapping):
        unknown = set(scms) - set(DIFFICULTIES)
        if unknown:
            raise ValueError(f"`scms` must have keys among {DIFFICULTIES}; got {sorted(unknown)}.")
        return {difficulty: list(scms.get(difficulty, ())) for difficulty in DIFFICULTIES}
    if scms is None:
        keys = jr.split(key, (len(DIFFICULTIES), config.batch_size))
        return {
            difficulty: [generate_scm_for_difficulty(difficulty, one) for one in row]
            for difficulty, row in zip(DIFFICULTIES, keys, strict=True)
        }
    found: dict[Difficulty, list[CausalModel]] = {difficulty: [] for difficulty in DIFFICULTIES}
    for model in scms:
        size = len(model.names)
        found["easy" if size <= 5 else "medium" if size <= 10 else "hard"].append(model)
    return found


def _examples(
    models: Sequence[CausalModel], difficulty: Difficulty, rows: int, max_size: int, expert: Expert
) -> TrainingBatch:
    made = []
    for number, model in enumerate(models):
        data = collect_observational_data(model, rows, jr.fold_in(jr.key(1), number))
        shown = [name for name, live in zip(model.names, np.asarray(data.live), strict=False) if live]
        parents = [cause for cause, effect in model.edges if effect == model.target and cause in shown]
        made += create_training_batch(
            data,
            variable_order=shown,
            true_parents=parents,
            problem_difficulty=difficulty,
            max_parent_size=min(max_size, 3),
            expert=expert,
        ).examples
    return TrainingBatch(tuple(made))


def _padded_alike(examples: Mapping[Difficulty, TrainingBatch]) -> dict[Difficulty, TrainingBatchJAX]:
    """Batches of one shape: as many variables, sets and examples as the largest has."""
    everything = [example for batch in examples.values() for example in batch.examples]
    variables = bucket(max(len(example.variable_order) for example in everything))
    listed = max(len(example.parent_set_probs) for example in everything)
    sets = padded_sets(variables, listed)
    most = max(batch.batch_size for batch in examples.values())
    filled: dict[Difficulty, TrainingBatch] = {
        difficulty: TrainingBatch([batch.examples[i % len(batch)] for i in range(most)])
        for difficulty, batch in examples.items()
    }
    return {
        difficulty: convert_to_jax_batch(batch, variables=variables, sets=sets)
        for difficulty, batch in filled.items()
    }


def _epochs(
    step: TrainStep, state: TrainingState, batch: TrainingBatchJAX, config: SurrogateTrainingConfig, key: Key
) -> tuple[TrainingState, TrainingMetrics, list[float]]:
    """Updates on one batch until the loss stays or the epochs are over."""
    losses: list[Any] = []
    metrics: dict[str, Any] = {}
    best, looks = np.inf, 0
    began = time.perf_counter()
    for epoch in range(config.max_epochs):
        state, metrics = step(state, batch, jr.fold_in(key, epoch))
        losses.append(metrics["total_loss"])
        if (epoch + 1) % config.validation_frequency == 0:
            now = float(losses[-1])
            best, looks = (now, 0) if now < best else (best, looks + 1)
            if looks >= config.early_stopping_patience:
                break
    fetched = [float(loss) for loss in jax.device_get(losses)]
    return state, TrainingMetrics.of(metrics, (time.perf_counter() - began) / len(fetched)), fetched
