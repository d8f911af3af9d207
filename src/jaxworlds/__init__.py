"""jaxworlds: the core under three JAX systems. A world is a state pytree and a pure step; the core runs many of them.

Names load on first use, so `import jaxworlds` costs almost nothing, imports no jax and starts no backend.
"""

from typing import TYPE_CHECKING

from ._version import __version__ as __version__
from .lazy import keep_module_names, lazy_names

if TYPE_CHECKING:
    from .batching import BatchPlan as BatchPlan
    from .batching import BucketedBatches as BucketedBatches
    from .batching import assert_on_device as assert_on_device
    from .batching import chunked_map as chunked_map
    from .batching import plan_batch_size as plan_batch_size
    from .batching import shard_worlds as shard_worlds
    from .batching import spread_over as spread_over
    from .batching import world_mesh as world_mesh
    from .batching import world_shardings as world_shardings
    from .checking import CheckError as CheckError
    from .checking import check as check
    from .checking import checking_off as checking_off
    from .checking import checking_on as checking_on
    from .checking import clear_errors as clear_errors
    from .checking import set_checking as set_checking
    from .compiling import CompileWatch as CompileWatch
    from .compiling import FallbackError as FallbackError
    from .compiling import FallbackWarning as FallbackWarning
    from .compiling import RecompileError as RecompileError
    from .compiling import compile_ahead as compile_ahead
    from .compiling import fallback as fallback
    from .compiling import fallback_counts as fallback_counts
    from .compiling import no_recompile as no_recompile
    from .compiling import set_strict as set_strict
    from .compiling import warm_up as warm_up
    from .measuring import Baseline as Baseline
    from .measuring import Comparison as Comparison
    from .measuring import Measurement as Measurement
    from .measuring import PerformanceMonitor as PerformanceMonitor
    from .measuring import Profile as Profile
    from .measuring import Verdict as Verdict
    from .measuring import baseline_key as baseline_key
    from .measuring import break_even as break_even
    from .measuring import compare as compare
    from .measuring import environment as environment
    from .measuring import measure as measure
    from .measuring import profile as profile
    from .memory import ByteLRU as ByteLRU
    from .memory import LazyLoader as LazyLoader
    from .memory import MemoryManager as MemoryManager
    from .memory import device_memory_limit as device_memory_limit
    from .memory import find_leaks as find_leaks
    from .memory import get_memory_manager as get_memory_manager
    from .memory import lazy_file as lazy_file
    from .memory import live_report as live_report
    from .memory import monitor_memory_usage as monitor_memory_usage
    from .memory import optimize_array_memory as optimize_array_memory
    from .memory import predict_memory as predict_memory
    from .memory import track_memory as track_memory
    from .memory import track_operation_memory as track_operation_memory
    from .processes import start_processes as start_processes
    from .rollout import Checkpoint as Checkpoint
    from .rollout import Chunk as Chunk
    from .rollout import ResumeWarning as ResumeWarning
    from .rollout import Rollout as Rollout
    from .rollout import resume as resume
    from .rollout import run as run
    from .runtime import RuntimeConflictError as RuntimeConflictError
    from .runtime import Settings as Settings
    from .runtime import configure as configure
    from .runtime import runtime_report as runtime_report
    from .runtime import settings as settings
    from .static import aval_differences as aval_differences
    from .static import config as config
    from .static import freeze as freeze
    from .static import is_hashable_config as is_hashable_config
    from .static import replace as replace
    from .static import strong as strong
    from .static import thaw as thaw
    from .static import unhashable_path as unhashable_path
    from .store import CompressedStorage as CompressedStorage
    from .store import StoreError as StoreError
    from .store import atomic_write as atomic_write
    from .store import content_hash as content_hash
    from .store import load_state as load_state
    from .store import open_array as open_array
    from .store import read_header as read_header
    from .store import save_array as save_array
    from .store import save_state as save_state
    from .taps import AdaptivePeriod as AdaptivePeriod
    from .taps import flush_taps as flush_taps
    from .taps import print_tap_report as print_tap_report
    from .taps import register_sink as register_sink
    from .taps import reset_tap_stats as reset_tap_stats
    from .taps import set_taps as set_taps
    from .taps import tap as tap
    from .taps import tap_stats as tap_stats
    from .taps import taps_off as taps_off
    from .taps import taps_on as taps_on

__getattr__, __dir__ = lazy_names(__name__)

# The names that modules had before the core was put into folders, and the folders that have their names now.
keep_module_names(
    __name__,
    {
        **dict.fromkeys(("baselines", "comparing", "monitoring", "profiling"), "measuring"),
        **dict.fromkeys(("budget", "caching", "leaks"), "memory"),
        **dict.fromkeys(("meshes", "planning"), "batching"),
        "checkpoints": "rollout",
        "demo": "commands.demo",
        "doctor": "commands.doctor",
    },
)
