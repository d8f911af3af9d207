"""Measuring: one function, comparisons side by side, baselines, profiles, and the environment of a measurement."""

from ..text import format_bytes as format_bytes
from ..text import format_seconds as format_seconds
from ..text import show as show
from ._environment import environment as environment
from ._timing import copy_arrays as copy_arrays
from ._timing import time_call as time_call
from .baselines import Baseline as Baseline
from .baselines import BaselineError as BaselineError
from .baselines import Status as Status
from .baselines import Verdict as Verdict
from .baselines import baseline_key as baseline_key
from .comparison import Alternative as Alternative
from .comparison import Comparison as Comparison
from .comparison import compare as compare
from .measurement import Measurement as Measurement
from .measurement import Origin as Origin
from .measurement import break_even as break_even
from .measurement import measure as measure
from .monitor import PerformanceMonitor as PerformanceMonitor
from .profiles import Operation as Operation
from .profiles import Profile as Profile
from .profiles import profile as profile
