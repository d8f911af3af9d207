"""The guide's training API: every calling form, the same numbers in all of them, and no name in any program."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from acbo_linear import LinearModels

from acbo.guide import (
    ParentSetPosterior,
    TrainingBatch,
    TrainingBatchJAX,
    TrainingExample,
    TrainingMetrics,
    TrainStep,
    convert_to_jax_batch,
    create_adaptive_train_step,
    create_jax_surrogate_train_step,
    create_parent_set_model,
    create_test_batch,
    create_test_model,
    create_training_batch_from_examples,
    kl_divergence_loss,
    kl_divergence_loss_jax,
    uncertainty_weighted_loss,
    validate_fallback_behavior,
    validate_surrogate,
)
from acbo.guide import measurements as selfcheck
from acbo.guide.configs import EvaluationConfig, SurrogateTrainingConfig, TrainingConfig
from acbo.guide.parent_set_model import chain_data, network_config
from acbo.policy.episodes import curriculum_ratios
from acbo.policy.grpo_config import ExplorationTrainingConfig, GRPOTrainingConfig, RewardTrainingConfig
from acbo.surrogate import Network
from acbo.train_loop import norm_of
from jaxworlds.compiling import (
    FallbackError,
    FallbackWarning,
    fallback_counts,
    no_recompile,
    reset_fallback_counts,
)

pytestmark = pytest.mark.usefixtures("quick_compile")

CONFIG = SurrogateTrainingConfig(
    model_hidden_dim=16,
    model_n_layers=1,
    dropout=0.0,
    max_parent_size=2,
    encoder="statistics",
    learning_rate=1e-2,
)
POSTERIOR = {frozenset(): 0.1, frozenset("A"): 0.1, frozenset("B"): 0.7, frozenset("AB"): 0.1}


def close(a: object, b: object, atol: float) -> None:
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, rtol=0, atol=atol)


@pytest.fixture(scope="module")
def step() -> TrainStep:
    return create_jax_surrogate_train_step(config=CONFIG)


@pytest.fixture(scope="module")
def params(step: TrainStep) -> Network:
    return step.model.init(jr.key(0))


# --- the step ---


def test_all_calling_forms_compute_the_same_numbers(step: TrainStep, params: Network) -> None:
    batch, opt_state, key = create_test_batch(), step.optimizer.init(params), jr.key(0)
    short = step(params, batch)
    full = step(params, opt_state, batch, key)
    close(short, full, 0)
    new, metrics = step(dataclasses_state(step, params), batch, key)
    close((new.params, new.opt_state, metrics), full, 0)
    assert int(new.step) == 1
    nine = step(params, opt_state, *batch.arguments(), key)
    close(nine, full, 0)
    with pytest.raises(TypeError, match="guide's nine arguments; got 5"):
        step(1, 2, 3, 4, 5)
    with pytest.raises(TypeError, match="`batch` must be a TrainingBatchJAX"):
        step(params, {"observational_data": 0})


def dataclasses_state(step: TrainStep, params: Network):
    return eqx.tree_at(lambda s: s.params, step.init(jr.key(1)), params)


def test_the_step_learns_from_the_data(step: TrainStep, params: Network) -> None:
    """The older step gave the same parameters for two different datasets."""
    one, other = create_test_batch(seed=0), create_test_batch(seed=1)
    a, b = step(params, one)[0], step(params, other)[0]
    assert any(
        np.abs(x - y).max() > 1e-8 for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    )
    state = dataclasses_state(step, params)
    losses = []
    for number in range(60):
        state, metrics = step(state, one, jr.key(number))
        losses.append(float(metrics["kl_loss"]))
    assert losses[-1] < 0.5 * losses[0]


def test_metrics_are_arrays_with_the_promised_names(step: TrainStep, params: Network) -> None:
    batch = create_test_batch()
    metrics = step(params, batch)[2]
    fields = {field.name for field in dataclasses.fields(TrainingMetrics)} - {"step_time"}
    assert set(metrics) == fields
    assert all(isinstance(value, jax.Array) and value.shape == () for value in metrics.values())
    numbers = TrainingMetrics.of(metrics, step_time=0.5)
    assert numbers.mean_expert_accuracy == pytest.approx(0.9)
    p = np.array([0.1, 0.1, 0.7, 0.1])
    assert numbers.expert_entropy == pytest.approx(-(p * np.log(p)).sum(), abs=1e-5)
    assert numbers.total_loss == pytest.approx(numbers.kl_loss + numbers.regularization_loss)
    assert numbers.learning_rate == pytest.approx(1e-4)  # 1 % of the peak at the first step
    assert numbers.step_time == 0.5


def test_the_loss_is_the_mean_over_examples_of_the_formula(step: TrainStep, params: Network) -> None:
    batch = create_test_batch()
    metrics = step(params, batch)[2]
    apply = jax.jit(lambda params, data: step.model.apply(params, data, ("A", "B", "Y"), "Y"))
    each = []
    for b in range(3):
        found = apply(params, batch.observational_data[b, :, :3])
        logits = {
            frozenset(np.array(["A", "B", "Y"])[row].tolist()): value
            for row, value in zip(np.asarray(found["parent_sets"]), found["parent_set_logits"], strict=True)
        }
        each.append(
            float(kl_divergence_loss(jnp.stack([logits[s] for s in POSTERIOR]), POSTERIOR, list(POSTERIOR)))
        )
    assert float(metrics["kl_loss"]) == pytest.approx(np.mean(each), abs=1e-5)


def test_an_optimizer_of_ones_own_and_other_losses(params: Network) -> None:
    batch = create_test_batch()
    step = create_jax_surrogate_train_step(
        model=create_parent_set_model(CONFIG.get_model_kwargs()),
        optimizer=optax.sgd(0.1),
        loss_fn=uncertainty_weighted_loss,
        config=CONFIG,
    )
    new, _, metrics = step(params, batch)
    assert float(metrics["learning_rate"]) == pytest.approx(1e-2)
    squares = sum(float(jnp.square(leaf).sum()) for leaf in jax.tree.leaves(params))
    assert float(metrics["regularization_loss"]) == pytest.approx(0.5 * 1e-4 * squares, rel=1e-4)
    moved = norm_of(jax.tree.map(jnp.subtract, params, new))
    assert float(moved) == pytest.approx(0.1 * float(metrics["gradient_norm"]), rel=1e-4)


def test_renaming_compiles_nothing(step: TrainStep, params: Network) -> None:
    data = np.stack([chain_data(np.random.default_rng(seed), 20) for seed in range(3)])
    probs = np.zeros((3, 64))
    probs[:, :4] = [0.1, 0.1, 0.7, 0.1]

    def loss(names: tuple[str, str, str], probs: np.ndarray) -> float:
        a, b, y = names
        sets = [[frozenset(), frozenset({a}), frozenset({b}), frozenset({a, b})]] * 3
        opt_state = step.optimizer.init(params)
        out = step(params, opt_state, sets, [names] * 3, [y] * 3, data, probs, [1.0] * 3, jr.key(0))
        return float(out[2]["total_loss"])

    first = loss(("A", "B", "Y"), probs)
    with no_recompile(allow_eager=True):
        assert loss(("sun", "rain", "corn"), probs) == first
        assert loss(("Y", "A", "B"), probs[:, ::-1][:, -4:] @ np.eye(4, 64)) != first


def test_one_program_serves_models_of_all_sizes_in_a_bucket(step: TrainStep, params: Network) -> None:
    step(params, create_test_batch())
    mixed = ((3, 4, 5), (5, 8, 3), (4, 3, 8))
    batches = [TrainingBatch([example(size, seed, 20) for size in sizes]) for seed, sizes in enumerate(mixed)]
    with no_recompile(allow_eager=True):
        for batch in batches:
            metrics = step(params, batch)[2]
            assert np.isfinite(float(metrics["total_loss"]))


# --- the fallback ---


def test_compiled_and_uncompiled_steps_agree() -> None:
    """Also where compiling is turned off from the start; one that fails to compile is tested below."""
    report = validate_fallback_behavior()
    assert report.largest_difference <= 1e-6
    assert report.agree
    assert report.compiled_loss == pytest.approx(report.uncompiled_loss, abs=1e-6)


def looks_at_values(logits, expert, parent_sets):
    loss = kl_divergence_loss_jax(logits, expert, parent_sets)
    if loss > 0:  # what no compiler can do
        return loss
    return loss * 0


def test_a_step_that_cannot_be_compiled_says_why_and_computes_the_same(params: Network) -> None:
    batch, key = create_test_batch(), jr.key(0)
    reset_fallback_counts()
    plain = optax.sgd(
        1e-2
    )  # uncompiled, every operation of an optimizer on every shape is a program of its own
    step = create_adaptive_train_step(None, plain, looks_at_values, CONFIG)
    with pytest.warns(FallbackWarning, match="TracerBoolConversionError"):
        slow = step(params, step.optimizer.init(params), batch, key)
    assert fallback_counts()["acbo surrogate step"] == 1
    fast = create_adaptive_train_step(None, plain, config=CONFIG)
    close(fast(params, step.optimizer.init(params), batch, key), slow, 1e-6)


def test_strict_mode_refuses_the_fallback(params: Network) -> None:
    from jaxworlds.compiling import set_strict

    step = create_adaptive_train_step(loss_fn=looks_at_values, config=CONFIG)
    set_strict(True)
    try:
        with pytest.raises(FallbackError, match="strict mode"):
            step(params, create_test_batch())
    finally:
        set_strict(None)


def test_the_guides_checks_answer() -> None:
    assert selfcheck.test_loss_function_compilation() == pytest.approx(0.0405, abs=1e-4)
    found = selfcheck.test_model_forward_compilation()
    assert found["parent_set_logits"].shape == (4,)
    timed = selfcheck.test_performance_regression()
    assert timed["compiles"] == 1
    assert timed["first_call_s"] > timed["later_call_s"] > 0
    with pytest.raises(ValueError, match="must be finite"):
        selfcheck.test_loss_function_compilation(lambda a, b, _: jnp.log(b).sum())


# --- models ---


def test_a_model_answers_as_the_guide_calls_it() -> None:
    model, params = create_test_model()
    assert isinstance(model, eqx.Module)
    data = chain_data(np.random.default_rng(0), 20)
    found = jax.jit(lambda params, data: model.apply(params, data, ["A", "B", "Y"], "Y"))(params, data)
    assert all(isinstance(value, jax.Array) for value in found.values())
    assert found["parent_set_logits"].shape == (4,)
    assert found["parent_sets"].tolist() == [[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0]]
    np.testing.assert_array_equal(found["parent_logits"], found["edge_logits"][:, 2])
    plain = jax.jit(model.apply)
    marked = plain(params, data)  # the third channel marks the target
    np.testing.assert_allclose(marked["parent_set_logits"], found["parent_set_logits"], atol=1e-5)
    other = jax.jit(lambda params, data: model.apply(params, data, ["A", "B", "Y"], 0))(params, data)
    assert other["parent_sets"].tolist() == [[0, 0, 0], [0, 1, 0], [0, 0, 1], [0, 1, 1]]
    again = eqx.filter_jit(lambda model, data: model(data))(model, data)
    np.testing.assert_allclose(again["edge_logits"], plain(model.network, data)["edge_logits"], atol=1e-5)
    with pytest.raises(ValueError, match="`target_variable` must be one of"):
        model.apply(params, data, ["A", "B", "Y"], "Z")
    with pytest.raises(ValueError, match=r"\[rows, variables, 3\]"):
        model.apply(params, data[..., 0])
    with pytest.raises(ValueError, match="needs `key`"):
        model.apply(params, data, is_training=True)


def test_other_spellings_of_the_settings_are_known() -> None:
    found = network_config(
        {"dim": 32, "num_layers": 3, "num_heads": 8, "widening_factor": 2, "dropout_rate": 0.1}
    )
    assert (found.width, found.pair_width, found.layers, found.heads, found.widening) == (32, 32, 3, 8, 2)
    assert network_config({"hidden_dim": 32, "key_size": 8}).heads == 4
    with pytest.raises(TypeError, match="`depth` is no field"):
        network_config({"depth": 2})
    with pytest.raises(ValueError, match="`max_parent_size`"):
        create_parent_set_model(max_parent_size=0)


# --- batches ---


def example(variables: int, seed: int = 0, rows: int = 15) -> TrainingExample:
    data, adjacency = LinearModels(variables, observed=rows, experiments=0).one(seed)
    names = [f"V{i}" for i in range(variables)]
    marks = np.broadcast_to(np.arange(variables) == 0, (rows, variables))
    parents = frozenset(names[i] for i in np.flatnonzero(np.asarray(adjacency)[:, 0]))
    probs = {frozenset(): 0.25, frozenset({names[-1]}): 0.5, frozenset(names[1:3]): 0.25}
    return TrainingExample(
        np.stack([data.values, data.intervened, marks], -1).astype(np.float32),
        names[0],
        names,
        ParentSetPosterior(names[0], probs),
        0.5,
        {"parents": sorted(parents)},
        "easy" if variables < 5 else "hard",
    )


def test_conversion_stacks_and_pads() -> None:
    batch = convert_to_jax_batch(TrainingBatch([example(3), example(5, rows=20)]))
    assert batch.observational_data.shape == (2, 20, 8, 3)
    assert batch.expert_probs.shape == (2, 64)  # all sets of a bucket of 8 with up to three parents
    assert batch.batch_size == 2
    assert np.asarray(batch.var_mask).sum(1).tolist() == [3, 5]
    assert np.asarray(batch.row_mask).sum(1).tolist() == [15, 20]
    assert np.asarray(batch.set_mask).sum(1).tolist() == [3, 3]
    np.testing.assert_allclose(batch.expert_probs[:, :4], [[0.25, 0.5, 0.25, 0]] * 2)
    assert batch.parent_sets[0][1:4] == [frozenset({"V2"}), frozenset({"V1", "V2"}), frozenset()]
    assert batch.variable_orders[1] == ["V0", "V1", "V2", "V3", "V4"]
    assert batch.target_variables == ["V0", "V0"]
    np.testing.assert_allclose(batch.marginals[0, :3], [0, 0.25, 0.75])
    np.testing.assert_array_equal(batch.observational_data[0, :15, :3], example(3).observational_data)
    assert convert_to_jax_batch(batch) is batch
    with pytest.raises(ValueError, match="at least one example"):
        convert_to_jax_batch(TrainingBatch([]))
    with pytest.raises(ValueError, match="more than `variables`=4"):
        convert_to_jax_batch(TrainingBatch([example(5)]), variables=4)


def test_a_batch_is_arrays_for_jax_and_names_for_people() -> None:
    batch = create_test_batch()
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(batch))
    assert hash(jax.tree.structure(batch)) is not None
    through = jax.jit(lambda b: b)(batch)
    np.testing.assert_array_equal(through.expert_probs, batch.expert_probs)
    with pytest.raises(ValueError, match="This batch has no names"):
        _ = through.parent_sets
    with pytest.raises(dataclasses.FrozenInstanceError):
        batch.expert_probs = 0  # pyright: ignore[reportAttributeAccessIssue]
    again = TrainingBatchJAX(
        batch.observational_data,
        batch.expert_probs,
        batch.expert_accuracies,
        batch.parent_sets,
        batch.variable_orders,
        batch.target_variables,
    )
    # Padding with empty sets, as older batches have it, is seen for what it is.
    np.testing.assert_array_equal(again.set_mask, batch.set_mask)
    np.testing.assert_array_equal(again.parent_mask, batch.parent_mask)
    with pytest.raises(ValueError, match=r"\['Q'\] are not among"):
        TrainingBatchJAX(np.zeros((1, 2, 2, 3)), [[1.0]], [1.0], [[{"Q"}]], [["A", "B"]], ["A"])


def test_batches_are_drawn_from_examples() -> None:
    examples = [example(3, seed) for seed in range(5)]
    batch = create_training_batch_from_examples(examples, 5, jr.key(0))
    assert sorted(map(id, batch.examples)) == sorted(map(id, examples))
    assert create_training_batch_from_examples(examples, 12, jr.key(1)).batch_size == 12
    assert create_training_batch_from_examples(examples, 3, jr.key(2)).examples == (
        create_training_batch_from_examples(examples, 3, jr.key(2)).examples
    )
    with pytest.raises(ValueError, match="`batch_size`"):
        create_training_batch_from_examples(examples, 0, jr.key(0))
    with pytest.raises(ValueError, match="`examples`"):
        create_training_batch_from_examples([], 1, jr.key(0))


def test_examples_are_checked() -> None:
    good = example(3)
    for changes, said in (
        ({"variable_order": ["A", "B"]}, "must name the 3 variables"),
        ({"variable_order": ["A", "A", "B"]}, "must name each variable once; got 'A' twice"),
        ({"target_variable": "Z"}, "must be one of"),
        ({"problem_difficulty": "absurd"}, "easy"),
    ):
        with pytest.raises(ValueError, match=said):
            dataclasses.replace(good, **changes)
    posterior = good.expert_posterior
    assert posterior.top_k_sets[0] == (frozenset({"V2"}), 0.5)
    assert posterior.marginals() == pytest.approx({"V1": 0.25, "V2": 0.75})
    assert posterior.uncertainty == pytest.approx(1.0397, abs=1e-4)


def test_validation_compares_network_and_expert() -> None:
    model, params = create_test_model()
    batch = TrainingBatch([example(size, seed) for seed, size in enumerate((3, 4, 5, 6))])
    found = validate_surrogate(params, batch, expert_seconds=10.0)
    each = convert_to_jax_batch(batch)
    from acbo.guide.train_steps import predicted_set_logits

    q = np.asarray(jax.nn.softmax(jax.jit(predicted_set_logits)(params, each)), np.float64)
    p = np.asarray(each.expert_probs, np.float64)
    logs = np.log(np.where(p > 0, p, 1)) - np.log(np.where(p > 0, q, 1))
    assert found.posterior_kl == pytest.approx((p * logs).sum(1).mean(), abs=1e-4)
    assert found.reverse_kl == pytest.approx(np.where(p > 0, -q * logs, 0).sum(1).mean(), abs=1e-4)
    assert found.total_variation == pytest.approx(0.5 * np.abs(p - q).sum(1).mean(), abs=1e-5)
    same = q.argmax(1) == p.argmax(1)
    assert found.accuracy_drop == pytest.approx(1 - same.mean())
    assert found.easy_accuracy == pytest.approx(same[:2].mean())
    assert found.hard_accuracy == pytest.approx(same[2:].mean())
    assert np.isnan(found.medium_accuracy)
    assert found.inference_speedup > 1
    assert 0 <= found.calibration_error <= 1
    assert np.isnan(validate_surrogate(params, batch).inference_speedup)
    assert model.max_parent_size == 2


# --- configs ---


def test_configs_have_the_promised_defaults_and_limits() -> None:
    """Ledger 1.2."""
    c = SurrogateTrainingConfig()
    assert (c.model_hidden_dim, c.model_n_layers, c.learning_rate, c.batch_size) == (128, 6, 1e-3, 32)
    assert (c.max_epochs, c.early_stopping_patience, c.validation_frequency) == (100, 10, 5)
    assert (c.weight_decay, c.max_parent_size, c.dropout) == (1e-4, 5, 0.1)
    assert network_config(c.get_model_kwargs()).width == 128
    assert SurrogateTrainingConfig(model_hidden_dim=16).model_hidden_dim == 16  # the guide's own tests
    for changes in (
        {"model_hidden_dim": 1024},
        {"model_n_layers": 17},
        {"learning_rate": 0.2},
        {"batch_size": 257},
        {"max_parent_size": 11},
        {"dropout": 0.6},
        {"max_epochs": 0},
    ):
        with pytest.raises(ValueError, match=f"`{next(iter(changes))}` must be"):
            SurrogateTrainingConfig(**changes)
    g = GRPOTrainingConfig()
    assert (g.group_size, g.num_iterations, g.learning_rate, g.clip_ratio) == (64, 4, 3e-4, 0.2)
    assert (g.entropy_coeff, g.kl_penalty_coeff, g.max_grad_norm, g.scale_rewards) == (0.01, 0.0, 1.0, True)
    with pytest.raises(ValueError, match="`group_size` must be between 8 and 256"):
        GRPOTrainingConfig(group_size=4)
    r = RewardTrainingConfig()
    assert (r.optimization_weight, r.structure_weight, r.parent_weight, r.exploration_weight) == (
        1.0,
        0.5,
        0.3,
        0.1,
    )
    with pytest.raises(ValueError, match="weights must not be negative"):
        RewardTrainingConfig(parent_weight=-1)
    e = ExplorationTrainingConfig()
    assert (e.strategy, e.exploration_weight, e.initial_temperature, e.final_temperature) == (
        "adaptive",
        1.0,
        2.0,
        0.1,
    )
    with pytest.raises(ValueError, match="below `initial_temperature`"):
        ExplorationTrainingConfig(final_temperature=3.0)
    t = TrainingConfig()
    assert (t.total_steps, t.log_frequency, t.save_frequency, t.seed) == (1000, 10, 100, 42)
    assert (t.learning_rate, t.max_epochs) == (1e-3, 100)
    v = EvaluationConfig()
    assert (v.frequency, v.num_trajectories, v.scm_sizes) == (50, 20, (5, 8, 10))
    assert hash(t) == hash(TrainingConfig())
    assert [curriculum_ratios(s) for s in (499, 500, 1499, 1500)] == [
        (0.8, 0.2, 0.0),
        (0.5, 0.4, 0.1),
        (0.5, 0.4, 0.1),
        (0.3, 0.4, 0.3),
    ]
