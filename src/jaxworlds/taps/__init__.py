"""Taps: values out of compiled code, the sinks that receive them, and how often a tap may call."""

from ._periods import AdaptivePeriod as AdaptivePeriod
from ._periods import measure_call_cost as measure_call_cost
from ._sinks import Sink as Sink
from ._sinks import TapStats as TapStats
from ._sinks import flush_taps as flush_taps
from ._sinks import register_sink as register_sink
from ._sinks import reset_tap_stats as reset_tap_stats
from ._sinks import unregister_sink as unregister_sink
from .program import ambient as ambient
from .program import print_tap_report as print_tap_report
from .program import set_taps as set_taps
from .program import tap as tap
from .program import tap_stats as tap_stats
from .program import taps_enabled as taps_enabled
from .program import taps_off as taps_off
from .program import taps_on as taps_on
