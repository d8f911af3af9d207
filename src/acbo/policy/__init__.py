"""The policy: which experiment next, learned by GRPO over whole episodes."""

from .curriculum import Curriculum as Curriculum
from .episodes import EpisodeConfig as EpisodeConfig
from .network import Outlook as Outlook
from .network import PolicyNetwork as PolicyNetwork
from .settings import PolicyConfig as PolicyConfig
from .strategy import Policy as Policy
from .training import PolicyLearning as PolicyLearning
from .training import PolicyState as PolicyState
from .training import TrainedPolicy as TrainedPolicy
from .training import train_policy as train_policy
from .weights import load_policy as load_policy
from .weights import policy_metadata as policy_metadata
from .weights import policy_path as policy_path
from .weights import pretrained_policy as pretrained_policy
from .weights import save_policy as save_policy
