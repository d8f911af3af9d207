"""The losses against closed forms in NumPy, and the calibration against a general minimizer."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from acbo_linear import LinearModels

from acbo.guide import (
    ParentSetPosterior,
    calibrated_loss,
    kl_divergence_loss,
    kl_divergence_loss_jax,
    multi_target_loss,
    uncertainty_weighted_loss,
    uncertainty_weighted_loss_jax,
)
from acbo.inference.parent_sets import set_table
from acbo.surrogate import (
    Calibration,
    Network,
    NetworkConfig,
    Surrogate,
    edge_loss,
    fit_calibration,
    load_weights,
    pretrained,
    save_weights,
)
from acbo.surrogate.heads import parent_set_loss
from acbo.surrogate.layers import MASKED
from acbo.surrogate.weights import read_metadata

pytestmark = pytest.mark.usefixtures("quick_compile")

LOGITS = np.array([0.5, -1.0, 2.0, 0.0])
EXPERT = np.array([0.2, 0.0, 0.7, 0.1])
SETS = [frozenset(), frozenset("A"), frozenset("B"), frozenset("AB")]
POSTERIOR = dict(zip(SETS, EXPERT.tolist(), strict=True))


def kl(logits: np.ndarray, expert: np.ndarray, temperature: float = 1.0) -> float:
    """The textbook formula, in float64."""
    q = np.exp(logits / temperature) / np.exp(logits / temperature).sum()
    real = expert > 0
    return float((expert[real] * np.log(expert[real] / q[real])).sum())


def doubt(p: np.ndarray) -> float:
    return float(-(p[p > 0] * np.log(p[p > 0])).sum())


@pytest.mark.parametrize("temperature", [1.0, 0.5, 3.0])
def test_kl_is_the_textbooks(temperature: float) -> None:
    want = kl(LOGITS, EXPERT, temperature)
    logits, expert = jnp.asarray(LOGITS, jnp.float32), jnp.asarray(EXPERT, jnp.float32)
    arrays = kl_divergence_loss_jax(logits, expert, None, temperature=temperature)
    objects = kl_divergence_loss(logits, POSTERIOR, SETS, temperature=temperature)
    np.testing.assert_allclose(arrays, want, atol=1e-6)
    np.testing.assert_allclose(objects, arrays, atol=1e-6)


def test_an_expert_in_doubt_counts_less() -> None:
    logits, expert = jnp.asarray(LOGITS, jnp.float32), jnp.asarray(EXPERT, jnp.float32)
    for scale in (1.0, 0.3):
        want = np.exp(-doubt(EXPERT) * scale) * kl(LOGITS, EXPERT)
        found = uncertainty_weighted_loss_jax(logits, expert, None, weight_scale=scale)
        np.testing.assert_allclose(found, want, atol=1e-6)
        again = uncertainty_weighted_loss(
            logits, ParentSetPosterior("Y", POSTERIOR), SETS, weight_scale=scale
        )
        np.testing.assert_allclose(again, found, atol=1e-6)


def test_calibrated_loss_adds_how_far_doubt_is_from_error() -> None:
    q = np.exp(LOGITS) / np.exp(LOGITS).sum()
    want = kl(LOGITS, EXPERT) + 0.1 * (doubt(q) - 0.5 * np.abs(q - EXPERT).sum()) ** 2
    found = calibrated_loss(jnp.asarray(LOGITS, jnp.float32), POSTERIOR, SETS)
    np.testing.assert_allclose(found, want, atol=1e-6)


def test_several_targets_are_averaged_by_weight() -> None:
    other = np.array([1.0, 0.0, 0.0, 0.0])
    logits = {"Y": jnp.asarray(LOGITS, jnp.float32), "A": jnp.asarray(-LOGITS, jnp.float32)}
    experts = {"Y": POSTERIOR, "A": jnp.asarray(other, jnp.float32)}
    sets = {"Y": SETS, "A": SETS}
    each = np.array([kl(LOGITS, EXPERT), kl(-LOGITS, other)])
    np.testing.assert_allclose(multi_target_loss(logits, experts, sets), each.mean(), atol=1e-6)
    weighted = multi_target_loss(logits, experts, sets, {"A": 1.0, "Y": 3.0})
    np.testing.assert_allclose(weighted, (3 * each[0] + each[1]) / 4, atol=1e-6)
    listed = multi_target_loss(*(list(part.values()) for part in (logits, experts, sets)))
    np.testing.assert_allclose(listed, each.mean(), atol=1e-6)
    with pytest.raises(ValueError, match="one entry per target"):
        multi_target_loss([], [], [])


def test_extreme_certainty_stays_finite_with_its_gradient() -> None:
    for logits in (jnp.array([1e4, -1e4, 0.0]), jnp.array([MASKED, 0.0, 1.0])):
        for expert in (jnp.array([0.0, 1.0, 0.0]), jnp.array([1e-30, 1.0, 1e-13])):
            for loss in (kl_divergence_loss_jax, uncertainty_weighted_loss_jax, calibrated_loss):
                value, slope = jax.value_and_grad(loss)(logits, expert, None)
                assert np.isfinite(value)
                assert np.isfinite(slope).all()


def test_losses_batch_as_the_guide_writes_it() -> None:
    logits = jr.normal(jr.key(0), (5, 4))
    experts = jax.nn.softmax(jr.normal(jr.key(1), (5, 4)))
    batched = jax.vmap(kl_divergence_loss_jax, in_axes=(0, 0, None))(logits, experts, SETS)
    want = [
        kl(np.asarray(a, np.float64), np.asarray(b, np.float64)) for a, b in zip(logits, experts, strict=True)
    ]
    np.testing.assert_allclose(batched, want, atol=1e-5)


def test_a_posterior_is_conditioned_on_the_listed_sets_and_must_know_one() -> None:
    wide = POSTERIOR | {frozenset("C"): 1.0}
    wide = {members: p / 2 for members, p in wide.items()}
    found = kl_divergence_loss(jnp.asarray(LOGITS, jnp.float32), wide, SETS)
    np.testing.assert_allclose(found, kl(LOGITS, EXPERT), atol=1e-6)
    with pytest.raises(ValueError, match="same names"):
        kl_divergence_loss(jnp.zeros(1), {frozenset("Q"): 1.0}, [frozenset("A")])
    with pytest.raises(TypeError, match="array of probabilities, or a mapping"):
        kl_divergence_loss(jnp.zeros(1), 0.5, [frozenset("A")])
    with pytest.raises(ValueError, match="sum to 1"):
        ParentSetPosterior("Y", {frozenset(): 0.4})


def test_edge_loss_is_the_mean_cross_entropy_of_live_pairs() -> None:
    logits = np.asarray(jr.normal(jr.key(2), (4, 4)))
    labels = np.asarray(jr.uniform(jr.key(3), (4, 4)))
    live = np.array([True, True, True, False])
    want = []
    for i in range(3):
        for j in range(3):
            if i != j:
                p = 1 / (1 + np.exp(-logits[i, j]))
                want.append(-labels[i, j] * np.log(p) - (1 - labels[i, j]) * np.log(1 - p))
    found = edge_loss(jnp.asarray(logits), jnp.asarray(labels), jnp.asarray(live))
    np.testing.assert_allclose(found, np.mean(want), rtol=1e-5)


def test_parent_set_loss_is_the_surprise_at_the_true_parents() -> None:
    net = Network(NetworkConfig("statistics", pair_width=16, layers=1), key=jr.key(0))
    data, adjacency = LinearModels(4).one(5)
    found = jax.jit(lambda n, d: n(d))(net, data)
    adjacency = np.asarray(adjacency)
    want = []
    for j in range(4):
        sets = [row for row in set_table(4, 2).members if not row[j]]
        logits = np.asarray(found.parent_set_logits(jnp.asarray(np.array(sets)), target=j), np.float64)
        if adjacency[:, j].sum() <= 2:
            true = next(s for s, row in enumerate(sets) if (row == adjacency[:, j]).all())
            want.append(np.log(np.exp(logits).sum()) - logits[true])
    loss = jax.jit(parent_set_loss, static_argnums=2)(found, jnp.asarray(adjacency), 2)
    np.testing.assert_allclose(loss, np.mean(want) / 3, rtol=1e-5)


# --- calibration ---


def sample(scale: float, shift: float) -> tuple[jax.Array, jax.Array]:
    logits = 2 * jr.normal(jr.key(0), (200, 10, 10))
    labels = jr.bernoulli(jr.key(1), jax.nn.sigmoid(scale * logits + shift))
    return logits, labels


def test_calibration_finds_what_distorted_the_logits() -> None:
    found = fit_calibration(*sample(0.5, 0.0))
    assert float(found.scale) == pytest.approx(0.5, abs=0.03)
    assert float(found.temperature) == pytest.approx(2.0, abs=0.1)
    assert float(found.shift) == 0
    found = fit_calibration(*sample(1.6, -0.7), kind="vector")
    assert (float(found.scale), float(found.shift)) == pytest.approx((1.6, -0.7), abs=0.08)


def test_calibration_is_the_minimum_of_the_cross_entropy() -> None:
    from scipy.optimize import minimize

    logits, labels = (np.asarray(a, np.float64).ravel() for a in sample(0.7, 0.4))

    def loss(p: np.ndarray) -> float:
        z = p[0] * logits + p[1]
        return float(np.mean(np.logaddexp(0, z) - labels * z))

    best = minimize(loss, [1.0, 0.0]).x
    found = fit_calibration(*sample(0.7, 0.4), kind="vector")
    np.testing.assert_allclose([found.scale, found.shift], best, atol=1e-3)


def test_calibration_leaves_the_impossible_impossible() -> None:
    logits = jnp.array([[MASKED, 1.0], [0.0, MASKED]])
    found = Calibration(0.1, 3.0)(logits)
    np.testing.assert_allclose(found, [[MASKED, 3.1], [3.0, MASKED]], rtol=1e-6)
    alone = fit_calibration(jnp.array([2.0, MASKED, 2.0, 2.0, 2.0]), jnp.array([1.0, 0.0, 0.0, 1.0, 1.0]))
    assert float(jax.nn.sigmoid(alone(jnp.array(2.0)))) == pytest.approx(0.75, abs=1e-3)
    # Logits that rank edges backwards are worth nothing: the scale rests at its limit, the shift gives the share of edges.
    backwards = fit_calibration(
        jnp.array([3.0, 2.0, -2.0, -1.0]), jnp.array([0.0, 0.0, 1.0, 0.0]), kind="vector"
    )
    assert float(backwards.scale) == pytest.approx(0.01)
    assert float(jax.nn.sigmoid(backwards.shift)) == pytest.approx(0.25, abs=0.01)
    with pytest.raises(ValueError, match="`kind`"):
        fit_calibration(logits, logits, kind="platt")  # pyright: ignore[reportArgumentType]


# --- weights ---


def test_weights_come_back_as_they_were(tmp_path) -> None:
    config = NetworkConfig(width=8, pair_width=8, layers=2, heads=2, rank=2, precision="bfloat16")
    made = Surrogate(Network(config, key=jr.key(7)), Calibration(0.9, 0.1))
    path = save_weights(tmp_path / "w.safetensors", made, {"seed": 7, "command": "python -m x"})
    back = load_weights(path)
    assert back.network.config == config
    for a, b in zip(jax.tree.leaves(made), jax.tree.leaves(back), strict=True):
        np.testing.assert_array_equal(a, b)
    assert read_metadata(path)["metadata"] == {"seed": 7, "command": "python -m x"}
    data, _ = LinearModels(3).one(0)
    predict = jax.jit(lambda model, data: model(data).edge_logits)
    np.testing.assert_array_equal(predict(made, data), predict(back, data))
    raw = predict(made.network, data)
    off = ~np.eye(3, dtype=bool)
    np.testing.assert_allclose(predict(made, data)[off], (0.9 * raw + 0.1)[off], rtol=1e-6)


def test_numbers_of_numpy_and_jax_in_settings_and_story_are_saved(tmp_path) -> None:
    config = NetworkConfig(width=8, pair_width=8, layers=1, heads=2, rank=2)
    made = Surrogate(Network(config, key=jr.key(7)), Calibration())
    object.__setattr__(config, "rank", np.int64(2))  # as users may give it: the tests check types
    story = {"loss": np.float32(0.5), "step": jnp.int32(3), "rows": np.array(4)}
    path = save_weights(tmp_path / "w.safetensors", made, story)
    assert read_metadata(path)["metadata"] == {"loss": 0.5, "step": 3, "rows": 4}
    assert load_weights(path).network.config.rank == 2
    with pytest.raises(TypeError, match="`metadata` must hold texts and numbers"):
        save_weights(path, made, {"losses": np.zeros(3)})


def test_files_that_are_no_weights_are_refused(tmp_path) -> None:
    with pytest.raises(FileNotFoundError, match="must be an existing file"):
        load_weights(tmp_path / "none.safetensors")
    (tmp_path / "bad.safetensors").write_bytes(b"\x02\0\0\0\0\0\0\0{}")
    with pytest.raises(ValueError, match="header cannot be used: it has no '__metadata__'"):
        load_weights(tmp_path / "bad.safetensors")
    import safetensors.numpy

    safetensors.numpy.save_file({"x": np.zeros(2)}, tmp_path / "other.safetensors", {"format": "else"})
    with pytest.raises(ValueError, match="its format is 'else'"):
        load_weights(tmp_path / "other.safetensors")
    with pytest.raises(ValueError, match="got 'no such weights'"):
        pretrained("no such weights")
