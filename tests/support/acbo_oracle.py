"""What the teacher must equal: sums over every graph, scores row by row, in plain NumPy; and models to draw data from.

Nothing here shares code or formulas with `acbo.inference`. The score is the product of one-step-ahead Student-t
predictions; the posterior enumerates graphs and their orders.
"""

import itertools
import math

import numpy as np

# Graphs


def all_dags(d: int) -> np.ndarray:
    """Every acyclic graph as the parents of each node, one bit mask per node: [graphs, d]."""
    own = [np.array([m for m in range(1 << d) if not m >> v & 1]) for v in range(d)]
    grid = np.stack(np.meshgrid(*own, indexing="ij"), -1).reshape(-1, d)
    removed = np.zeros(len(grid), int)
    for _ in range(d):  # peel off nodes whose parents are all gone
        for v in range(d):
            removed |= ((grid[:, v] & ~removed) == 0).astype(int) << v
    return grid[removed == (1 << d) - 1]


def linear_extensions(dags: np.ndarray) -> np.ndarray:
    """How many orders each graph fits, by counting prefixes."""
    d = dags.shape[1]
    ways = np.zeros((len(dags), 1 << d))
    ways[:, 0] = 1
    for prefix in range(1, 1 << d):
        for v in range(d):
            if prefix >> v & 1:
                before = prefix & ~(1 << v)
                ways[:, prefix] += np.where((dags[:, v] & ~before) == 0, ways[:, before], 0)
    return ways[:, -1]


def adjacency(dags: np.ndarray) -> np.ndarray:
    """[graphs, i, j]: whether i → j."""
    d = dags.shape[1]
    return (dags[:, None, :] >> np.arange(d)[None, :, None]) & 1 == 1


# Scores


def log_student(x: np.ndarray, mean: np.ndarray, scale: np.ndarray, df: float) -> float:
    """Log density of the multivariate Student distribution."""
    m = len(x)
    if m == 0:
        return 0.0
    away = x - mean
    quadratic = away @ np.linalg.solve(scale, away)
    return (
        math.lgamma((df + m) / 2)
        - math.lgamma(df / 2)
        - m / 2 * math.log(df * math.pi)
        - np.linalg.slogdet(scale)[1] / 2
        - (df + m) / 2 * math.log1p(quadratic / df)
    )


def log_predictive(rows: np.ndarray, mean_weight: float, extra: float) -> float:
    """log p(rows) of jointly Gaussian variables, each row predicted from those before it.

    Covariances are inverse-Wishart, means normal about 0; the prior of all variables, cut down to these, has
    `extra` + their number degrees of freedom.
    """
    m = rows.shape[1]
    weight, degrees = mean_weight, extra + m
    mean, scatter = np.zeros(m), np.eye(m) * mean_weight * (extra - 1) / (mean_weight + 1)
    log = 0.0
    for x in rows:
        df = degrees - m + 1
        log += log_student(x, mean, scatter * (weight + 1) / (weight * df), df)
        scatter = scatter + weight / (weight + 1) * np.outer(x - mean, x - mean)
        mean = (weight * mean + x) / (weight + 1)
        weight, degrees = weight + 1, degrees + 1
    return log


def bge_scores(
    values: np.ndarray, intervened: np.ndarray, mean_weight: float = 1.0, extra: float = 2.0
) -> np.ndarray:
    """[v, mask]: log p(v | parents) from the rows in which v was left alone; NaN where v is its own parent."""
    d = values.shape[1]
    scores = np.full((d, 1 << d), np.nan)
    for v in range(d):
        rows = values[~intervened[:, v]]
        for mask in range(1 << d):
            if not mask >> v & 1:
                parents = [u for u in range(d) if mask >> u & 1]
                joint = log_predictive(rows[:, [*parents, v]], mean_weight, extra)
                scores[v, mask] = joint - log_predictive(rows[:, parents], mean_weight, extra)
    return scores


def size_prior(d: int, max_parents: int, kind: str) -> np.ndarray:
    """[mask]: log prior of a parent set among d − 1 others."""
    sizes = np.array([bin(mask).count("1") for mask in range(1 << d)])
    log = np.zeros(1 << d)
    if kind == "size":
        log = -np.array([math.log(max(math.comb(d - 1, size), 1)) for size in sizes])
    return np.where(sizes <= max_parents, log, -np.inf)


# Posteriors


def enumerate_posterior(
    log_scores: np.ndarray, log_prior: np.ndarray, *, by_orders: bool
) -> dict[str, np.ndarray]:
    """Edges, parent sets and evidence by summing over every graph.

    `log_scores`, `log_prior`: [v, mask]. `by_orders` weighs a graph by the number of orders it fits.
    """
    d = len(log_scores)
    dags = all_dags(d)
    nodes = np.arange(d)
    weight = np.log(linear_extensions(dags)) if by_orders else np.zeros(len(dags))
    prior = weight + log_prior[nodes, dags].sum(1)
    log = prior + log_scores[nodes, dags].sum(1)
    share = np.exp(log - log.max())
    p = share / share.sum()
    sets = np.zeros((d, 1 << d))
    for v in range(d):
        np.add.at(sets[v], dags[:, v], p)
    return {
        "edges": np.einsum("g,gij->ij", p, adjacency(dags)),
        "sets": sets,
        "log_evidence": np.array(_logsumexp(log) - _logsumexp(prior)),
    }


def _logsumexp(x: np.ndarray) -> float:
    return float(x.max() + np.log(np.exp(x - x.max()).sum()))


def masks_of(members: np.ndarray) -> np.ndarray:
    """Rows of members as bit masks."""
    return members.astype(int) @ (1 << np.arange(members.shape[1]))


# Models to draw data from


def random_graph(
    rng: np.random.Generator, d: int, edges_per_node: float = 1.5
) -> tuple[np.ndarray, np.ndarray]:
    """Adjacency of an Erdős–Rényi graph with so many edges per node on average, and an order it fits."""
    order = rng.permutation(d)
    upper = np.triu(rng.random((d, d)) < min(1.0, 2 * edges_per_node / (d - 1)), 1)
    graph = np.zeros((d, d), bool)
    graph[np.ix_(order, order)] = upper
    return graph, order


def random_interventions(
    rng: np.random.Generator, observed: int, intervened: int, d: int, scale: float = 2.0
) -> tuple[np.ndarray, np.ndarray]:
    """Which entries are set, one per interventional row, and to what."""
    mask = np.zeros((observed + intervened, d), bool)
    mask[observed + np.arange(intervened), rng.integers(0, d, intervened)] = True
    return mask, np.where(mask, scale * rng.standard_normal(mask.shape), 0.0)


def linear_data(
    rng: np.random.Generator, d: int, observed: int = 60, intervened: int = 40, edges_per_node: float = 1.5
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Graph, values and interventions of a linear Gaussian model: |w| in [0.5, 2], σ in [0.5, 1.5]."""
    graph, order = random_graph(rng, d, edges_per_node)
    w = graph * rng.uniform(0.5, 2.0, (d, d)) * rng.choice([-1.0, 1.0], (d, d))
    noise = rng.uniform(0.5, 1.5, d) * rng.standard_normal((observed + intervened, d))
    mask, setting = random_interventions(rng, observed, intervened, d)
    values = np.zeros_like(noise)
    for v in order:
        values[:, v] = np.where(mask[:, v], setting[:, v], values @ w[:, v] + noise[:, v])
    return graph, values, mask


def nonlinear_data(
    rng: np.random.Generator, d: int, observed: int = 60, intervened: int = 40, edges_per_node: float = 1.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same with smooth nonlinear mechanisms: sums of a few random sines and a square of the parents."""
    graph, order = random_graph(rng, d, edges_per_node)
    noise = rng.uniform(0.2, 0.5, d) * rng.standard_normal((observed + intervened, d))
    mask, setting = random_interventions(rng, observed, intervened, d, scale=1.0)
    values = np.zeros_like(noise)
    for v in order:
        parents = np.flatnonzero(graph[:, v])
        made = noise[:, v] if len(parents) else noise[:, v] / noise[:, v].std()
        if len(parents):
            x = values[:, parents]
            waves = rng.uniform(1.0, 2.0, (len(parents), 4)) * rng.choice([-1.0, 1.0], (len(parents), 4))
            signal = np.sin(x @ waves + rng.uniform(0, 2 * np.pi, 4)) @ rng.standard_normal(4)
            signal = signal + rng.choice([-0.5, 0.5]) * (x**2).mean(1)
            made = made + (signal - signal.mean()) / max(signal.std(), 1e-9)
        values[:, v] = np.where(mask[:, v], setting[:, v], made)
    return graph, values, mask


def all_sets(items: list[int], largest: int) -> list[tuple[int, ...]]:
    """Every subset up to a size, smallest first."""
    return [chosen for size in range(largest + 1) for chosen in itertools.combinations(items, size)]
