"""Loaders of acbo: problems, saved optimizations, models in text, graphs and tables of others, weights."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from fuzz_cases import Loader, demand

_PROBLEMS = [
    b"""target = "pain"
objective = "min"
experiments = 10
budget = 25.0
seed = 1
mechanism = "linear"
max_simultaneous = 1
data = "rows.csv"
intervened = "was_set"
graph = "dose -> pain; age -> pain"
[variables]
dose = [0, 10]
coating = {levels = [0, 1, 2], cost = 2.0}
age = false
pain = false
""",
    b"""model = "X = N(0, 1); Z = 0.5*X + N(0, 1); Y = Z - 2*X + N(0, 1); X in [-5, 5]; Z in [-1, 20]"
graph = "known"
observations = 3
experiments = 4
target = "Y"
""",
    b"""benchmark = "toy"
experiments = 5
[graph]
required = [["X", "Z"]]
""",
]


def _problems(folder: Path) -> list[bytes]:
    (folder / "rows.csv").write_bytes(_ROWS)
    return _PROBLEMS


_ROWS = (
    b'dose,coating,age,pain,was_set\n1,0,30,4.5,\n2.5,1,40,3.25,dose\n3,2,35,2,"dose,coating"\n0,0,50,6,\n'
)


def read_problem(path: Path) -> None:
    """Read a problem and what it says of variables, target and graph."""
    from acbo._commands.problem_file import read_problem as read

    found = read(path).settings()
    demand(found.target in found.names and found.settable, "a problem without a target")


def _rows(folder: Path) -> list[bytes]:
    (folder / "problem.toml").write_bytes(_PROBLEMS[0])
    return [_ROWS]


def read_rows(path: Path) -> None:
    """Start an optimization from a table of rows."""
    from acbo._commands.problem_file import read_problem as read

    state = read(path.with_name("problem.toml")).start().state
    for row in state.rows:
        demand(len(row.values) == 4 and np.isfinite(row.values).all(), "a row is not finite")


def _optimizations(folder: Path) -> list[bytes]:
    from acbo.optimizer.graph_knowledge import GraphKnowledge
    from acbo.optimizer.state import Pending, Row, Settings, State, write_state
    from acbo.optimizer.variables import Variable

    names = (
        Variable("dose", low=0.0, high=10.0, cost=1.0),
        Variable("coat", levels=(0.0, 1.0, 2.0)),
        Variable("pain"),
    )
    settings = Settings(names, "pain", budget=25.0, experiments=9, graph=GraphKnowledge(), seed=3)
    rows = (Row((1.0, 2.0, 3.5), given=True), Row((2.0, 1.0, 3.0), ("dose",), 0))
    state = State(settings, rows, (Pending(1, {"dose": 4.0}),), asked=2, cancelled=())
    write_state(folder / "made.acbo", state)
    return [(folder / "made.acbo").read_bytes()]


def read_optimization(path: Path) -> None:
    """Load a saved optimization and count what it spent."""
    from acbo.optimizer.optimizer import Optimizer

    found = Optimizer.load(path, keep=False)
    state = found.state
    demand(np.isfinite([state.spent, state.pending_cost]).all(), "the cost is not a number")
    for row in state.rows:
        demand(len(row.values) == len(state.settings.names), "a row does not fit")
    repr(found)
    found.history()


_MODELS = [
    b"X = 1 + N(0, 2); W = Laplace(0, 1); Z = 0.5*X - 2*W + U(-1, 1); Y = Z + 0.25*X + N(0, 0.1)\nX in [-5, 5]; Z in [-1, 20]\n",
    b"A = N(0, 1)\nB = sin(2*A + 1) + 0.5*A**2 + N(0, 0.5)\nC = tanh(A) * 2 - sigmoid(B) + N(0, 1)  # text\nA in [0, 1]\n",
]


def read_model(path: Path) -> None:
    """Parse a model."""
    from acbo.scms import parse_model

    found = parse_model(path.read_bytes().decode("utf-8", "replace"))
    demand(found.target in found.names, "a model without a target")


def read_graph(path: Path) -> None:
    """Parse a graph."""
    from acbo.scms import parse_graph

    names, adjacency = parse_graph(path.read_bytes().decode("utf-8", "replace"))
    demand(adjacency.shape == (len(names),) * 2, "a graph of another size")


_GRAPH = {
    "nodes": {
        "X": {"bias": 1.0, "scale": 2.0, "noise": "gaussian", "low": -5, "high": 5},
        "Z": {},
        "Y": {"hidden": False},
    },
    "edges": [["X", "Z", {"weight": 0.5}], ["Z", "Y", {}]],
    "target": "Y",
}


def _described(path: Path) -> Any:
    """JSON with NaN; what is none is no input here."""
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        raise ValueError(f"{path} is no description") from None


def read_networkx(path: Path) -> None:
    """A graph of networkx from a description of it."""
    import networkx

    from acbo.scms import from_networkx

    said = _described(path)
    try:
        graph = networkx.DiGraph(target=said["target"])
        graph.add_nodes_from(said["nodes"].items())
        graph.add_edges_from(map(tuple, said["edges"]))
    except Exception as error:
        raise ValueError(f"{path}: networkx makes no graph of it") from error
    _sound(from_networkx(graph))


def _sound(model: Any) -> None:
    demand(np.isfinite(np.asarray(model.scm.mechanism.weight)).all(), "weights are not finite")
    demand(np.isfinite(np.asarray(model.scm.noise.scale)).all(), "scales are not finite")
    demand(model.target in model.names, "a model without a target")


def _frame(path: Path) -> Any:
    import pandas

    said = _described(path)
    try:
        return pandas.DataFrame(said["data"], index=said.get("index"))
    except Exception as error:
        raise ValueError(f"{path}: pandas makes no table of it") from error


def read_edge_frame(path: Path) -> None:
    """A model from a table of edges."""
    from acbo.scms import from_edge_frame

    _sound(from_edge_frame(_frame(path)))


def read_adjacency_frame(path: Path) -> None:
    """A model from a square table."""
    from acbo.scms import from_adjacency_frame

    _sound(from_adjacency_frame(_frame(path)))


def read_frame(path: Path) -> None:
    """Data from a table."""
    from acbo.scms import from_frame

    data, names = from_frame(_frame(path), target="Y", intervened="set")
    demand(
        np.isfinite(np.asarray(data.values)).all() and data.values.shape[1] >= len(names),
        "data are not finite",
    )


def read_pgmpy(path: Path) -> None:
    """A network as pgmpy has it, from a description of it."""
    from acbo.scms import from_pgmpy

    said = _described(path)
    try:
        nodes, edges = list(said["nodes"]), [(a, b) for a, b in said["edges"]]
        cpds = [SimpleNamespace(**cpd) for cpd in said["cpds"]]
    except Exception as error:
        raise ValueError(f"{path}: no network can be described so") from error
    network = SimpleNamespace(nodes=lambda: nodes, edges=lambda: edges, get_cpds=lambda: cpds)
    _sound(from_pgmpy(network))


_NETWORK = {
    "nodes": ["X", "Z", "Y"],
    "edges": [["X", "Z"], ["Z", "Y"]],
    "cpds": [
        {"variable": "X", "beta": [1.0], "evidence": [], "std": 2.0},
        {"variable": "Z", "beta": [0.0, 0.5], "evidence": ["X"], "std": 1.0},
        {"variable": "Y", "beta": [0.0, 2], "evidence": ["Z"], "std": 0.5},
    ],
}
_EDGES = {"data": {"source": ["X", "Z"], "target": ["Z", "Y"], "weight": [0.5, 2]}}
_SQUARE = {"data": {"X": [0, 0, 0], "Z": [0.5, 0, 0], "Y": [0, 2, 0]}, "index": ["X", "Z", "Y"]}
_DATA = {"data": {"X": [1, 2.5, 3], "Y": [0.5, 1, 2], "set": ["", "X", None]}}


def _json(value: Any) -> Callable[[Path], list[bytes]]:
    return lambda folder: [json.dumps(value).encode()]


def _surrogates(folder: Path) -> list[bytes]:
    import jax.random as jr

    from acbo.surrogate.layers import NetworkConfig
    from acbo.surrogate.network import Network
    from acbo.surrogate.weights import save_weights

    config = NetworkConfig(width=8, layers=1, heads=2)
    save_weights(folder / "made.safetensors", Network(config, key=jr.key(0)), {"story": "x"})
    return [(folder / "made.safetensors").read_bytes()]


def read_surrogate(path: Path) -> None:
    """Load a surrogate."""
    import jax

    from acbo.surrogate.weights import load_weights

    for leaf in jax.tree.leaves(load_weights(path)):
        demand(leaf.dtype.kind in "fV" or leaf.dtype.name == "bfloat16", f"weights of {leaf.dtype}")


def _policies(folder: Path) -> list[bytes]:
    import jax.random as jr

    from acbo.policy.policy_network import PolicyConfig, PolicyNetwork, save_policy

    config = PolicyConfig(width=8, layers=1, surrogate_layers=1)
    save_policy(folder / "made.safetensors", PolicyNetwork(config, key=jr.key(0)), {"story": "x"})
    return [(folder / "made.safetensors").read_bytes()]


def read_policy(path: Path) -> None:
    """Load a policy, and show the file as `acbo show` does."""
    import io

    from rich.console import Console

    from acbo._commands.terminal import show
    from acbo.strategies.trained_policy import load_policy

    show(path, Console(file=io.StringIO(), width=100))
    load_policy(path)


_OBJECT = ("json",)
_ASKED = ("`",)
LOADERS = [
    Loader(
        "acbo/problem.toml",
        "problem.toml",
        _problems,
        read_problem,
        ("bytes", "toml", "toml", "text", "encoding"),
        _ASKED,
        1,
    ),
    Loader(
        "acbo/rows.csv",
        "rows.csv",
        _rows,
        read_rows,
        ("bytes", "table", "table", "text", "encoding"),
        _ASKED,
        1,
    ),
    Loader(
        "acbo/optimization",
        "run.acbo",
        _optimizations,
        read_optimization,
        ("bytes", "json", "json", "json", "text", "encoding"),
        weight=3,
    ),
    Loader(
        "acbo/model",
        "model.txt",
        lambda folder: _MODELS,
        read_model,
        ("bytes", "text", "text", "encoding"),
        _ASKED,
        1,
    ),
    Loader(
        "acbo/graph",
        "graph.txt",
        lambda folder: [b"dose -> pain; age -> pain, dose\nX -> Y -> Z\n"],
        read_graph,
        ("bytes", "text", "text", "encoding"),
        _ASKED,
        4,
    ),
    Loader("acbo/networkx", "graph.json", _json(_GRAPH), read_networkx, _OBJECT, _ASKED, 1),
    Loader("acbo/pgmpy", "network.json", _json(_NETWORK), read_pgmpy, _OBJECT, _ASKED, 1),
    Loader("acbo/edge frame", "edges.json", _json(_EDGES), read_edge_frame, _OBJECT, _ASKED, 1),
    Loader("acbo/adjacency frame", "square.json", _json(_SQUARE), read_adjacency_frame, _OBJECT, _ASKED, 1),
    Loader("acbo/frame", "data.json", _json(_DATA), read_frame, _OBJECT, _ASKED, 2),
    Loader(
        "acbo/surrogate",
        "weights.safetensors",
        _surrogates,
        read_surrogate,
        ("bytes", "safetensors", "safetensors"),
        weight=1,
    ),
    Loader(
        "acbo/policy",
        "policy.safetensors",
        _policies,
        read_policy,
        ("bytes", "safetensors", "safetensors"),
        weight=1,
    ),
]
