"""Memory: predict it, report it, find leaks, load values lazily, and keep them within a budget."""

from ._host_memory import MemoryUnknownError as MemoryUnknownError
from ._host_memory import host_memory_free as host_memory_free
from ._host_memory import process_memory as process_memory
from .budget import MemoryManager as MemoryManager
from .budget import frozen_garbage as frozen_garbage
from .budget import get_memory_manager as get_memory_manager
from .caches import ByteLRU as ByteLRU
from .caches import LazyLoader as LazyLoader
from .caches import lazy_file as lazy_file
from .leaks import LeakReport as LeakReport
from .leaks import MemoryUse as MemoryUse
from .leaks import find_leaks as find_leaks
from .leaks import monitor_memory_usage as monitor_memory_usage
from .leaks import set_memory_tracking as set_memory_tracking
from .leaks import track_memory as track_memory
from .leaks import track_operation_memory as track_operation_memory
from .prediction import MB as MB
from .prediction import LiveReport as LiveReport
from .prediction import MemoryPrediction as MemoryPrediction
from .prediction import demand_memory as demand_memory
from .prediction import device_memory_limit as device_memory_limit
from .prediction import live_bytes as live_bytes
from .prediction import live_report as live_report
from .prediction import optimize_array_memory as optimize_array_memory
from .prediction import predict_memory as predict_memory
from .prediction import tree_bytes as tree_bytes
