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
