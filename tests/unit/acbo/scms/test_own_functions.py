"""Functions of one's own in models: read from text, sampled, intervened on, and written back."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import acbo
from acbo.scms import pad, permute
from jaxworlds import no_recompile

pytestmark = pytest.mark.usefixtures("quick_compile")


def relu(z):
    return jnp.maximum(z, 0)


def root(z):
    """Not a number below 0, and without a slope at 0: what other units must not see."""
    return jnp.sqrt(z)


TEXT = "X = N(0, 1); Z = 1 + 2*relu(X - 0.5) + N(0, 0.1); W = exp(-X) + N(0, 1); Y = Z - 0.5*relu(-Z) + W; X in [-2, 2]"


def test_effects_are_those_of_the_function():
    model = acbo.parse_model("X = N(0, 1); Y = 1 + 2*relu(X - 0.5) + N(0, 0.1)", functions={"relu": relu})
    for x in (-1.0, 0.5, 1.5):
        assert model.effect({"X": x}) == pytest.approx(1 + 2 * max(x - 0.5, 0), abs=1e-5)
    # E max(X - a, 0) = φ(a) - a (1 - Φ(a)) for a standard normal X; at a = 0.5 it is 0.19780.
    assert np.asarray(model.sample(200_000, key=0).values)[:, 1].mean() == pytest.approx(
        1 + 2 * 0.1978, abs=0.01
    )
    assert model.mechanisms["Y"] == "other"
    levels, value = model.best(minimize=False, samples=64)
    assert (levels, value) == ({"X": pytest.approx(2.0)}, pytest.approx(4.0, abs=1e-3))


def test_text_out_and_text_in():
    functions = {"relu": relu, "root": root}
    model = acbo.parse_model(TEXT, functions=functions)
    assert "2*relu(1*X + -0.5)" in str(model)
    again = acbo.parse_model(str(model), functions=functions)
    key = jax.random.key(3)
    np.testing.assert_allclose(
        acbo.sample(model.scm, None, key, 50).values, acbo.sample(again.scm, None, key, 50).values, rtol=1e-6
    )
    assert acbo.parse_model("Y = root(4) + N(0, 1)", functions=functions).effect() == 2.0


def test_arrays_keep_the_functions():
    model = acbo.parse_model(TEXT, functions={"relu": relu})
    key, size = jax.random.key(0), model.scm.size
    larger = pad(model.scm, size + 2)
    assert larger.mechanism.functions == model.scm.mechanism.functions
    turned = permute(model.scm, jnp.arange(size - 1, -1, -1, dtype=jnp.int32))
    effect = acbo.true_effect(model.scm, key=key)
    np.testing.assert_allclose(acbo.true_effect(larger), acbo.true_effect(model.scm), atol=0.2)
    assert turned.mechanism.functions
    assert np.isfinite(acbo.true_effect(turned, key=key))
    assert np.isfinite(effect)


def test_other_units_are_kept_from_the_function_and_gradients_are_finite():
    model = acbo.parse_model("X = N(0, 1); Z = exp(-X); Y = root(Z) + cos(X)", functions={"root": root})
    scm = model.scm
    slope = jax.grad(lambda scm: acbo.true_effect(scm), allow_int=True)(scm)
    assert all(
        np.isfinite(leaf).all() for leaf in jax.tree.leaves(slope) if leaf.dtype == scm.mechanism.weight.dtype
    )


def test_one_function_is_one_program():
    first = acbo.parse_model("X = N(0, 1); Y = relu(X) + N(0, 1)", functions={"relu": relu})
    other = acbo.parse_model("X = N(0, 2); Y = 3*relu(1 - X) + N(0, 1)", functions={"relu": relu})
    acbo.true_effect(first.scm)
    with no_recompile():
        acbo.true_effect(other.scm)


@pytest.mark.parametrize(
    ("functions", "message"),
    [
        ({"exp": relu}, "names of their own"),
        ({"N": relu}, "names of their own"),
        ({"two words": relu}, "names of their own"),
        ({"rellu": relu}, "Did you mean|rellu"),
    ],
)
def test_misuse_is_named(functions, message):
    with pytest.raises(ValueError, match=message):
        acbo.parse_model("X = N(0, 1); Y = relu(X)", functions=functions)


def test_a_function_of_another_shape_is_refused():
    model = acbo.parse_model("X = N(0, 1); Y = total(X)", functions={"total": jnp.sum})
    with pytest.raises(ValueError, match="'total' made"):
        model.sample(5, key=0)
