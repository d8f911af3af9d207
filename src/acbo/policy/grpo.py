"""Training a policy as a world: draw models, play groups of episodes, learn from them; many updates in one call."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int32, PyTree

from acbo._limits import require_all_at_least, require_between
from acbo.data import Key
from acbo.scms.scm import SCM
from acbo.surrogate.heads import edge_loss
from acbo.train_loop import (
    LoopOptions,
    descend,
    descent,
    device_mean,
    learning_rate_at,
    norm_of,
    over_devices,
    run_updates,
)
from jaxworlds.rollout import Checkpoint, Chunk, Rollout, holds_run
from jaxworlds.static import config

from .episodes import Case, Curriculum, EpisodeConfig, Steps, new_case, run_steps, thompson_shares
from .features import known_edges
from .grpo_config import ExplorationTrainingConfig, GRPOTrainingConfig, RewardTrainingConfig
from .policy_network import Outlook, PolicyConfig, PolicyNetwork, entropy, log_probability


@config
class PolicyLearning:
    """Settings of policy training.

    - `updates` on `models` causal models each, with `grpo.group_size` episodes for every model.
    - `imitate`: share of the updates that imitate Thompson sampling from the exact posterior, before GRPO begins.
    - `effect_weight`, `edge_weight`: of the losses by which effects and the surrogate are learned, all along.
    - `price`: cost of an experiment in units of regret; a positive cost makes stopping worthwhile.
    """

    updates: int = 1000
    models: int = 64
    imitate: float = 0.2
    effect_weight: float = 1.0
    edge_weight: float = 1.0
    price: float = 0.0
    weight_decay: float = 1e-4
    episode: EpisodeConfig = EpisodeConfig()
    grpo: GRPOTrainingConfig = GRPOTrainingConfig(group_size=16, num_iterations=1, learning_rate=1e-3)
    reward: RewardTrainingConfig = RewardTrainingConfig(
        optimization_weight=1.0, structure_weight=0.1, parent_weight=0.1, exploration_weight=0.0
    )
    exploration: ExplorationTrainingConfig = ExplorationTrainingConfig()

    def __post_init__(self) -> None:
        require_all_at_least(self, 1, "updates", "models")
        require_between("imitate", self.imitate, 0, 1)


class PolicyState(eqx.Module):
    """State of a training: the network, its reference, the optimizer's moments, the number of updates and the key."""

    network: PolicyNetwork
    reference: PolicyNetwork | None
    moments: PyTree
    step: Int32[Array, ""]
    key: Key


class PolicyUpdate(eqx.Module):
    """One update as the core's driver takes it. `total` is an array, so that runs of other lengths need no other
    program; `teach` says whether this program imitates (a second program then learns by GRPO alone)."""

    draw: Callable[[Key, Array], SCM]
    total: Int32[Array, ""]
    config: PolicyLearning = eqx.field(static=True)
    teach: bool = eqx.field(static=True, default=False)
    mesh: Mesh | None = eqx.field(static=True, default=None)

    def __call__(self, state: PolicyState, _: Any = None) -> tuple[PolicyState, dict[str, Float[Array, ""]]]:
        def learn(state: PolicyState, keys: Key, axes: Any) -> Any:
            return self.improve(state, *self.play(state.network, keys, state.step), axes)

        keys = jr.split(jr.fold_in(state.key, state.step), self.config.models)
        network, moments, figures = over_devices(self.mesh, learn, state, keys)
        return PolicyState(network, state.reference, moments, state.step + 1, state.key), figures

    def improve(
        self,
        state: PolicyState,
        cases: Case,
        steps: Steps,
        shares: Float[Array, "models d places"] | None,
        taught: Array,
        axes: Any = None,
    ) -> tuple[PolicyNetwork, PyTree, dict[str, Float[Array, ""]]]:
        """The network after learning from groups of episodes, the optimizer's moments, and figures."""
        gain, weight = self._advantages(steps)
        # Episodes may end early, so that devices have different numbers of steps.
        weight = weight / jnp.maximum(device_mean(weight.sum(), axes), 1)
        decay, max_norm = self.config.weight_decay, self.config.grpo.max_grad_norm
        rate = learning_rate_at(state.step, self.total, self.config.grpo.learning_rate)

        def loss(network: PolicyNetwork) -> tuple[Array, dict[str, Array]]:
            return self._loss(network, state, cases, steps, gain, weight, shares, taught)

        def iterate(carry: tuple[Any, Any], _: None) -> tuple[tuple[Any, Any], dict[str, Array]]:
            network, moments = carry
            gradient, figures = device_mean(eqx.filter_grad(loss, has_aux=True)(network), axes)
            network, moments = descend(network, moments, gradient, rate, decay, max_norm)
            return (network, moments), figures | {"gradient_norm": norm_of(gradient)}

        start = (state.network, state.moments)
        if self.config.grpo.num_iterations == 1:
            (network, moments), figures = iterate(start, None)
        else:
            (network, moments), each = jax.lax.scan(iterate, start, None, self.config.grpo.num_iterations)
            figures = jax.tree.map(lambda a: a[-1], each)
        more = {
            "regret": steps.regret[..., -1].mean(),
            "first_regret": steps.regret[..., 0].mean(),
            "reward": self._rewards(steps).sum(-1).mean(),
            "experiments": steps.performed.sum(-1).mean().astype(jnp.float32),
        }
        return network, moments, figures | device_mean(more, axes) | {"learning_rate": rate}

    def play(
        self, network: PolicyNetwork, keys: Key, step: Array
    ) -> tuple[Case, Steps, Float[Array, "models d places"] | None, Array]:
        """Groups of episodes: for every model one case, and `group_size` episodes on it with the same noise."""
        shape, group = self.config.episode, self.config.grpo.group_size
        places = network.config.places

        def one(key: Key) -> tuple[Case, Steps, Any, Array]:
            key_scm, key_case, key_play, key_at, key_teach = jr.split(key, 5)
            case = new_case(self.draw(key_scm, step), key_case, shape, places)
            steps = jax.vmap(lambda key: run_steps(network, case, key, shape))(jr.split(key_play, group))
            at = jr.randint(key_at, (), 0, shape.trials)
            if not self.teach:
                return case, steps, None, at
            # One situation of the first episode, as it was before experiment number `at`.
            data = jax.tree.map(lambda a: a[0], steps.data)
            rows = data.rows & (jnp.arange(data.rows.shape[0]) < case.observations + at)
            data = eqx.tree_at(lambda data: data.rows, data, rows)
            return case, steps, thompson_shares(case.problem, data, key_teach, places), at

        return jax.vmap(one)(keys)

    def _rewards(self, steps: Steps) -> Float[Array, "models group trials"]:
        weights = self.config.reward

        def step_gain(x: Float[Array, "models group more"]) -> Float[Array, "models group trials"]:
            return x[..., 1:] - x[..., :-1]

        return (
            -weights.optimization_weight * step_gain(steps.regret)
            + weights.structure_weight * step_gain(steps.structure)
            + weights.parent_weight * step_gain(steps.parents)
            + weights.exploration_weight * steps.novel / steps.novel.shape[-1]
            - self.config.price * steps.performed
        )

    def _advantages(self, steps: Steps) -> tuple[Array, Array]:
        """Advantage of every step over the mean of its group, by rewards to go; and the weight of each step."""
        rewards = self._rewards(steps)
        to_go = jnp.cumsum(rewards[..., ::-1], axis=-1)[..., ::-1]
        weight = steps.made.astype(to_go.dtype)
        count = jnp.maximum(weight.sum(1, keepdims=True), 1)
        mean = (weight * to_go).sum(1, keepdims=True) / count
        gain = weight * (to_go - mean)
        if self.config.grpo.scale_rewards:
            deviation = jnp.sqrt((gain**2).sum(1, keepdims=True) / count)
            # Where all went alike there is nothing to learn, and noise must not be blown up.
            gain = gain / jnp.maximum(deviation, 0.02)
        return jax.lax.stop_gradient(gain), weight

    def _loss(
        self,
        network: PolicyNetwork,
        state: PolicyState,
        cases: Case,
        steps: Steps,
        gain: Array,
        weight: Array,
        shares: Array | None,
        taught: Array,
    ) -> tuple[Array, dict[str, Array]]:
        grpo = self.config.grpo

        def situation(case: Case, known: Any, spread: Array, picks: Array) -> tuple[Any, ...]:
            problem, scm = case.problem, case.scm
            logits = network.surrogate.from_statistics(known.pairs, problem.live).edge_logits
            edges = known_edges(problem, logits)
            outlook = network(known, edges, problem, scm.target)
            edge = edge_loss(logits, scm.adjacency.astype(logits.dtype), problem.live)
            effect = _effect_loss(outlook, case, spread)
            log = log_probability(outlook, problem, picks)
            held = jnp.zeros(())
            if grpo.kl_penalty_coeff and state.reference is not None:
                old = state.reference(known, edges, problem, scm.target)
                ratio = jax.lax.stop_gradient(log_probability(old, problem, picks)) - log
                held = jnp.exp(jnp.clip(ratio, -10, 10)) - ratio - 1
            return edge, effect, log, entropy(outlook), held, outlook.logits, outlook.stop

        # Over models, episodes and turns.
        each = jax.vmap(jax.vmap(jax.vmap(situation, (None, 0, 0, 0)), (None, 0, 0, 0)))
        found = each(cases, steps.policy_input, steps.spread, steps.picks)
        edge, effect, log, spread, held, logits, stop = found
        ratio = jnp.exp(jnp.clip(log - steps.log, -10, 10))
        clipped = jnp.clip(ratio, 1 - grpo.clip_ratio, 1 + grpo.clip_ratio)
        surrogate = -jnp.sum(weight * jnp.minimum(ratio * gain, clipped * gain))
        explore = _temperature(self.config.exploration, state.step, self.total)
        figures = {
            "policy_loss": surrogate,
            "entropy": jnp.sum(weight * spread),
            "edge_loss": edge.mean(),
            "effect_loss": effect.mean(),
            "kl": jnp.sum(weight * held),
        }
        total = (
            self.config.edge_weight * figures["edge_loss"]
            + self.config.effect_weight * figures["effect_loss"]
        )
        if shares is None:
            total = total + surrogate + grpo.kl_penalty_coeff * figures["kl"]
            total = total - grpo.entropy_coeff * explore * figures["entropy"]
        else:

            def log_cells(cells: Array, end: Array, at: Array) -> Array:
                return jax.nn.log_softmax(jnp.append(cells[0, at].ravel(), end[0, at]))[:-1]

            log_all = jax.vmap(log_cells)(logits, stop, taught)
            figures["imitation_loss"] = -jnp.sum(shares.reshape(log_all.shape) * log_all, -1).mean()
            total = total + figures["imitation_loss"]
        return total, figures | {"total_loss": total}


def _effect_loss(outlook: Outlook, case: Case, spread: Array) -> Array:
    """Negative log likelihood of the true effects under the predicted ones, robust beyond 3 deviations."""
    true = case.effect / spread
    z = (outlook.effect - true) / outlook.doubt
    robust = jnp.where(jnp.abs(z) < 3, 0.5 * z**2, 3 * jnp.abs(z) - 4.5)
    can = case.problem.manipulable[:, None]
    each = jnp.where(can, robust + jnp.log(outlook.doubt), 0)
    return each.sum() / jnp.maximum(can.sum() * outlook.effect.shape[1], 1)


def _temperature(exploration: ExplorationTrainingConfig, step: Array, total: Array) -> Array:
    """From 1 down to the share that the final temperature has of the first."""
    last = exploration.final_temperature / exploration.initial_temperature
    if exploration.strategy == "fixed":
        return jnp.asarray(exploration.exploration_weight, jnp.float32)
    return exploration.exploration_weight * last ** (step / jnp.maximum(total, 1))


def begin(
    network: PolicyNetwork | PolicyConfig | None, learning: PolicyLearning, *, key: Key | None = None
) -> PolicyState:
    """A state before the first update, of a given network or of a new one."""
    key_network, key_data = jr.split(jr.key(0) if key is None else key)
    if not isinstance(network, PolicyNetwork):
        network = PolicyNetwork(network, key=key_network)
    moments = descent(learning.weight_decay, learning.grpo.max_grad_norm).init(network)
    reference = network if learning.grpo.kl_penalty_coeff else None
    return PolicyState(network, reference, moments, jnp.int32(0), key_data)


@dataclasses.dataclass(frozen=True)
class TrainedPolicy:
    """Result of `train_policy`."""

    network: PolicyNetwork
    state: PolicyState
    history: dict[str, np.ndarray] | None
    """The figures of the recorded updates, those of the imitation first."""
    rollout: Rollout
    episodes: int
    """Episodes of one update."""

    @property
    def episodes_per_second(self) -> float:
        """Episodes played and learned from each second by GRPO, compilation excluded."""
        return self.rollout.world_steps_per_second * self.episodes


def train_policy(
    draw: Callable[[Key, Array], SCM] | None = None,
    network: PolicyNetwork | PolicyConfig | None = None,
    learning: PolicyLearning | None = None,
    *,
    key: Key | None = None,
    mesh: Mesh | None = None,
    chunk: int | None = None,
    record_every: int | None = 1,
    on_chunk: Callable[[Chunk], Any] | None = None,
    observe: Callable[[PolicyState], Any] | None = None,
    checkpoint: Checkpoint | str | Path | None = None,
    resuming: bool = False,
    progress: bool | None = None,
    check_memory: bool = True,
) -> TrainedPolicy:
    """Train a policy on models from `draw(key, step)`, wholly on the device: first imitation, then GRPO.

    - `draw`: by default the curriculum of random models of up to ten variables. It is part of the program: pass a
      function of a module, or an Equinox module.
    - `mesh`: spread the models of an update over these devices; gradients are averaged over them.
    - `chunk`: updates in one compiled call, by default 1 on a CPU, where an update takes long, and 100 on an accelerator.
      Between calls progress is shown and Ctrl-C is heard.
    - `checkpoint`, `resuming`: a folder to save to, the two parts apart in it, and whether to go on from what it holds, with
      the same bits.
    - `check_memory`: as for `jaxworlds.run`.
    """
    learning = PolicyLearning() if learning is None else learning
    draw = Curriculum() if draw is None else draw
    if mesh is not None and learning.models % mesh.size:
        raise ValueError(f"`models` must be a multiple of the {mesh.size} devices; got {learning.models}.")
    options = LoopOptions(
        mesh, chunk, record_every, on_chunk, observe, checkpoint, resuming, progress, check_memory
    )
    state = begin(network, learning, key=key)
    total, part = jnp.int32(learning.updates), dataclasses.replace(learning, updates=1, imitate=0.0)
    imitating = round(learning.imitate * learning.updates)
    histories, rollout = [], None
    for name, updates in (("imitation", imitating), ("grpo", learning.updates - imitating)):
        if updates == 0:
            continue
        folder = _part_of(checkpoint, name)
        if rollout is not None:
            if state.reference is not None:
                state = eqx.tree_at(lambda s: s.reference, state, state.network)
            resuming = resuming and holds_run(folder)
        update = PolicyUpdate(draw, total, part, name == "imitation", mesh)
        of_part = dataclasses.replace(options, checkpoint=folder, resuming=resuming)
        rollout = run_updates(update, state, updates, of_part)
        histories.append(rollout.records)
        state = rollout.carry
        if rollout.outcome != "finished":
            break
    assert rollout is not None, "`updates` is at least 1"
    episodes = learning.models * learning.grpo.group_size
    return TrainedPolicy(state.network, state, _join_histories(histories), rollout, episodes)


def _part_of(checkpoint: Checkpoint | str | Path | None, name: str) -> Any:
    """The checkpoint of one part of the training, in a folder of its own."""
    if checkpoint is None:
        return None
    options = checkpoint if isinstance(checkpoint, Checkpoint) else Checkpoint(checkpoint)
    return dataclasses.replace(options, folder=Path(options.folder) / name)


def _join_histories(histories: list[Any]) -> dict[str, np.ndarray] | None:
    """The figures that all parts have, one part after the other."""
    kept = [history for history in histories if history is not None]
    if not kept:
        return None
    shared = set.intersection(*(set(history) for history in kept))
    return {name: np.concatenate([np.asarray(history[name]) for history in kept]) for name in sorted(shared)}
