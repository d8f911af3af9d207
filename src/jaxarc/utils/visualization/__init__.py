"""Seeing what a compiled program does: callbacks, caches and storage under the names the guides teach."""
