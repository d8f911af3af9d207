"""Problems and experiments as arrays, episodes of them, and the comparison of strategies."""

from .episode import Episode as Episode
from .episode import run_episode as run_episode
from .evaluation import Cell as Cell
from .evaluation import Comparison as Comparison
from .evaluation import cells as cells
from .evaluation import compare as compare
from .problem import Choice as Choice
from .problem import Problem as Problem
from .problem import Recommendation as Recommendation
from .problem import known_graph as known_graph
from .problem import problem_of as problem_of
