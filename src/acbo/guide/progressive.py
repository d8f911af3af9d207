"""Learning from easy models to hard ones, with one compiled step for all."""

import contextlib
import dataclasses
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import jax
import jax.random as jr
import numpy as np

from acbo.data import Key, bucket
from acbo.names import place
from acbo.scms.causal_model import CausalModel
from jaxworlds.memory import demand_memory, predict_memory

from .batches import TrainingBatchJAX, convert_to_jax_batch, padded_sets
from .configs import SurrogateTrainingConfig
from .examples import (
    DIFFICULTIES,
    Difficulty,
    Expert,
    TrainingBatch,
    TrainingMetrics,
    collect_observational_data,
    create_training_batch,
    exact_expert,
    generate_scm_for_difficulty,
)
from .train_steps import TrainingState, TrainStep, create_jax_surrogate_train_step

logger = logging.getLogger("acbo")


USUAL = SurrogateTrainingConfig(
    model_hidden_dim=16, model_n_layers=2, batch_size=6, max_epochs=60, max_parent_size=3, learning_rate=3e-3,
    dropout=0.0, total_steps=180, encoder="statistics",
)  # fmt: skip
"""Default of `optimized_progressive_learning()`: about a minute on two cores."""


@dataclasses.dataclass
class ProgressiveResult:
    """The trained surrogate, with metrics and times. It grows while training goes on: Ctrl-C loses at most one epoch."""

    state: TrainingState
    step: TrainStep
    metrics: dict[str, TrainingMetrics] = dataclasses.field(default_factory=dict)
    """The last update of each difficulty."""
    history: dict[str, list[float]] = dataclasses.field(default_factory=dict)
    """The loss of each epoch."""
    seconds: dict[str, float] = dataclasses.field(default_factory=dict)
    outcome: Literal["finished", "interrupted"] = "finished"
    """"interrupted" after Ctrl-C: the other fields hold the progress up to then."""

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
    progress: bool | None = None,
    check_memory: bool = True,
) -> ProgressiveResult:
    """Train a surrogate on easy, then medium, then hard models, `config.max_epochs` epochs on each.

    - `scms`: models by difficulty, or models alone, which are easy with up to 5 variables and medium with up to 10.
      Without any, `config.batch_size` models of each difficulty are drawn.
    - `config`: without one a small network learns for about a minute on two cores; the class's own defaults are those of
      the guide, for an accelerator.
    - `rows`: observations of each model; `expert` judges them once, before training.
    - `progress`: show a bar for the expert's work and for the epochs; by default only on a terminal.
    - `check_memory`: raise `MemoryError` before the first update if the program needs more memory than there is.

    A difficulty ends early when its loss has not fallen in `config.early_stopping_patience` looks, one in
    every `config.validation_frequency` epochs. Everything is padded to one size, so the step compiles once. Ctrl-C ends
    training after the current epoch and returns the progress so far.

    Example:
        found = acbo.optimized_progressive_learning()
        print({difficulty: losses[-1] for difficulty, losses in found.history.items()})
    """
    config = USUAL if config is None else config
    key = jr.key(config.seed) if key is None else key
    key_models, key_state, key_steps = jr.split(key, 3)
    models = _by_difficulty(scms, config, key_models)
    with _bars(progress) as bar:
        examples: dict[Difficulty, TrainingBatch] = {
            difficulty: _examples(found, difficulty, rows, config.max_parent_size, expert, bar)
            for difficulty, found in models.items()
            if found
        }
        if not examples:
            raise ValueError("`scms` must hold at least one model, or be None to draw some; got none.")
        batches = _padded_alike(examples)
        step = create_jax_surrogate_train_step(config=config)
        run = ProgressiveResult(step.init(key_state), step)
        if check_memory:
            _demand_memory_for(step, run.state, next(iter(batches.values())), key_steps)
        try:
            for number, (difficulty, batch) in enumerate(batches.items()):
                _train_on(run, difficulty, batch, jr.fold_in(key_steps, number), bar)
        except KeyboardInterrupt:
            if not run.metrics:
                raise
            logger.info(
                "Interrupted after difficulty %s; the progress so far is kept", ", ".join(run.metrics)
            )
            run.outcome = "interrupted"
    return run


Bar = Callable[[str, int, int], None]
"""`bar(what, done, total)`."""


@contextlib.contextmanager
def _bars(progress: bool | None) -> Iterator[Bar]:
    """A progress bar on stderr for each part of the work, by default only on a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    shown = progress or (progress is None and console.is_terminal)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not shown) as bars:
        tasks: dict[str, Any] = {}

        def show(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total)
            bars.update(tasks[what], completed=done)

        yield show


def _demand_memory_for(step: TrainStep, state: TrainingState, batch: TrainingBatchJAX, key: Key) -> None:
    """Raise if a step needs more memory than is available; the program compiled here is the one that trains."""
    need = predict_memory(step.update, state.params, state.opt_state, batch, key)
    demand_memory(
        need.peak - need.arguments,
        lambda share: (
            f"Take a smaller network (`model_hidden_dim={step.config.model_hidden_dim}`, `model_n_layers="
            f"{step.config.model_n_layers}`) or batch (`batch_size={step.config.batch_size}`), at most {share:.0%} of it, or "
            "pass `check_memory=False` to try all the same."
        ),
    )


def _by_difficulty(
    scms: Any, config: SurrogateTrainingConfig, key: Key
) -> dict[Difficulty, list[CausalModel]]:
    if isinstance(scms, Mapping):
        for difficulty in scms:
            place(difficulty, DIFFICULTIES, "scms: difficulty")
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
    models: Sequence[CausalModel], difficulty: Difficulty, rows: int, max_size: int, expert: Expert, bar: Bar
) -> TrainingBatch:
    made = []
    for number, model in enumerate(models):
        bar(f"expert judges {difficulty} models", number, len(models))
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
    bar(f"expert judges {difficulty} models", len(models), len(models))
    return TrainingBatch(tuple(made))


def _padded_alike(examples: Mapping[Difficulty, TrainingBatch]) -> dict[Difficulty, TrainingBatchJAX]:
    """Batches of one shape: as many variables, sets and examples as the largest has."""
    everything = [example for batch in examples.values() for example in batch.examples]
    variables = bucket(max(len(example.variable_order) for example in everything))
    sets = padded_sets(variables, max(len(example.parent_set_probs) for example in everything))
    most = max(batch.batch_size for batch in examples.values())
    padded = {}
    for difficulty, batch in examples.items():
        filled = TrainingBatch([batch.examples[i % len(batch)] for i in range(most)])
        padded[difficulty] = convert_to_jax_batch(filled, variables=variables, sets=sets)
    return padded


def _train_on(run: ProgressiveResult, difficulty: str, batch: TrainingBatchJAX, key: Key, bar: Bar) -> None:
    """Updates on one batch until the loss stops falling or the epochs are over; `run` is always up to date."""
    config, best, looks = run.step.config, np.inf, 0
    losses: list[Any] = []
    metrics: dict[str, Any] = {}
    began = time.perf_counter()
    try:
        for epoch in range(config.max_epochs):
            run.state, metrics = run.step(run.state, batch, jr.fold_in(key, epoch))
            losses.append(metrics["total_loss"])
            if (epoch + 1) % config.validation_frequency == 0:
                now = float(losses[-1])
                bar(f"training on {difficulty} models", epoch + 1, config.max_epochs)
                best, looks = (now, 0) if now < best else (best, looks + 1)
                if looks >= config.early_stopping_patience:
                    break
    finally:
        if losses:
            seconds = time.perf_counter() - began
            run.history[difficulty] = [float(loss) for loss in jax.device_get(losses)]
            run.metrics[difficulty] = TrainingMetrics.of(metrics, seconds / len(losses))
            run.seconds[difficulty] = seconds
            loss = run.metrics[difficulty].total_loss
            logger.info("Difficulty %s: %.2fs, loss %.4f", difficulty, seconds, loss)
