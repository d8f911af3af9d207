"""Training under the guide's names without settings: small, with a bar, stopped by Ctrl-C, and refused where it cannot fit."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import acbo
from acbo.data import Dataset
from acbo.guide import experience as guide
from acbo.guide import progressive
from acbo.guide.configs import SurrogateTrainingConfig
from acbo.guide.train_steps import TrainStep

pytestmark = pytest.mark.usefixtures("quick_compile")

TINY = SurrogateTrainingConfig(
    model_hidden_dim=8,
    model_n_layers=1,
    batch_size=2,
    max_epochs=6,
    dropout=0.0,
    encoder="statistics",
    max_parent_size=2,
)


def models() -> dict[str, list]:
    return {
        "easy": [acbo.generate_scm_for_difficulty("easy", jax.random.key(0))],
        "medium": [acbo.generate_scm_for_difficulty("medium", jax.random.key(1))],
    }


def nothing_or_first(data: Dataset, max_parents: int) -> tuple[np.ndarray, np.ndarray]:
    """An expert that takes no time."""
    first = np.arange(data.size) == (0 if int(data.target) else 1)
    return np.stack([np.zeros(data.size, bool), first]), np.array([0.25, 0.75])


def test_ctrl_c_keeps_what_was_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = 0
    real = TrainStep.__call__

    def counted(self: TrainStep, *args: object) -> tuple:
        nonlocal taken
        taken += 1
        if taken == 9:  # the third epoch of the second difficulty
            raise KeyboardInterrupt
        return real(self, *args)

    monkeypatch.setattr(TrainStep, "__call__", counted)
    found = acbo.optimized_progressive_learning(
        models(), TINY, rows=20, expert=nothing_or_first, progress=False
    )
    assert found.outcome == "interrupted"
    assert [len(losses) for losses in found.history.values()] == [6, 2]
    assert int(found.state.step) == 8


def test_a_bar_for_each_part_of_the_work(capsys: pytest.CaptureFixture[str]) -> None:
    found = acbo.optimized_progressive_learning(
        models(), TINY, rows=20, expert=nothing_or_first, progress=True
    )
    said = capsys.readouterr().err
    assert found.outcome == "finished"
    for part in ("expert judges easy models", "training on easy models", "training on medium models"):
        assert part in said


def test_a_step_that_does_not_fit_is_refused_before_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    import jaxworlds.memory.prediction

    monkeypatch.setattr(jaxworlds.memory.prediction, "device_memory_limit", lambda device=None: 0)
    with pytest.raises(MemoryError, match=r"`model_hidden_dim=8`.*`batch_size=2`.*check_memory=False"):
        acbo.optimized_progressive_learning(models(), TINY, rows=20, expert=nothing_or_first, progress=False)
    acbo.optimized_progressive_learning(
        models(), TINY, rows=20, expert=nothing_or_first, progress=False, check_memory=False
    )


def test_a_call_without_settings_trains_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """The size of the default; that it ends within a minute or so and learns is in `make thorough`."""
    seen = {}

    def train_policy(
        draw: object, config: acbo.PolicyConfig, learning: acbo.PolicyLearning, **options: object
    ) -> None:
        seen.update(config=config, learning=learning, options=options)
        raise InterruptedError

    monkeypatch.setattr(guide, "train_policy", train_policy)
    with pytest.raises(InterruptedError):
        acbo.grpo_with_jax_surrogate(check_memory=False)
    learning, config = seen["learning"], seen["config"]
    episodes = learning.updates * learning.models * learning.grpo.group_size * learning.grpo.num_iterations
    assert episodes * learning.episode.trials <= 20_000
    assert config.width**2 * config.layers <= 1024
    assert seen["options"]["check_memory"] is False
    assert progressive.USUAL.batch_size * progressive.USUAL.max_epochs <= 400


@pytest.mark.slow
def test_training_without_settings_learns() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = acbo.optimized_progressive_learning(progress=False)
        trained = acbo.grpo_with_jax_surrogate(progress=False)
    for difficulty, losses in found.history.items():
        assert losses[-1] < 0.5 * losses[0], difficulty
    assert trained.rollout.chunk == 1  # on a CPU every update can be stopped
    history = trained.history
    assert history is not None
    assert history["edge_loss"][-1] < history["edge_loss"][0]
    assert jnp.isfinite(history["regret"]).all()
