"""Amortized causal Bayesian optimization: learn which intervention makes a target best, with few experiments.

Names load on first use, so `import acbo` costs almost nothing.
"""

from typing import TYPE_CHECKING

from jaxworlds._lazy import lazy_names

# Public name -> the module that is its home.
_HOMES: dict[str, str] = {
    "benchmark_sustained_performance": "measuring",
    "best_intervention": "scms",
    "BGe": "inference",
    "bucket": "data",
    "BUCKETS": "data",
    "calibrated_loss": "surrogate",
    "CausalModel": "scms",
    "collect_observational_data": "scms",
    "convert_to_jax_batch": "surrogate",
    "create_adaptive_train_step": "surrogate",
    "create_jax_surrogate_train_step": "surrogate",
    "create_parent_set_model": "surrogate",
    "create_test_batch": "surrogate",
    "create_test_model": "surrogate",
    "create_training_batch": "surrogate",
    "create_training_batch_from_examples": "surrogate",
    "curriculum_ratios": "configs",
    "Dataset": "data",
    "dataset": "data",
    "edge_frame": "answers",
    "edge_matrix_svg": "pictures",
    "edge_posterior": "inference",
    "EvaluationConfig": "configs",
    "ExplorationTrainingConfig": "configs",
    "fit_linear_model": "scms",
    "from_frame": "scms",
    "GaussianProcess": "inference",
    "generate_scm_for_difficulty": "scms",
    "graph_svg": "pictures",
    "GRPOTrainingConfig": "configs",
    "Intervention": "scms",
    "kl_divergence_loss": "surrogate",
    "kl_divergence_loss_jax": "surrogate",
    "Knowledge": "inference",
    "LearningConfig": "surrogate",
    "likely_edges": "answers",
    "likely_graph": "answers",
    "likely_parents": "answers",
    "linear_model": "scms",
    "measure_compilation_speedup": "measuring",
    "monitor_memory_usage": "measuring",
    "multi_target_loss": "surrogate",
    "Network": "surrogate",
    "NetworkConfig": "surrogate",
    "optimized_progressive_learning": "surrogate",
    "parse_model": "scms",
    "Posterior": "inference",
    "Prediction": "surrogate",
    "prepare_static_args": "static_args",
    "pretrained": "surrogate",
    "prior_knowledge": "inference",
    "restore_static_args": "static_args",
    "RewardTrainingConfig": "configs",
    "sample": "scms",
    "sample_mixed": "scms",
    "sample_scm": "scms",
    "SCM": "scms",
    "scm_prior": "scms",
    "SCMPrior": "scms",
    "Surrogate": "surrogate",
    "SurrogateTrainingConfig": "configs",
    "test_loss_function_compilation": "surrogate",
    "test_model_forward_compilation": "surrogate",
    "test_performance_regression": "surrogate",
    "to_frame": "scms",
    "train": "surrogate",
    "TrainingBatch": "surrogate",
    "TrainingBatchJAX": "surrogate",
    "TrainingConfig": "configs",
    "TrainingExample": "surrogate",
    "TrainingMetrics": "surrogate",
    "true_effect": "scms",
    "uncertainty_weighted_loss": "surrogate",
    "uncertainty_weighted_loss_jax": "surrogate",
    "validate_fallback_behavior": "surrogate",
    "validate_surrogate": "surrogate",
    "ValidationResults": "surrogate",
}

if TYPE_CHECKING:
    from .answers import edge_frame as edge_frame
    from .answers import likely_edges as likely_edges
    from .answers import likely_graph as likely_graph
    from .answers import likely_parents as likely_parents
    from .configs import EvaluationConfig as EvaluationConfig
    from .configs import ExplorationTrainingConfig as ExplorationTrainingConfig
    from .configs import GRPOTrainingConfig as GRPOTrainingConfig
    from .configs import RewardTrainingConfig as RewardTrainingConfig
    from .configs import SurrogateTrainingConfig as SurrogateTrainingConfig
    from .configs import TrainingConfig as TrainingConfig
    from .configs import curriculum_ratios as curriculum_ratios
    from .data import BUCKETS as BUCKETS
    from .data import Dataset as Dataset
    from .data import bucket as bucket
    from .data import dataset as dataset
    from .inference import BGe as BGe
    from .inference import GaussianProcess as GaussianProcess
    from .inference import Knowledge as Knowledge
    from .inference import Posterior as Posterior
    from .inference import edge_posterior as edge_posterior
    from .inference import prior_knowledge as prior_knowledge
    from .measuring import benchmark_sustained_performance as benchmark_sustained_performance
    from .measuring import measure_compilation_speedup as measure_compilation_speedup
    from .measuring import monitor_memory_usage as monitor_memory_usage
    from .pictures import edge_matrix_svg as edge_matrix_svg
    from .pictures import graph_svg as graph_svg
    from .scms import SCM as SCM
    from .scms import CausalModel as CausalModel
    from .scms import Intervention as Intervention
    from .scms import SCMPrior as SCMPrior
    from .scms import best_intervention as best_intervention
    from .scms import collect_observational_data as collect_observational_data
    from .scms import fit_linear_model as fit_linear_model
    from .scms import from_frame as from_frame
    from .scms import generate_scm_for_difficulty as generate_scm_for_difficulty
    from .scms import linear_model as linear_model
    from .scms import parse_model as parse_model
    from .scms import sample as sample
    from .scms import sample_mixed as sample_mixed
    from .scms import sample_scm as sample_scm
    from .scms import scm_prior as scm_prior
    from .scms import to_frame as to_frame
    from .scms import true_effect as true_effect
    from .static_args import prepare_static_args as prepare_static_args
    from .static_args import restore_static_args as restore_static_args
    from .surrogate import LearningConfig as LearningConfig
    from .surrogate import Network as Network
    from .surrogate import NetworkConfig as NetworkConfig
    from .surrogate import Prediction as Prediction
    from .surrogate import Surrogate as Surrogate
    from .surrogate import TrainingBatch as TrainingBatch
    from .surrogate import TrainingBatchJAX as TrainingBatchJAX
    from .surrogate import TrainingExample as TrainingExample
    from .surrogate import TrainingMetrics as TrainingMetrics
    from .surrogate import ValidationResults as ValidationResults
    from .surrogate import calibrated_loss as calibrated_loss
    from .surrogate import convert_to_jax_batch as convert_to_jax_batch
    from .surrogate import create_adaptive_train_step as create_adaptive_train_step
    from .surrogate import create_jax_surrogate_train_step as create_jax_surrogate_train_step
    from .surrogate import create_parent_set_model as create_parent_set_model
    from .surrogate import create_test_batch as create_test_batch
    from .surrogate import create_test_model as create_test_model
    from .surrogate import create_training_batch as create_training_batch
    from .surrogate import create_training_batch_from_examples as create_training_batch_from_examples
    from .surrogate import kl_divergence_loss as kl_divergence_loss
    from .surrogate import kl_divergence_loss_jax as kl_divergence_loss_jax
    from .surrogate import multi_target_loss as multi_target_loss
    from .surrogate import optimized_progressive_learning as optimized_progressive_learning
    from .surrogate import pretrained as pretrained
    from .surrogate import test_loss_function_compilation as test_loss_function_compilation
    from .surrogate import test_model_forward_compilation as test_model_forward_compilation
    from .surrogate import test_performance_regression as test_performance_regression
    from .surrogate import train as train
    from .surrogate import uncertainty_weighted_loss as uncertainty_weighted_loss
    from .surrogate import uncertainty_weighted_loss_jax as uncertainty_weighted_loss_jax
    from .surrogate import validate_fallback_behavior as validate_fallback_behavior
    from .surrogate import validate_surrogate as validate_surrogate

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
