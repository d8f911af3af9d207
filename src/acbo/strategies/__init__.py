"""Ways to choose experiments, by name: baselines, causal Bayesian optimization, and the trained policy."""

from typing import Any

from acbo.beliefs.settings import BeliefSettings as BeliefSettings

from .believing import ExpectedImprovement as ExpectedImprovement
from .believing import InformationGain as InformationGain
from .believing import KnowledgeGradient as KnowledgeGradient
from .believing import Thompson as Thompson
from .blind import LatinHypercube as LatinHypercube
from .blind import Random as Random
from .causal import CausalBO as CausalBO
from .gp import GaussianProcessEI as GaussianProcessEI
from .oracle import Oracle as Oracle
from .strategy import AbstractStrategy as AbstractStrategy


def _policy(**options: Any) -> AbstractStrategy:
    """The trained policy; loaded late, because it builds on the strategies here."""
    from acbo.policy.weights import pretrained_policy

    return pretrained_policy(**options)


STRATEGIES: dict[str, Any] = {
    "policy": _policy,
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
    from acbo.scms.names import suggestion

    if name not in STRATEGIES:
        raise ValueError(
            f"`strategy` must be one of {', '.join(STRATEGIES)}; got {name!r}.{suggestion(name, tuple(STRATEGIES))}"
        )
    return STRATEGIES[name](**options)
