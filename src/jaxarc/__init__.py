"""ARC puzzles as reinforcement-learning environments: exact, on the device, millions at once."""

from jaxworlds._version import __version__ as __version__
