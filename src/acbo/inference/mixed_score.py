"""A score for mechanisms that are linear or smooth, each node's by what its data say."""

import dataclasses
import math
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxworlds.static import config

from ..data import Dataset
from .bge import BGe, moments
from .gp_score import GaussianProcess
from .parent_sets import Candidates, SetTable
from .scores import AbstractScore


@config
class LinearOrSmooth(AbstractScore):
    """log p(node | parents), where the mechanism is linear or smooth with equal probability beforehand.

        p(node | parents) = ½ p(node | parents, linear) + ½ p(node | parents, smooth)

    Both are densities of the values in the data's units, so that they can be added: `BGe(scale="data")` is one already,
    `GaussianProcess` is about standardized variables and is divided by the deviation once for each row. A straight node
    is judged about as well as by the linear score, a bent one as well as by the smooth one.
    """

    usual_parents: ClassVar[int] = 3
    screening_sets: ClassVar[int] = 300
    linear: BGe = dataclasses.field(default_factory=lambda: BGe(scale="data"))
    smooth: GaussianProcess = dataclasses.field(default_factory=GaussianProcess)

    def log_scores(
        self, data: Dataset, candidates: Candidates, table: SetTable
    ) -> Float[Array, "nodes sets"]:
        _, variance = moments(data.values, data.rows)
        kept = jnp.sum(data.rows[:, None] & ~data.intervened, 0)
        units = 0.5 * kept * jnp.log(variance)
        straight = self.linear.log_scores(data, candidates, table)
        bent = self.smooth.log_scores(data, candidates, table) - units[:, None]
        return jnp.logaddexp(straight, bent) - math.log(2)
