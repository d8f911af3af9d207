"""What the command `jaxtrace` does, a module for each of its parts."""
