"""Seeing what a compiled program does: callbacks, caches and storage under the names the guides teach."""

from jaxworlds.store import CompressedStorage as CompressedStorage

from .callbacks import adaptive_visualization_callback as adaptive_visualization_callback
from .callbacks import get_callback_performance_stats as get_callback_performance_stats
from .callbacks import jax_log_episode_summary as jax_log_episode_summary
from .callbacks import jax_log_grid as jax_log_grid
from .callbacks import log_grid_to_console as log_grid_to_console
from .callbacks import print_callback_performance_report as print_callback_performance_report
from .callbacks import reset_callback_performance_stats as reset_callback_performance_stats
from .memory import GarbageCollectionOptimizer as GarbageCollectionOptimizer
from .memory import LazyLoader as LazyLoader
from .memory import MemoryManager as MemoryManager
from .memory import VisualizationCache as VisualizationCache
from .memory import create_lazy_visualization_loader as create_lazy_visualization_loader
from .memory import get_memory_manager as get_memory_manager
from .memory import optimize_array_memory as optimize_array_memory
