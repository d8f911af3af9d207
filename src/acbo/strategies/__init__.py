"""Ways to choose experiments, by name: baselines, causal Bayesian optimization, and the trained policy."""

from typing import Any

from acbo.beliefs.posterior_models import BeliefSettings as BeliefSettings
from acbo.names import place

from .base import AbstractStrategy as AbstractStrategy
from .baselines import LatinHypercube as LatinHypercube
from .baselines import Oracle as Oracle
from .baselines import Random as Random
from .causal_bo import CausalBO as CausalBO
from .gp_ei import GaussianProcessEI as GaussianProcessEI
from .model_based import ExpectedImprovement as ExpectedImprovement
from .model_based import InformationGain as InformationGain
from .model_based import KnowledgeGradient as KnowledgeGradient
from .model_based import Thompson as Thompson
from .trained_policy import Policy as Policy
from .trained_policy import load_policy as load_policy
from .trained_policy import pretrained_policy as pretrained_policy

STRATEGIES: dict[str, Any] = {
    "policy": pretrained_policy,
    "random": Random,
    "latin_hypercube": LatinHypercube,
    "gp_ei": GaussianProcessEI,
    "cbo": CausalBO,
    "thompson": Thompson,
    "expected_improvement": ExpectedImprovement,
    "knowledge_gradient": KnowledgeGradient,
    "information_gain": InformationGain,
}


def strategy_named(name: str, **options: Any) -> AbstractStrategy:
    """The strategy of this name with its options, such as `settings=BeliefSettings(...)`."""
    place(name, tuple(STRATEGIES), "strategy")
    return STRATEGIES[name](**options)
