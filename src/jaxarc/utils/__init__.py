"""Homes of helper names that users of the guides import."""
