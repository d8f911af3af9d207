"""Lazy loading, caching and memory budgets under the names the guide teaches; the homes are in the core."""

from jaxworlds.memory import ByteLRU
from jaxworlds.memory import LazyLoader as LazyLoader
from jaxworlds.memory import MemoryManager as MemoryManager
from jaxworlds.memory import frozen_garbage as GarbageCollectionOptimizer  # noqa: F401 - the guide's name
from jaxworlds.memory import get_memory_manager as get_memory_manager
from jaxworlds.memory import lazy_file as create_lazy_visualization_loader  # noqa: F401 - the guide's name
from jaxworlds.memory import optimize_array_memory as optimize_array_memory


def VisualizationCache(max_memory_mb: float | int = 100.0, max_items: int = 1000) -> ByteLRU:
    """The core's byte-bounded cache, sized in megabytes as the guide does."""
    return ByteLRU(int(max_memory_mb * 10**6), max_items)
