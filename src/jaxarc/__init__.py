"""ARC puzzles as reinforcement-learning environments: exact, on the device, millions at once."""
