"""The interface of strategies: the next experiment, and the recommendation. Pure functions of arrays.

A strategy may also have `belief(problem, data, key)`, what it believes of the target under every action (an
`AbstractBelief`), and `advise(problem, data, belief, key)`, the recommendation by a belief that is there already. The
optimizer then recommends, explains and draws by that belief; for others it forms one of its own.
"""

import abc

import equinox as eqx
from jaxtyping import Array, Float

from acbo.data import Dataset, Key
from acbo.problem import Choice, Problem, Recommendation


class AbstractStrategy(eqx.Module):
    """A way to choose experiments. May be jitted and vmapped over problems, data and keys."""

    @abc.abstractmethod
    def choose(self, problem: Problem, data: Dataset, remaining: Float[Array, ""], key: Key) -> Choice:
        """The next experiment, given all rows so far and how many experiments are left."""

    @abc.abstractmethod
    def recommend(self, problem: Problem, data: Dataset, key: Key) -> Recommendation:
        """The recommended action."""
