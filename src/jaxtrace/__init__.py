"""Lagrangian particle tracking through time-dependent velocity fields. So far: the shared tools."""

from jaxworlds.runtime import configure as configure
