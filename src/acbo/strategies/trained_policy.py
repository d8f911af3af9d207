"""The trained policy as a strategy: experiments by its distribution, recommendations by causal models and experiments."""

from pathlib import Path

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from acbo.beliefs.belief import AbstractBelief
from acbo.beliefs.posterior_models import BeliefSettings, draw_models
from acbo.data import Dataset, Key
from acbo.policy.features import Scale, orient_target, policy_input
from acbo.policy.policy_network import (
    Outlook,
    PolicyNetwork,
    choice_of,
    draw_pick_noise,
    load_network,
    pick,
    place_middles,
    policy_path,
)
from acbo.problem import Choice, Problem, Recommendation
from acbo.scms.scm import SCM
from acbo.surrogate.layers import MASKED

from .actions import is_refuted_alone
from .model_based import AbstractBeliefBased, best_action


class Policy(AbstractBeliefBased):
    """An acquisition network. Temperature 0 always takes the likeliest experiment; 1 is what it was trained with.

    It chooses experiments. What it predicts of them is trained on random models and is no belief about data of another
    kind, so recommendations rest on causal models; what the network proposes is one of their candidates.
    """

    network: PolicyNetwork
    temperature: float = eqx.field(static=True, default=0.0)
    settings: BeliefSettings = eqx.field(static=True, default=BeliefSettings())
    """Settings of the models behind recommendations."""

    def outlook(self, problem: Problem, data: Dataset, remaining: Float[Array, ""]) -> tuple[Outlook, Scale]:
        """The output of the network for the situation."""
        turned = orient_target(problem, data)
        known, scale = policy_input(problem, turned, remaining)
        edges = self.network.posterior(known, turned, problem)
        return self.network(known, edges, problem, data.target), scale

    def choose(self, problem: Problem, data: Dataset, remaining: Float[Array, ""], key: Key) -> Choice:
        """The network's experiment, but for what was tried at least twice and came out worse than doing nothing."""
        outlook, _ = self.outlook(problem, data, remaining)
        places = outlook.logits.shape[1]
        again = is_refuted_alone(problem, data, _middles(problem, places), least=2)
        outlook = eqx.tree_at(lambda o: o.logits, outlook, jnp.where(again, MASKED, outlook.logits))
        noise = draw_pick_noise(key, problem, self.network.config.places)
        picks, log = pick(outlook, problem, noise, self.temperature)
        return choice_of(outlook, problem, picks, log, noise)

    def models(self, problem: Problem, data: Dataset, key: Key) -> SCM:
        return draw_models(problem, data, key, self.settings)

    def advise(
        self,
        problem: Problem,
        data: Dataset,
        belief: AbstractBelief,
        key: Key,
        proposal: tuple[Bool[Array, " d"], Float[Array, " d"]] | None = None,
    ) -> Recommendation:
        """The recommendation given a belief and optionally a proposal."""
        proposal = self.proposal(problem, data) if proposal is None else proposal
        return best_action(problem, data, belief, key, proposal=proposal)

    def proposal(self, problem: Problem, data: Dataset) -> tuple[Bool[Array, " d"], Float[Array, " d"]]:
        """The place with the best effect that the network predicts."""
        outlook, _ = self.outlook(problem, data, jnp.zeros((), problem.low.dtype))
        places = outlook.effect.shape[1]
        held = jnp.where(problem.manipulable[:, None], outlook.effect, jnp.inf).ravel()
        best = jnp.argmin(held)
        mask = (jnp.arange(problem.size) == best // places) & (held[best] < 0)
        return mask, jnp.where(mask, _middles(problem, places).ravel()[best], 0)


def _middles(problem: Problem, places: int) -> Float[Array, "d places"]:
    part = place_middles(places)[:, None].astype(problem.low.dtype)
    return problem.snap(problem.low * (1 - part) + problem.high * part).T


def load_policy(path: str | Path, temperature: float = 0.0, precision: str = "float32") -> Policy:
    """The policy in a file of `save_policy`."""
    return Policy(load_network(path, precision), temperature)


def pretrained_policy(name: str = "default", temperature: float = 0.0) -> Policy:
    """The trained policy that comes with the package; `policy_metadata(policy_path(name))` tells how it was made."""
    return load_policy(policy_path(name), temperature)
