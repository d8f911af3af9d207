"""Linear models fitted to data along a known graph, each variable by least squares on its causes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool

from acbo.data import Dataset

from .builders import linear_model
from .causal_model import CausalModel


def fit_linear_model(
    names: Sequence[str], adjacency: Bool[np.ndarray, "d d"], data: Dataset, **options: Any
) -> CausalModel:
    """The linear-Gaussian model of a graph that explains the data best; options as for `linear_model`.

    Rows in which a variable was set say nothing about its mechanism and are left out for it. Without a target among
    the options, the data's holds.
    """
    d = len(names)
    values, rows = np.asarray(data.values, float)[:, :d], np.asarray(data.rows)
    touched = np.asarray(data.intervened)[:, :d]
    weights, bias, scale = np.zeros((d, d)), np.zeros(d), np.zeros(d)
    for j in range(d):
        causes = np.flatnonzero(adjacency[:, j])
        kept = rows & ~touched[:, j]
        free = int(kept.sum()) - len(causes) - 1
        if free < 1:
            raise ValueError(
                f"`data` must have more rows in which {names[j]!r} was not set than it has causes plus one, "
                f"{len(causes) + 1}; got {int(kept.sum())}."
            )
        x, y = values[kept][:, causes], values[kept, j]
        middle, spread = x.mean(0), x.std(0)
        # In one unit, or the causes with small numbers are lost to rounding; a constant explains nothing.
        spread[spread <= 1e-12 * np.abs(x).max(0)] = np.inf
        design = (x - middle) / spread
        solution = np.linalg.lstsq(design, y - y.mean(), rcond=None)[0]
        left = y - y.mean() - design @ solution
        weights[causes, j] = solution / spread
        bias[j] = y.mean() - middle @ weights[causes, j]
        scale[j] = np.sqrt(left @ left / free)
    options.setdefault("target", names[int(data.target)])
    return linear_model(names, weights, scale=scale, bias=bias, adjacency=adjacency, **options)
