"""The interface of parent-set scores, and the scores by name."""

import abc
from typing import ClassVar

from jaxtyping import Array, Float

from ..data import Dataset
from .parent_sets import Candidates, SetTable


class AbstractScore(abc.ABC):
    """A score of parent sets for each node. Subclasses are `@config` classes: plain, static values."""

    usual_parents: ClassVar[int] = 5
    """Largest parent set that is tried unless the user says so."""
    screening_sets: ClassVar[int] = 50_000
    """Most parent sets of a node that are scored to find its candidate parents."""

    @abc.abstractmethod
    def log_scores(
        self, data: Dataset, candidates: Candidates, table: SetTable
    ) -> Float[Array, "nodes sets"]:
        """log p(values of the node | values of its parents), for every node and every set of its candidates.

        Rows in which the node itself is intervened say nothing about its mechanism and are left out. Entries
        with invalid candidates may be anything finite.
        """


def score_named(score: "str | AbstractScore") -> AbstractScore:
    """A score from its name, `"bge"` or `"gp"`, or itself."""
    from .bge import BGe
    from .gp_score import GaussianProcess

    if isinstance(score, AbstractScore):
        return score
    named = {"bge": BGe, "gp": GaussianProcess}
    if score not in named:
        raise ValueError(
            f"`score` must be 'bge', 'gp' or an AbstractScore; got {score!r}. Use 'bge' for linear models."
        )
    return named[score]()
