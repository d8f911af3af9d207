"""Whether effects bend: the test of straight lines, and the warning of `edge_posterior` that names the curved score."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from acbo.data import Dataset, dataset
from acbo.inference import BGe, edge_posterior, nonlinearity

pytestmark = pytest.mark.usefixtures("quick_compile")


def table(bend: float, seed: int = 0, rows: int = 120) -> Dataset:
    """x → z → y and w alone; z = x + bend · x²."""
    rng = np.random.default_rng(seed)
    x, w, e, f = rng.standard_normal((4, rows))
    z = x + bend * x**2 + 0.5 * e
    y = 0.9 * z + 0.5 * f
    return dataset(jnp.asarray(np.stack([40 + 7 * x, z, y, 1e-3 * w], 1), jnp.float32), target=2)


def test_a_bend_is_found_where_it_is() -> None:
    share = nonlinearity(table(0.8))
    assert share[0, 1] > 0.3
    assert share[3].max() == share[:, 3].max() == 0  # w has nothing to do with anything


def test_a_dependence_without_any_line_is_found() -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal(100)
    even = dataset(jnp.asarray(np.stack([x, x**2 + 0.3 * rng.standard_normal(100)], 1), jnp.float32))
    with pytest.warns(
        UserWarning, match=r"variable 0 explains 9\d% of what a line leaves of variable 1.*score='gp'"
    ):
        edge_posterior(even)


def test_straight_effects_are_left_alone() -> None:
    """Chance reports one straight table in a thousand; noise that is not normal may do so more often, and rarely does."""
    found = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        noise = (rng.standard_normal, rng.uniform, rng.laplace)[seed % 3]
        e = [noise(size=150) for _ in range(4)]
        e = [(one - one.mean()) / one.std() for one in e]
        x = e[0]
        z = x + 0.7 * e[1]
        values = np.stack([x, z, e[2] - z, e[3]], 1)
        edges = np.zeros((4, 4))
        edges[0, 1] = edges[1, 2] = 1.0
        found.append(nonlinearity(dataset(jnp.asarray(values, jnp.float32)), edges).max() > 0)
    assert np.mean(found) <= 0.05


def test_rows_in_which_the_effect_was_set_do_not_count() -> None:
    straight = table(0.0)
    values, touched = np.array(straight.values), np.zeros((120, 4), bool)
    touched[::2, 1] = True
    values[::2, 1] = 3 * ((values[::2, 0] - 40) / 7) ** 2  # as an experimenter might choose
    set_ = dataset(jnp.asarray(values), jnp.asarray(touched))
    edges = np.zeros((4, 4))
    edges[0, 1] = edges[1, 2] = 1.0
    assert nonlinearity(set_, edges)[:, 1].max() == 0
    assert nonlinearity(dataset(jnp.asarray(values)), edges)[0, 1] > 0.1


def test_padding_few_rows_constants_and_two_values_say_nothing() -> None:
    rng = np.random.default_rng(0)
    few = dataset(jnp.asarray(rng.standard_normal((9, 3)), jnp.float32))
    assert nonlinearity(few, np.zeros((3, 3))).max() == 0
    x = rng.integers(0, 2, 80).astype(float)
    both = np.stack([x, np.ones(80), x + 0.1 * rng.standard_normal(80)], 1)
    assert nonlinearity(dataset(jnp.asarray(both, jnp.float32)), np.zeros((3, 3))).max() == 0


def test_the_warning_belongs_to_linear_scores_and_plain_calls() -> None:
    bent = table(0.8)
    with pytest.warns(UserWarning, match="score='gp'"):
        edge_posterior(bent, BGe())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        jax.jit(lambda data: edge_posterior(data).edges)(bent)
        edge_posterior(table(0.0))
