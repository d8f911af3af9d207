"""pgmpy's linear-Gaussian networks in and out."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool

from acbo.names import number, place, require_distinct, short
from acbo.optional import optional_package

from .builders import linear_model
from .causal_model import CausalModel

Equations = Sequence[tuple[str, float, dict[str, float], float]]


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
    equations = []
    for cpd in network.get_cpds():
        equations.append(_equation(cpd))
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
        scale = float(model.scm.noise.scale[j])
        network.add_cpds(factors.LinearGaussianCPD(name, beta, scale, causes))
    return network
