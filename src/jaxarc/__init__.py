"""ARC puzzles as reinforcement-learning environments: exact, on the device, millions at once."""

from jaxworlds._own_files import demand_own_files
from jaxworlds._version import __version__ as __version__

demand_own_files(__name__, first=True)
