"""Amortized causal Bayesian optimization: learn which intervention makes a target best, with few experiments."""
