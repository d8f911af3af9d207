"""Lagrangian particle tracking: millions of particles through time-dependent velocity fields."""
