"""Causal models as arrays: sampling, noise, interventions and random models beside plain NumPy loops."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import scm_oracle

from acbo.guide import (
    DIFFICULTIES,
    collect_observational_data,
    difficulty_prior,
    generate_scm_for_difficulty,
)
from acbo.scms import (
    FAMILIES,
    MECHANISMS,
    NOISES,
    CausalModel,
    Intervention,
    allowed,
    combine,
    cost,
    draw_noise,
    hard,
    linear_gaussian_prior,
    linear_scm,
    nothing,
    pad,
    parse_model,
    permute,
    propagate,
    random_graph,
    random_interventions,
    sample,
    sample_mixed,
    sample_scm,
    scm_prior,
    shift,
    soft,
)
from acbo.scms.draws import Draws, below, choose
from acbo.scms.families import draw_graph, graph_draws
from acbo.scms.mechanisms import cosine, standard_noise

DRAWN = MECHANISMS[:4]

pytestmark = pytest.mark.usefixtures("quick_compile")


def one(key: int, size: int = 8, units: int = 4, **choices):
    return sample_scm(jr.key(key), scm_prior(variables=(5, 7), **choices), size, units)


@pytest.mark.parametrize("mechanism", DRAWN)
@pytest.mark.parametrize("noise", NOISES)
def test_values_are_those_of_a_loop_over_rows_and_variables(mechanism: str, noise: str) -> None:
    scm = one(3, mechanisms=mechanism, noises=noise, bias=(-1, 1))
    draws = draw_noise(scm, jr.key(1), 6)
    key_mask, key_value, key_strength = jr.split(jr.key(2), 3)
    mask = jr.bernoulli(key_mask, 0.3, draws.shape)
    value, strength = jr.normal(key_value, draws.shape), jr.uniform(key_strength, draws.shape)
    done = Intervention(mask, value, strength, 0.3 * value)
    host = jax.device_get(scm)
    np.testing.assert_allclose(
        propagate(scm, draws), scm_oracle.propagate(host, np.asarray(draws)), rtol=1e-4, atol=1e-5
    )
    expected = scm_oracle.propagate(
        host, *(np.asarray(a) for a in (draws, mask, value, strength, 0.3 * value))
    )
    np.testing.assert_allclose(propagate(scm, draws, done), expected, rtol=1e-4, atol=1e-5)
    kinds = {MECHANISMS[k] for k in np.asarray(scm.mechanism.kind)[np.asarray(scm.adjacency.any(0))]}
    assert kinds == {mechanism}


def test_mixed_kinds_stand_side_by_side_in_one_model() -> None:
    scm = sample_scm(jr.key(1), scm_prior("chain", variables=(8, 8)), 8, 4)
    assert len(set(np.asarray(scm.mechanism.kind)[np.asarray(scm.adjacency.any(0))])) >= 3
    draws = draw_noise(scm, jr.key(1), 4)
    expected = scm_oracle.propagate(jax.device_get(scm), np.asarray(draws))
    np.testing.assert_allclose(propagate(scm, draws), expected, rtol=1e-4, atol=1e-5)


def test_double_precision_is_double() -> None:
    with jax.enable_x64(True):
        scm = sample_scm(jr.key(1), scm_prior(variables=(5, 5)), 8, 4)
        data = sample_mixed(scm, jr.key(0), 4, 2)
        draws = draw_noise(scm, jr.key(1), 4)
        x = np.asarray(propagate(scm, draws))
        assert {data.values.dtype, x.dtype, scm.low.dtype} == {np.dtype(np.float64)}
        assert {scm.order.dtype, scm.target.dtype} == {np.dtype(np.int32)}
        expected = scm_oracle.propagate(jax.device_get(scm), np.asarray(draws))
    np.testing.assert_allclose(x, expected, rtol=1e-12, atol=1e-12)


def test_values_stay_finite_and_do_cuts_those_that_grew_beyond_bounds() -> None:
    model = parse_model("A = N(0, 1); B = exp(100 + A); C = 1e10*B*B; D = 2*C; Y = D + cos(B); target Y")
    x = np.asarray(model.sample(5, 0, {"D": 1.0}).values)[:, :5]
    assert (x[:, 2] == np.float32(1e10)).all()
    assert (x[:, 3] == 1).all()
    assert (np.abs(x[:, 4] - 1) <= 1).all()


def test_the_cosine_of_units_is_the_cosine() -> None:
    z = np.linspace(-300, 300, 100_001, dtype=np.float32)
    np.testing.assert_allclose(cosine(jnp.asarray(z)), np.cos(z.astype(float)), atol=2e-6)
    slope = jax.vmap(jax.grad(cosine))(jnp.asarray(z[::100]))
    np.testing.assert_allclose(slope, -np.sin(z[::100].astype(float)), atol=1e-4)


def test_noise_has_the_moments_of_its_kind() -> None:
    # Kurtosis: 3 Gaussian, 6 Laplace, 9/5 uniform.
    u = (np.arange(400_000) + 0.5) / 200_000 - 1
    kinds = jnp.arange(4, dtype=jnp.int32)
    x = np.asarray(standard_noise(kinds[:, None], jnp.asarray(np.stack([u] * 4), jnp.float32)), float).T
    np.testing.assert_allclose(x.mean(0), 0, atol=1e-3)
    np.testing.assert_allclose((x**2).mean(0), 1, rtol=1e-3)
    np.testing.assert_allclose((x**4).mean(0), [3, 6, 1.8, 3], rtol=5e-3)
    np.testing.assert_array_equal(x[:, 0], x[:, 3])


def test_heteroscedastic_noise_grows_with_the_parents() -> None:
    scm = linear_scm(jnp.zeros((2, 2)).at[0, 1].set(1.0), 0.5)
    wide = scm.noise.spread.at[0, 1].set(2.0)
    scm = eqx.tree_at(lambda s: s.noise.spread, scm, wide)
    done = hard(jnp.array([True, False]), jnp.array([3.0, 0.0]))
    y = np.asarray(sample(scm, done, jr.key(0), 20_000).values[:, 1])
    assert y.std() == pytest.approx(0.5 * np.sqrt(1 + 36), rel=0.02)


def test_a_dataset_says_what_was_touched_and_hides_what_is_hidden() -> None:
    scm = one(5, mechanisms="linear", hidden=0.6)
    hidden = np.asarray(scm.live & ~scm.observed)
    assert hidden.any()
    with pytest.raises(ValueError, match=r"shape \(8,\), or \(10, 8\) for one per row; got \(9, 8\)"):
        sample(scm, random_interventions(jr.key(0), scm, 9), jr.key(0), 10)
    real = jnp.arange(10) < 7
    done = shift(scm.manipulable, jnp.ones(scm.size))
    data = sample(scm, done, jr.key(0), 10, real)
    values, touched = np.asarray(data.values), np.asarray(data.intervened)
    assert (values[7:] == 0).all()
    assert not touched[7:].any()
    assert (values[:, hidden] == 0).all()
    assert not np.asarray(data.live)[hidden].any()
    assert (touched[:7] == np.asarray(scm.manipulable)[None]).all()
    assert int(data.target) == int(scm.target)
    assert np.asarray(data.rows).sum() == 7


def test_rows_of_random_interventions() -> None:
    scm = one(1, size=8, manipulable=0.6)
    done = jax.device_get(random_interventions(jr.key(0), scm, 2000, observational=500))
    can = np.asarray(scm.manipulable)
    assert not done.mask[:500].any()
    assert (done.mask[500:].sum(1) == 1).all()
    assert not done.mask[:, ~can].any()
    share = done.mask[500:][:, can].mean(0)
    np.testing.assert_allclose(share, 1 / can.sum(), atol=0.05)
    for v in np.flatnonzero(can):
        set_to = done.value[done.mask[:, v], v]
        low, high = float(scm.low[v]), float(scm.high[v])
        assert low <= set_to.min() < low + 0.1 * (high - low)
        assert high - 0.1 * (high - low) < set_to.max() <= high
    several = random_interventions(jr.key(0), scm, 100, at_once=2)
    assert (np.asarray(several.mask).sum(1) == 2).all()
    assert np.asarray(allowed(scm, several)).all()


def test_mixed_rows_are_observations_then_interventions() -> None:
    scm = one(1)
    data = sample_mixed(scm, jr.key(0), 50, 30)
    assert np.asarray(data.intervened).any(1).tolist() == [False] * 30 + [True] * 20


def test_combined_interventions_and_what_they_cost() -> None:
    scm = linear_scm(jnp.zeros((3, 3)), target=2)
    first = hard(jnp.array([True, True, False]), jnp.array([1.0, 1.5, 0.0]))
    second = shift(jnp.array([False, True, False]), jnp.array([0.0, -4.0, 0.0]))
    both = combine(first, second)
    np.testing.assert_array_equal(both.keep, [0, 1, 1])
    np.testing.assert_array_equal(both.add, [1, -4, 0])
    priced = eqx.tree_at(lambda s: s.cost_unit, scm, jnp.array([0.5, 2.0, 0.0]))
    assert float(cost(priced, both)) == pytest.approx(1 + 0.5 + 1 + 8)
    assert float(cost(priced, nothing(3))) == 0
    assert bool(allowed(scm, both))
    assert not bool(allowed(scm, hard(jnp.array([True, False, False]), jnp.array([2.5, 0, 0]))))
    assert not bool(allowed(scm, shift(jnp.array([False, False, True]), jnp.ones(3))))
    np.testing.assert_allclose(soft(first.mask, first.value, 0.25).keep, [0.75, 0.75, 1])


def degrees(adjacency: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return adjacency.sum(0), adjacency.sum(1)


def test_each_family_has_its_shape() -> None:
    live = jnp.arange(12) < 9

    @jax.jit
    def drawn(key, family, live, edges):
        return draw_graph(Draws(key, graph_draws(12)), family, live, edges)

    def draw(family: str, seed: int, edges: float = 1.5) -> np.ndarray:
        index = jnp.int32(FAMILIES.index(family))
        adjacency, order = drawn(jr.key(seed), index, live, jnp.float32(edges))
        at = np.asarray(order)[:9]
        full = np.asarray(adjacency)
        assert full.sum() == full[np.ix_(at, at)].sum()
        return full[np.ix_(at, at)]

    for seed in range(5):
        np.testing.assert_array_equal(draw("chain", seed), np.eye(9, k=1, dtype=bool))
        into, out = degrees(draw("fork", seed))
        assert (into.tolist(), out.tolist()) == ([0] + [1] * 8, [8] + [0] * 8)
        into, out = degrees(draw("collider", seed))
        assert (into.tolist(), out.tolist()) == ([0] * 8 + [8], [1] * 8 + [0])
        into, out = degrees(draw("star", seed))
        assert (into.tolist(), out.tolist()) == ([0] * 4 + [4] + [1] * 4, [1] * 4 + [4] + [0] * 4)
        layers = draw("two_layer", seed)
        assert not layers[:, :4].any()
        assert not layers[4:].any()
        assert layers[:, 4:].any(0).all()
        assert draw("scale_free", seed)[:, 1:].any(0).all()
    count = np.mean([draw("erdos_renyi", seed).sum() for seed in range(40)])
    assert count == pytest.approx(1.5 * 9, rel=0.1)
    # Preferential attachment: one variable causes far more than it would among equals.
    most = np.mean([draw("scale_free", seed).sum(1).max() for seed in range(40)])
    equal = np.mean([draw("erdos_renyi", seed).sum(1).max() for seed in range(40)])
    assert most > equal + 0.5
    graph = random_graph(jr.key(0), "fork", 5, size=8)
    assert (graph.shape, int(graph.sum())) == ((8, 8), 4)
    with pytest.raises(ValueError, match=r"got 'forc'\. Did you mean 'fork'"):
        random_graph(jr.key(0), "forc", 5)
    # With one key all families share their draws, so that a mixed graph's columns are columns of theirs.
    for seed in range(5):
        others = [draw(family, seed) for family in FAMILIES[:-1]]
        for j, column in enumerate(draw("mixed", seed).T):
            assert any((column == other[:, j]).all() for other in others)
    mixed = {draw("mixed", seed).tobytes() for seed in range(10)}
    assert len(mixed) == 10


def test_every_drawn_model_is_a_sound_one() -> None:
    prior = scm_prior(variables=(2, 16), manipulable=0.5, hidden=0.2)
    batch = jax.device_get(jax.vmap(lambda k: sample_scm(k, prior, 16, 4))(jr.split(jr.key(0), 300)))
    sizes = batch.live.sum(1)
    assert set(sizes) == set(range(2, 17))
    for n in range(300):
        scm = jax.tree.map(lambda a, n=n: a[n], batch)
        place = np.argsort(scm.order)
        causes, effects = np.nonzero(scm.adjacency)
        assert (place[causes] < place[effects]).all()
        assert scm.adjacency[:, scm.target].any()
        assert (scm.manipulable & scm.adjacency[:, scm.target]).any()
        assert not (scm.manipulable & ~(scm.live & scm.observed)).any()
        assert not scm.manipulable[scm.target]
        assert not scm.adjacency[~scm.live].any()
        assert not scm.adjacency[:, ~scm.live].any()
        off = ~scm.adjacency
        assert (scm.mechanism.weight[off] == 0).all()
        assert (scm.noise.spread[off] == 0).all()
        assert (scm.mechanism.inner[off] == 0).all()
        assert (scm.low[scm.manipulable] < scm.high[scm.manipulable]).all()
        # Every edge does something: by a weight or by units.
        felt = (scm.mechanism.weight != 0) | (scm.mechanism.inner != 0).any(-1)
        assert felt[scm.adjacency].all()


@pytest.mark.parametrize("mechanism", DRAWN)
def test_variables_have_about_unit_variance(mechanism: str) -> None:
    prior = scm_prior("erdos_renyi", mechanism, variables=(10, 10))
    scms = jax.vmap(lambda k: sample_scm(k, prior, 10, 8))(jr.split(jr.key(0), 200))
    data = jax.vmap(lambda s, k: sample(s, None, k, 200))(scms, jr.split(jr.key(1), 200))
    spread = np.asarray(data.values).std(1)
    assert 0.7 < np.median(spread) < 1.4
    assert np.quantile(spread, 0.02) > 0.25
    assert np.quantile(spread, 0.98) < 4


def test_the_reference_prior_is_as_stated() -> None:
    batch = jax.vmap(lambda k: sample_scm(k, linear_gaussian_prior(10), 10, 0))(jr.split(jr.key(0), 300))
    weights = np.abs(np.asarray(batch.mechanism.weight)[np.asarray(batch.adjacency)])
    assert 0.5 <= weights.min() < 0.52
    assert 1.98 < weights.max() <= 2
    assert np.asarray(batch.adjacency).sum() / 3000 == pytest.approx(1.5, rel=0.05)
    scale = np.asarray(batch.noise.scale)
    assert 0.5 <= scale.min() < 0.52
    assert 1.48 < scale.max() <= 1.5


def test_without_units_all_models_are_linear() -> None:
    scm = sample_scm(jr.key(0), scm_prior(), 8, 0)
    assert scm.mechanism.units == 0
    assert bool(scm.is_linear)


def test_difficulties_differ_and_one_index_serves_all() -> None:
    sizes = {}
    for number, name in enumerate(DIFFICULTIES):
        priors = difficulty_prior(name), difficulty_prior(jnp.int32(number))
        for a, b in zip(*map(jax.tree.leaves, priors), strict=True):
            np.testing.assert_array_equal(a, b)
        batch = jax.vmap(lambda k, p=priors[0]: sample_scm(k, p, 16, 4))(jr.split(jr.key(0), 100))
        sizes[name] = np.asarray(batch.live).sum(1).mean()
        linear = np.asarray(jax.vmap(lambda s: s.is_linear)(batch))
        assert linear.all() == (name == "easy")
    assert sizes["easy"] < sizes["medium"] < sizes["hard"]
    with pytest.raises(ValueError, match="easy, medium, hard; got 'brutal'"):
        difficulty_prior("brutal")


def test_the_guides_names_give_a_model_and_its_data() -> None:
    model = generate_scm_for_difficulty("medium", jr.key(4))
    assert isinstance(model, CausalModel)
    assert 5 <= len(model.names) <= 10
    data = collect_observational_data(model)
    assert data.values.shape == (100, 16)
    assert not np.asarray(data.intervened).any()
    assert model.names[int(data.target)] == model.target == "Y"
    again = collect_observational_data(model.scm, 100)
    np.testing.assert_array_equal(data.values, again.values)
    other = collect_observational_data(model, 20, jr.key(9))
    assert other.values.shape == (20, 16)
    assert np.abs(np.asarray(other.values - data.values[:20])).max() > 0.1


def test_padding_and_permuting_keep_the_model() -> None:
    scm = one(2, size=7)
    draws = draw_noise(scm, jr.key(0), 5)
    x = np.asarray(propagate(scm, draws))
    wide = pad(scm, 9, 6)
    wider = np.pad(np.asarray(draws), [(0, 0), (0, 2)], constant_values=5.0)
    np.testing.assert_allclose(propagate(wide, jnp.asarray(wider))[:, :7], x, rtol=1e-5, atol=1e-6)
    turn = np.array([3, 0, 6, 1, 5, 2, 4], np.int32)
    turned = permute(scm, jnp.asarray(turn))
    np.testing.assert_allclose(propagate(turned, draws[:, turn]), x[:, turn], rtol=1e-5, atol=1e-6)
    assert turn[int(turned.target)] == int(scm.target)
    with pytest.raises(ValueError, match="Padding only adds"):
        pad(scm, 5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"families": "chane"}, "`families` must be among .*; got 'chane'. Did you mean 'chain'?"),
        ({"mechanisms": {"linear": -1.0}}, "weights of at least 0; got -1.0 for 'linear'"),
        ({"noises": {"gaussian": 0.0}}, "at least one a positive weight"),
        ({"variables": (5, 3)}, "1 <= least <= most; got"),
        ({"weight": (2.0, 1.0)}, r"`weight` must be \(low, high\)"),
        ({"hidden": 1.5}, "`hidden` must be a probability from 0 to 1; got 1.5"),
    ],
)
def test_a_prior_refuses_what_makes_no_sense(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        scm_prior(**arguments)


def test_a_named_model_does_what_its_arrays_do() -> None:
    scm = one(4, mechanisms="linear")
    model = CausalModel.named(scm)
    first = next(iter(model.ranges))
    done = model.intervention({first: 1.0})
    data = model.sample(20, 3, {first: 1.0})
    np.testing.assert_array_equal(data.values, sample(scm, done, jr.key(3), 20).values)
    assert (np.asarray(data.values)[:, model.index(first)] == 1).all()
    per_row = model.intervention({first: np.arange(3.0)}, shift={})
    assert per_row.mask.shape == (3, 8)
    assert set(model.parents(model.target)) == {a for a, b in model.edges if b == "Y"}
    place = {name: k for k, name in enumerate(model.order)}
    assert all(place[a] < place[b] for a, b in model.edges)
    other = model.rename({"Y": "yield"})
    assert other.target == "yield"
    assert other.scm is model.scm
    with pytest.raises(ValueError, match=r"got 'x1'\. Did you mean 'X1'"):
        model.sample(3, 0, {"x1": 0.0})
    with pytest.raises(ValueError, match="each variable once; got 'X1' twice"):
        model.intervention({"X1": 0.0}, shift={"X1": 1.0})
    with pytest.raises(ValueError, match="strengths from 0"):
        model.intervention(soft={"X1": (0.0, 1.5)})
    with pytest.raises(ValueError, match="each variable once; got 'Y' twice"):
        model.rename({"X1": "Y"})


@pytest.mark.parametrize("value", [np.nan, np.inf, np.array([0.0, np.nan])])
@pytest.mark.parametrize(
    ("word", "given"), [("do", lambda v: v), ("soft", lambda v: (v, 0.5)), ("shift", lambda v: v)]
)
def test_values_that_are_not_finite_are_refused_with_their_variable(value, word, given) -> None:
    model = parse_model("X = N(0, 1); Y = 2*X + N(0, 1)")
    said = rf"`{word}` must hold finite numbers by name; got .* for 'X'\. Leave 'X' out of `{word}`"
    for call in (model.intervention, model.effect, lambda **do: model.sample(2, 0, **do)):
        with pytest.raises(ValueError, match=said):
            call(**{word: {"X": given(value)}})


def test_a_model_whose_live_variables_stand_behind_is_brought_to_the_front() -> None:
    scm = one(4)
    back = permute(scm, jnp.arange(7, -1, -1, dtype=jnp.int32))
    assert not bool(back.live[0])
    with pytest.raises(ValueError, match="must come first"):
        CausalModel(tuple("ABCDEFG")[: int(scm.live.sum())], back)
    model = CausalModel.named(back)
    assert len(model.edges) == int(scm.adjacency.sum())
    batch = jax.tree.map(lambda a: a[None], scm)
    with pytest.raises(ValueError, match="single model"):
        CausalModel(("A",), batch)


def test_choices_follow_their_weights() -> None:
    share = (jnp.arange(1000) + 0.5) / 1000
    picked = np.asarray(choose(share, jnp.array([1.0, 0.0, 3.0, 0.0])))
    assert np.bincount(picked, minlength=4).tolist() == [250, 0, 750, 0]
    assert int(choose(jnp.float32(1.0), jnp.array([1.0, 2.0, 0.0]))) == 1
    assert np.bincount(np.asarray(below(share, jnp.int32(4)))).tolist() == [250] * 4
    assert int(below(jnp.float32(1.0), jnp.int32(3))) == 2
    with pytest.raises(ValueError, match="`count` must be at least 6; got 5"):
        Draws(jr.key(0), 5).take(2, 3)
