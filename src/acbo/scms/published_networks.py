"""Models to and from pgmpy, and the published networks with real coefficients in its package."""

import gzip
import importlib.util
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from jaxtyping import Bool, Float

from acbo.names import number, place, require_distinct, short
from acbo.optional import optional_package

from .builders import Ranges, linear_model
from .causal_model import CausalModel

NetworkName = Literal["ecoli70", "magic-niab", "magic-irri", "arth150", "sachs"]
NETWORKS: tuple[NetworkName, ...] = get_args(NetworkName)
Equations = Sequence[tuple[str, float, dict[str, float], float]]


def load_network(name: str, *, target: str | None = None, ranges: Ranges | None = None) -> CausalModel:
    """A published network, read from the files inside the installed pgmpy package.

    ecoli70 (46 variables, 70 edges), magic-niab (44, 66), magic-irri (64, 102) and arth150 (107, 150) are
    linear-Gaussian with the published coefficients. sachs (11, 17) is discrete with the levels LOW, AVG and HIGH:
    here they are -1, 0 and 1, and each variable is the best linear function of its causes under the network's joint
    distribution. Without `target` it is the last variable in causal order; without `ranges` every other variable may
    be set within two standard deviations of its mean.
    """
    place(name, NETWORKS, "name")
    folder = _folder()
    if name == "sachs":
        names, tables = _read_bif(gzip.decompress((folder / "sachs.bif.gz").read_bytes()))
        equations, edges = _linear_levels(names, tables)
    else:
        names, equations, edges = _read_json(json.loads((folder / f"{name}.json").read_text()))
    model = linear_network(names, equations, edges, target=names[-1])
    goal = model.order[-1] if target is None else target
    if ranges is None:
        mean, spread = moments(model)
        ends = zip(names, (mean - 2 * spread).tolist(), (mean + 2 * spread).tolist(), strict=True)
        ranges = {name: (low, high) for name, low, high in ends if name != goal}
    return linear_network(names, equations, edges, target=goal, ranges=ranges)


def moments(model: CausalModel) -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, " d"]]:
    """Means and standard deviations of a linear model without intervention, in closed form."""
    d = len(model.names)
    weight = np.asarray(model.scm.mechanism.weight, float)[:d, :d]
    total = np.linalg.inv(np.eye(d) - weight)
    variance = np.asarray(model.scm.noise.scale, float)[:d] ** 2
    return np.asarray(model.scm.mechanism.bias, float)[:d] @ total, np.sqrt(variance @ total**2)


def _folder() -> Path:
    """The folder of pgmpy's networks; pgmpy itself, with its many requirements, is not imported."""
    found = importlib.util.find_spec("pgmpy")
    places = found and found.submodule_search_locations
    folder = Path(places[0]) / "utils" / "example_models" if places else None
    if folder is None or not folder.is_dir():
        raise ImportError(
            "Published networks are read from the package pgmpy, version 1.1 (later ones may not hold them): "
            'pip install "pgmpy>=1.0,<1.3". With `pip install --no-deps` the files come without its requirements.'
        )
    return folder


def _read_json(data: dict[str, Any]) -> tuple[list[str], Equations, list[tuple[str, str]]]:
    equations = []
    for name, facts in data["cpds"].items():
        values = {cause: float(np.ravel(value)[0]) for cause, value in facts["coefficients"].items()}
        causes = {cause: values[cause] for cause in facts["parents"]}
        equations.append((name, values["(Intercept)"], causes, float(np.ravel(facts["variance"])[0]) ** 0.5))
    return list(data["nodes"]), equations, [(a, b) for a, b in data["arcs"]]


Tables = dict[str, tuple[list[str], np.ndarray]]


def _read_bif(data: bytes) -> tuple[list[str], Tables]:
    """Names and conditional tables `[parents' levels..., own level]` of a BIF text in which all have three levels."""
    text = data.decode()
    names = re.findall(r"variable (\S+) \{", text)
    levels = {
        name: [level.strip() for level in found.split(",")]
        for name, found in re.findall(r"variable (\S+) \{\s*type discrete \[ \d+ \] \{ ([^}]*) \};", text)
    }
    tables: Tables = {}
    for head, body in re.findall(r"probability \( ([^)]*) \) \{(.*?)\n\}", text, re.DOTALL):
        name, *rest = (part.strip() for part in head.split("|"))
        causes = [cause.strip() for cause in rest[0].split(",")] if rest else []
        table = np.zeros([len(levels[v]) for v in (*causes, name)])
        if not causes:
            table[:] = [float(v) for v in re.findall(r"table ([^;]*);", body)[0].split(",")]
        for at, numbers in re.findall(r"\(([^)]*)\) ([^;]*);", body):
            place_of = tuple(levels[c].index(v.strip()) for c, v in zip(causes, at.split(","), strict=True))
            table[place_of] = [float(v) for v in numbers.split(",")]
        tables[name] = causes, table
    return names, tables


def _linear_levels(names: list[str], tables: Tables) -> tuple[Equations, list[tuple[str, str]]]:
    """The best linear function of its causes for each variable, its three levels being -1, 0 and 1."""
    d = len(names)
    joint = np.ones((1,) * d)
    for name, (causes, table) in tables.items():
        axes = [names.index(v) for v in (*causes, name)]
        shape = [table.shape[axes.index(v)] if v in axes else 1 for v in range(d)]
        joint = joint * np.transpose(table, np.argsort(axes)).reshape(shape)
    joint = joint / joint.sum()
    lines = [np.linspace(-1, 1, n) for n in joint.shape]
    levels = np.stack(np.meshgrid(*lines, indexing="ij"), -1).reshape(-1, d)
    weight = joint.reshape(-1, 1)
    mean = (weight * levels).sum(0)
    covariance = (weight * (levels - mean)).T @ (levels - mean)
    equations = []
    for name, (causes, _) in tables.items():
        j, at = names.index(name), [names.index(cause) for cause in causes]
        slope = np.linalg.solve(covariance[np.ix_(at, at)], covariance[at, j]) if at else np.zeros(0)
        left = covariance[j, j] - slope @ covariance[at, j]
        intercept = float(mean[j] - slope @ mean[at])
        coefficients = dict(zip(causes, slope.tolist(), strict=True))
        equations.append((name, intercept, coefficients, float(np.sqrt(left))))
    return equations, [(cause, name) for name, (causes, _) in tables.items() for cause in causes]


def linear_network(
    names: Sequence[str], equations: Equations, edges: Iterable[tuple[str, str]], **options: Any
) -> CausalModel:
    """A linear model from (name, intercept, coefficients by cause, standard deviation) and edges."""
    d = len(names)
    require_distinct(names, "network")
    weights, bias, scale = np.zeros((d, d)), np.zeros(d), np.zeros(d)
    adjacency: Bool[np.ndarray, "d d"] = np.zeros((d, d), bool)
    for cause, effect in edges:
        adjacency[place(cause, names, "network: edges"), place(effect, names, "network: edges")] = True
    for name, intercept, coefficients, deviation in equations:
        j = place(name, names, "network")
        bias[j], scale[j] = intercept, deviation
        for cause, value in coefficients.items():
            weights[place(cause, names, "network"), j] = value
    return linear_model(names, weights, scale=scale, bias=bias, adjacency=adjacency, **options)


def from_pgmpy(network: Any, **options: Any) -> CausalModel:
    """A model from pgmpy's `LinearGaussianBayesianNetwork`; options as for `linear_model`.

    Intercepts, coefficients and standard deviations are taken over as they are.
    """
    names = [str(node) for node in network.nodes()]
    equations = [_equation(cpd) for cpd in network.get_cpds()]
    missing = set(names) - {name for name, *_ in equations}
    if missing:
        raise ValueError(
            f"`network` must have a CPD for every node; got none for {', '.join(sorted(missing))[:200]}."
        )
    return linear_network(names, equations, [(str(a), str(b)) for a, b in network.edges()], **options)


def _equation(cpd: Any) -> tuple[str, float, dict[str, float], float]:
    """Name, intercept, coefficients and standard deviation of one distribution."""
    lost = [name for name in ("variable", "beta", "evidence", "std") if not hasattr(cpd, name)]
    if lost:
        raise ValueError(f"`network` must have linear-Gaussian CPDs; one has no {lost[0]}.")
    name, causes = str(cpd.variable), cpd.evidence
    if not hasattr(cpd.beta, "__len__") or not hasattr(causes, "__len__") or isinstance(causes, str):
        raise ValueError(f"`network` must list the coefficients and causes of {short(name)}; it does not.")
    beta = [number(value, f"network: coefficients of {name[:60]}") for value in cpd.beta]
    if len(beta) != len(causes) + 1:
        raise ValueError(
            f"`network` must give {short(name)} an intercept and {len(causes)} coefficients; it gives {len(beta)}."
        )
    deviation = number(cpd.std, f"network: standard deviation of {name[:60]}")
    return name, beta[0], dict(zip(map(str, causes), beta[1:], strict=True)), deviation


def to_pgmpy(model: CausalModel) -> Any:
    """pgmpy's `LinearGaussianBayesianNetwork` of a linear model with Gaussian noise."""
    models = optional_package("pgmpy.models", "`to_pgmpy`")
    factors = optional_package("pgmpy.factors.continuous", "`to_pgmpy`")
    for name in model.names:
        mechanism, noise = model.mechanisms[name], model.noises[name]
        if mechanism != "linear" or noise != "gaussian":
            raise ValueError(
                f"`model` must be linear with Gaussian noise for pgmpy; got {mechanism} with {noise} noise for {name!r}. "
                "`to_text` and `to_networkx` keep every kind."
            )
    network = models.LinearGaussianBayesianNetwork(model.edges, latents=set(model.hidden))
    network.add_nodes_from(model.names)
    weight, m = np.asarray(model.scm.mechanism.weight), model.scm.mechanism
    for name in model.names:
        j, causes = model.index(name), list(model.parents(name))
        beta = [float(m.bias[j]), *(float(weight[model.index(cause), j]) for cause in causes)]
        network.add_cpds(factors.LinearGaussianCPD(name, beta, float(model.scm.noise.scale[j]), causes))
    return network
