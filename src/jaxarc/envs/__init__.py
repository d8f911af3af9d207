"""The ARC environment: configs, actions, and reset and step as pure functions."""

from ..tasks.bank import JaxArcTask as JaxArcTask
from ..tasks.bank import TaskBank as TaskBank
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
from .exporting import register as _register
from .functional import arc_reset as arc_reset
from .functional import arc_step as arc_step
from .functional import batch_observe as batch_observe
from .functional import batch_reset as batch_reset
from .functional import batch_step as batch_step
from .history import ActionHistory as ActionHistory
from .observations import ArcObservation as ArcObservation
from .saving import load_state_efficiently as load_state_efficiently
from .saving import save_state_efficiently as save_state_efficiently
from .state import ArcEnvState as ArcEnvState
from .state import state_axes as state_axes
from .state import state_bytes as state_bytes
from .structured_actions import BboxAction as BboxAction
from .structured_actions import MaskAction as MaskAction
from .structured_actions import PointAction as PointAction

_register()
