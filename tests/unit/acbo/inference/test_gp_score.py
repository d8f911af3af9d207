"""The Gaussian-process score beside its definition in dense NumPy, and where it is worth more than the linear one."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from acbo_oracle import linear_data, nonlinear_data

from acbo.data import dataset
from acbo.inference import BGe, GaussianProcess, auroc, edge_mask, edge_posterior
from acbo.inference.parent_sets import all_others, set_table

pytestmark = pytest.mark.usefixtures("quick_compile")


def log_marginal(x: np.ndarray, y: np.ndarray, score: GaussianProcess) -> float:
    """The definition, with explicit inverses: a Student density with covariance K times rate / shape."""
    n, m = x.shape
    logs = []
    for length in score.lengths:
        for signal in score.signals:
            k = np.eye(n) + 1.0
            for a in range(n):
                for b in range(n):
                    if m:
                        gap = ((x[a] - x[b]) ** 2).sum()
                        k[a, b] += signal * (x[a] @ x[b] / m + math.exp(-gap / (2 * m * length**2)))
            df, scale = 2 * score.shape, k * score.rate / score.shape
            quadratic = y @ np.linalg.inv(scale) @ y
            logs.append(
                math.lgamma((df + n) / 2)
                - math.lgamma(df / 2)
                - n / 2 * math.log(df * math.pi)
                - np.linalg.slogdet(scale)[1] / 2
                - (df + n) / 2 * math.log1p(quadratic / df)
            )
    top = max(logs)
    if score.combine == "max":
        return top
    return top + math.log(np.mean(np.exp(np.array(logs) - top)))


@pytest.mark.parametrize(
    "score", [GaussianProcess(), GaussianProcess(combine="max", shape=2.0, rate=0.5, lengths=(1.0,))]
)
def test_equals_its_definition_on_the_rows_that_are_kept(score: GaussianProcess) -> None:
    _, values, mask = nonlinear_data(np.random.default_rng(0), 3, 12, 6)
    table = set_table(2, 2)
    standard = (values - values.mean(0)) / values.std(0)
    with jax.enable_x64(True):
        plain = dataset(jnp.asarray(values), jnp.asarray(mask))
        found = np.asarray(score.log_scores(plain, all_others(plain.live), table))
    for v in range(3):
        rows = ~mask[:, v]
        others = [u for u in range(3) if u != v]
        for s, members in enumerate(table.members):
            x = standard[np.ix_(rows, [u for u, m in zip(others, members, strict=True) if m])]
            np.testing.assert_allclose(found[v, s], log_marginal(x, standard[rows, v], score), atol=1e-9)
    single = dataset(jnp.asarray(values, jnp.float32), jnp.asarray(mask))
    np.testing.assert_allclose(score.log_scores(single, all_others(single.live), table), found, atol=2e-3)


def test_random_features_come_near_the_kernel() -> None:
    _, values, mask = nonlinear_data(np.random.default_rng(1), 3, 60, 0)
    plain = dataset(jnp.asarray(values, jnp.float32), jnp.asarray(mask))
    table, candidates = set_table(2, 2), all_others(plain.live)
    exact = GaussianProcess().log_scores(plain, candidates, table)
    errors = []
    for features in (16, 512):
        near = GaussianProcess(features=features).log_scores(plain, candidates, table)
        gains = (near - near[:, :1]) - (exact - exact[:, :1])
        errors.append(float(jnp.abs(gains).max()))
    assert errors[1] < errors[0]
    assert errors[1] < 4
    np.testing.assert_allclose(near[:, 0], exact[:, 0], atol=1e-3)


def quality(score: BGe | GaussianProcess, drawn: list[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> float:
    values = jnp.asarray(np.stack([values for _, values, _ in drawn]), jnp.float32)
    mask = jnp.asarray(np.stack([mask for _, _, mask in drawn]))
    truth = jnp.asarray(np.stack([graph for graph, _, _ in drawn]))
    many = jax.vmap(lambda v, m: dataset(v, m))(values, mask)
    edges = jax.lax.map(lambda one: edge_posterior(one, score).edges, many)
    every = jnp.broadcast_to(edge_mask(jnp.ones(truth.shape[-1], bool)), truth.shape)
    return float(auroc(edges, truth, every))


def test_beats_the_linear_score_on_nonlinear_models_and_loses_little_on_linear_ones() -> None:
    rng = np.random.default_rng(2)
    curved = [nonlinear_data(rng, 5, 40, 20) for _ in range(8)]
    score = GaussianProcess(lengths=(1.0,), signals=(3.0, 30.0))
    smooth, straight = quality(score, curved), quality(BGe(scale="data"), curved)
    assert smooth > straight + 0.05, (smooth, straight)
    assert smooth > 0.9
    lines = [linear_data(rng, 5, 40, 20) for _ in range(8)]
    assert quality(score, lines) > 0.9


@pytest.mark.parametrize(
    "wrong", [{"lengths": ()}, {"signals": (0.0,)}, {"combine": "best"}, {"features": 0}, {"rate": 0.0}]
)
def test_settings_are_checked(wrong: dict) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        GaussianProcess(**wrong)
