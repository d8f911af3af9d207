"""Laws of causal models that hold for every graph, mechanism, noise and size, and how little they compile."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acbo.guide import difficulty_prior
from acbo.scms import (
    FAMILIES,
    SCM,
    CausalModel,
    Intervention,
    ancestors,
    best_intervention,
    draw_noise,
    hard,
    is_acyclic,
    linear_gaussian_prior,
    parse_model,
    permute,
    propagate,
    sample,
    sample_mixed,
    sample_scm,
    scm_prior,
    shift,
    soft,
    topological_order,
    true_effect,
)
from jaxworlds.compiling import CompileWatch, no_recompile

pytestmark = pytest.mark.usefixtures("quick_compile")

SIZE, UNITS = 8, 3
ANY = scm_prior(variables=(2, SIZE), bias=(-1, 1))
LINEAR = scm_prior(mechanisms="linear", variables=(2, SIZE), bias=(-1, 1))
SEEDS = st.integers(0, 10_000)
run = propagate
draw = jax.jit(lambda key: sample_scm(key, ANY, SIZE, UNITS))
draw_linear = jax.jit(lambda key: sample_scm(key, LINEAR, SIZE, UNITS))


def setting(seed: int) -> tuple[SCM, jax.Array, jax.Array, jax.Array]:
    """A model, noise, and a mask and values for interventions."""
    keys = jr.split(jr.key(seed), 4)
    scm = draw(keys[0])
    noise = draw_noise(scm, keys[1], 6)
    mask = jr.bernoulli(keys[2], 0.4, (SIZE,)) & scm.live
    return scm, noise, mask, jr.normal(keys[3], (SIZE,))


@settings(max_examples=40, deadline=None)
@given(SEEDS)
def test_causes_come_before_effects(seed: int) -> None:
    scm = draw(jr.key(seed))
    for order in (scm.order, topological_order(scm.adjacency, scm.live)):
        place = np.argsort(np.asarray(order))
        causes, effects = np.nonzero(np.asarray(scm.adjacency))
        assert sorted(np.asarray(order)) == list(range(SIZE))
        assert (place[causes] < place[effects]).all()
        live = np.asarray(scm.live)
        assert place[live].max() < place[~live].min(initial=SIZE)
    assert bool(is_acyclic(scm.adjacency))
    back = scm.adjacency.at[int(scm.target), np.flatnonzero(np.asarray(scm.parents))[0]].set(True)
    assert not bool(is_acyclic(back))


@settings(max_examples=30, deadline=None)
@given(SEEDS)
def test_ancestors_are_reached_by_powers_of_the_graph(seed: int) -> None:
    edges = np.asarray(draw(jr.key(seed)).adjacency, int)
    reach = sum(np.linalg.matrix_power(edges, k) for k in range(1, SIZE + 1)) > 0
    np.testing.assert_array_equal(ancestors(jnp.asarray(edges > 0)), reach)


@settings(max_examples=40, deadline=None)
@given(SEEDS)
def test_do_cuts_the_parents_and_reaches_descendants_only(seed: int) -> None:
    scm, noise, mask, value = setting(seed)
    x, y = run(scm, noise), run(scm, noise, hard(mask, value))
    np.testing.assert_array_equal(
        np.asarray(y)[:, np.asarray(mask)], np.broadcast_to(value, y.shape)[:, np.asarray(mask)]
    )
    # What a set variable's parents do, other than through other ways, reaches nothing.
    cut = eqx.tree_at(lambda s: s.adjacency, scm, scm.adjacency & ~mask[None])
    moved = np.asarray(ancestors(cut.adjacency))[np.asarray(mask)].any(0) | np.asarray(mask)
    np.testing.assert_allclose(np.asarray(x)[:, ~moved], np.asarray(y)[:, ~moved], rtol=1e-6)
    other = noise + jnp.where(mask, 10.0, 0.0)
    np.testing.assert_array_equal(run(scm, other, hard(mask, value)), y)


@settings(max_examples=40, deadline=None)
@given(SEEDS)
def test_soft_of_strength_one_is_hard_and_of_zero_is_nothing(seed: int) -> None:
    scm, noise, mask, value = setting(seed)
    np.testing.assert_array_equal(run(scm, noise, soft(mask, value, 1.0)), run(scm, noise, hard(mask, value)))
    np.testing.assert_array_equal(
        run(scm, noise, soft(mask, value, 0.0)), run(scm, noise, hard(mask & False, value))
    )
    np.testing.assert_array_equal(
        run(scm, noise, shift(mask, 0 * value)), run(scm, noise, hard(mask & False, value))
    )
    # Half way on a variable whose parents stay is half way between.
    first = jnp.arange(SIZE) == scm.order[0]
    ends = [run(scm, noise, soft(first, value, s))[:, scm.order[0]] for s in (0.0, 0.5, 1.0)]
    np.testing.assert_allclose(ends[1], (ends[0] + ends[2]) / 2, rtol=1e-5, atol=1e-6)


@jax.jit
def shifted(scm: SCM) -> jax.Array:
    """The effect of shifting each variable by 1.5."""
    return jax.vmap(lambda mask: true_effect(scm, shift(mask, jnp.full(SIZE, 1.5))))(
        jnp.eye(SIZE, dtype=bool)
    )


@settings(max_examples=40, deadline=None)
@given(SEEDS)
def test_a_shift_moves_a_linear_mean_by_the_total_effect(seed: int) -> None:
    scm = draw_linear(jr.key(seed))
    weight = np.asarray(scm.mechanism.weight, float)
    total = np.linalg.inv(np.eye(SIZE) - weight)
    moved = shifted(scm) - true_effect(scm)
    live = np.asarray(scm.live)
    np.testing.assert_allclose(moved[live], 1.5 * total[live, int(scm.target)], rtol=1e-3, atol=1e-4)


@settings(max_examples=30, deadline=None)
@given(SEEDS)
def test_padding_never_matters(seed: int) -> None:
    scm, noise, mask, value = setting(seed)
    dead = ~scm.live
    x = run(scm, noise, hard(mask, value))
    assert (np.asarray(x)[:, np.asarray(dead)] == 0).all()
    loud = noise + jnp.where(dead, 1e6, 0.0)
    np.testing.assert_array_equal(run(scm, loud, hard(mask, value)), x)
    # Not even an intervention on padding reaches a live variable.
    everywhere = hard(mask | dead, jnp.where(dead, 1e6, value))
    np.testing.assert_array_equal(run(scm, noise, everywhere), x)


@settings(max_examples=25, deadline=None)
@given(SEEDS, st.permutations(range(SIZE)))
def test_permuting_variables_permutes_everything(seed: int, turn: list[int]) -> None:
    scm, noise, mask, value = setting(seed)
    by = jnp.asarray(turn, jnp.int32)
    turned = permute(scm, by)
    x = np.asarray(run(scm, noise, hard(mask, value)))
    y = np.asarray(run(turned, noise[:, by], hard(mask[by], value[by])))
    np.testing.assert_allclose(y, x[:, np.asarray(turn)], rtol=1e-4, atol=1e-5)


@jax.jit
def effects(scm: SCM, masks: jax.Array, values: jax.Array) -> jax.Array:
    return jax.vmap(lambda mask, value: true_effect(scm, hard(mask, value)))(masks, values)


@settings(max_examples=15, deadline=None)
@given(SEEDS)
def test_no_allowed_intervention_beats_the_best(seed: int) -> None:
    scm = draw_linear(jr.key(seed))
    best = best_intervention(scm, 2)
    keys = jr.split(jr.key(seed + 1), 2)
    place = jr.uniform(keys[0], (64, SIZE))
    pick = jr.uniform(keys[1], (64, SIZE)).argsort(1) < 2
    tries = hard(pick & scm.manipulable, scm.low + (scm.high - scm.low) * place)
    values = effects(scm, tries.mask, tries.value)
    assert float(values.min()) >= float(best.value) - 1e-4 * (1 + abs(float(best.value)))


def test_a_thousand_mixed_models_compile_one_program() -> None:
    """Families, mechanisms, noises, sizes, difficulties, interventions and names all differ; the program does not."""
    jax.clear_caches()
    size, units, rows = 16, 2, 10

    @jax.jit
    def everything(key, prior, done):
        scm = sample_scm(key, prior, size, units)
        data = sample(scm, done, key, rows)
        mixed = sample_mixed(scm, key, rows, 5)
        return scm, data.values.sum() + mixed.values.sum(), true_effect(scm, done, samples=8)

    priors = [difficulty_prior(name) for name in ("easy", "medium", "hard")]
    priors += [scm_prior(family, variables=(2, 16)) for family in FAMILIES]
    priors += [linear_gaussian_prior((3, 12)), scm_prior(manipulable=0.3, hidden=0.4)]
    rng = np.random.default_rng(0)

    def done(n: int) -> Intervention:
        mask = jnp.asarray(rng.random(size) < 0.3)
        numbers = (jnp.asarray(rng.standard_normal(size), jnp.float32) for _ in range(2))
        return Intervention(mask, next(numbers), jnp.full(size, n % 3 / 2, jnp.float32), next(numbers))

    keys = list(jr.split(jr.key(0), 1000))
    doings = [done(n) for n in range(50)]
    with CompileWatch() as watch:
        for n, key in enumerate(keys):
            scm, total, effect = everything(key, priors[n % len(priors)], doings[n % 50])
            assert np.isfinite(float(total))
            assert np.isfinite(float(effect))
    assert watch["everything"].compiles == 1
    assert scm.size == size


def test_names_texts_and_permutations_need_no_other_program() -> None:
    jax.clear_caches()
    first = parse_model("X = N(0, 1); Z = exp(-X) + N(0, 1); Y = cos(Z) + N(0, 1); X in [-2, 2]")
    first.sample(20, 0, {"X": 1.0}), first.effect({"X": 0.5}, samples=16), first.best(samples=16)
    key, turn = jr.key(7), jnp.asarray([2, 0, 1, *range(3, 8)], jnp.int32)
    turned = CausalModel(first.names, permute(first.scm, turn))
    second = parse_model("A = U(0, 1); B = N(0, 1); C = A + B**2 + N(0, 1); Y = tanh(C) - B; A in [0, 1]")
    with no_recompile(allow_eager=True):
        for model in (first.rename({"X": "price", "Y": "demand"}), turned, second):
            name = next(iter(model.ranges))
            data = model.sample(20, key, {name: 0.5})
            assert (np.asarray(data.values)[:, model.index(name)] == 0.5).all()
            model.effect({name: 0.25}, samples=16)
            model.best(samples=16)
