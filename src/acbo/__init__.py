"""Amortized causal Bayesian optimization: learn which intervention makes a target best, with few experiments.

Names load on first use, so `import acbo` costs almost nothing.
"""

from typing import TYPE_CHECKING

from jaxworlds import __version__ as __version__
from jaxworlds.lazy import lazy_names

if TYPE_CHECKING:
    from .answers import edge_frame as edge_frame
    from .answers import likely_edges as likely_edges
    from .answers import likely_graph as likely_graph
    from .answers import likely_parents as likely_parents
    from .beliefs import BeliefSettings as BeliefSettings
    from .beliefs import draw_models as draw_models
    from .data import BUCKETS as BUCKETS
    from .data import Dataset as Dataset
    from .data import bucket as bucket
    from .data import dataset as dataset
    from .experiments import cells as cells
    from .experiments import compare as compare
    from .experiments import run_episode as run_episode
    from .guide import EvaluationConfig as EvaluationConfig
    from .guide import ExplorationTrainingConfig as ExplorationTrainingConfig
    from .guide import GRPOTrainingConfig as GRPOTrainingConfig
    from .guide import RewardTrainingConfig as RewardTrainingConfig
    from .guide import SurrogateTrainingConfig as SurrogateTrainingConfig
    from .guide import TrainingBatch as TrainingBatch
    from .guide import TrainingBatchJAX as TrainingBatchJAX
    from .guide import TrainingConfig as TrainingConfig
    from .guide import TrainingExample as TrainingExample
    from .guide import TrainingMetrics as TrainingMetrics
    from .guide import ValidationResults as ValidationResults
    from .guide import benchmark_sustained_performance as benchmark_sustained_performance
    from .guide import calibrated_loss as calibrated_loss
    from .guide import collect_experience as collect_experience
    from .guide import collect_observational_data as collect_observational_data
    from .guide import convert_to_jax_batch as convert_to_jax_batch
    from .guide import create_adaptive_train_step as create_adaptive_train_step
    from .guide import create_jax_surrogate_train_step as create_jax_surrogate_train_step
    from .guide import create_parent_set_model as create_parent_set_model
    from .guide import create_test_batch as create_test_batch
    from .guide import create_test_model as create_test_model
    from .guide import create_training_batch as create_training_batch
    from .guide import create_training_batch_from_examples as create_training_batch_from_examples
    from .guide import curriculum_ratios as curriculum_ratios
    from .guide import generate_scm_for_difficulty as generate_scm_for_difficulty
    from .guide import grpo_with_jax_surrogate as grpo_with_jax_surrogate
    from .guide import kl_divergence_loss as kl_divergence_loss
    from .guide import kl_divergence_loss_jax as kl_divergence_loss_jax
    from .guide import measure_compilation_speedup as measure_compilation_speedup
    from .guide import monitor_memory_usage as monitor_memory_usage
    from .guide import multi_target_loss as multi_target_loss
    from .guide import optimized_progressive_learning as optimized_progressive_learning
    from .guide import prepare_static_args as prepare_static_args
    from .guide import restore_static_args as restore_static_args
    from .guide import test_loss_function_compilation as test_loss_function_compilation
    from .guide import test_model_forward_compilation as test_model_forward_compilation
    from .guide import test_performance_regression as test_performance_regression
    from .guide import uncertainty_weighted_loss as uncertainty_weighted_loss
    from .guide import uncertainty_weighted_loss_jax as uncertainty_weighted_loss_jax
    from .guide import update_policy_grpo as update_policy_grpo
    from .guide import update_surrogate_jax as update_surrogate_jax
    from .guide import validate_fallback_behavior as validate_fallback_behavior
    from .guide import validate_surrogate as validate_surrogate
    from .inference import BGe as BGe
    from .inference import GaussianProcess as GaussianProcess
    from .inference import Knowledge as Knowledge
    from .inference import Posterior as Posterior
    from .inference import draw_graphs as draw_graphs
    from .inference import edge_posterior as edge_posterior
    from .inference import nonlinearity as nonlinearity
    from .inference import prior_knowledge as prior_knowledge
    from .optimizer import Optimizer as Optimizer
    from .optimizer import Variable as Variable
    from .pictures import edge_matrix_svg as edge_matrix_svg
    from .pictures import graph_svg as graph_svg
    from .policy import EpisodeConfig as EpisodeConfig
    from .policy import PolicyConfig as PolicyConfig
    from .policy import PolicyLearning as PolicyLearning
    from .policy import PolicyNetwork as PolicyNetwork
    from .policy import save_policy as save_policy
    from .policy import train_policy as train_policy
    from .problem import Choice as Choice
    from .problem import Problem as Problem
    from .problem import Recommendation as Recommendation
    from .problem import known_graph as known_graph
    from .problem import problem_of as problem_of
    from .scms import SCM as SCM
    from .scms import CausalModel as CausalModel
    from .scms import Intervention as Intervention
    from .scms import SCMPrior as SCMPrior
    from .scms import best_intervention as best_intervention
    from .scms import fit_linear_model as fit_linear_model
    from .scms import from_frame as from_frame
    from .scms import linear_model as linear_model
    from .scms import parse_model as parse_model
    from .scms import sample as sample
    from .scms import sample_mixed as sample_mixed
    from .scms import sample_scm as sample_scm
    from .scms import scm_prior as scm_prior
    from .scms import to_frame as to_frame
    from .scms import true_effect as true_effect
    from .strategies import AbstractStrategy as AbstractStrategy
    from .strategies import CausalBO as CausalBO
    from .strategies import ExpectedImprovement as ExpectedImprovement
    from .strategies import GaussianProcessEI as GaussianProcessEI
    from .strategies import InformationGain as InformationGain
    from .strategies import KnowledgeGradient as KnowledgeGradient
    from .strategies import LatinHypercube as LatinHypercube
    from .strategies import Oracle as Oracle
    from .strategies import Policy as Policy
    from .strategies import Random as Random
    from .strategies import Thompson as Thompson
    from .strategies import load_policy as load_policy
    from .strategies import pretrained_policy as pretrained_policy
    from .strategies import strategy_named as strategy_named
    from .surrogate import LearningConfig as LearningConfig
    from .surrogate import Network as Network
    from .surrogate import NetworkConfig as NetworkConfig
    from .surrogate import Prediction as Prediction
    from .surrogate import Surrogate as Surrogate
    from .surrogate import pretrained as pretrained
    from .surrogate import train as train

__getattr__, __dir__ = lazy_names(__name__)
