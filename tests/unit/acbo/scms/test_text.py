"""The text language: graphs, equations, what it refuses, and writing models back."""

import jax
import jax.random as jr
import numpy as np
import pytest

from acbo.scms import CausalModel, parse_graph, parse_model, propagate, sample_scm, scm_prior, to_text

pytestmark = pytest.mark.usefixtures("quick_compile")


def values(model: CausalModel, rows: int = 5) -> dict[str, np.ndarray]:
    noise = jr.uniform(jr.key(0), (rows, model.scm.size), minval=-1)
    x = np.asarray(propagate(model.scm, noise), float)
    return {name: x[:, v] for v, name in enumerate(model.names)} | {
        f"noise {name}": np.asarray(noise, float)[:, v] for v, name in enumerate(model.names)
    }


def test_arrows_make_graphs() -> None:
    names, adjacency = parse_graph("X -> Z -> Y; W, X -> Y\nY <- V  # a remark\n`odd name` -> X; lonely")
    assert names == ("X", "Z", "Y", "W", "V", "odd name", "lonely")
    edges = {(names[i], names[j]) for i, j in np.argwhere(adjacency)}
    assert edges == {("X", "Z"), ("Z", "Y"), ("W", "Y"), ("X", "Y"), ("V", "Y"), ("odd name", "X")}


def test_edges_alone_are_linear_with_weight_one() -> None:
    model = parse_model("X -> Z; Z -> Y")
    x = values(model)
    np.testing.assert_allclose(x["Y"], x["Z"] + x["noise Y"], rtol=1e-6)
    assert model.ranges == {"X": (-2.0, 2.0), "Z": (-2.0, 2.0)}


def test_a_double_arrow_declares_a_hidden_common_cause() -> None:
    model = parse_model("X -> Y; X <-> Y")
    assert model.hidden == ("U_X_Y",)
    assert ("U_X_Y", "X") in model.edges
    assert "U_X_Y" not in model.ranges
    data = model.sample(2000)
    assert not bool(data.live[model.index("U_X_Y")])
    # cov(X, Y) = 3 and var X = 2: regression says 1.5 where the effect is 1.
    x, y = (np.asarray(data.values)[:, model.index(n)] for n in "XY")
    assert np.cov(x, y)[0, 1] / x.var() == pytest.approx(1.5, abs=0.1)
    assert model.effect({"X": 1.0}) == 1.0


EQUATIONS = """
A = N(0.5, 2)
B = 3 - A/4 + 0.5*Laplace(0, 1)
C = 2*exp(-A + 0.5) - cos(2*B) + U(-1, 3)
D = sin(A + B) + tanh(0.3*C) - sigmoid(B) + e - pi*A
E = A*B - 0.5*A**2 + (A - B)**2/3 + B*C*D - A*A*B + B**3 + clip(A + D, 2)**3
Y = -(A + 2*B)*(1 - B) + N(0, 0.5, spread=2*A - C) + 2**3
"""


def test_equations_compute_what_they_say() -> None:
    x = values(parse_model(EQUATIONS))
    a, b, c, d, e, y = (x[n] for n in "ABCDEY")
    n = {name: x[f"noise {name}"] for name in "ABCDEY"}
    close = {"rtol": 2e-4, "atol": 2e-4}
    np.testing.assert_allclose(a, 0.5 + 2 * n["A"], **close)
    np.testing.assert_allclose(b, 3 - a / 4 + 0.5 * np.sqrt(2) * n["B"], **close)
    wide = 4 / np.sqrt(12)
    np.testing.assert_allclose(c, 2 * np.exp(0.5 - a) - np.cos(2 * b) + 1 + wide * n["C"], **close)
    sigmoid = 1 / (1 + np.exp(-b))
    np.testing.assert_allclose(d, np.sin(a + b) + np.tanh(0.3 * c) - sigmoid + np.e - np.pi * a, **close)
    held = np.clip(a + d, -2, 2) ** 3
    expected = a * b - 0.5 * a**2 + (a - b) ** 2 / 3 + b * c * d - a * a * b + b**3 + held
    np.testing.assert_allclose(e, expected, rtol=2e-3, atol=2e-3)
    scale = 0.5 * np.sqrt(1 + (2 * a - c) ** 2)
    np.testing.assert_allclose(y, -(a + 2 * b) * (1 - b) + scale * n["Y"] + 8, rtol=1e-3, atol=1e-3)


def test_ranges_costs_target_and_hidden_variables() -> None:
    model = parse_model("U -> X; X -> Q; X in [-1, 3]; cost X = 2 + 0.5*X; hidden U; target Q; U -> Q")
    assert model.target == "Q"
    assert model.ranges == {"X": (-1.0, 3.0)}
    assert model.hidden == ("U",)
    v = model.index("X")
    assert (float(model.scm.cost_fixed[v]), float(model.scm.cost_unit[v])) == (2.0, 0.5)
    wider = parse_model("X -> Q", ranges={"X": (0, 9)}, size=16, units=4)
    assert wider.ranges == {"X": (0.0, 9.0)}
    assert (wider.scm.size, wider.scm.mechanism.units) == (16, 4)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("X -> Z; Z -> Y; Y -> X", "no directed cycle; got X -> Z -> Y -> X"),
        ("X -> X", "no directed cycle; got X -> X"),
        ("X = Y; Y = X", "no directed cycle; got X -> Y -> X"),
        (
            "price = N(0, 1); Y = 2*pric + N(0, 1)",
            "'pric' in '2.pric . N.0, 1.' has none. Did you mean 'price'",
        ),
        ("X = N(0, 1); X = N(0, 2); Y = X", "one equation per variable; got a second one for 'X'"),
        ("X -> Y; X -> Y", "each edge once; got X -> Y again"),
        ("X = N(0, 1); Y = X; target Z", "text: target` must be one of X, Y; got 'Z'"),
        ("X = N(0, 1); Y = X; xx in [0, 1]", "got 'xx'. Did you mean 'X'"),
        ("X = N(0, 1); Y = X; hidden Y", "must not hold the target"),
        ("X = N(0, 1); Y = X; Y in [0, 1]", "other than the target; got"),
        ("X = N(0, 1); Y = X; X in [1, 0]", "low <= high"),
        ("X = N(0, 1); Y = exp(X*X)", r"weighted sum inside exp\(\)"),
        ("X = N(0, 1); Y = X*exp(X)", "multiply functions and noise by numbers only"),
        ("X = N(0, 1); Y = X/0", "divide by numbers other than 0"),
        ("X = N(0, 1); Y = X**4", "powers 1, 2 and 3"),
        ("X = N(0, 1); Y = X*X*X*X", "at most 3 variables"),
        ("X = N(0, 1) + N(0, 1); Y = X", "one noise per equation"),
        ("X = N(0); Y = X", "give N two numbers"),
        ("X = N(0, -1); Y = X", "width of at least 0"),
        ("X = N(0, 1); Y = expp(X)", "Did you mean 'exp'"),
        ("X = N(0, 1); Y = clip(X, 2)", "`clip` must stand under a power"),
        ("X = N(0, 1); Y = 2 +* X", "must hold arithmetic"),
        ("X = N(0, 1); Y = X if X else 1", "use numbers, names"),
        ("X = N(0, 1); W = N(0, 1); Y = X; W -> Y", "every cause in the equation of its effect; W -> Y"),
        ("A -> B; A -> C", "`target` must be given .* B, C cause nothing"),
        ("2X -> Y", "identifiers, or in backquotes; got '2X'"),
        ("# nothing", "at least one variable"),
        ("X -> Y; cost X = X*X", "fixed . per unit"),
    ],
)
def test_what_the_language_refuses(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_model(text)


def test_a_written_model_reads_back_as_itself() -> None:
    for model in (
        parse_model(EQUATIONS),
        parse_model("`a b` -> Y; `a b` in [-1, 1]; cost `a b` = 2 + 0.25*`a b`"),
    ):
        again = parse_model(to_text(model))
        assert set(again.edges) == set(model.edges)
        assert (again.ranges, again.target, again.hidden) == (model.ranges, model.target, model.hidden)
        first, second = values(model), values(again)
        place = [again.names.index(n) for n in model.names]
        noise = jr.uniform(jr.key(1), (4, again.scm.size), minval=-1)
        a = propagate(model.scm, noise.at[:, : len(place)].set(noise[:, np.asarray(place)]))
        b = propagate(again.scm, noise)
        np.testing.assert_allclose(
            np.asarray(a)[:, : len(place)], np.asarray(b)[:, place], rtol=1e-3, atol=1e-3
        )
        assert set(first) == set(second)


@pytest.mark.parametrize("seed", range(3))
def test_random_models_survive_text(seed: int) -> None:
    scm = sample_scm(jr.key(seed), scm_prior(variables=(6, 6), hidden=0.3, bias=(-1, 1)), 8, 4)
    model = CausalModel.named(scm)
    again = parse_model(to_text(model), size=8, units=4)
    assert again.names == model.names
    assert again.edges == model.edges
    assert again.mechanisms == model.mechanisms
    assert again.noises == model.noises
    assert again.hidden == model.hidden
    assert again.ranges == model.ranges
    place = np.asarray([again.names.index(n) for n in model.names])
    noise = jr.uniform(jr.key(1), (4, 8), minval=-1)
    a = propagate(model.scm, noise.at[:, :6].set(noise[:, place]))
    np.testing.assert_allclose(
        np.asarray(a)[:, :6], np.asarray(propagate(again.scm, noise))[:, place], rtol=1e-4, atol=1e-4
    )
    assert str(model) == to_text(model)


def test_models_are_no_pytrees_so_that_names_stay_out_of_programs() -> None:
    with pytest.raises(TypeError, match="CausalModel"):
        jax.jit(lambda m: m.scm.low)(parse_model("X -> Y"))
