"""Our teacher and our surrogate over many datasets, and what they cost."""

from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Float

from acbo.data import Dataset
from acbo.inference import BGe, edge_posterior
from acbo.surrogate import Surrogate, exact_edges
from acbo.surrogate.quality import edge_logits
from jaxworlds.measuring import measure


@eqx.filter_jit
def teacher_edges(data: Dataset, batch: int = 8) -> Float[Array, "models d d"]:
    """Exact posteriors, `batch` at a time: a program for each number of variables."""
    return jax.lax.map(exact_edges, data, batch_size=batch)


def surrogate_edges(surrogate: Surrogate, data: Dataset) -> Float[Array, "models d d"]:
    """What the network says."""
    return jax.nn.sigmoid(edge_logits(surrogate, data))


def first(data: Any, count: int) -> Any:
    """The first datasets of many."""
    return jax.tree.map(lambda leaf: leaf[:count], data)


@eqx.filter_jit
def _answer(surrogate: Surrogate, data: Dataset) -> Float[Array, "d d"]:
    return surrogate(data).edges


def surrogate_costs(surrogate: Surrogate, data: Dataset, batch: int, repeats: int) -> dict[str, Any]:
    """Seconds per dataset in a batch and alone, warm; compiling apart."""
    many = measure(edge_logits, surrogate, first(data, batch), repeats=repeats, max_seconds=60)
    alone = measure(_answer, surrogate, jax.tree.map(lambda leaf: leaf[0], data), repeats=repeats)
    return {
        "wall_s": many.median_s / batch,
        "cpu_s": many.cpu_s / batch,
        "compile_s": many.compile_s,
        "alone_s": alone.median_s,
        "alone CPU_s": alone.cpu_s,
    }


def teacher_costs(data: Dataset, batch: int, repeats: int) -> dict[str, Any]:
    """Seconds per dataset in a batch, warm; compiling apart."""
    many = measure(teacher_edges, first(data, batch), repeats=repeats, max_seconds=60)
    return {"wall_s": many.median_s / batch, "cpu_s": many.cpu_s / batch, "compile_s": many.compile_s}


def rounding_of_teacher(data: Dataset) -> float:
    """The largest difference that double precision makes to an edge's probability."""
    single = teacher_edges(data)
    with jax.enable_x64(True):
        wide = eqx.tree_at(lambda d: d.values, data, data.values.astype("float64"))
        double = jax.lax.map(lambda d: edge_posterior(d, BGe(scale="data")).edges, wide, batch_size=8)
        return float(abs(double - single).max())
