"""Metrics beside their definitions in plain loops: ties, padding, and what has no answer."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from acbo.inference import (
    auroc,
    brier,
    edge_mask,
    expected_calibration_error,
    f1,
    structural_hamming_distance,
    total_variation,
)

pytestmark = pytest.mark.usefixtures("quick_compile")


def drawn(seed: int, d: int = 6, coarse: bool = False) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Probabilities (many of them tied if coarse), truth, and a mask that leaves two variables out."""
    rng = np.random.default_rng(seed)
    scores = rng.random((d, d))
    if coarse:
        scores = np.round(scores * 4) / 4
    live = np.arange(d) != seed % d
    mask = live[:, None] & live[None, :] & ~np.eye(d, dtype=bool)
    return scores.astype(np.float32), rng.random((d, d)) < 0.4, mask


@pytest.mark.parametrize("coarse", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_auroc_counts_pairs_and_half_the_ties(seed: int, coarse: bool) -> None:
    scores, truth, mask = drawn(seed, coarse=coarse)
    positive, negative = scores[truth & mask], scores[~truth & mask]
    pairs = [1.0 if p > n else 0.5 if p == n else 0.0 for p in positive for n in negative]
    found = auroc(jnp.asarray(scores), jnp.asarray(truth), jnp.asarray(mask))
    np.testing.assert_allclose(found, np.mean(pairs), rtol=1e-6)


def test_decisions_are_scores_and_probabilities_are_no_edges() -> None:
    scores, truth, mask = map(jnp.asarray, drawn(0))
    for metric in (auroc, f1, brier, expected_calibration_error):
        found = metric(scores > 0.3, truth, mask)
        np.testing.assert_allclose(found, metric((scores > 0.3).astype(float), truth, mask), rtol=1e-6)
        assert 0 < float(found) < 1
    with pytest.raises(TypeError, match=r"`predicted` must be edges as booleans; got float32. Write `prob"):
        structural_hamming_distance(scores, truth)


def test_auroc_of_one_value_is_one_half_and_of_one_kind_nothing() -> None:
    truth = jnp.asarray([True, False, False])
    assert auroc(jnp.full(3, 0.7), truth) == 0.5
    assert auroc(jnp.asarray([1.0, 0.0, 0.5]), truth) == 1.0
    assert jnp.isnan(auroc(jnp.ones(3), jnp.ones(3, bool)))
    assert jnp.isnan(auroc(jnp.ones(3), truth, jnp.asarray([False, True, True])))


@pytest.mark.parametrize("seed", range(5))
def test_f1_is_the_harmonic_mean_of_precision_and_recall(seed: int) -> None:
    scores, truth, mask = drawn(seed)
    said = [(i, j) for i in range(6) for j in range(6) if mask[i, j] and scores[i, j] > 0.3]
    so = [(i, j) for i in range(6) for j in range(6) if mask[i, j] and truth[i, j]]
    hits = len(set(said) & set(so))
    precision, recall = hits / len(said), hits / len(so)
    found = f1(jnp.asarray(scores), jnp.asarray(truth), jnp.asarray(mask), threshold=0.3)
    np.testing.assert_allclose(found, 2 * precision * recall / (precision + recall), rtol=1e-6)


def test_f1_without_anything_to_find_is_1() -> None:
    nothing = jnp.zeros((3, 3), bool)
    assert f1(jnp.zeros((3, 3)), nothing) == 1
    assert f1(jnp.ones((3, 3)), nothing) == 0


@pytest.mark.parametrize("seed", range(5))
def test_shd_counts_pairs_that_are_joined_differently(seed: int) -> None:
    _, truth, mask = drawn(seed)
    _, said, _ = drawn(seed + 100)
    pairs = [(i, j) for i in range(6) for j in range(i) if mask[i, j]]
    different = sum((said[i, j], said[j, i]) != (truth[i, j], truth[j, i]) for i, j in pairs)
    found = structural_hamming_distance(jnp.asarray(said), jnp.asarray(truth), jnp.asarray(mask))
    assert int(found) == different


def test_shd_of_a_reversal_is_one() -> None:
    edge = jnp.zeros((3, 3), bool).at[0, 1].set(True)
    assert structural_hamming_distance(edge, edge.T) == 1
    assert structural_hamming_distance(edge, jnp.zeros((3, 3), bool)) == 1
    assert structural_hamming_distance(edge, edge) == 0


@pytest.mark.parametrize("seed", range(5))
def test_calibration_error_by_bins(seed: int) -> None:
    scores, truth, mask = drawn(seed)
    scores[0, 1], scores[1, 0] = 1.0, 0.0  # the ends belong to the outermost bins
    entries = [(float(s), bool(t)) for s, t in zip(scores[mask], truth[mask], strict=True)]
    error = 0.0
    for k in range(10):
        inside = [(s, t) for s, t in entries if min(int(np.float32(s) * 10), 9) == k]
        if inside:
            said, so = np.mean([s for s, _ in inside]), np.mean([t for _, t in inside])
            error += abs(said - so) * len(inside) / len(entries)
    found = expected_calibration_error(jnp.asarray(scores), jnp.asarray(truth), jnp.asarray(mask))
    np.testing.assert_allclose(found, error, rtol=1e-5)
    # The truth may be a probability too.
    soft = expected_calibration_error(jnp.asarray(scores), jnp.asarray(truth, jnp.float32), jnp.asarray(mask))
    np.testing.assert_allclose(soft, error, rtol=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_brier_and_total_variation(seed: int) -> None:
    scores, truth, mask = drawn(seed)
    other, _, _ = drawn(seed + 50)
    squares = [(s - t) ** 2 for s, t in zip(scores[mask], truth[mask], strict=True)]
    np.testing.assert_allclose(
        brier(jnp.asarray(scores), jnp.asarray(truth), jnp.asarray(mask)), np.mean(squares), rtol=1e-5
    )
    p, q = scores[0] / scores[0].sum(), other[0] / other[0].sum()
    np.testing.assert_allclose(
        total_variation(jnp.asarray(p), jnp.asarray(q)), 1 - np.minimum(p, q).sum(), rtol=1e-5
    )
    held = mask[0]
    np.testing.assert_allclose(
        total_variation(jnp.asarray(p), jnp.asarray(q), jnp.asarray(held)),
        np.abs(p - q)[held].sum() / 2,
        rtol=1e-5,
    )


def test_the_mask_of_a_model_and_the_value_of_padding() -> None:
    live = jnp.asarray([True, True, False, True])
    mask = edge_mask(live)
    assert mask.sum() == 6
    assert not mask[2].any()
    assert not mask[:, 2].any()
    assert not jnp.diagonal(mask).any()
    small, truth, _ = drawn(0, d=4)
    for metric in (auroc, f1, expected_calibration_error, brier):
        clean = metric(jnp.asarray(small), jnp.asarray(truth), mask)
        noisy = metric(jnp.where(mask, small, 0.99), jnp.where(mask, truth, True), mask)
        np.testing.assert_array_equal(clean, noisy)


def test_metrics_map_over_models() -> None:
    many = [drawn(seed) for seed in range(4)]
    scores, truth, mask = (jnp.asarray(np.stack(part)) for part in zip(*many, strict=True))
    for metric in (auroc, f1, expected_calibration_error, brier):
        mapped = jax.jit(jax.vmap(metric))(scores, truth, mask)
        single = [metric(s, t, m) for s, t, m in zip(scores, truth, mask, strict=True)]
        np.testing.assert_allclose(mapped, jnp.stack(single), rtol=1e-6)


def test_bins_are_checked() -> None:
    with pytest.raises(ValueError, match="`bins` must be at least 1; got 0"):
        expected_calibration_error(jnp.ones(2), jnp.ones(2, bool), bins=0)
