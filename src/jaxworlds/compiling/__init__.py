"""Compiling: ahead of time, watched, guarded against recompiling, and a loud fallback for what cannot be traced."""

from ._fallback import FallbackError as FallbackError
from ._fallback import FallbackWarning as FallbackWarning
from ._fallback import fallback as fallback
from ._fallback import fallback_counts as fallback_counts
from ._fallback import is_strict as is_strict
from ._fallback import reset_fallback_counts as reset_fallback_counts
from ._fallback import set_strict as set_strict
from ._watch import CompileWatch as CompileWatch
from ._watch import FunctionCompiles as FunctionCompiles
from ._watch import RecompileError as RecompileError
from ._watch import no_recompile as no_recompile
from .ahead import Compiled as Compiled
from .ahead import WarmUp as WarmUp
from .ahead import compile_ahead as compile_ahead
from .ahead import warm_up as warm_up
