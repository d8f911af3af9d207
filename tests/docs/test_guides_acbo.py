"""The guides' blocks that belong to acbo, one by one, each after its stated preamble.

Names that the guide uses without importing them come from `acbo`; the objects that it uses without making them are the
test model and the test batch: the chain A → B → Y with target Y, of which an expert gives {B} a probability of 0.7.
What the guide only defines, the outcome calls.
"""

import functools
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from guide_blocks import (
    Allowed,
    Case,
    Key,
    Namespace,
    allowed_lines,
    name_of,
    needs_guides,
    owned_by,
    play,
)

import acbo
from acbo.train_loop import norm_of

pytestmark = pytest.mark.usefixtures("quick_compile")


# --- preambles ---

IMPORTS = """
    import time
    import jax
    import jax.numpy as jnp
    import optax
    from acbo import (
        SurrogateTrainingConfig,
        benchmark_sustained_performance,
        collect_observational_data,
        convert_to_jax_batch,
        create_adaptive_train_step,
        create_jax_surrogate_train_step,
        create_parent_set_model,
        create_test_batch,
        create_test_model,
        create_training_batch,
        generate_scm_for_difficulty,
        kl_divergence_loss,
        kl_divergence_loss_jax,
        measure_compilation_speedup,
    )
"""
MODEL = """
    model, params = create_test_model()
    batch = create_test_batch()
    key = jax.random.key(0)
"""
PARTS = """
    test_params = params
    test_data = create_test_batch().observational_data[0, :, :3]
    static_args = ("A", "B", "Y"), "Y"
    static_parent_sets = ((), ("A",), ("B",), ("A", "B"))
    test_logits, test_probs = jnp.array([0.5, -1.0, 2.0, 0.0]), jnp.array([0.2, 0.0, 0.7, 0.1])
"""
SETS = """
    parent_sets = [frozenset(), frozenset({"A"}), frozenset({"B"})]
    batch_logits = jnp.array([[0.0, 0.0, 0.0], [1.0, 2.0, 3.0]])
    batch_expert_probs = jnp.array([[1.0, 0.0, 0.0], [0.2, 0.3, 0.5]])
"""
DEVICES = """
    jax_train_step = create_jax_surrogate_train_step(model, optax.sgd(0.1))
    count = jax.local_device_count()
    batches = [create_test_batch(seed=n) for n in range(count)]
    device_batches = jax.tree.map(lambda *parts: jnp.stack(parts), *batches)
    device_params = jax.tree.map(lambda leaf: jnp.stack([leaf] * count), params)
"""


# --- outcomes ---


def divergence(logits: Any, expert: Any) -> float:
    """KL(expert ‖ softmax(logits)) in float64."""
    logits, expert = np.asarray(logits, np.float64), np.asarray(expert, np.float64)
    predicted = np.exp(logits) / np.exp(logits).sum()
    real = expert > 0
    return float((expert[real] * np.log(expert[real] / predicted[real])).sum())


@functools.cache
def step_of_the_guide(loss_fn: Any, config: acbo.SurrogateTrainingConfig) -> acbo.guide.TrainStep:
    """The step of block 7, compiled once for all runs of the block."""
    model, _ = acbo.create_test_model()
    return acbo.create_jax_surrogate_train_step(model, optax.adam(1e-3), loss_fn, config)


def the_gates_are_no_gates(found: Namespace, _: str) -> None:
    """The guide's test passes once its two ratios are read for what they are."""

    def created(model: Any, optimizer: Any, loss_fn: Any, config: Any) -> Any:
        assert isinstance(model, acbo.guide.ParentSetModel)
        return step_of_the_guide(loss_fn, config)

    found["create_jax_surrogate_train_step"] = created
    assert found["test_performance_regression"]() is None
    before = acbo.create_test_model()[1]
    step = step_of_the_guide(acbo.kl_divergence_loss, found["test_config"])
    params, _, metrics = step(before, acbo.create_test_batch())
    assert set(metrics) >= {"total_loss", "gradient_norm", "learning_rate"}
    # The first step of Adam is as long as the learning rate, in every weight that has a gradient.
    moved = [np.abs(a - b).max() for a, b in zip(*map(jax.tree.leaves, (before, params)), strict=True)]
    assert max(moved) == pytest.approx(1e-3, rel=1e-2)


def the_loop_improves_both(found: Namespace, _: str) -> None:
    """Every turn updates the surrogate, then the policy, and plays new episodes with both."""
    played: list[acbo.guide.Experience] = []

    def collected(*args: Any) -> acbo.guide.Experience:
        played.append(acbo.collect_experience(*args))
        return played[-1]

    found["collect_experience"] = collected
    configs = acbo.GRPOTrainingConfig(total_steps=2), acbo.SurrogateTrainingConfig(learning_rate=1e-2)
    assert found["grpo_with_jax_surrogate"](*configs) is None
    first, _, last = played
    assert [int(one.policy.step) for one in played] == [0, 1, 2]
    assert last.regret.shape == (8, 8)  # models, episodes on each
    assert bool((last.regret >= -1e-4).all())
    for part in ("surrogate", "layers"):
        before, after = (jax.tree.leaves(getattr(one.policy.network, part)) for one in (first, last))
        assert max(float(jnp.abs(a - b).max()) for a, b in zip(before, after, strict=True)) > 1e-5, part
    # Within a group all episodes see the same observations; what they try differs.
    values = np.asarray(last.steps.data.values)
    rows = int(last.cases.observations[0])
    np.testing.assert_array_equal(values[0, 0, :rows], values[0, 1, :rows])
    assert not np.array_equal(values[0, 0], values[0, 1])


def loss_and_model_compile(found: Namespace, _: str) -> None:
    model, answers = found["model"], []

    def apply(*args: Any) -> dict[str, Any]:
        answers.append(model.apply(*args))
        return answers[-1]

    found["model"] = SimpleNamespace(apply=apply)
    assert found["test_loss_function_compilation"]() is None
    assert found["test_model_forward_compilation"]() is None
    (answer,) = answers
    assert answer["parent_set_logits"].shape == (4,)  # nothing, A, B, both
    assert answer["edge_logits"].shape == (3, 3)
    logits, probs, sets = (found[name] for name in ("test_logits", "test_probs", "static_parent_sets"))
    loss = acbo.kl_divergence_loss_jax(logits, probs, sets)
    assert float(loss) == pytest.approx(divergence(logits, probs), abs=1e-6)
    assert acbo.test_loss_function_compilation() == pytest.approx(float(loss), abs=1e-6)  # says what it found


def the_step_is_compiled_and_hides_no_error(found: Namespace, _: str) -> None:
    steps: list[tuple[bool, acbo.guide.TrainStep]] = []
    results: list[Any] = []

    def created(use_jax_compilation: bool) -> Any:
        model = found["model"] if steps else None  # the first is the guide's, without a model
        step = acbo.create_adaptive_train_step(model, use_jax_compilation=use_jax_compilation)
        steps.append((use_jax_compilation, step))
        return lambda *args: results.append(step(*args)) or results[-1]

    found["create_adaptive_train_step"] = created
    assert found["validate_fallback_behavior"]() is None
    assert [compiled for compiled, _ in steps] == [True]  # nothing to fall back from
    params, opt_state, metrics = results.pop()
    assert jax.tree.structure((params, opt_state)) == jax.tree.structure(
        (found["params"], found["opt_state"])
    )
    assert float(metrics["mean_expert_accuracy"]) == pytest.approx(0.9)
    assert float(metrics["expert_entropy"]) == pytest.approx(0.9404, abs=1e-4)  # of 0.1, 0.1, 0.7, 0.1
    # The next update has the next learning rate: 1 % of the peak, and a hundredth of the way up.
    _, _, later = steps[0][1](params, opt_state, found["batch"], found["key"])
    rates = [float(metrics["learning_rate"]), float(later["learning_rate"])]
    assert rates == pytest.approx([1e-5, 1e-5 + 0.99e-5], rel=1e-3)
    other = optax.sgd(0.1).init(found["params"])
    with pytest.raises(ValueError, match=r"`opt_state` must be a state of this step's optimizer"):
        steps[0][1](found["params"], other, found["batch"], found["key"])
    # "Problematic arguments" are wrong uncompiled as well: the fallback says so instead of computing something else.
    found["batch"] = {"data": 0}
    with pytest.raises(TypeError, match="`batch` must be a TrainingBatchJAX"):
        found["validate_fallback_behavior"]()
    assert [compiled for compiled, _ in steps[1:]] == [True, False]


def every_difficulty_is_learned(found: Namespace, _: str) -> None:
    said: list[str] = []
    seen: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def created(**kwargs: Any) -> Any:
        step = acbo.create_jax_surrogate_train_step(**kwargs)

        def recorded(*args: Any) -> Any:
            result = step(*args)
            seen.append((args, result[2]))
            return result

        recorded.model, recorded.optimizer = step.model, step.optimizer  # pyright: ignore
        return recorded

    found["create_jax_surrogate_train_step"] = created
    found["logger"] = SimpleNamespace(info=said.append)
    assert found["optimized_progressive_learning"](None, found["config"]) is None
    assert [line.split(":")[0] for line in said] == [
        f"Difficulty {name}" for name in ("easy", "medium", "hard")
    ]
    losses = [float(metrics["kl_loss"]) for _, metrics in seen]
    epochs = found["config"].max_epochs
    assert len(losses) == 3 * epochs
    for first in range(0, len(losses), epochs):
        assert losses[first + epochs - 1] < losses[first]
    # Nine arguments carry no masks; the padding is known all the same, so the number is that of the batch itself.
    data = acbo.collect_observational_data(acbo.generate_scm_for_difficulty("easy"))
    made = acbo.create_training_batch(data, expert=found["first_likely"])
    batch = acbo.convert_to_jax_batch(made, variables=16, sets=4)
    assert (int(batch.var_mask.sum()), batch.var_mask.shape) == (5, (1, 16))
    again = acbo.TrainingBatchJAX(*seen[0][0][5:8], *seen[0][0][2:5])
    for mine, theirs in zip(jax.tree.leaves(again), jax.tree.leaves(batch), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def one_loss_for_each_example(found: Namespace, _: str) -> None:
    losses = found["batch_losses"]
    assert losses.shape == (2,)
    pairs = zip(found["batch_logits"], found["batch_expert_probs"], strict=True)
    np.testing.assert_allclose(losses, [divergence(*pair) for pair in pairs], atol=1e-6)
    assert float(losses[0]) == pytest.approx(np.log(3), abs=1e-6)


def each_device_makes_its_own_update(found: Namespace, _: str) -> None:
    """As the guide has it no gradient is shared: every device goes its own way, by the length of its own gradient."""
    params, _, metrics = found["multi_device_results"]
    count = found["count"]
    assert metrics["total_loss"].shape == (count,)
    moved = jax.vmap(lambda new: norm_of(jax.tree.map(jnp.subtract, new, found["params"])))(params)
    np.testing.assert_allclose(moved, 0.1 * metrics["gradient_norm"], rtol=1e-3)


TINY = '{"hidden_dim": 4, "n_layers": 1, "encoder": "statistics"}'
CASES: dict[Key, Case] = {
    ("003", 7): Case(
        the_gates_are_no_gates,
        IMPORTS + "    test_config = SurrogateTrainingConfig()\n",
        allowed=(
            Allowed(
                'assert speedup > 100, f"JAX speedup {speedup:.1f}x below minimum 100x"',
                TypeError,
                "`measure_compilation_speedup` returns three values, here and in the guide, and no number",
                "assert len(speedup) == 3 and speedup[0] == speedup.first_call_s / speedup.second_call_s",
            ),
            Allowed(
                "sustained = benchmark_sustained_performance(jax_step, regular_step, args)",
                NameError,
                "`regular_step` and `args` are made nowhere; here the step runs against itself",
                "sustained = benchmark_sustained_performance(jax_step, jax_step, (params, batch), n_runs=5)",
            ),
            Allowed(
                'assert sustained > 50, f"Sustained speedup {sustained:.1f}x below minimum 50x"',
                AssertionError,
                "a step is as fast as itself; 50 compared a network with a step that left it out",
                "assert 0.2 < sustained < 5",
            ),
        ),
    ),
    ("003", 9): Case(
        loss_and_model_compile,
        IMPORTS + MODEL + PARTS,
        allowed=(
            Allowed(
                "return model.apply(params, data, static_args...)",
                SyntaxError,
                "`static_args...` is no Python",
                "return model.apply(params, data, *static_args)",
            ),
        ),
    ),
    ("003", 10): Case(
        the_step_is_compiled_and_hides_no_error,
        IMPORTS + MODEL + "    opt_state = create_adaptive_train_step(model).optimizer.init(params)\n",
    ),
    ("003", 11): Case(
        every_difficulty_is_learned,
        IMPORTS
        + """
    key = jax.random.key(0)
    config = SurrogateTrainingConfig(max_epochs=3, learning_rate=1e-2)

    def first_likely(data, max_parents):
        return {frozenset(): 0.25, frozenset({"X0" if int(data.target) else "X1"}): 0.75}
    """,
        allowed=(
            Allowed(
                "# Training loop with performance monitoring",
                UnboundLocalError,
                "the function assigns `params` and `opt_state` and so has none before; they begin here",
                """\
                params = jax_train_step.model.init(key)
                opt_state = jax_train_step.optimizer.init(params)""",
            ),
            Allowed(
                "jax_batch = convert_to_jax_batch(training_batch)",
                NameError,
                "`jax_batch_args` is made nowhere; one size for all is one program",
                """\
                jax_batch = convert_to_jax_batch(training_batch, variables=16, sets=4)
                jax_batch_args = jax_batch.arguments()""",
            ),
        ),
        smaller=(
            ("model=create_parent_set_model(),", f"model=create_parent_set_model({TINY}),"),
            # The exact posterior of 16 variables takes seconds to compile; `acbo/test_ledger.py` has it, of fewer.
            (
                "training_batch = create_training_batch(samples)",
                "training_batch = create_training_batch(samples, expert=first_likely)",
            ),
        ),
    ),
    ("003", 12): Case(
        the_loop_improves_both,
        IMPORTS
        + """
    from acbo import collect_experience, update_policy_grpo, update_surrogate_jax
    surrogate_model, _ = create_test_model()
    data = create_test_batch()
    """,
        allowed=(
            Allowed(
                "policy_params = update_policy_grpo(surrogate_params, trajectories)",
                UnboundLocalError,
                "the function assigns `trajectories` at its end and so has none before; they begin here",
                """\
                if step == 0:
                    trajectories = collect_experience(None, surrogate_params)
                policy_params = update_policy_grpo(surrogate_params, trajectories)""",
            ),
        ),
    ),
    ("003", 13): Case(one_loss_for_each_example, IMPORTS + SETS),
}
# The core runs this one too, with a function of one line; here with a real step.
SHARED: dict[Key, Case] = {
    ("003", 14): Case(each_device_makes_its_own_update, IMPORTS + MODEL + DEVICES),
}


def test_every_block_of_acbo_is_run() -> None:
    assert owned_by("acbo") == set(CASES)


def test_policy_and_surrogate_learn_together() -> None:
    """Our own loop under the guide's name: every update is one program, and all three parts of the network move."""
    grpo = acbo.GRPOTrainingConfig(group_size=8, num_iterations=1, total_steps=3, learning_rate=1e-2)
    small = acbo.SurrogateTrainingConfig(model_hidden_dim=8, model_n_layers=1, encoder="statistics")
    shape = acbo.EpisodeConfig(observations=12, trials=2)
    found = acbo.grpo_with_jax_surrogate(grpo, small, models=2, episode=shape, progress=False)
    assert found.history is not None
    assert found.history["regret"].shape == (3,)
    assert np.isfinite(found.history["total_loss"]).all()
    assert int(found.state.step) == 3
    before = acbo.PolicyNetwork(found.network.config, key=jax.random.split(jax.random.key(small.seed))[0])
    for part in ("surrogate", "layers", "out"):
        pairs = zip(*(jax.tree.leaves(getattr(net, part)) for net in (before, found.network)), strict=True)
        assert max(float(jnp.abs(a - b).max()) for a, b in pairs) > 1e-4, part


@needs_guides
@pytest.mark.parametrize("key", CASES, ids=name_of)
def test_a_block_of_acbo_runs(key: Key, capsys: pytest.CaptureFixture[str]) -> None:
    play(CASES[key], key, capsys)


@needs_guides
@pytest.mark.parametrize("key", SHARED, ids=name_of)
def test_a_block_of_the_core_runs_with_a_real_step(key: Key, capsys: pytest.CaptureFixture[str]) -> None:
    play(SHARED[key], key, capsys)


@needs_guides
@pytest.mark.parametrize(("key", "bad"), allowed_lines(CASES), ids=name_of)
def test_a_line_that_is_allowed_to_fail_does_fail(
    key: Key, bad: Allowed, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(bad.error):
        play(CASES[key], key, capsys, keep=bad.line)
