"""The ARC environment: configs, states, actions and observations, and reset and step as pure functions.

This folder holds the definitions; `jaxarc.dispatch` picks what carries out a step, and its functions are here too.
"""

from typing import TYPE_CHECKING

from jaxworlds.lazy import lazy_names

from ..tasks.bank import JaxArcTask as JaxArcTask
from ..tasks.bank import TaskBank as TaskBank
from ._export import register as _register
from .adapter import config_from_dict as config_from_dict
from .adapter import config_from_hydra as config_from_hydra
from .adapter import config_from_yaml as config_from_yaml
from .adapter import config_to_dict as config_to_dict
from .config import DebugConfig as DebugConfig
from .config import EnvironmentConfig as EnvironmentConfig
from .config import JaxArcConfig as JaxArcConfig
from .config import MemoryManagementConfig as MemoryManagementConfig
from .config import ObservationConfig as ObservationConfig
from .config import RewardConfig as RewardConfig
from .config import UnifiedActionConfig as UnifiedActionConfig
from .config import UnifiedDatasetConfig as UnifiedDatasetConfig
from .config import VisualizationConfig as VisualizationConfig
from .config import official as official
from .history import ActionHistory as ActionHistory
from .observations import ArcObservation as ArcObservation
from .state import ArcEnvState as ArcEnvState
from .state import state_axes as state_axes
from .state import state_bytes as state_bytes
from .state_files import load_state_efficiently as load_state_efficiently
from .state_files import save_state_efficiently as save_state_efficiently
from .structured_actions import BboxAction as BboxAction
from .structured_actions import MaskAction as MaskAction
from .structured_actions import PointAction as PointAction

if TYPE_CHECKING:
    from ..dispatch import arc_reset as arc_reset
    from ..dispatch import arc_step as arc_step
    from ..dispatch import batch_observe as batch_observe
    from ..dispatch import batch_reset as batch_reset
    from ..dispatch import batch_step as batch_step
    from ..dispatch import explain as explain

_TOOLS = {"TYPE_CHECKING", "lazy_names"}
__all__ = [name for name in globals() if name[0] != "_" and name not in _TOOLS]  # pyright: ignore[reportUnsupportedDunderAll]

_register()

# On first use: the definitions in this folder import nothing of what picks a kernel.
__getattr__, __dir__ = lazy_names(__name__)
