"""The commands of `acbo`."""
