"""Training steps in the guide's calling forms, over one pure function that sees arrays only."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int32, PyTree

from acbo.data import Dataset, Key
from acbo.surrogate.layers import MASKED
from acbo.surrogate.network import Network
from acbo.train_loop import learning_rate_at, make_optimizer, norm_of, require_optax
from jaxworlds.compiling import fallback

from .batches import TrainingBatchJAX, convert_to_jax_batch
from .configs import SurrogateTrainingConfig
from .examples import TrainingBatch
from .losses import entropy, kl_divergence_loss
from .parent_set_model import ParentSetModel, create_parent_set_model


class TrainingState(eqx.Module):
    """Parameters, the optimizer's state, and how many updates were made."""

    params: Network
    opt_state: PyTree
    step: Int32[Array, ""]


@dataclasses.dataclass(eq=False, repr=False)
class TrainStep:
    """One update of a surrogate. All forms compute the same numbers:

    - `step(state, batch, key) -> (state, metrics)`, with a state from `step.init(key)`;
    - `step(params, opt_state, batch, key) -> (params, opt_state, metrics)`;
    - `step(params, opt_state, parent_sets, variable_orders, target_variables, observational_data, expert_probs,
      expert_accuracies, key)`, with the same result;
    - `step(params, batch)`, with the same result, for a fresh optimizer and the key 0.

    Metrics are arrays: call `float` on what you print, or `TrainingMetrics.of` on all.
    """

    model: ParentSetModel
    optimizer: Any
    update: Callable[..., Any]
    """`update(params, opt_state, batch, key)`, on arrays."""
    config: SurrogateTrainingConfig

    def init(self, key: Key | None = None) -> TrainingState:
        """New parameters and a fresh optimizer."""
        params = self.model.init(jr.key(self.config.seed) if key is None else key)
        return TrainingState(params, self.optimizer.init(params), jnp.int32(0))

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        if len(args) == 3 and isinstance(args[0], TrainingState):
            state, batch, key = args
            params, opt_state, metrics = self._run_update(state.params, state.opt_state, batch, key)
            return TrainingState(params, opt_state, state.step + 1), metrics
        if len(args) == 2:
            params, batch = args
            opt_state, key = self.optimizer.init(params), jr.key(0)
        elif len(args) == 4:
            params, opt_state, batch, key = args
        elif len(args) == 9:
            params, opt_state, parent_sets, orders, targets, data, probs, accuracies, key = args
            batch = TrainingBatchJAX(data, probs, accuracies, parent_sets, orders, targets)
        else:
            kinds = ", ".join(type(arg).__name__ for arg in args)
            raise TypeError(
                "A training step takes (state, batch, key), (params, opt_state, batch, key), (params, batch), or the "
                f"guide's nine arguments; got {len(args)} ({kinds}). `step.init(key)` makes a state."
            )
        return self._run_update(params, opt_state, batch, key)

    def _run_update(
        self, params: Network, opt_state: PyTree, batch: Any, key: Key
    ) -> tuple[Network, PyTree, dict[str, Array]]:
        if not isinstance(batch, TrainingBatchJAX | TrainingBatch):
            raise TypeError(
                f"`batch` must be a TrainingBatchJAX or a TrainingBatch; got {type(batch).__name__}. "
                "Use `convert_to_jax_batch`."
            )
        batch = convert_to_jax_batch(batch)
        try:
            return self.update(params, opt_state, batch, key)
        except (AttributeError, TypeError, ValueError) as error:
            expected = jax.tree.structure(jax.eval_shape(self.optimizer.init, params))
            if jax.tree.structure(opt_state) == expected:
                raise
            raise ValueError(
                "`opt_state` must be a state of this step's optimizer; got that of another. Make it with "
                "`step.optimizer.init(params)`, or create the step with `optimizer=` yours."
            ) from error


def predicted_set_logits(
    params: Network, batch: TrainingBatchJAX, key: Key | None = None
) -> Float[Array, "batch k"]:
    """The network's logits of the parent sets of a batch; padding gets `MASKED`."""

    def one(data: Dataset, sets: Any, real: Any, key: Key | None) -> Float[Array, " k"]:
        return jnp.where(real, params(data, key=key).parent_set_logits(sets), MASKED)

    keys = None
    if key is not None and params.config.dropout > 0:
        keys = jr.split(key, batch.batch_size)
    return jax.vmap(one)(batch.datasets(), batch.parent_mask, batch.set_mask, keys)


def _each_loss(
    loss_fn: Callable[..., Any], logits: Float[Array, "batch k"], probs: Float[Array, "batch k"]
) -> Float[Array, " batch"]:
    """The loss of each example; one by one if the loss inspects values, which only works uncompiled."""
    try:
        return jax.vmap(loss_fn, in_axes=(0, 0, None))(logits, probs, None)
    except (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError):
        return jnp.stack([loss_fn(*pair, None) for pair in zip(logits, probs, strict=True)])


@functools.lru_cache(maxsize=64)
def _make_update(
    optimizer: Any, loss_fn: Callable[..., Any], config: SurrogateTrainingConfig, own_optimizer: bool
) -> Callable[..., Any]:
    """The pure function behind all forms; the same one for equal settings, so that steps share their programs."""
    optax = require_optax()
    # A decay that the optimizer does not know of enters as a penalty.
    penalty = 0.0 if own_optimizer else config.weight_decay

    def loss(params: Network, batch: TrainingBatchJAX, key: Key) -> tuple[Any, dict[str, Any]]:
        logits = predicted_set_logits(params, batch, key)
        each = _each_loss(loss_fn, logits, batch.expert_probs)
        squares = sum(jnp.square(leaf).sum() for leaf in jax.tree.leaves(params))
        parts = {
            "kl_loss": each.mean(),
            "regularization_loss": jnp.asarray(0.5 * penalty * squares, jnp.float32),
            "mean_expert_accuracy": batch.expert_accuracies.mean(),
            "predicted_entropy": jax.vmap(entropy)(jax.nn.softmax(logits)).mean(),
            "expert_entropy": jax.vmap(entropy)(batch.expert_probs).mean(),
        }
        return parts["kl_loss"] + parts["regularization_loss"], parts

    def surrogate_update(
        params: Network, opt_state: PyTree, batch: TrainingBatchJAX, key: Key
    ) -> tuple[Network, PyTree, dict[str, Array]]:
        (total, parts), gradient = jax.value_and_grad(loss, has_aux=True)(params, batch, key)
        rate = jnp.asarray(config.learning_rate, jnp.float32)
        if own_optimizer:  # whose last part counts the updates, in whatever form the step is called
            rate = learning_rate_at(opt_state[-1].count, config.total_steps, config.learning_rate)
        changes, opt_state = optimizer.update(gradient, opt_state, params)
        figures = {"gradient_norm": norm_of(gradient), "learning_rate": rate}
        return optax.apply_updates(params, changes), opt_state, {"total_loss": total} | parts | figures

    return surrogate_update


def _build(
    model: ParentSetModel | None,
    optimizer: Any,
    loss_fn: Callable[..., Any] | None,
    config: SurrogateTrainingConfig | None,
    compiling: Callable[[Callable[..., Any]], Callable[..., Any]],
) -> TrainStep:
    config = SurrogateTrainingConfig() if config is None else config
    if model is None:
        model = create_parent_set_model(config.get_model_kwargs(), config.max_parent_size)
    own = optimizer is None
    if own:
        optimizer = make_optimizer(
            config.learning_rate, config.total_steps, config.weight_decay, config.max_grad_norm
        )
    loss_fn = kl_divergence_loss if loss_fn is None else loss_fn
    update = compiling(_make_update(optimizer, loss_fn, config, own))
    return TrainStep(model, optimizer, update, config)


def create_jax_surrogate_train_step(
    model: ParentSetModel | None = None,
    optimizer: Any = None,
    loss_fn: Callable[..., Any] | None = None,
    config: SurrogateTrainingConfig | None = None,
) -> TrainStep:
    """A compiled training step, see `TrainStep` for its calling forms.

    - `model`: by default the one that `config` describes.
    - `optimizer`: an optax optimizer; by default clipping, AdamW, warm-up and cosine after `config`. With another one
      `config.weight_decay` enters the loss as a penalty.
    - `loss_fn(logits[k], expert_probs[k], parent_sets)`: by default `kl_divergence_loss`.

    Names, graphs and parent sets are arrays when they get here, so none of them compiles anything.
    """
    return _build(model, optimizer, loss_fn, config, jax.jit)


def create_adaptive_train_step(
    model: ParentSetModel | None = None,
    optimizer: Any = None,
    loss_fn: Callable[..., Any] | None = None,
    config: SurrogateTrainingConfig | None = None,
    use_jax_compilation: bool = True,
) -> TrainStep:
    """A training step that runs uncompiled where it cannot be compiled: the same function, the same numbers.

    A fallback warns once and says why, is counted (`jaxworlds.compiling.fallback_counts`), and strict mode refuses it.
    With `use_jax_compilation=False` nothing is compiled and no warning is given.
    """
    if not use_jax_compilation:
        return _build(model, optimizer, loss_fn, config, lambda update: update)
    return _build(model, optimizer, loss_fn, config, functools.partial(fallback, name="acbo surrogate step"))
