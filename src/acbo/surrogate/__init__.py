"""The surrogate: a network that reads data and answers with edge and parent-set posteriors, and how it is trained."""

from .calibration import Calibration as Calibration
from .calibration import fit_calibration as fit_calibration
from .draws import ModelDraws as ModelDraws
from .draws import benchmark_draws as benchmark_draws
from .draws import exact_edges as exact_edges
from .draws import training_draws as training_draws
from .evaluating import Quality as Quality
from .evaluating import calibrate as calibrate
from .evaluating import evaluate as evaluate
from .evaluating import held_out as held_out
from .heads import candidate_sets as candidate_sets
from .losses import edge_loss as edge_loss
from .model import Network as Network
from .model import Prediction as Prediction
from .model import Surrogate as Surrogate
from .settings import NetworkConfig as NetworkConfig
from .training import LearningConfig as LearningConfig
from .training import Trained as Trained
from .training import train as train
from .weights import load_weights as load_weights
from .weights import pretrained as pretrained
from .weights import save_weights as save_weights
