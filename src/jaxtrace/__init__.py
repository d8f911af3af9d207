"""jaxtrace: particles through time-dependent velocity fields, in two and three dimensions, compiled and differentiable.

Names load on first use, so `import jaxtrace` costs almost nothing and `configure` can be the first call.
"""

from typing import TYPE_CHECKING

from jaxworlds import __version__ as __version__
from jaxworlds.lazy import lazy_names

if TYPE_CHECKING:
    from .fields import AnalyticField as AnalyticField
    from .fields import Epoch as Epoch
    from .fields import RectilinearGrid as RectilinearGrid
    from .fields import TimeSeriesField as TimeSeriesField
    from .fields import UniformGrid as UniformGrid
    from .integrators import RK4 as RK4
    from .integrators import Dopri5 as Dopri5
    from .io import load_optimized_dataset as load_optimized_dataset
    from .settings import configure as configure
    from .tracking import Outcome as Outcome
    from .tracking import Tracker as Tracker
    from .tracking import Trajectory as Trajectory
    from .tracking import create_tracker as create_tracker
    from .tracking import simulate as simulate
    from .tracking import uniform_grid_seeds as uniform_grid_seeds
    from .utils import track_memory as track_memory
    from .utils import track_operation_memory as track_operation_memory

__getattr__, __dir__ = lazy_names(__name__)
