"""The network: what must not matter does not, and what it computes agrees with plain NumPy."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from acbo_linear import LinearModels

from acbo.data import Dataset
from acbo.inference.parent_sets import count_sets, set_table
from acbo.surrogate.heads import candidate_sets, set_logits
from acbo.surrogate.layers import MASKED, NetworkConfig
from acbo.surrogate.network import Network, count_parameters
from acbo.surrogate.statistics import pair_statistics, spd_inverse, standardise
from jaxworlds.compiling import CompileWatch

pytestmark = pytest.mark.usefixtures("quick_compile")

SMALL = {"width": 16, "pair_width": 16, "layers": 2, "heads": 2, "rank": 4}


def network(encoder: str, **changes) -> Network:
    """A small network whose answers differ clearly between edges."""
    made = Network(NetworkConfig(**(SMALL | {"encoder": encoder} | changes)), key=jr.key(3))
    return eqx.tree_at(
        lambda n: (n.edge.weight, n.sets.weight), made, (made.edge.weight * 10, made.sets.weight * 3)
    )


def problem(seed: int = 0, variables: int = 5, rows: int = 30) -> Dataset:
    data, _ = LinearModels(variables, observed=rows // 2, experiments=rows - rows // 2).one(seed)
    return data


@eqx.filter_jit
def answer(net: Network, data: Dataset) -> dict[str, jax.Array]:
    found = net(data)
    return {
        "edges": found.edges,
        "single": jax.nn.sigmoid(found.single_logits),
        "factors": found.factors,
        "sets": jax.nn.softmax(found.parent_set_logits(max_size=2)),
    }


@eqx.filter_jit
def slope(net: Network, data: Dataset) -> tuple[jax.Array, Network]:
    """The sum of the logits that are there, and its gradient."""

    def total(net: Network) -> jax.Array:
        logits = net(data).edge_logits
        return jnp.where(logits > MASKED, logits, 0.0).sum()

    return jax.value_and_grad(total)(net)


def padded(data: Dataset, rows: int, variables: int, garbage: float = 0.0) -> Dataset:
    n, d = data.values.shape
    values = np.full((n + rows, d + variables), garbage, np.float32)
    values[:n, :d] = data.values
    grow = ((0, rows), (0, variables))
    return Dataset(
        jnp.asarray(values),
        jnp.pad(data.intervened, grow),
        jnp.pad(data.rows, grow[0]),
        jnp.pad(data.live, grow[1]),
        data.target,
    )


ENCODERS = pytest.mark.parametrize("encoder", ["axial", "statistics"])


@ENCODERS
def test_permuting_variables_permutes_the_answer(encoder: str) -> None:
    net, data = network(encoder), problem()
    order = np.array([3, 0, 4, 2, 1])
    moved = Dataset(
        data.values[:, order],
        data.intervened[:, order],
        data.rows,
        data.live[order],
        jnp.int32(list(order).index(0)),
    )
    there, here = answer(net, moved), answer(net, data)
    for name in ("edges", "single", "factors"):
        np.testing.assert_allclose(there[name], here[name][order][:, order], atol=2e-5)
    assert np.ptp(here["edges"][~np.eye(5, dtype=bool)]) > 0.05  # the answer is not one number for all


@ENCODERS
def test_rows_in_any_order_and_padding_change_nothing(encoder: str) -> None:
    net, data = network(encoder), problem()
    here = answer(net, data)
    shuffled = np.random.default_rng(0).permutation(30)
    there = answer(
        net, Dataset(data.values[shuffled], data.intervened[shuffled], data.rows, data.live, data.target)
    )
    for name in here:
        np.testing.assert_allclose(there[name], here[name], atol=1e-6, err_msg=name)
    there = answer(net, padded(data, 11, 3, garbage=50.0))
    for name in ("edges", "single", "factors"):
        np.testing.assert_allclose(there[name][:5, :5], here[name], atol=1e-6, err_msg=name)
    assert float(jnp.abs(there["edges"][5:]).sum() + jnp.abs(there["edges"][:, 5:]).sum()) == 0
    listed = np.asarray(candidate_sets(8, 2, jnp.int32(0)))
    real = ~listed[:, 5:].any(1)
    np.testing.assert_allclose(there["sets"][real], here["sets"], atol=1e-6)
    assert (np.asarray(there["sets"])[~real] == 0).all()


@ENCODERS
def test_units_and_origins_cannot_be_seen(encoder: str) -> None:
    net, data = network(encoder), problem()
    scale, origin = jnp.array([100.0, 0.01, 3.0, 1.0, -7.0]), jnp.array([5.0, -1.0, 0.0, 30.0, 2.0])
    other = eqx.tree_at(lambda d: d.values, data, data.values * jnp.abs(scale) + origin)
    np.testing.assert_allclose(answer(net, other)["edges"], answer(net, data)["edges"], atol=1e-4)


def test_values_have_mean_zero_and_variance_one_where_left_alone() -> None:
    data = problem()
    x = np.asarray(standardise(eqx.tree_at(lambda d: d.values, data, data.values * 9 + 4)))
    for column, was_set in zip(x.T, np.asarray(data.intervened).T, strict=True):
        np.testing.assert_allclose(column[~was_set].mean(), 0, atol=1e-5)
        np.testing.assert_allclose(column[~was_set].var(), 1, atol=1e-4)
    constant = eqx.tree_at(lambda d: d.values, data, jnp.full_like(data.values, 1234.5))
    assert float(jnp.abs(standardise(constant)).max()) == 0
    with jax.enable_x64(True):  # small beside its mean, and well resolved there
        far = eqx.tree_at(lambda d: d.values, data, jnp.asarray(np.asarray(data.values, float) + 1e9))
        np.testing.assert_allclose(standardise(far), standardise(data), atol=1e-4)
    always = eqx.tree_at(lambda d: d.intervened, data, jnp.ones_like(data.intervened))
    np.testing.assert_allclose(np.asarray(standardise(always)).var(0), 1, atol=1e-4)


def test_statistics_agree_with_numpy() -> None:
    data = problem(seed=4, variables=4, rows=60)
    x, was_set = np.asarray(standardise(data), np.float64), np.asarray(data.intervened)
    found = np.asarray(pair_statistics(data, standardise(data)))
    i, j = 1, 2
    free = ~was_set[:, j]

    def ridged(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        correlation = np.corrcoef(x[rows].T)
        ridge = 0.02 + 0.1 * 4 / (rows.sum() + 1)
        inverse = np.linalg.inv(correlation + ridge * np.eye(4))
        spread = 1 / np.sqrt(np.diag(inverse))
        return correlation, -inverse * np.outer(spread, spread)

    alone = ~was_set.any(1)
    np.testing.assert_allclose(found[i, j, 0], ridged(alone)[0][i, j], atol=1e-4)
    np.testing.assert_allclose(found[i, j, 1], ridged(alone)[1][i, j], atol=1e-4)
    np.testing.assert_allclose(found[i, j, 3], ridged(free)[0][i, j], atol=1e-4)
    np.testing.assert_allclose(found[i, j, 5], ridged(free)[1][i, j], atol=1e-4)
    # What setting i did to j: through the origin of the observations.
    y = x - x[alone].sum(0) / (alone.sum() + 1)
    rows = was_set[:, i] & free
    assert rows.sum() >= 3
    cross, cause = (y[rows, i] * y[rows, j]).sum(), (y[rows, i] ** 2).sum()
    np.testing.assert_allclose(found[i, j, 10], np.arcsinh(cross / np.sqrt(cause + 1e-3)), atol=1e-4)
    np.testing.assert_allclose(found[i, j, 12], np.arcsinh(cross / (cause + 0.1)), atol=1e-4)
    np.testing.assert_allclose(found[i, j, 16], np.log1p(rows.sum()) / 5, atol=1e-6)
    bounded = np.clip(x, -4, 4)
    np.testing.assert_allclose(
        found[i, j, 17], np.arcsinh((bounded[free, i] ** 2 * bounded[free, j]).mean()), atol=1e-4
    )
    half = found.shape[-1] // 2
    np.testing.assert_array_equal(found[..., half:], found[..., :half].swapaxes(0, 1))


def test_the_inverse_of_many_small_matrices() -> None:
    a = np.random.default_rng(0).standard_normal((3, 7, 20))
    matrix = (a @ a.swapaxes(-1, -2) / 20 + 0.1 * np.eye(7)).astype(np.float32)
    np.testing.assert_allclose(spd_inverse(jnp.asarray(matrix)), np.linalg.inv(matrix), rtol=2e-3, atol=2e-3)


def first(data: Dataset, size: int) -> Dataset:
    """The first variables of a problem, the others made padding."""
    live = jnp.arange(data.size) < size
    return Dataset(data.values * live, data.intervened & live, data.rows, live, data.target)


def test_one_compilation_serves_models_of_all_sizes_in_a_bucket() -> None:
    net = network("statistics")

    @eqx.filter_jit
    def predict(net: Network, data: Dataset) -> jax.Array:
        return net(data).edges

    with CompileWatch() as watch:
        for seed in range(12):
            size = 3 + seed % 6
            data = first(problem(seed, 8), size)
            edges = predict(net, eqx.tree_at(lambda d: d.target, data, jnp.int32(seed % size)))
            assert edges.shape == (8, 8)
    assert watch["predict"].compiles == 1


@ENCODERS
def test_the_program_is_as_long_for_many_layers_as_for_one(encoder: str) -> None:
    def lines(layers: int) -> int:
        net = eqx.filter_eval_shape(lambda: network(encoder, layers=layers))
        step = jax.jit(jax.grad(lambda n, data: n(data).edge_logits.sum()))
        return step.lower(net, problem()).as_text().count("\n")

    assert lines(12) == lines(2)


def test_recomputing_activations_changes_no_gradient() -> None:
    plain, lean = network("axial"), network("axial", remat="dots")
    for a, b in zip(*(jax.tree.leaves(slope(n, problem())[1]) for n in (plain, lean)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@ENCODERS
def test_half_precision_is_near_and_parameters_stay_whole(encoder: str) -> None:
    whole, half = network(encoder), network(encoder, precision="bfloat16")
    assert {leaf.dtype for leaf in jax.tree.leaves(half)} == {jnp.dtype("float32")}
    gaps = [
        np.abs(answer(whole, data)["edges"] - answer(half, data)["edges"]).max()
        for data in (problem(seed) for seed in range(4))
    ]
    assert 0 < max(gaps) < 0.05
    assert answer(half, problem())["edges"].dtype == jnp.float32


def test_dropout_needs_a_key_and_without_one_nothing_is_dropped() -> None:
    net, data = network("axial", dropout=0.3), problem()
    dropped = eqx.filter_jit(lambda key: net(data, key=key).edges)
    assert np.abs(dropped(jr.key(0)) - dropped(jr.key(1))).max() > 1e-3
    np.testing.assert_array_equal(dropped(jr.key(0)), dropped(jr.key(0)))
    np.testing.assert_allclose(answer(net, data)["edges"], answer(network("axial"), data)["edges"], atol=1e-6)


@ENCODERS
def test_data_of_no_rows_or_no_variation_give_finite_answers_and_gradients(encoder: str) -> None:
    net, data = network(encoder), problem()
    empty = eqx.tree_at(
        lambda d: (d.rows, d.intervened), data, (jnp.zeros(30, bool), jnp.zeros((30, 5), bool))
    )
    still = eqx.tree_at(lambda d: d.values, data, jnp.ones((30, 5)))
    for hard in (empty, still):
        value, gradient = slope(net, hard)
        assert np.isfinite(value)
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


def test_the_default_network_has_the_size_that_was_promised() -> None:
    shapes = eqx.filter_eval_shape(lambda: Network(key=jr.key(0)))
    assert 4 * sum(np.prod(leaf.shape) for leaf in jax.tree.leaves(shapes)) < 4e6
    assert count_parameters(network("statistics")) < count_parameters(network("axial"))


def test_settings_are_refused_with_a_remedy() -> None:
    with pytest.raises(
        ValueError, match=r"`width` must be a multiple of `heads`; got 16 and 5. Try `heads=4`"
    ):
        NetworkConfig(width=16, heads=5)
    with pytest.raises(ValueError, match="float16 overflows"):
        NetworkConfig(precision="float16")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="`dropout`"):
        NetworkConfig(dropout=1.0)
    assert NetworkConfig() == NetworkConfig()


# --- parent sets ---


def test_candidate_sets_are_all_sets_without_the_target() -> None:
    for d, most in ((2, 1), (4, 2), (6, 3)):
        for target in range(d):
            found = {
                tuple(np.flatnonzero(row)) for row in np.asarray(candidate_sets(d, most, jnp.int32(target)))
            }
            others = [v for v in range(d) if v != target]
            assert found == {s for k in range(most + 1) for s in itertools.combinations(others, k)}
            assert len(candidate_sets(d, most, jnp.int32(target))) == count_sets(d - 1, most)
    assert [len(candidate_sets(d, 3, jnp.int32(0))) for d in (5, 8, 10, 20)] == [
        15,
        64,
        130,
        1160,
    ]  # ledger 8.4


def test_set_logits_are_sums_over_members_and_pairs() -> None:
    rng = np.random.default_rng(1)
    single, factors = (
        rng.standard_normal(5).astype(np.float32),
        rng.standard_normal((5, 4)).astype(np.float32),
    )
    allowed = np.array([True, True, False, True, True])
    sets = set_table(5, 5).members
    found = set_logits(jnp.asarray(single), jnp.asarray(factors), jnp.asarray(sets), jnp.asarray(allowed))
    for row, value in zip(sets, np.asarray(found), strict=True):
        members = np.flatnonzero(row)
        want = single[members].sum()
        for i, j in itertools.combinations(members, 2):
            products = factors[i] * factors[j]
            want += products[:2].sum() - products[2:].sum()
        assert value == pytest.approx(want if allowed[members].all() else MASKED, abs=1e-4)


def test_without_factors_sets_are_a_product_of_bernoullis() -> None:
    single = jnp.array([0.3, -1.0, 2.0])
    logits = set_logits(single, jnp.zeros((3, 2)), jnp.asarray(set_table(3, 3).members), jnp.ones(3, bool))
    p = 1 / (1 + np.exp(-np.asarray(single)))
    want = [np.prod(np.where(row, p, 1 - p)) for row in set_table(3, 3).members]
    np.testing.assert_allclose(jax.nn.softmax(logits), want, atol=1e-6)


def test_parent_logits_are_a_column_of_the_edges() -> None:
    found = eqx.filter_jit(lambda net, data: net(data))(network("statistics"), problem())
    np.testing.assert_array_equal(found.parent_logits(), found.edge_logits[:, 0])
    np.testing.assert_array_equal(found.parent_logits(3), found.edge_logits[:, 3])
    assert found.parent_set_logits(max_size=3).shape == (count_sets(4, 3),)
