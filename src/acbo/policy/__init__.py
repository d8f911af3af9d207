"""The policy: which experiment next, learned by GRPO over whole episodes."""

from .episodes import Curriculum as Curriculum
from .episodes import EpisodeConfig as EpisodeConfig
from .grpo import PolicyLearning as PolicyLearning
from .grpo import PolicyState as PolicyState
from .grpo import TrainedPolicy as TrainedPolicy
from .grpo import train_policy as train_policy
from .policy_network import Outlook as Outlook
from .policy_network import PolicyConfig as PolicyConfig
from .policy_network import PolicyNetwork as PolicyNetwork
from .policy_network import load_network as load_network
from .policy_network import policy_metadata as policy_metadata
from .policy_network import policy_path as policy_path
from .policy_network import save_policy as save_policy
