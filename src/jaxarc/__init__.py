"""ARC puzzles as reinforcement-learning environments. So far: the shared tools; the environment comes next."""
