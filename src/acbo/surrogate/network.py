"""The surrogate: a network that reads a dataset of any size and predicts its causal graph, and its calibration.

Logits are rescaled on held-out models, so that of the edges given 80 % eight in ten are there.
"""

import warnings
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int

from acbo._limits import require_one_of
from acbo.data import Dataset, Key, demand_dataset
from acbo.inference.metrics import edge_mask

from .attention import AxialBlock
from .heads import Prediction
from .layers import MASKED, Dense, NetworkConfig, Norm, Normals, draw_parts
from .pairs import PairBlock, apply_blocks
from .statistics import FEATURES, pair_statistics, standardise

_PRIOR_LOGIT = -1.5
"""Before training, an edge has a probability of 0.18: 1.5 edges per variable among ten (ledger 7.2)."""


class Calibration(eqx.Module):
    """`scale * logit + shift`; what cannot be stays so. The identity until fitted."""

    scale: Float[Array, ""]
    shift: Float[Array, ""]

    def __init__(self, scale: float | Float[Array, ""] = 1.0, shift: float | Float[Array, ""] = 0.0) -> None:
        self.scale, self.shift = jnp.asarray(scale, jnp.float32), jnp.asarray(shift, jnp.float32)

    def __call__(self, logits: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        return jnp.where(logits <= MASKED / 2, MASKED, self.scale * logits + self.shift)

    @property
    def temperature(self) -> Float[Array, ""]:
        """The divisor of logits."""
        return 1 / self.scale


def fit_calibration(
    logits: Float[Array, "*shape"],
    labels: Float[Array, "*shape"] | Bool[Array, "*shape"],
    mask: Bool[Array, "*shape"] | None = None,
    kind: str = "temperature",
) -> Calibration:
    """The calibration with the least cross entropy to `labels`, which may be truth (0 or 1) or probabilities.

    - `kind="temperature"` fits the scale alone; `"vector"` the scale and the shift.

    The problem is convex; Newton's method finds its minimum in a few steps.
    """
    require_one_of("kind", kind, "temperature", "vector")
    mask = (logits > MASKED / 2) if mask is None else mask & (logits > MASKED / 2)
    x = jnp.where(mask, logits, 0.0).ravel().astype(jnp.float32)
    y = labels.astype(jnp.float32).ravel()
    weight = mask.ravel() / jnp.maximum(mask.sum(), 1)
    fitted = jnp.array([True, kind == "vector"])
    low, high = 1e-2, 1e2

    def loss(p: Float[Array, "2"]) -> Float[Array, ""]:
        rescaled = p[0] * x + p[1]
        return (weight * (jax.nn.softplus(rescaled) - y * rescaled)).sum()

    def newton(_: Array, p: Float[Array, "2"]) -> Float[Array, "2"]:
        slope = jax.grad(loss)(p)
        # At its limit the scale rests while the shift is fitted, if that is where the slope presses it.
        pressed = ((p[0] <= low) & (slope[0] > 0)) | ((p[0] >= high) & (slope[0] < 0))
        free = (fitted & jnp.array([True, True]).at[0].set(~pressed)).astype(p.dtype)
        curve = jax.hessian(loss)(p) * free[:, None] * free + jnp.diag(1 - free)
        step = jnp.linalg.solve(curve + 1e-8 * jnp.eye(2), slope * free)
        # A step of at most 1 keeps the scale from leaping over 0, where probabilities turn round.
        step = step / jnp.maximum(1.0, jnp.abs(step).max())
        return (p - step).at[0].set(jnp.clip(p[0] - step[0], low, high))

    scale, shift = jax.lax.fori_loop(0, 50, newton, jnp.array([1.0, 0.0], jnp.float32))
    return Calibration(scale, shift)


class Network(eqx.Module):
    """Datasets in, predictions out. All leaves are parameters.

    Permuting variables permutes the answer; permuting rows, or padding either, changes nothing. Layers are stacked
    and run under one `scan`, so the program is as long for one layer as for ten.
    """

    embed_pairs: Dense
    embed_tokens: Dense | None
    layers: AxialBlock | PairBlock
    norm: Norm
    edge: Dense
    sets: Dense
    config: NetworkConfig = eqx.field(static=True)

    def __init__(self, config: NetworkConfig | None = None, *, key: Key) -> None:
        self.config = NetworkConfig() if config is None else config
        parts = draw_parts(_parts, self.config, key)
        self.embed_pairs, self.embed_tokens, self.layers, self.norm, self.edge, self.sets = parts

    def __call__(self, data: Dataset, *, key: Key | None = None) -> Prediction:
        """The prediction for one dataset; `key` turns dropout on."""
        return self._answer(self._encode(data, key), data.live, data.target)

    def from_statistics(
        self,
        statistics: Float[Array, "d d features"],
        live: Bool[Array, " d"],
        target: Int[Array, ""] | int = 0,
    ) -> Prediction:
        """The prediction from pair statistics that are already there; for the statistics encoder."""
        pairs = apply_blocks(self.layers, self.embed_pairs(statistics), live)
        return self._answer(pairs, live, jnp.asarray(target, jnp.int32))

    def _answer(
        self, pairs: Float[Array, "d d pair_width"], live: Bool[Array, " d"], target: Int[Array, ""]
    ) -> Prediction:
        seen = self.norm(pairs)
        logits = self.edge(seen)[..., 0]
        more = self.sets(seen)
        possible = edge_mask(live)
        return Prediction(
            edge_logits=jnp.where(possible, logits, MASKED),
            single_logits=jnp.where(possible, logits + more[..., 0], MASKED),
            factors=jnp.where(possible[..., None], more[..., 1:], 0.0),
            live=live,
            target=target,
        )

    def _encode(self, data: Dataset, key: Key | None) -> Float[Array, "d d pair_width"]:
        x = standardise(data)
        pairs = self.embed_pairs(pair_statistics(data, x))
        tokens = None if self.embed_tokens is None else self.embed_tokens(self._channels(data, x))
        arrays, static = eqx.partition(self.layers, eqx.is_array)
        keys = None if key is None else jr.split(key, self.config.layers)

        def apply(carry: Any, inputs: Any) -> tuple[Any, None]:
            tokens, pairs = carry
            layer_arrays, layer_key = inputs
            layer = eqx.combine(layer_arrays, static)
            if isinstance(layer, PairBlock):
                return (tokens, layer(pairs, data.live, layer_key)), None
            return layer(tokens, pairs, data.rows, data.live, layer_key), None

        layer = _with_remat(apply, self.config.remat)
        return jax.lax.scan(layer, (tokens, pairs), (arrays, keys))[0][1]

    def _channels(self, data: Dataset, x: Float[Array, "n d"]) -> Float[Array, "n d channels"]:
        """Inputs of a token (row, variable): the value, whether it was set, and whether the row is an observation."""
        was_set = data.intervened.astype(x.dtype)
        observed = jnp.broadcast_to(1 - was_set.max(1, keepdims=True), x.shape)
        return jnp.stack([x, was_set, x * was_set, observed], axis=-1).astype(self.config.dtype)


_CHANNELS = 4


def _with_remat(body: Any, remat: str) -> Any:
    """The body of the scan, keeping less for the backward pass."""
    if remat == "none":
        return body
    policy = jax.checkpoint_policies.dots_with_no_batch_dims_saveable if remat == "dots" else None
    # A scan keeps the two passes apart, so the barrier that does it elsewhere would only hinder fusion.
    return jax.checkpoint(body, prevent_cse=False, policy=policy)


def _parts(config: NetworkConfig, normals: Normals) -> tuple[Any, ...]:
    """The parts of a new network."""
    axial = config.encoder == "axial"
    block = AxialBlock if axial else PairBlock
    layers = [block(config, normals=normals) for _ in range(config.layers)]
    edge = Dense(config.pair_width, 1, normals=normals, scale=0.1)
    return (
        Dense(2 * FEATURES, config.pair_width, normals=normals),
        Dense(_CHANNELS, config.width, normals=normals) if axial else None,
        jax.tree.map(lambda *leaves: jnp.stack(leaves), *layers),
        Norm(config.pair_width),
        eqx.tree_at(lambda dense: dense.bias, edge, jnp.full(1, _PRIOR_LOGIT, jnp.float32)),
        # At first parents are independent; a factor of exactly zero would have no gradient.
        Dense(config.pair_width, 1 + config.rank, normals=normals, scale=0.01),
    )


class Surrogate(eqx.Module):
    """A trained network with its calibration: what people use.

    ```python
    surrogate = pretrained("default")
    probabilities = surrogate(dataset).edges
    ```
    """

    network: Network
    calibration: Calibration
    trained_variables: int | None = eqx.field(static=True)
    """Most variables of the models it was trained on; None if unknown."""

    def __init__(
        self,
        network: Network,
        calibration: Calibration | None = None,
        trained_variables: int | None = None,
    ) -> None:
        self.network = network
        self.calibration = Calibration() if calibration is None else calibration
        self.trained_variables = trained_variables

    def __call__(self, data: Dataset) -> Prediction:
        """The calibrated prediction for one dataset; compiled once per shape. For many datasets, `vmap`.

        A plain call warns where there are more variables than it was trained on; inside `jit` no warning is possible.
        """
        demand_dataset(data)
        live, most = data.live, data.size if self.trained_variables is None else self.trained_variables
        # The number of places is known without waiting for the device.
        plain = data.size > most and not isinstance(live, Tracer) and live.ndim == 1
        if plain and live.sum() > most:
            warnings.warn(
                f"the surrogate was trained on at most {most} variables; these data have {int(live.sum())}, and its answers "
                "there were never tested. `acbo.edge_posterior(data)` answers for any number.",
                stacklevel=2,
            )
        return _answer(self, data)


@eqx.filter_jit
def _answer(surrogate: Surrogate, data: Dataset) -> Prediction:
    raw = surrogate.network(data)
    return eqx.tree_at(lambda p: p.edge_logits, raw, surrogate.calibration(raw.edge_logits))


def count_parameters(network: Network) -> int:
    """Number of parameters of a network."""
    return sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(network, eqx.is_array)))
