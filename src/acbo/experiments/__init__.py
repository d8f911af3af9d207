"""Problems and experiments as arrays, episodes of them, and the comparison of strategies."""

from acbo.problem import Choice as Choice
from acbo.problem import Problem as Problem
from acbo.problem import Recommendation as Recommendation
from acbo.problem import known_graph as known_graph
from acbo.problem import problem_of as problem_of

from .comparison import Cell as Cell
from .comparison import Comparison as Comparison
from .comparison import cells as cells
from .comparison import compare as compare
from .episode import Episode as Episode
from .episode import run_episode as run_episode
