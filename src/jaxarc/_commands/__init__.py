"""What the command `jaxarc` does, a module for each of its parts."""
