"""Published networks with real coefficients, read from the files inside the installed pgmpy package."""

import gzip
import importlib.util
import json
import re
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from jaxtyping import Float

from acbo.names import place

from .builders import Ranges
from .causal_model import CausalModel
from .pgmpy_interop import Equations, linear_network

NetworkName = Literal["ecoli70", "magic-niab", "magic-irri", "arth150", "sachs"]
NETWORKS: tuple[NetworkName, ...] = get_args(NetworkName)


def load_network(name: str, *, target: str | None = None, ranges: Ranges | None = None) -> CausalModel:
    """A published network, read from the files inside the installed pgmpy package.

    ecoli70 (46 variables, 70 edges), magic-niab (44, 66), magic-irri (64, 102) and arth150 (107, 150) are
    linear-Gaussian with the published coefficients. sachs (11, 17) is discrete with the levels LOW, AVG and HIGH:
    here they are -1, 0 and 1, and each variable is the best linear function of its causes under the network's joint
    distribution. Without `target` it is the last variable in causal order; without `ranges` every other variable may
    be set within two standard deviations of its mean.
    """
    if name not in NETWORKS:
        place(name, NETWORKS, "name")
    folder = _folder()
    if name == "sachs":
        names, equations, edges = _linear_levels(
            *_read_bif(gzip.decompress((folder / "sachs.bif.gz").read_bytes()))
        )
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
    """Where pgmpy keeps its networks; the package itself, with its many requirements, is not imported."""
    found = importlib.util.find_spec("pgmpy")
    folder = (
        Path((found.submodule_search_locations or [""])[0]) / "utils" / "example_models" if found else None
    )
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


def _linear_levels(names: list[str], tables: Tables) -> tuple[list[str], Equations, list[tuple[str, str]]]:
    """The best linear function of its causes for each variable, its three levels being -1, 0 and 1."""
    d = len(names)
    joint = np.ones((1,) * d)
    for name, (causes, table) in tables.items():
        axes = [names.index(v) for v in (*causes, name)]
        shape = [table.shape[axes.index(v)] if v in axes else 1 for v in range(d)]
        joint = joint * np.transpose(table, np.argsort(axes)).reshape(shape)
    joint = joint / joint.sum()
    levels = np.stack(np.meshgrid(*[np.linspace(-1, 1, n) for n in joint.shape], indexing="ij"), -1).reshape(
        -1, d
    )
    weight = joint.reshape(-1, 1)
    mean = (weight * levels).sum(0)
    covariance = (weight * (levels - mean)).T @ (levels - mean)
    equations = []
    for name, (causes, _) in tables.items():
        j, at = names.index(name), [names.index(cause) for cause in causes]
        slope = np.linalg.solve(covariance[np.ix_(at, at)], covariance[at, j]) if at else np.zeros(0)
        left = covariance[j, j] - slope @ covariance[at, j]
        intercept = float(mean[j] - slope @ mean[at])
        equations.append(
            (name, intercept, dict(zip(causes, slope.tolist(), strict=True)), float(np.sqrt(left)))
        )
    return names, equations, [(cause, name) for name, (causes, _) in tables.items() for cause in causes]
