"""Amortized causal Bayesian optimization: learn which intervention makes a target best, with few experiments."""

from .measuring import benchmark_sustained_performance as benchmark_sustained_performance
from .measuring import measure_compilation_speedup as measure_compilation_speedup
from .measuring import monitor_memory_usage as monitor_memory_usage
from .static_args import prepare_static_args as prepare_static_args
from .static_args import restore_static_args as restore_static_args
