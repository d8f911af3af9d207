"""acbo's ledger, row by row: each promise of guide 003 about the surrogate, its structure and at least one value.

`ROWS` names the tests of every ☐ of `ledger/acbo.md`, sections 1.1, 1.4 and 1.5, in the order of the ledger; a phrase
identifies the row. A test of another file is named with its file; the rest is here.
`DEFAULTS` and `RANGES` are section 1.2.
"""

import ast
import dataclasses
import functools
import logging
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from acbo_linear import auroc

import acbo
import acbo.scms
import acbo.surrogate
from acbo.data import Dataset
from acbo.guide.configs import SurrogateTrainingConfig
from acbo.guide.examples import create_training_batch, exact_expert
from acbo.guide.progressive import optimized_progressive_learning
from acbo.surrogate.layers import NetworkConfig
from acbo.surrogate.model_draws import ModelDraws, benchmark_draws, exact_edges, training_draws
from acbo.surrogate.network import Network
from acbo.surrogate.quality import calibrate, edge_logits, evaluate, held_out
from acbo.surrogate.trainer import LearningConfig, train
from jaxworlds.compiling import CompileWatch

pytestmark = pytest.mark.usefixtures("quick_compile")

ROOT = Path(__file__).resolve().parents[3]
LEDGER = ROOT.parent / "shared" / "ledger" / "acbo.md"

API = "unit/acbo/guide/test_guide_api.py::"
LOSSES = "unit/acbo/guide/test_losses.py::"
MODEL = "unit/acbo/surrogate/test_model.py::"
TRAINING = "unit/acbo/surrogate/test_training.py::"
MEASURING = "unit/acbo/guide/test_measurements.py::"
STATIC = "unit/acbo/guide/test_static_args.py::"
GUIDE = "docs/test_guides_acbo.py::"

# (section, phrase in the row, tests)
ROWS: list[tuple[str, str, tuple[str, ...]]] = [
    (
        "1.1",
        "create_jax_surrogate_train_step(",
        (
            API + "test_all_calling_forms_compute_the_same_numbers",
            API + "test_the_step_learns_from_the_data",
            API + "test_renaming_compiles_nothing",
        ),
    ),
    (
        "1.1",
        "create_adaptive_train_step(",
        (
            API + "test_compiled_and_uncompiled_steps_agree",
            API + "test_a_step_that_cannot_be_compiled_says_why_and_computes_the_same",
        ),
    ),
    ("1.1", "`TrainingBatchJAX` (frozen)", (API + "test_a_batch_is_arrays_for_jax_and_names_for_people",)),
    ("1.1", "`TrainingExample` (", (API + "test_examples_are_checked",)),
    ("1.1", "`TrainingBatch(examples)`", (API + "test_batches_are_drawn_from_examples",)),
    ("1.1", "`TrainingMetrics` (", (API + "test_metrics_are_arrays_with_the_promised_names",)),
    ("1.1", "`ValidationResults` (", (API + "test_validation_compares_network_and_expert",)),
    (
        "1.1",
        "`kl_divergence_loss_jax(",
        (
            LOSSES + "test_kl_is_the_textbooks",
            LOSSES + "test_extreme_certainty_stays_finite_with_its_gradient",
        ),
    ),
    ("1.1", "`uncertainty_weighted_loss_jax(", (LOSSES + "test_an_expert_in_doubt_counts_less",)),
    (
        "1.1",
        "`kl_divergence_loss`, `uncertainty_weighted_loss`",
        (
            LOSSES + "test_kl_is_the_textbooks",
            LOSSES + "test_an_expert_in_doubt_counts_less",
            LOSSES + "test_calibrated_loss_adds_how_far_doubt_is_from_error",
            LOSSES + "test_several_targets_are_averaged_by_weight",
        ),
    ),
    ("1.1", "`convert_to_jax_batch(batch)`", (API + "test_conversion_stacks_and_pads",)),
    (
        "1.1",
        "`create_training_batch`, `create_training_batch_from_examples(",
        ("test_a_batch_from_data_has_the_exact_posterior", API + "test_batches_are_drawn_from_examples"),
    ),
    ("1.1", "`prepare_static_args(", (STATIC + "test_prepared_arguments_are_sorted_tuples_as_in_the_guide",)),
    ("1.1", "`restore_static_args(", (STATIC + "test_prepared_arguments_are_sorted_tuples_as_in_the_guide",)),
    (
        "1.1",
        "`create_parent_set_model(",
        (
            API + "test_a_model_answers_as_the_guide_calls_it",
            API + "test_other_spellings_of_the_settings_are_known",
        ),
    ),
    (
        "1.1",
        "`measure_compilation_speedup(",
        (MEASURING + "test_first_over_second_call_with_the_guides_tuple",),
    ),
    ("1.1", "`benchmark_sustained_performance(", (MEASURING + "test_sustained_ratio_is_regular_over_jax",)),
    ("1.1", "`monitor_memory_usage(", (MEASURING + "test_memory_counts_device_arrays",)),
    (
        "1.1",
        "`test_performance_regression` gates",
        (API + "test_the_guides_checks_answer", GUIDE + "test_a_block_of_acbo_runs"),
    ),
    ("1.1", "`optimized_progressive_learning(", ("test_learning_goes_from_easy_to_hard_in_one_program",)),
    ("1.1", "`generate_scm_for_difficulty(", ("test_models_of_a_difficulty_and_their_observations",)),
    ("1.1", "`collect_observational_data(", ("test_models_of_a_difficulty_and_their_observations",)),
    ("1.1", "`grpo_with_jax_surrogate(", (GUIDE + "test_policy_and_surrogate_learn_together",)),
    ("1.1", "`update_surrogate_jax(", (GUIDE + "test_a_block_of_acbo_runs",)),
    ("1.1", "`update_policy_grpo(", (GUIDE + "test_a_block_of_acbo_runs",)),
    ("1.1", "`collect_experience(", (GUIDE + "test_a_block_of_acbo_runs",)),
    (
        "1.1",
        "`validate_fallback_behavior()`",
        (
            API + "test_compiled_and_uncompiled_steps_agree",
            API + "test_the_guides_checks_answer",
            GUIDE + "test_a_block_of_acbo_runs",
        ),
    ),
    ("1.1", "Metrics pattern", (API + "test_metrics_are_arrays_with_the_promised_names",)),
    (
        "1.4",
        "graceful fallback",
        (API + "test_a_step_that_cannot_be_compiled_says_why_and_computes_the_same",),
    ),
    ("1.4", "numerical consistency", (API + "test_compiled_and_uncompiled_steps_agree",)),
    (
        "1.4",
        "both paths tested",
        (
            API + "test_compiled_and_uncompiled_steps_agree",
            API + "test_a_step_that_cannot_be_compiled_says_why_and_computes_the_same",
        ),
    ),
    (
        "1.4",
        "four error classes",
        (
            "test_the_page_on_errors_shows_all_four",
            "docs/test_documents.py::test_python_blocks_of_a_page_run_in_order",
        ),
    ),
    ("1.4", "JAX_DEBUG_NANS", ("test_the_page_on_errors_shows_all_four",)),
    ("1.4", "caching of conversions", ("test_names_are_converted_once",)),
    ("1.4", "gradient accumulation", (TRAINING + "test_parts_of_a_batch_add_up_to_the_batch",)),
    ("1.4", "GPU kernel fusion", ("test_the_page_on_errors_shows_all_four",)),
    ("1.5", "`vmap`ped losses", (LOSSES + "test_losses_batch_as_the_guide_writes_it",)),
    ("1.5", "multi-device", (TRAINING + "test_devices_agree_and_send_gradients_only",)),
    (
        "1.5",
        "mixed precision",
        (
            MODEL + "test_half_precision_is_near_and_parameters_stay_whole",
            TRAINING + "test_dropout_and_half_precision_train_too",
        ),
    ),
    ("1.5", "Phase 2 model", (API + "test_a_model_answers_as_the_guide_calls_it",)),
    (
        "1.5",
        "Phase 3 no Python",
        (
            MODEL + "test_one_compilation_serves_models_of_all_sizes_in_a_bucket",
            MODEL + "test_the_program_is_as_long_for_many_layers_as_for_one",
        ),
    ),
    ("1.5", "Phase 4 end-to-end", ("test_models_data_teacher_and_update_are_one_program",)),
]


@functools.cache
def named_in(file: str) -> set[str]:
    """The names of a file's tests."""
    tree = ast.parse((ROOT / "tests" / file).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_row_has_tests_that_exist() -> None:
    assert all(tests for _, _, tests in ROWS)
    for test in (test for _, _, tests in ROWS for test in tests):
        file, _, name = test.rpartition("::")
        assert name in named_in(file or __file__), test


@pytest.mark.skipif(not LEDGER.is_file(), reason="the ledger is not here (../shared/ledger)")
def test_the_tables_name_every_row_of_the_ledger() -> None:
    text = LEDGER.read_text(encoding="utf-8")
    found = []
    for section, following in (("1.1", "1.2"), ("1.4", "1.5"), ("1.5", "1.6")):
        part = text.split(f"### {section}")[1].split(f"### {following}")[0]
        found += [(section, row) for row in part.split("☐")[1:]]
    assert len(found) == len(ROWS)
    for (section, row), (expected, phrase, _) in zip(found, ROWS, strict=True):
        assert (section, phrase in row) == (expected, True), f"{phrase!r} is not in {row!r}"


def test_all_names_of_the_guide_are_at_acbo() -> None:
    names = """
        create_jax_surrogate_train_step create_adaptive_train_step TrainingBatchJAX TrainingExample TrainingBatch
        TrainingMetrics ValidationResults kl_divergence_loss_jax uncertainty_weighted_loss_jax kl_divergence_loss
        uncertainty_weighted_loss calibrated_loss multi_target_loss convert_to_jax_batch create_training_batch
        create_training_batch_from_examples prepare_static_args restore_static_args create_parent_set_model
        measure_compilation_speedup benchmark_sustained_performance monitor_memory_usage create_test_model
        create_test_batch test_performance_regression optimized_progressive_learning generate_scm_for_difficulty
        collect_observational_data validate_fallback_behavior test_loss_function_compilation
        test_model_forward_compilation SurrogateTrainingConfig GRPOTrainingConfig RewardTrainingConfig
        ExplorationTrainingConfig TrainingConfig EvaluationConfig
    """
    for name in names.split():
        assert callable(getattr(acbo, name)), name


# --- settings (1.2) ---

# Class -> field -> default. `None` is a field that the ledger names without a value, or that is ours.
DEFAULTS: dict[str, dict[str, Any]] = {
    "SurrogateTrainingConfig": {
        "model_hidden_dim": 128, "model_n_layers": 6, "learning_rate": 1e-3, "batch_size": 32, "max_epochs": 100,
        "early_stopping_patience": 10, "validation_frequency": 5, "weight_decay": 1e-4, "max_parent_size": 5,
        "dropout": 0.1, "max_grad_norm": 1.0, "total_steps": None, "encoder": None, "precision": None, "seed": None,
    },
    "GRPOTrainingConfig": {
        "group_size": 64, "num_iterations": 4, "learning_rate": 3e-4, "clip_ratio": 0.2, "entropy_coeff": 0.01,
        "kl_penalty_coeff": 0.0, "max_grad_norm": 1.0, "scale_rewards": None, "total_steps": None,
    },
    "RewardTrainingConfig": {
        "optimization_weight": 1.0, "structure_weight": 0.5, "parent_weight": 0.3, "exploration_weight": 0.1,
    },
    "ExplorationTrainingConfig": {
        "strategy": "adaptive", "exploration_weight": 1.0, "initial_temperature": 2.0, "final_temperature": 0.1,
    },
    "EvaluationConfig": {"frequency": 50, "num_trajectories": 20, "scm_sizes": (5, 8, 10)},
    "TrainingConfig": {
        "total_steps": 1000, "warmup_steps": None, "log_frequency": 10, "save_frequency": 100, "seed": 42,
        "surrogate": None, "grpo": None, "reward": None, "exploration": None, "evaluation": None,
    },
}  # fmt: skip
# Class, field, the smallest and the largest value that is taken, and one beyond each; the width begins at 4, not at the
# ledger's 32, because the guide's own tests use 16.
RANGES: list[tuple[str, str, tuple[Any, ...], tuple[Any, ...]]] = [
    ("SurrogateTrainingConfig", "model_hidden_dim", (16, 512), (0, 516)),
    ("SurrogateTrainingConfig", "model_n_layers", (1, 16), (0, 17)),
    ("SurrogateTrainingConfig", "learning_rate", (1e-6, 0.1), (0.0, 0.11)),
    ("SurrogateTrainingConfig", "batch_size", (1, 256), (0, 257)),
    ("SurrogateTrainingConfig", "max_parent_size", (1, 10), (0, 11)),
    ("SurrogateTrainingConfig", "dropout", (0.0, 0.5), (-0.1, 0.51)),
    ("SurrogateTrainingConfig", "weight_decay", (0.0, 1.0), (-1e-4,)),
    ("SurrogateTrainingConfig", "early_stopping_patience", (1,), (0,)),
    ("SurrogateTrainingConfig", "validation_frequency", (1,), (0,)),
    ("GRPOTrainingConfig", "group_size", (8, 256), (7, 257)),
    ("GRPOTrainingConfig", "num_iterations", (1,), (0,)),
    ("GRPOTrainingConfig", "clip_ratio", (0.01, 1.0), (0.0, 1.1)),
    ("ExplorationTrainingConfig", "final_temperature", (0.1, 1.9), (0.0, 2.0)),
    ("EvaluationConfig", "frequency", (1,), (0,)),
    ("EvaluationConfig", "scm_sizes", ((2,),), ((), (1,))),
    ("TrainingConfig", "total_steps", (100,), (0,)),
]


@pytest.mark.parametrize("name", DEFAULTS)
def test_settings_have_every_field_with_its_default(name: str) -> None:
    made = getattr(acbo, name)()
    assert {field.name for field in dataclasses.fields(made)} == set(DEFAULTS[name])
    for field, default in DEFAULTS[name].items():
        if default is not None:
            assert getattr(made, field) == default, field
    assert hash(made) == hash(getattr(acbo, name)())


@pytest.mark.parametrize(("name", "field", "good", "bad"), RANGES, ids=lambda value: str(value)[:25])
def test_settings_refuse_what_is_out_of_range(
    name: str, field: str, good: tuple[Any, ...], bad: tuple[Any, ...]
) -> None:
    for value in good:
        assert getattr(getattr(acbo, name)(**{field: value}), field) == value
    for value in bad:
        with pytest.raises(ValueError, match=f"`{field}` must"):
            getattr(acbo, name)(**{field: value})


def test_settings_of_a_run_say_what_the_guide_reads() -> None:
    run = acbo.TrainingConfig(surrogate=SurrogateTrainingConfig(learning_rate=5e-3, max_epochs=7))
    assert (run.learning_rate, run.max_epochs, run.total_steps) == (5e-3, 7, 1000)
    kwargs = run.surrogate.get_model_kwargs()
    assert (kwargs["width"], kwargs["layers"], kwargs["dropout"]) == (128, 6, 0.1)
    assert acbo.create_parent_set_model({**kwargs, "width": 16, "pair_width": 16}).max_parent_size == 3
    assert (run.reward, run.grpo) == (acbo.RewardTrainingConfig(), acbo.GRPOTrainingConfig())
    with pytest.raises(ValueError, match="one must be positive"):
        acbo.RewardTrainingConfig(0.0, 0.0, 0.0, 0.0)


# --- data, experts and difficulty ---


def chain(rows: int = 300) -> Dataset:
    """A → B → C with a few experiments on B, padded; the target is C."""
    rng = np.random.default_rng(3)
    noise = rng.standard_normal((rows, 3))
    was_set = np.zeros((rows, 4), bool)
    was_set[-10:, 1] = True
    a = noise[:, 0]
    b = np.where(was_set[:, 1], 2 * noise[:, 1], 0.8 * a + noise[:, 1])
    c = 100 * (b + noise[:, 2]) + 7
    values = np.stack([a, b, c, np.zeros(rows)], -1)
    live = np.array([True, True, True, False])
    return Dataset(
        jnp.asarray(values, jnp.float32),
        jnp.asarray(was_set),
        jnp.ones(rows, bool),
        jnp.asarray(live),
        jnp.int32(2),
    )


def test_a_batch_from_data_has_the_exact_posterior() -> None:
    batch = create_training_batch(chain(), variable_order=["A", "B", "C"], true_parents=["B"])
    (example,) = batch.examples
    assert example.target_variable == "C"
    assert example.observational_data.shape == (300, 3, 3)
    assert example.observational_data[0, :, 2].tolist() == [0, 0, 1]
    assert example.observational_data[-10:, :, 1].sum() == 10
    probs = example.parent_set_probs
    assert set(probs) == {frozenset(), frozenset("A"), frozenset("B"), frozenset("AB")}
    assert sum(probs.values()) == pytest.approx(1)
    assert example.expert_accuracy == probs[frozenset("B")] > 0.8
    found = exact_expert(chain())
    by_hand = {tuple(np.flatnonzero(m)): float(p) for m, p in zip(*map(np.asarray, found), strict=True)}
    assert probs[frozenset("B")] == pytest.approx(by_hand[(1,)], abs=1e-6)
    arrays = acbo.convert_to_jax_batch(batch)
    np.testing.assert_allclose(
        arrays.marginals[0, 1], 1 - probs[frozenset()] - probs[frozenset("A")], atol=1e-5
    )
    alone = create_training_batch([chain(), chain(40)], problem_difficulty="easy")
    assert alone.batch_size == 2
    assert alone.examples[0].variable_order == ["X0", "X1", "X2"]
    assert alone.examples[0].expert_accuracy == max(probs.values())
    told = create_training_batch(chain(), expert=lambda data, most: {frozenset({"X1"}): 1.0})
    assert told.examples[0].parent_set_probs == {frozenset({"X1"}): 1.0}
    with pytest.raises(ValueError, match="`samples` must hold at least one"):
        create_training_batch([])
    with pytest.raises(ValueError, match="must name the 3 live variables"):
        create_training_batch(chain(), variable_order=["A"])


def test_models_of_a_difficulty_and_their_observations() -> None:
    from acbo.guide import collect_observational_data, generate_scm_for_difficulty

    sizes = []
    for difficulty, least, most in (("easy", 3, 5), ("medium", 5, 10), ("hard", 10, 16)):
        model = generate_scm_for_difficulty(difficulty, jr.key(2))
        assert least <= len(model.names) <= most
        assert model.target in model.names
        data = collect_observational_data(model, rows=30)
        assert data.values.shape == (30, 16)
        assert int(data.live.sum()) == len(model.names)
        assert not np.asarray(data.intervened).any()
        assert np.asarray(data.values)[:, : len(model.names)].std(0).min() > 0
        sizes.append(len(model.names))
    assert sizes[0] < sizes[2]


def test_learning_goes_from_easy_to_hard_in_one_program(caplog: pytest.LogCaptureFixture) -> None:
    from acbo.guide import generate_scm_for_difficulty

    config = SurrogateTrainingConfig(
        model_hidden_dim=8, model_n_layers=1, batch_size=2, max_epochs=4, dropout=0.0, encoder="statistics",
        max_parent_size=2, learning_rate=1e-2,
    )  # fmt: skip
    scms = {
        "easy": [generate_scm_for_difficulty("easy", jr.key(n)) for n in range(2)],
        "medium": [generate_scm_for_difficulty("medium", jr.key(5))],
    }
    with caplog.at_level(logging.INFO, "acbo"), CompileWatch() as watch:
        found = optimized_progressive_learning(scms, config, rows=40, expert=_likes_the_first)
    assert list(found.metrics) == ["easy", "medium"]
    assert [len(losses) for losses in found.history.values()] == [4, 4]
    assert found.history["easy"][-1] < found.history["easy"][0]
    assert found.metrics["easy"].step_time > 0
    assert int(found.state.step) == 8
    assert found.params is found.state.params
    assert all(seconds > 0 for seconds in found.seconds.values())
    assert watch["surrogate_update"].compiles == 1
    assert [r.message.split(":")[0] for r in caplog.records] == ["Difficulty easy", "Difficulty medium"]
    with pytest.raises(ValueError, match="`scms: difficulty` must be one of easy, medium, hard; got 'odd'"):
        optimized_progressive_learning({"odd": []}, config)
    with pytest.raises(ValueError, match="at least one model"):
        optimized_progressive_learning([], config)


def _likes_the_first(data: Dataset, max_parents: int) -> tuple[np.ndarray, np.ndarray]:
    """An expert as arrays: nothing, or the first variable that is not the target."""
    first = np.arange(data.size) == (0 if int(data.target) else 1)
    return np.stack([np.zeros(data.size, bool), first]), np.array([0.25, 0.75])


def test_names_are_converted_once() -> None:
    from acbo.guide.batches import index_arrays

    names = acbo.prepare_static_args([[frozenset({"A"})]], [["A", "B"]], ["B"])
    first = index_arrays(names, 8, 4)
    members, real, target = first
    assert (members.shape, real.tolist(), target.tolist()) == ((1, 4, 8), [[True, False, False, False]], [1])
    assert np.argwhere(members).tolist() == [[0, 0, 0]]
    assert index_arrays(acbo.prepare_static_args([[{"A"}]], [("A", "B")], ("B",)), 8, 4) is first


def test_the_page_on_errors_shows_all_four() -> None:
    text = (ROOT / "docs" / "acbo" / "errors.md").read_text(encoding="utf-8")
    for phrase in (
        "Non-hashable static arguments",
        "TracerBoolConversionError",
        "ConcretizationTypeError",
        "TracerIntegerConversionError",
        "JAX_DEBUG_NANS",
        "JAX_TRACEBACK_FILTERING=off",
        "XLA fuses",
        "bfloat16",
    ):
        assert phrase in text
    assert text.count("**Remedy.**") == 4


# --- end to end ---


def test_models_data_teacher_and_update_are_one_program() -> None:
    draw = ModelDraws(acbo.scms.linear_gaussian_prior((2, 3)), size=3, rows=10, observed=6, units=0)
    config = NetworkConfig("statistics", pair_width=8, layers=1, rank=2)
    with CompileWatch() as watch:
        trained = train(draw, config, LearningConfig(updates=4, batch=4), teach=exact_edges, chunk=4)
    assert watch["advance"].compiles == 1
    assert trained.history is not None
    assert np.isfinite(trained.history["total_loss"]).all()
    data, adjacency = draw(jr.key(0))
    labels = np.asarray(exact_edges(data))
    assert labels.shape == (3, 3)
    assert ((labels >= 0) & (labels <= 1)).all()
    assert not np.asarray(adjacency)[~np.asarray(data.live)].any()


def test_held_out_models_judge_and_calibrate() -> None:
    draw = benchmark_draws(4, 30, 20)
    cases = held_out(draw, models=40)
    assert cases.data.values.shape == (40, 30, 4)
    assert np.asarray(cases.data.intervened).any(-1).sum(1).tolist() == [10] * 40
    assert np.asarray(cases.possible).sum() == 40 * 12
    network = Network(NetworkConfig("statistics", pair_width=8, layers=1), key=jr.key(0))
    before = evaluate(network, cases)
    fitted = calibrate(network, cases, "vector")
    after = evaluate(fitted, cases)
    possible, edges = np.asarray(cases.possible), np.asarray(jax.nn.sigmoid(edge_logits(network, cases.data)))
    truth = np.asarray(cases.adjacency)
    assert before.auroc == pytest.approx(auroc(edges[possible], truth[possible]), abs=1e-4)
    each = [auroc(p[m], t[m]) for p, t, m in zip(edges, truth, possible, strict=True)]
    assert before.auroc_per_model == pytest.approx(np.mean(each), abs=1e-4)
    assert after.auroc == pytest.approx(before.auroc, abs=1e-3)
    assert after.cross_entropy < before.cross_entropy
    assert after.ece < before.ece
    assert "AUROC" in str(after)
    mixed = training_draws(5, 20, 12)
    counts, observed = jax.vmap(mixed._numbers)(jr.split(jr.key(0), 600))
    assert int(counts.max()) == 20 > int(counts.min()) >= 4
    assert bool(jnp.all(observed <= counts))
    assert float(jnp.mean((counts == 20) & (observed == 12))) == pytest.approx(0.5, abs=0.07)
    assert float(jnp.mean(observed == counts)) == pytest.approx(1 / 6, abs=0.07)
    with pytest.raises(ValueError, match="`observed`"):
        ModelDraws(acbo.scms.linear_gaussian_prior(3), rows=10, observed=11)
