"""ARC puzzles as reinforcement-learning environments: millions of grid worlds stepped in one XLA program."""
