"""What the commands of `acbo` do."""
