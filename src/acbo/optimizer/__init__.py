"""The optimizer for people: experiments by ask and tell, with names, units, costs, and a file to go on from."""

from .advice import Advice as Advice
from .advice import Explanation as Explanation
from .advice import GraphBelief as GraphBelief
from .optimizer import Optimizer as Optimizer
from .state import State as State
from .variables import Variable as Variable
