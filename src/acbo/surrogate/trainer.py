"""Training as a world: draw models, make data, label them, update; many updates in one compiled call.

The state and the step are those of `jaxworlds.rollout`, so progress, checkpoints and resuming come from the core.
"""

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

from acbo._limits import require_all_at_least
from acbo.data import Dataset, Key
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
from jaxworlds.rollout import Checkpoint, Chunk, Rollout
from jaxworlds.static import config

from .heads import edge_loss, parent_set_loss
from .layers import NetworkConfig
from .network import Network

Draw = Callable[[Key], tuple[Dataset, Any]]
"""A random model's data and its adjacency, for one key."""
Teach = Callable[[Dataset], Any]
"""Edge probabilities `[i, j]` that a teacher gives for one dataset."""


@config
class LearningConfig:
    """Settings of the training of a network.

    - `updates` of `batch` datasets each; `accumulate` parts of a batch follow one another to save memory.
    - `learning_rate` is the peak; `weight_decay` and `max_norm` as in `optimizer.descent`.
    - `set_weight`: weight of the parent-set loss beside the edge loss; 0 leaves it out.
    - `max_parents`: parent sets up to this size are listed.
    """

    updates: int = 1000
    batch: int = 256
    accumulate: int = 1
    learning_rate: float = 1e-3
    weight_decay: float = 1e-4
    max_norm: float = 1.0
    set_weight: float = 0.25
    max_parents: int = 3

    def __post_init__(self) -> None:
        require_all_at_least(self, 1, "updates", "batch", "accumulate")
        if self.batch % self.accumulate:
            raise ValueError(
                f"`batch` must be a multiple of `accumulate`; got {self.batch} and {self.accumulate}."
            )
        require_all_at_least(self, 0, "learning_rate", "weight_decay", "max_norm", "set_weight")


class Learning(eqx.Module):
    """State of a training: the network, the optimizer's moments, the number of updates and the key."""

    network: Network
    moments: PyTree
    step: Int32[Array, ""]
    key: Key


class Update(eqx.Module):
    """One update of a `Learning` state, as the core's driver takes it: a pure function of state and step.

    `total` is an array, so that runs of other lengths need no other program.
    """

    draw: Draw
    teach: Teach | None
    total: Int32[Array, ""]
    config: LearningConfig = eqx.field(static=True)
    mesh: Mesh | None = eqx.field(static=True, default=None)

    def __call__(self, state: Learning, _: Any = None) -> tuple[Learning, dict[str, Float[Array, ""]]]:
        """The next state, and the figures of this update."""
        keys = jr.split(jr.fold_in(state.key, state.step), self.config.batch)

        def mean_gradient(network: Network, keys: Key, axes: Any) -> Any:
            return device_mean(self._accumulate(network, keys), axes)

        gradient, figures = over_devices(self.mesh, mean_gradient, state.network, keys)
        rate = learning_rate_at(state.step, self.total, self.config.learning_rate)
        network, moments = descend(
            state.network, state.moments, gradient, rate, self.config.weight_decay, self.config.max_norm
        )
        figures |= {"gradient_norm": norm_of(gradient), "learning_rate": rate}
        return Learning(network, moments, state.step + 1, state.key), figures

    def _accumulate(self, network: Network, keys: Key) -> tuple[Network, dict[str, Float[Array, ""]]]:
        parts = self.config.accumulate
        if parts == 1:
            return self._of_batch(network, keys)
        split = keys.reshape(parts, keys.shape[0] // parts, *keys.shape[1:])

        def add(total: Any, part: Key) -> tuple[Any, None]:
            return jax.tree.map(jnp.add, total, self._of_batch(network, part)), None

        zeros = jax.tree.map(jnp.zeros_like, jax.eval_shape(self._of_batch, network, split[0]))
        total, _ = jax.lax.scan(add, zeros, split)
        return jax.tree.map(lambda leaf: leaf / parts, total)

    def _of_batch(self, network: Network, keys: Key) -> tuple[Network, dict[str, Float[Array, ""]]]:
        def loss(network: Network) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
            means = jax.tree.map(jnp.mean, jax.vmap(lambda key: self._of_one(network, key))(keys))
            return means["total_loss"], means

        (_, figures), gradient = jax.value_and_grad(loss, has_aux=True)(network)
        return gradient, figures

    def _of_one(self, network: Network, key: Key) -> dict[str, Float[Array, ""]]:
        """The losses on one model's data."""
        key_model, key_dropout = jr.split(key)
        data, adjacency = self.draw(key_model)
        labels = adjacency if self.teach is None else self.teach(data)
        labels = jax.lax.stop_gradient(jnp.asarray(labels, jnp.float32))
        prediction = network(data, key=key_dropout if network.config.dropout > 0 else None)
        losses = {"edge_loss": edge_loss(prediction.edge_logits, labels, data.live)}
        losses["total_loss"] = losses["edge_loss"]
        if self.config.set_weight:
            losses["set_loss"] = parent_set_loss(prediction, adjacency.astype(bool), self.config.max_parents)
            losses["total_loss"] += self.config.set_weight * losses["set_loss"]
        return losses


def begin(
    network: Network | NetworkConfig | None, learning: LearningConfig, *, key: Key | None = None
) -> Learning:
    """A state before the first update, of a given network or of a new one."""
    key_network, key_data = jr.split(jr.key(0) if key is None else key)
    if not isinstance(network, Network):
        network = Network(network, key=key_network)
    moments = descent(learning.weight_decay, learning.max_norm).init(network)
    return Learning(network, moments, jnp.int32(0), key_data)


@dataclasses.dataclass(frozen=True)
class Trained:
    """Result of `train`."""

    network: Network
    state: Learning
    history: dict[str, np.ndarray] | None
    """The figures of the recorded updates."""
    rollout: Rollout
    batch: int

    @property
    def datasets_per_second(self) -> float:
        """Models drawn, labelled and learned from, each second, compilation excluded."""
        return self.rollout.world_steps_per_second * self.batch


def train(
    draw: Draw,
    network: Network | NetworkConfig | None = None,
    learning: LearningConfig | None = None,
    *,
    teach: Teach | None = None,
    key: Key | None = None,
    mesh: Mesh | None = None,
    chunk: int | None = None,
    record_every: int | None = 1,
    on_chunk: Callable[[Chunk], Any] | None = None,
    observe: Callable[[Learning], Any] | None = None,
    checkpoint: Checkpoint | str | Path | None = None,
    resuming: bool = False,
    progress: bool | None = None,
    check_memory: bool = True,
) -> Trained:
    """Train a network on models from `draw(key) -> (dataset, adjacency)`, wholly on the device.

    - `network`: one to train on, the settings of a new one, or None for the default.
    - `teach(dataset)`: labels in place of the true graph, for example an exact posterior.
    - `mesh`: spread each batch over these devices; gradients are averaged over them.
    - `chunk`: updates in one compiled call, by default 1 on a CPU, where an update takes long, and 100 on an accelerator;
      between calls progress is shown, Ctrl-C is heard, and `on_chunk` may stop the run.
    - `checkpoint`, `resuming`: a folder to save to, and whether to go on from what it holds, with the same bits.
    - `key`: of the network and of all data, by default `jax.random.key(0)`.

    `draw` and `teach` are part of the compiled program: pass functions of a module, or Equinox modules, and equal
    ones are compiled once.
    """
    learning = LearningConfig() if learning is None else learning
    if mesh is not None and learning.batch // learning.accumulate % mesh.size:
        raise ValueError(
            f"`batch` / `accumulate` must be a multiple of the {mesh.size} devices; "
            f"got {learning.batch} / {learning.accumulate}."
        )
    options = LoopOptions(
        mesh, chunk, record_every, on_chunk, observe, checkpoint, resuming, progress, check_memory
    )
    # The number of updates is an array, so that the program does not depend on it.
    part = dataclasses.replace(learning, updates=1)
    update = Update(draw, teach, jnp.int32(learning.updates), part, mesh)
    state = begin(network, learning, key=key)
    rollout = run_updates(
        update, state, learning.updates, options, donate_carry=not isinstance(network, Network)
    )
    return Trained(rollout.carry.network, rollout.carry, rollout.records, rollout, learning.batch)
