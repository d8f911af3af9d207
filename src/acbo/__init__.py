"""Amortized causal Bayesian optimization: learn which intervention makes a target best, with few experiments.

Names load on first use, so `import acbo` costs almost nothing.
"""

from typing import TYPE_CHECKING

from jaxworlds import __version__ as __version__
from jaxworlds.lazy import lazy_names

# Public name -> the module that is its home.
_HOMES: dict[str, str] = {
    "AbstractStrategy": "strategies",
    "BeliefSettings": "beliefs",
    "benchmark_sustained_performance": "measuring",
    "best_intervention": "scms",
    "BGe": "inference",
    "bucket": "data",
    "BUCKETS": "data",
    "calibrated_loss": "surrogate",
    "CausalBO": "strategies",
    "CausalModel": "scms",
    "cells": "experiments",
    "Choice": "experiments",
    "collect_experience": "policy",
    "collect_observational_data": "scms",
    "compare": "experiments",
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
    "draw_graphs": "inference",
    "draw_models": "beliefs",
    "edge_frame": "answers",
    "edge_matrix_svg": "pictures",
    "edge_posterior": "inference",
    "EpisodeConfig": "policy",
    "EvaluationConfig": "configs",
    "ExpectedImprovement": "strategies",
    "ExplorationTrainingConfig": "configs",
    "fit_linear_model": "scms",
    "from_frame": "scms",
    "GaussianProcess": "inference",
    "GaussianProcessEI": "strategies",
    "generate_scm_for_difficulty": "scms",
    "graph_svg": "pictures",
    "grpo_with_jax_surrogate": "policy",
    "GRPOTrainingConfig": "configs",
    "InformationGain": "strategies",
    "Intervention": "scms",
    "kl_divergence_loss": "surrogate",
    "kl_divergence_loss_jax": "surrogate",
    "Knowledge": "inference",
    "KnowledgeGradient": "strategies",
    "known_graph": "experiments",
    "LatinHypercube": "strategies",
    "LearningConfig": "surrogate",
    "likely_edges": "answers",
    "likely_graph": "answers",
    "likely_parents": "answers",
    "linear_model": "scms",
    "load_policy": "policy",
    "measure_compilation_speedup": "measuring",
    "monitor_memory_usage": "measuring",
    "multi_target_loss": "surrogate",
    "nonlinearity": "inference",
    "Network": "surrogate",
    "NetworkConfig": "surrogate",
    "optimized_progressive_learning": "surrogate",
    "Optimizer": "optimizer",
    "Oracle": "strategies",
    "parse_model": "scms",
    "Policy": "policy",
    "PolicyConfig": "policy",
    "PolicyLearning": "policy",
    "PolicyNetwork": "policy",
    "Posterior": "inference",
    "Prediction": "surrogate",
    "prepare_static_args": "static_args",
    "pretrained": "surrogate",
    "pretrained_policy": "policy",
    "prior_knowledge": "inference",
    "Problem": "experiments",
    "problem_of": "experiments",
    "Random": "strategies",
    "Recommendation": "experiments",
    "restore_static_args": "static_args",
    "RewardTrainingConfig": "configs",
    "run_episode": "experiments",
    "sample": "scms",
    "sample_mixed": "scms",
    "sample_scm": "scms",
    "save_policy": "policy",
    "SCM": "scms",
    "scm_prior": "scms",
    "SCMPrior": "scms",
    "strategy_named": "strategies",
    "Surrogate": "surrogate",
    "SurrogateTrainingConfig": "configs",
    "test_loss_function_compilation": "surrogate",
    "test_model_forward_compilation": "surrogate",
    "test_performance_regression": "surrogate",
    "Thompson": "strategies",
    "to_frame": "scms",
    "train": "surrogate",
    "train_policy": "policy",
    "TrainingBatch": "surrogate",
    "TrainingBatchJAX": "surrogate",
    "TrainingConfig": "configs",
    "TrainingExample": "surrogate",
    "TrainingMetrics": "surrogate",
    "true_effect": "scms",
    "uncertainty_weighted_loss": "surrogate",
    "uncertainty_weighted_loss_jax": "surrogate",
    "update_policy_grpo": "policy",
    "update_surrogate_jax": "policy",
    "validate_fallback_behavior": "surrogate",
    "validate_surrogate": "surrogate",
    "ValidationResults": "surrogate",
    "Variable": "optimizer",
}

if TYPE_CHECKING:
    from .answers import edge_frame as edge_frame
    from .answers import likely_edges as likely_edges
    from .answers import likely_graph as likely_graph
    from .answers import likely_parents as likely_parents
    from .beliefs import BeliefSettings as BeliefSettings
    from .beliefs import draw_models as draw_models
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
    from .experiments import Choice as Choice
    from .experiments import Problem as Problem
    from .experiments import Recommendation as Recommendation
    from .experiments import cells as cells
    from .experiments import compare as compare
    from .experiments import known_graph as known_graph
    from .experiments import problem_of as problem_of
    from .experiments import run_episode as run_episode
    from .inference import BGe as BGe
    from .inference import GaussianProcess as GaussianProcess
    from .inference import Knowledge as Knowledge
    from .inference import Posterior as Posterior
    from .inference import draw_graphs as draw_graphs
    from .inference import edge_posterior as edge_posterior
    from .inference import nonlinearity as nonlinearity
    from .inference import prior_knowledge as prior_knowledge
    from .measuring import benchmark_sustained_performance as benchmark_sustained_performance
    from .measuring import measure_compilation_speedup as measure_compilation_speedup
    from .measuring import monitor_memory_usage as monitor_memory_usage
    from .optimizer import Optimizer as Optimizer
    from .optimizer import Variable as Variable
    from .pictures import edge_matrix_svg as edge_matrix_svg
    from .pictures import graph_svg as graph_svg
    from .policy import EpisodeConfig as EpisodeConfig
    from .policy import Policy as Policy
    from .policy import PolicyConfig as PolicyConfig
    from .policy import PolicyLearning as PolicyLearning
    from .policy import PolicyNetwork as PolicyNetwork
    from .policy import collect_experience as collect_experience
    from .policy import grpo_with_jax_surrogate as grpo_with_jax_surrogate
    from .policy import load_policy as load_policy
    from .policy import pretrained_policy as pretrained_policy
    from .policy import save_policy as save_policy
    from .policy import train_policy as train_policy
    from .policy import update_policy_grpo as update_policy_grpo
    from .policy import update_surrogate_jax as update_surrogate_jax
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
    from .strategies import AbstractStrategy as AbstractStrategy
    from .strategies import CausalBO as CausalBO
    from .strategies import ExpectedImprovement as ExpectedImprovement
    from .strategies import GaussianProcessEI as GaussianProcessEI
    from .strategies import InformationGain as InformationGain
    from .strategies import KnowledgeGradient as KnowledgeGradient
    from .strategies import LatinHypercube as LatinHypercube
    from .strategies import Oracle as Oracle
    from .strategies import Random as Random
    from .strategies import Thompson as Thompson
    from .strategies import strategy_named as strategy_named
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
