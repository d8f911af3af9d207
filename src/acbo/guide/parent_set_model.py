"""The network behind the guide's model interface: `init`, `apply`, and a dictionary of arrays."""

from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from acbo.data import Dataset, Key, dataset
from acbo.surrogate.heads import candidate_sets
from acbo.surrogate.layers import NetworkConfig
from acbo.surrogate.network import Network
from jaxworlds.static import config

from .batches import TrainingBatchJAX, convert_to_jax_batch
from .examples import TrainingBatch, TrainingExample

# Spellings of other libraries and of the guide's sources.
_ALIASES = {
    "n_layers": "layers",
    "num_layers": "layers",
    "num_heads": "heads",
    "widening_factor": "widening",
    "dropout_rate": "dropout",
}
_WIDTHS = ("dim", "hidden_dim")


class ParentSetModel(eqx.Module):
    """A network that scores all parent sets of a target; `network` holds weights to start from.

    The parameters that `init` returns are a `Network`, so `apply` needs nothing else: a step made without a model
    serves the parameters of any.
    """

    network: Network
    max_parent_size: int = eqx.field(static=True)

    @property
    def init(self) -> "InitialParameters":
        """`model.init(key)`: new parameters."""
        return InitialParameters(self.network.config)

    @property
    def apply(self) -> "ApplyModel":
        """`model.apply(params, data, variable_order, target_variable)`: logits of the target's parent sets."""
        return ApplyModel(self.max_parent_size)

    def __call__(self, data: Any, *args: Any, **kwargs: Any) -> dict[str, Array]:
        """`apply` with the model's own weights."""
        return self.apply(self.network, data, *args, **kwargs)


@config
class InitialParameters:
    """Makes new parameters; hashable, so that `jax.jit(model.init)` works."""

    network: NetworkConfig

    def __call__(self, key: Key, *_: Any, **__: Any) -> Network:
        """New parameters. Data may follow the key, as other libraries want it; it is not needed."""
        return Network(self.network, key=key)


@config
class ApplyModel:
    """Runs a model with given parameters; hashable, so that `jax.jit(model.apply)` works."""

    max_parent_size: int

    def __call__(
        self,
        params: Network,
        data: Any,
        variable_order: Sequence[Any] | None = None,
        target_variable: Any = None,
        *,
        key: Key | None = None,
        is_training: bool = False,
    ) -> dict[str, Array]:
        """Logits of the target's parent sets, and what they come from; arrays only.

        - `data`: `[rows, variables, 3]` as in `TrainingExample`, or a `Dataset`.
        - `target_variable`: a name in `variable_order`, or an index; by default the one that `data` marks.
        - `is_training`: drop units at random; needs `key`.

        `parent_set_logits[s]` belongs to the set whose members `parent_sets[s]` marks.
        """
        if is_training and key is None:
            raise ValueError("`is_training=True` needs `key`, for dropout; got None.")
        target = _target_index(variable_order, target_variable)
        found = params(as_dataset(data, target), key=key if is_training else None)
        sets = candidate_sets(found.live.shape[0], self.max_parent_size, found.target)
        return {
            "parent_set_logits": found.parent_set_logits(sets),
            "parent_sets": sets,
            "parent_logits": found.parent_logits(),
            "edge_logits": found.edge_logits,
        }


def _target_index(order: Sequence[Any] | None, target: Any) -> Any:
    if target is None or isinstance(target, int | np.integer | jax.Array):
        return target
    if order is None or target not in order:
        raise ValueError(f"`target_variable` must be one of `variable_order`; got {target!r} with {order!r}.")
    return list(order).index(target)


def as_dataset(data: Any, target: Any = None) -> Dataset:
    """The guide's `[rows, variables, 3]` as a `Dataset`; the third channel marks the target unless one is given."""
    if isinstance(data, Dataset):
        return data if target is None else eqx.tree_at(lambda d: d.target, data, jnp.int32(target))
    data = jnp.asarray(data, jnp.float32)
    if data.ndim != 3 or data.shape[-1] != 3:
        raise ValueError(
            f"`data` must have shape [rows, variables, 3] for one problem; got {data.shape}. "
            "Use `jax.vmap` for a batch."
        )
    marked = jnp.argmax(data[..., 2].max(0)) if target is None else target
    return dataset(data[..., 0], data[..., 1] > 0.5, target=marked)


def network_config(model_kwargs: Mapping[str, Any] | NetworkConfig | None = None) -> NetworkConfig:
    """The settings of a network from keywords, the guide's spellings included.

    >>> network_config({"hidden_dim": 16, "n_layers": 2}).width
    16
    """
    if isinstance(model_kwargs, NetworkConfig):
        return model_kwargs
    settings: dict[str, Any] = {}
    for name, value in (model_kwargs or {}).items():
        if name in _WIDTHS:
            settings |= {"width": value, "pair_width": value}
        else:
            settings[_ALIASES.get(name, name)] = value
    key_size = settings.pop("key_size", None)
    if key_size is not None and "heads" not in settings:
        settings["heads"] = max(1, settings.get("width", 64) // key_size)
    return NetworkConfig().replace(**settings)  # pyright: ignore[reportAttributeAccessIssue]


def create_parent_set_model(
    model_kwargs: Mapping[str, Any] | NetworkConfig | None = None,
    max_parent_size: int = 3,
    *,
    key: Key | None = None,
) -> ParentSetModel:
    """A model that scores every parent set of up to `max_parent_size` members.

    `model_kwargs` are the settings of the network; `key` draws the weights it holds, by default `jax.random.key(0)`.
    """
    if max_parent_size < 1:
        raise ValueError(f"`max_parent_size` must be at least 1; got {max_parent_size}.")
    network = Network(network_config(model_kwargs), key=jr.key(0) if key is None else key)
    return ParentSetModel(network, max_parent_size)


def create_test_model(key: Key | None = None) -> tuple[ParentSetModel, Network]:
    """A model of two layers, 16 wide, as the guide's tests use, and parameters for it."""
    key = jr.key(0) if key is None else key
    settings = {"hidden_dim": 16, "n_layers": 2, "encoder": "statistics"}
    model = create_parent_set_model(settings, max_parent_size=2, key=key)
    return model, model.init(key)


def create_test_batch(batch_size: int = 3, rows: int = 20, seed: int = 0) -> TrainingBatchJAX:
    """Data of the chain A → B → Y with target Y, and an expert who gives {B} a probability of 0.7.

    The size is that of the guide's benchmark: three examples of twenty rows and three variables.
    """
    rng = np.random.default_rng(seed)
    posterior = {frozenset(): 0.1, frozenset("A"): 0.1, frozenset("B"): 0.7, frozenset("AB"): 0.1}
    examples = [
        TrainingExample(
            chain_data(rng, rows), "Y", ("A", "B", "Y"), posterior, 0.9, {"parents": ["B"]}, "easy"
        )
        for _ in range(batch_size)
    ]
    return convert_to_jax_batch(TrainingBatch(examples))


def chain_data(rng: np.random.Generator, rows: int) -> Float[np.ndarray, "rows 3 3"]:
    """Rows of A → B → Y, in the last quarter of which B was set."""
    noise = rng.standard_normal((rows, 3))
    was_set = np.arange(rows) >= rows - rows // 4
    a = noise[:, 0]
    b = np.where(was_set, 2 * noise[:, 1], 1.5 * a + 0.5 * noise[:, 1])
    y = -b + 0.5 * noise[:, 2]
    marks = np.zeros((2, rows, 3))
    marks[0, :, 1], marks[1, :, 2] = was_set, 1
    return np.stack([np.stack([a, b, y], -1), *marks], axis=-1).astype(np.float32)
