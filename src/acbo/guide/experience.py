"""The guide's policy functions: collect experience, update the policy from it, and the whole loop.

Parameters of a policy are a `PolicyState`: the network, the optimizer's moments and the number of updates. Trajectories are
groups of episodes on random causal models. Both are arrays, so that every call after the first runs a compiled program.
"""

import weakref
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array

from acbo.data import Key
from acbo.policy.episodes import Case, Curriculum, EpisodeConfig, Steps
from acbo.policy.grpo import PolicyLearning, PolicyState, PolicyUpdate, TrainedPolicy, begin, train_policy
from acbo.policy.grpo_config import GRPOTrainingConfig
from acbo.policy.policy_network import PolicyConfig, PolicyNetwork
from acbo.surrogate.network import Network, Surrogate

from .configs import SurrogateTrainingConfig
from .train_steps import TrainStep

SMALL = PolicyLearning(
    models=8,
    episode=EpisodeConfig(observations=30, trials=5),
    grpo=GRPOTrainingConfig(group_size=8, num_iterations=1, learning_rate=1e-3),
    edge_weight=0.0,
)
"""Default of `collect_experience`: eight episodes of five experiments on each of eight models."""

USUAL_GRPO = GRPOTrainingConfig(group_size=8, num_iterations=1, learning_rate=1e-3, total_steps=60)
USUAL_SURROGATE = SurrogateTrainingConfig(model_hidden_dim=16, model_n_layers=2, encoder="statistics")
"""Defaults of `grpo_with_jax_surrogate()`: about a minute on two cores."""

_STATES: "weakref.WeakKeyDictionary[TrainStep, Any]" = weakref.WeakKeyDictionary()


class Experience(eqx.Module):
    """Groups of episodes, and the policy that played them."""

    policy: PolicyState
    cases: Case
    steps: Steps

    @property
    def regret(self) -> Array:
        """Regret of the recommendation at the end of each episode: models × episodes."""
        return self.steps.regret[..., -1]


def update_surrogate_jax(step: TrainStep, data: Any) -> Network:
    """Parameters of the surrogate after one more update of `step` on `data`, a batch as the step takes it.

    The step's own run goes on: its first update starts from `step.init()`, every later one from the one before.
    """
    if not isinstance(step, TrainStep):
        raise TypeError(
            f"`step` must be a step of `create_jax_surrogate_train_step`; got {type(step).__name__}."
        )
    state = _STATES.get(step)
    state = step.init() if state is None else state
    after, _ = step(state, data, jr.fold_in(jr.key(step.config.seed), int(state.step)))
    _STATES[step] = after
    return after.params


def collect_experience(
    policy_params: PolicyState | PolicyNetwork | None = None,
    surrogate_params: Network | Surrogate | None = None,
    *,
    learning: PolicyLearning = SMALL,
    draw: Any = None,
    key: Key | None = None,
) -> Experience:
    """Groups of episodes that the policy plays on random models, `learning.grpo.group_size` on each with common noise.

    - `policy_params`: of `update_policy_grpo`; a network alone; or None for a new one.
    - `surrogate_params`: the surrogate whose posterior the policy sees; by default the policy's own.
    - `draw(key, step)`: the models, by default linear ones of up to five variables.
    - `key`: by default it follows from the number of updates.
    """
    if policy_params is None:
        policy_params = PolicyNetwork(PolicyConfig(width=16, layers=1, surrogate_layers=1), key=jr.key(0))
    if not isinstance(policy_params, PolicyState | PolicyNetwork):
        raise TypeError(
            f"`policy_params` must be a PolicyState or a PolicyNetwork; got {type(policy_params).__name__}."
        )
    state = policy_params if isinstance(policy_params, PolicyState) else begin(policy_params, learning)
    state = _with_surrogate(state, surrogate_params, learning)
    key = jr.fold_in(state.key, state.step) if key is None else key
    update = PolicyUpdate(Curriculum(5, 0) if draw is None else draw, jnp.int32(1000), learning)
    return Experience(state, *_play(update, state, jr.split(key, learning.models)))


@eqx.filter_jit
def _play(update: PolicyUpdate, state: PolicyState, keys: Key) -> tuple[Case, Steps]:
    return update.play(state.network, keys, state.step)[:2]


def update_policy_grpo(
    surrogate_params: Network | Surrogate | None,
    trajectories: Experience,
    *,
    learning: PolicyLearning = SMALL,
) -> PolicyState:
    """The policy's parameters after learning from trajectories by GRPO; its surrogate is then `surrogate_params`."""
    if not isinstance(trajectories, Experience):
        raise TypeError(
            f"`trajectories` must be those of `collect_experience`; got {type(trajectories).__name__}."
        )
    state = trajectories.policy
    update = PolicyUpdate(_no_models, jnp.int32(learning.updates), learning)
    network, moments = _improve(update, state, trajectories.cases, trajectories.steps)
    # GRPO is about the policy: its surrogate is learned elsewhere.
    kept = state.network.surrogate if surrogate_params is None else surrogate_params
    after = PolicyState(network, state.reference, moments, state.step + 1, state.key)
    return _with_surrogate(after, kept, learning)


@eqx.filter_jit
def _improve(
    update: PolicyUpdate, state: PolicyState, cases: Case, steps: Steps
) -> tuple[PolicyNetwork, Any]:
    taught = jnp.zeros(steps.regret.shape[0], jnp.int32)
    return update.improve(state, cases, steps, None, taught)[:2]


def _no_models(key: Key, step: Array) -> Any:
    raise AssertionError("an update from given trajectories draws no models")


def grpo_with_jax_surrogate(
    grpo_config: GRPOTrainingConfig | None = None,
    surrogate_config: SurrogateTrainingConfig | None = None,
    *,
    models: int = 8,
    episode: EpisodeConfig = SMALL.episode,
    draw: Any = None,
    key: Key | None = None,
    **options: Any,
) -> TrainedPolicy:
    """Train a policy and its surrogate together.

    Makes `grpo_config.total_steps` updates, each one compiled program that draws models, plays groups of episodes on them,
    and improves surrogate, effects and policy.

    - `grpo_config`, `surrogate_config`: without them a small network learns for about a minute on two cores: 60 updates of
      eight episodes on each of eight models. The classes' own defaults are those of the guide, for an accelerator.
    - `models`, `episode`: causal models of one update, and what is played on each.
    - `draw(key, step)`: the models, by default linear ones of up to five variables.
    - `options`: as for `train_policy`, such as `progress=True`, `checkpoint="folder"` or `check_memory=False`.

    Memory is compared with the program's need before the first update. A bar shows progress on a terminal. Ctrl-C and
    SIGTERM stop after the update at hand and return the progress so far.

    Example:
        trained = acbo.grpo_with_jax_surrogate()
        print(trained.history["regret"][[0, -1]])
    """
    grpo = USUAL_GRPO if grpo_config is None else grpo_config
    surrogate = USUAL_SURROGATE if surrogate_config is None else surrogate_config
    config = PolicyConfig(
        width=surrogate.model_hidden_dim,
        layers=surrogate.model_n_layers,
        surrogate_layers=surrogate.model_n_layers,
        precision=surrogate.precision,
    )
    learning = PolicyLearning(
        updates=grpo.total_steps,
        models=models,
        imitate=0.0,
        grpo=grpo,
        episode=episode,
        weight_decay=surrogate.weight_decay,
    )
    key = jr.key(surrogate.seed) if key is None else key
    return train_policy(Curriculum(5, 0) if draw is None else draw, config, learning, key=key, **options)


def _with_surrogate(
    state: PolicyState, surrogate: Network | Surrogate | None, learning: PolicyLearning
) -> PolicyState:
    """The state with another surrogate, which must read the statistics that the policy has.

    The optimizer's moments start again if the surrogate has another size.
    """
    if surrogate is None:
        return state
    found = surrogate.network if isinstance(surrogate, Surrogate) else surrogate
    if not isinstance(found, Network) or found.config.encoder != "statistics":
        kind = found.config.encoder if isinstance(found, Network) else type(found).__name__
        raise ValueError(
            f'`surrogate_params` must be those of a surrogate with `encoder="statistics"`; got {kind!r}. Pass '
            'SurrogateTrainingConfig(encoder="statistics"), or None for the policy\'s own.'
        )
    network = eqx.tree_at(lambda n: n.surrogate, state.network, found)

    def shapes(of: Any) -> Any:
        return jax.tree.map(jnp.shape, eqx.filter(of, eqx.is_array)), jax.tree.structure(of)

    fits = shapes(network) == shapes(state.network)
    moments = state.moments if fits else begin(network, learning).moments
    return PolicyState(network, state.reference, moments, state.step, state.key)
