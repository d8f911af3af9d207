"""ARC puzzles as reinforcement-learning environments: exact, on the device, millions at once."""

from jaxworlds import __version__ as __version__
from jaxworlds.own_files import demand_own_files

demand_own_files(__name__, first=True)
