"""ARC puzzles as reinforcement-learning environments: exact, on the device, millions at once."""

from jaxworlds import __version__ as __version__
from jaxworlds.lazy import keep_module_names
from jaxworlds.own_files import demand_own_files

demand_own_files(__name__, first=True)

keep_module_names(__name__, {"envs.scripted": "agents.painter"})
