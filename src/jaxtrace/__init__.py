"""Lagrangian particle tracking: millions of particles through time-dependent velocity fields."""

from jaxworlds.runtime import configure as configure
