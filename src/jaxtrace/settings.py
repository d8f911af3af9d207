"""Defaults for the whole process: precision, device and memory; the home is `jaxworlds.runtime`."""

from jaxworlds.runtime import Settings as Settings
from jaxworlds.runtime import configure as configure
from jaxworlds.runtime import settings as settings
