"""C++ kernels of the systems: built and cached for this machine, launched by name, and split over devices."""

from .native import GET_COMPILER as GET_COMPILER
from .native import MissingKernelsWarning as MissingKernelsWarning
from .native import NoCompilerError as NoCompilerError
from .native import is_built as is_built
from .native import kernel_origin as kernel_origin
from .native import kernel_targets as kernel_targets
from .native import library_key as library_key
from .native import load as load
from .native import open_to_others as open_to_others
from .native import slower as slower
from .native import switched_on as switched_on
from .native import try_compiler as try_compiler
from .native import warn_of_missing_kernels as warn_of_missing_kernels
from .prebuilt import prebuilt_libraries as prebuilt_libraries
from .spread import Kernel as Kernel
from .spread import in_halves as in_halves
from .spread import result as result
from .spread import split_kernel as split_kernel
