"""The surrogate: a network that reads data and answers with edge and parent-set posteriors, and how it is trained."""

from .heads import Prediction as Prediction
from .heads import candidate_sets as candidate_sets
from .heads import edge_loss as edge_loss
from .layers import NetworkConfig as NetworkConfig
from .model_draws import ModelDraws as ModelDraws
from .model_draws import benchmark_draws as benchmark_draws
from .model_draws import exact_edges as exact_edges
from .model_draws import training_draws as training_draws
from .network import Calibration as Calibration
from .network import Network as Network
from .network import Surrogate as Surrogate
from .network import fit_calibration as fit_calibration
from .quality import Quality as Quality
from .quality import calibrate as calibrate
from .quality import evaluate as evaluate
from .quality import held_out as held_out
from .trainer import LearningConfig as LearningConfig
from .trainer import Trained as Trained
from .trainer import train as train
from .weights import load_weights as load_weights
from .weights import pretrained as pretrained
from .weights import save_weights as save_weights
