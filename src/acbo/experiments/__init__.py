"""Problems and experiments as arrays, episodes of them, and the comparison of strategies."""

from .problem import Choice as Choice
from .problem import Problem as Problem
from .problem import Recommendation as Recommendation
from .problem import known_graph as known_graph
from .problem import problem_of as problem_of
