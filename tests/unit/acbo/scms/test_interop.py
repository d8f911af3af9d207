"""Models and data through networkx, pandas and pgmpy, and the published networks inside pgmpy's package."""

import gzip
import importlib.util
import json
import sys
from types import SimpleNamespace
from typing import Any

import jax.random as jr
import numpy as np
import pytest

from acbo.scms import (
    NETWORKS,
    CausalModel,
    best_intervention,
    fit_linear_model,
    from_adjacency_frame,
    from_edge_frame,
    from_frame,
    from_networkx,
    from_pgmpy,
    linear_model,
    load_network,
    parse_graph,
    parse_model,
    sample_scm,
    scm_prior,
    to_adjacency_frame,
    to_edge_frame,
    to_frame,
    to_networkx,
    to_pgmpy,
)
from acbo.scms import published_networks as networks_module
from acbo.scms.published_networks import moments

nx = pytest.importorskip("networkx", reason="networkx is not installed")
pd = pytest.importorskip("pandas", reason="pandas is not installed")

TEXT = """X = 1 + N(0, 2); W = Laplace(0, 1); Z = 0.5*X - 2*W + U(-1, 1); Y = Z + 0.25*X + N(0, 0.1)
X in [-5, 5]; Z in [-1, 20]"""

pytestmark = pytest.mark.usefixtures("quick_compile")


def same_arrays(a: CausalModel, b: CausalModel) -> None:
    order = np.asarray([b.names.index(name) for name in a.names])
    d = len(order)
    for field in ("bias", "weight"):
        first, second = (np.asarray(getattr(m.scm.mechanism, field)) for m in (a, b))
        second = second[order][:, order] if second.ndim == 2 else second[order]
        np.testing.assert_allclose(first[(slice(d),) * first.ndim], second, rtol=1e-6)
    np.testing.assert_allclose(
        np.asarray(a.scm.noise.scale)[:d], np.asarray(b.scm.noise.scale)[order], rtol=1e-6
    )
    assert (set(a.edges), a.noises, a.ranges, a.target, a.hidden) == (
        set(b.edges),
        b.noises,
        b.ranges,
        b.target,
        b.hidden,
    )


def test_a_linear_model_survives_networkx() -> None:
    model = parse_model(TEXT)
    graph = to_networkx(model)
    assert nx.is_directed_acyclic_graph(graph)
    assert graph.edges["W", "Z"]["weight"] == -2
    assert graph.nodes["Z"]["mechanism"] == "linear"
    assert graph.graph["target"] == "Y"
    same_arrays(model, from_networkx(graph))


def test_prices_survive_networkx_and_what_weights_cannot_hold_is_refused() -> None:
    model = parse_model("A = N(0, 1); Y = 2*A + N(0, 1); A in [0, 3]; cost A = 2 + 0.5*A")
    assert str(from_networkx(to_networkx(model))) == str(model)
    bent = parse_model("A = N(0, 1); Y = A**2 + N(0, 1)")
    with pytest.raises(ValueError, match=r"`graph` must be of a linear model.* 'Y' is polynomial"):
        from_networkx(to_networkx(bent))
    with pytest.raises(ValueError, match=r"`frame` must be of a linear model.* 'Y' is polynomial"):
        from_edge_frame(to_edge_frame(bent))
    with pytest.raises(ValueError, match="'Y' is linear with heteroscedastic noise"):
        from_networkx(to_networkx(parse_model("A = N(0, 1); Y = A + N(0, 1, spread=0.5*A)")))


def test_any_model_can_be_shown_as_a_graph() -> None:
    model = CausalModel.named(sample_scm(jr.key(0), scm_prior(variables=(6, 6), hidden=0.5), 8, 4))
    graph = to_networkx(model)
    assert set(graph.edges) == set(model.edges)
    assert {n for n in graph if graph.nodes[n].get("hidden")} == set(model.hidden)
    assert all("(" in graph.nodes[n]["equation"] for n in graph)


def test_plain_graphs_get_weight_one_and_unit_noise() -> None:
    model = from_networkx(nx.DiGraph([(1, 2), (2, 3)]), target="3")
    assert model.names == ("1", "2", "3")
    assert model.effect({"1": 1.5}) == 1.5
    with pytest.raises(ValueError, match=r"no directed cycle; got 1 -> 2 -> 1"):
        from_networkx(nx.DiGraph([(1, 2), (2, 1)]))
    with pytest.raises(ValueError, match="must be a networkx DiGraph; got Graph"):
        from_networkx(nx.Graph([(1, 2)]))
    odd = nx.DiGraph([("a", "b")])
    odd.nodes["a"]["noise"] = "gausian"
    with pytest.raises(ValueError, match="Did you mean 'gaussian'"):
        from_networkx(odd)


def test_tables_of_weights_and_of_edges() -> None:
    model = parse_model("X = N(0, 1); Z = 0.5*X + N(0, 1); Y = Z - 2*X + N(0, 1)")
    table = to_adjacency_frame(model)
    assert table.loc["X", "Y"] == -2
    assert table.loc["Y", "X"] == 0
    same_arrays(model, from_adjacency_frame(table))
    shuffled = table.loc[["Y", "X", "Z"]]
    same_arrays(model, from_adjacency_frame(shuffled))
    edges = to_edge_frame(model)
    assert edges.set_index(["source", "target"])["weight"].to_dict() == {
        ("X", "Z"): 0.5,
        ("X", "Y"): -2,
        ("Z", "Y"): 1,
    }
    same_arrays(model, from_edge_frame(edges))
    assert to_adjacency_frame(model, weights=False).to_numpy().sum() == 3
    with pytest.raises(ValueError, match="same names in rows and columns"):
        from_adjacency_frame(table.rename(index={"X": "Q"}))
    with pytest.raises(ValueError, match="each edge once; got X -> Z twice"):
        from_edge_frame(pd.concat([edges, edges.iloc[:1]]))
    with pytest.raises(ValueError, match="got 'source'"):
        from_edge_frame(edges.rename(columns={"source": "from"}))


def test_samples_become_tables_and_come_back() -> None:
    model = parse_model("U -> X; U -> Y; X -> Y; hidden U")
    data = model.sample(6, 1, {"X": np.arange(6.0)})
    frame = to_frame(data, model.names)
    assert list(frame.columns) == ["X", "Y"]
    assert frame["X"].tolist() == [0, 1, 2, 3, 4, 5]
    assert np.asarray(frame.attrs["intervened"]).tolist() == [[True, False]] * 6
    again, names = from_frame(frame, target="Y")
    assert names == ("X", "Y")
    np.testing.assert_array_equal(np.asarray(again.values)[:, :2], frame.to_numpy())
    assert np.asarray(again.intervened)[:, :2].tolist() == [[True, False]] * 6
    assert (again.size, int(again.live.sum()), int(again.target)) == (8, 2, 1)


def test_a_users_table_with_marks_of_what_was_set() -> None:
    frame = pd.DataFrame({"dose": [0.0, 1.0, 2.0], "effect": [0.1, 0.9, 2.2]})
    marks = pd.DataFrame({"dose": [False, True, True]})
    data, names = from_frame(frame, target="effect", intervened=marks)
    assert names[int(data.target)] == "effect"
    assert np.asarray(data.intervened)[:, :2].tolist() == [[False, False], [True, False], [True, False]]
    same, _ = from_frame(frame, target="effect", intervened=np.asarray(data.intervened)[:, :2], size=2)
    assert same.size == 2
    with pytest.raises(ValueError, match=r"got 'efect'\. Did you mean 'effect'"):
        from_frame(frame, target="efect")
    with pytest.raises(ValueError, match="missing one in 'dose'"):
        from_frame(frame.assign(dose=[0.0, np.nan, 1.0]), target="effect")
    with pytest.raises(ValueError, match=r"shape of `frame`, \(3, 2\); got \(3, 1\)"):
        from_frame(frame, target="effect", intervened=np.zeros((3, 1), bool))
    with pytest.raises(ValueError, match=r"got 'doze'\. Did you mean 'dose'"):
        from_frame(frame, target="effect", intervened=marks.rename(columns={"dose": "doze"}))
    with pytest.raises(ValueError, match="must name each variable once; got 'a' twice"):
        from_frame(pd.DataFrame([[1.0, 2.0]], columns=["a", "a"]), target="a")


@pytest.mark.parametrize(
    ("column", "answer"),
    [
        (
            1.7e9 + np.arange(4.0),
            "keep its digits in float32; 'b' has a deviation of 1.12 .* Subtract its mean",
        ),
        (np.arange(4) * 4e-21, "deviations from 1e-15 to 1e15.*'b' has 4.47e-21. Give it in other units"),
        (np.arange(4) * 1e19, "deviations from 1e-15 to 1e15.*'b' has 1.12e.19"),
        (pd.array([None, 1, 2, 3], dtype="Int64"), "got a missing one in 'b'"),
        (np.array([1, 2, 3, 4]) * 1j, "column 'b' has complex128"),
        (pd.date_range("2026", periods=4), "column 'b' has datetime64"),
    ],
)
def test_columns_that_would_give_wrong_answers_are_refused(column: Any, answer: str) -> None:
    frame = pd.DataFrame({"a": [1.0, 2.0, 4.0, 3.0], "b": column})
    with pytest.raises(ValueError, match=answer):
        from_frame(frame, target="a")


def test_constant_columns_are_taken_at_any_magnitude() -> None:
    frame = pd.DataFrame(
        {"a": [1.0, 2.0], "b": 1.7e9, "c": [0.1 + 0.2, 0.3], "d": pd.array([1, 2], dtype="Int64")}
    )
    data, _ = from_frame(frame, target="a")
    np.testing.assert_allclose(data.values[:, :4], frame.to_numpy(float), rtol=1e-6)


def test_a_fit_along_the_graph_finds_the_coefficients() -> None:
    names, adjacency = parse_graph("X -> Z; X -> Y; Z -> Y")
    truth = np.array([[0, 0.8, -1.5], [0, 0, 2.0], [0, 0, 0]])
    model = linear_model(names, truth, scale=np.array([1, 0.5, 0.25]), bias=np.array([1.0, 2.0, 3.0]))
    levels = np.where(np.arange(4000) < 2000, 3.0, -3.0)
    data = model.sample(4000, 0, {"Z": levels})
    with pytest.raises(ValueError, match="more rows in which 'Z' was not set"):
        fit_linear_model(names, adjacency, data)
    watched = model.sample(4000, 1)
    fitted = fit_linear_model(names, adjacency, watched)
    np.testing.assert_allclose(np.asarray(fitted.scm.mechanism.weight)[:3, :3], truth, atol=0.05)
    np.testing.assert_allclose(np.asarray(fitted.scm.mechanism.bias)[:3], [1, 2, 3], atol=0.1)
    np.testing.assert_allclose(np.asarray(fitted.scm.noise.scale)[:3], [1, 0.5, 0.25], rtol=0.05)
    units = np.array([1e-9, 1e6, 1e-3])
    other, _ = from_frame(to_frame(watched, names) * units, target=names[2])
    scaled = np.asarray(fit_linear_model(names, adjacency, other).scm.mechanism.weight)[:3, :3]
    np.testing.assert_allclose(scaled * units[:, None] / units, truth, atol=0.05)


def test_missing_friends_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    model = parse_model("X -> Y")
    monkeypatch.setitem(sys.modules, "networkx", None)
    with pytest.raises(
        ImportError, match=r"`to_networkx` needs the package networkx: pip install .jaxworlds\[causal\]"
    ):
        to_networkx(model)
    monkeypatch.setitem(sys.modules, "pgmpy.models", None)
    with pytest.raises(ImportError, match=r"`to_pgmpy` needs the package pgmpy: pip install pgmpy\."):
        to_pgmpy(model)
    monkeypatch.setattr(networks_module.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match="read from the package pgmpy"):
        load_network("ecoli70")


class FakeNetwork(SimpleNamespace):
    """What `from_pgmpy` asks of a network, in the shapes that pgmpy 1.1 answers with."""

    def nodes(self) -> list[str]:
        return ["a", "b", "c"]

    def edges(self) -> list[tuple[str, str]]:
        return [("a", "b"), ("a", "c"), ("b", "c")]

    def get_cpds(self) -> list[Any]:
        cpd = SimpleNamespace
        return [
            cpd(variable="a", beta=np.array([1.0]), std=2.0, evidence=[]),
            cpd(variable="c", beta=np.array([0.0, 3.0, -1.0]), std=1.0, evidence=["b", "a"]),
            cpd(variable="b", beta=np.array([0.5, 0.25]), std=0.1, evidence=["a"]),
        ][: self.known]


def test_coefficients_of_pgmpy_go_to_their_edges() -> None:
    model = from_pgmpy(FakeNetwork(known=3), target="c")
    weight = np.asarray(model.scm.mechanism.weight)[:3, :3]
    np.testing.assert_allclose(weight, [[0, 0.25, -1], [0, 0, 3], [0, 0, 0]])
    np.testing.assert_allclose(np.asarray(model.scm.mechanism.bias)[:3], [1, 0.5, 0])
    np.testing.assert_allclose(np.asarray(model.scm.noise.scale)[:3], [2, 0.1, 1])
    assert model.effect({"b": 2.0}) == pytest.approx(3 * 2 - 1)
    with pytest.raises(ValueError, match="a CPD for every node; got none for b"):
        from_pgmpy(FakeNetwork(known=2), target="c")


def test_networks_are_read_from_files_of_pgmpys_shape(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    cpds = {
        "g1": {"coefficients": {"(Intercept)": [1.5]}, "variance": [4.0], "parents": []},
        "g.2": {"coefficients": {"(Intercept)": [0.0], "g1": [-0.5]}, "variance": [0.25], "parents": ["g1"]},
    }
    (tmp_path / "ecoli70.json").write_text(
        json.dumps({"nodes": ["g1", "g.2"], "arcs": [["g1", "g.2"]], "cpds": cpds})
    )
    bif = "network unknown {\n}\n" + "".join(
        f"variable {n} {{\n  type discrete [ 3 ] {{ LOW, AVG, HIGH }};\n}}\n" for n in ("A", "B")
    )
    bif += "probability ( A ) {\n  table 0.2, 0.3, 0.5;\n}\nprobability ( B | A ) {\n"
    bif += "  (LOW) 0.8, 0.1, 0.1;\n  (AVG) 0.2, 0.6, 0.2;\n  (HIGH) 0.1, 0.1, 0.8;\n}\n"
    (tmp_path / "sachs.bif.gz").write_bytes(gzip.compress(bif.encode()))
    monkeypatch.setattr(networks_module, "_folder", lambda: tmp_path)

    model = load_network("ecoli70")
    assert (model.names, model.target) == (("g1", "g.2"), "g.2")
    mean, spread = moments(model)
    np.testing.assert_allclose(mean, [1.5, -0.75])
    np.testing.assert_allclose(spread**2, [4, 0.25 * 4 + 0.25])
    assert model.ranges == {"g1": pytest.approx((-2.5, 5.5))}

    sachs = load_network("sachs")
    # E[A] = 0.3, Var A = 0.61; E[B | A] = -0.7, 0, 0.7, so that the slope is 0.7 and the line exact.
    np.testing.assert_allclose(np.asarray(sachs.scm.mechanism.weight)[0, 1], 0.7, rtol=1e-5)
    np.testing.assert_allclose(np.asarray(sachs.scm.mechanism.bias)[:2], [0.3, 0.0], atol=1e-6)
    within = 0.2 * (0.9 - 0.49) + 0.3 * 0.4 + 0.5 * (0.9 - 0.49)
    np.testing.assert_allclose(np.asarray(sachs.scm.noise.scale)[:2] ** 2, [0.61, within], rtol=1e-5)
    with pytest.raises(ValueError, match=r"got 'saks'\. Did you mean 'sachs'"):
        load_network("saks")


SHAPES = {
    "ecoli70": (46, 70),
    "magic-niab": (44, 66),
    "magic-irri": (64, 102),
    "arth150": (107, 150),
    "sachs": (11, 17),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_published_networks(name: Any) -> None:
    if importlib.util.find_spec("pgmpy") is None:
        pytest.skip("pgmpy is not installed; it holds the files of the published networks")
    model = load_network(name)
    assert (len(model.names), len(model.edges)) == SHAPES[name]
    assert set(model.mechanisms.values()) == {"linear"}
    mean, spread = moments(model)
    data = np.asarray(model.sample(20_000).values)[:, : len(mean)]
    np.testing.assert_allclose((data.mean(0) - mean) / spread, 0, atol=0.05)
    np.testing.assert_allclose(data.std(0) / spread, 1, rtol=0.05)
    assert float(best_intervention(model.scm, 1).value) <= mean[model.index(model.target)] + 1e-3


def test_models_survive_pgmpy_itself() -> None:
    pytest.importorskip("pgmpy.models", reason="pgmpy cannot be imported")
    model = parse_model("X = 1 + N(0, 2); Z = 0.5*X + N(0, 1); Y = Z - 2*X + N(0, 0.5)")
    network = to_pgmpy(model)
    same_arrays(model, from_pgmpy(network, target="Y"))
    mean, covariance = network.to_joint_gaussian()
    order = [model.index(str(v)) for v in network.nodes()]
    np.testing.assert_allclose(np.sort(np.ravel(mean)), np.sort(moments(model)[0]), rtol=1e-5)
    assert len(order) == len(covariance)
    with pytest.raises(ValueError, match="linear with Gaussian noise for pgmpy; got other"):
        to_pgmpy(parse_model("X = N(0, 1); Y = exp(X)"))
