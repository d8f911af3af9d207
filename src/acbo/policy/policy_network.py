"""The policy network and its settings: from statistics to predicted effects and a distribution over experiments.

An experiment is drawn from it pick by pick: one variable after another, each with its value.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int32

from acbo._limits import require_all_at_least, require_at_least
from acbo.data import Dataset, Key
from acbo.problem import Choice, Problem
from acbo.surrogate.layers import MASKED, Dense, NetworkConfig, Norm, Normals, draw_parts
from acbo.surrogate.network import Network
from acbo.surrogate.pairs import PairBlock, apply_blocks
from acbo.surrogate.weights import config_of, packaged_file, read_arrays, read_metadata, write_arrays
from jaxworlds.static import config

from .features import EDGE_FEATURES, NODE_FEATURES, PAIR_FEATURES, PolicyInput, known_edges, path_effects

FORMAT = "acbo-policy-1"
Picks = Int32[Array, " most"]
"""Cells `variable × places + place` in the order they were picked; `variables × places` ends the set, or the episode."""

_SHARPNESS = 2.0
"""Before any training the policy prefers experiments by their promised effects, times this."""


@config
class PolicyConfig:
    """Sizes of a policy. Equal settings share every compiled program.

    - `width`: of the tokens (variable, variable); `layers`: how often they look at each other.
    - `places`: cells of a variable's range: its two ends, which are values of their own, and the slices between them.
    - `surrogate_layers`: layers of the surrogate that comes with the policy and reads the same statistics.
    - `precision`: of the arithmetic; parameters are float32 always.
    """

    width: int = 32
    layers: int = 2
    places: int = 7
    surrogate_layers: int = 2
    precision: Literal["float32", "bfloat16"] = "float32"

    def __post_init__(self) -> None:
        if self.width < 4 or self.width % 4:
            raise ValueError(f"`width` must be a multiple of 4; got {self.width}.")
        require_at_least("places", self.places, 2, "The two ends of a range are places.")
        require_all_at_least(self, 1, "layers", "surrogate_layers")

    def network(self, layers: int) -> Any:
        """The settings of layers on pairs, and of the surrogate."""
        return NetworkConfig(
            encoder="statistics",
            width=self.width,
            pair_width=self.width,
            layers=layers,
            heads=1,
            widening=2,
            rank=2,
            precision=self.precision,
        )


class Outlook(eqx.Module):
    """Output of the network for one situation."""

    effect: Float[Array, "d places"]
    """Expected target under each variable at each place, relative to doing nothing, in standard deviations."""
    doubt: Float[Array, "d places"]
    """Standard deviation of that expectation."""
    logits: Float[Array, "d places"]
    """Log weight of each experiment on one variable; `MASKED` where none can be."""
    stop: Float[Array, ""]
    """Log weight of ending now."""
    enough: Float[Array, ""]
    """Log weight of setting no further variable in the same experiment."""
    together: Float[Array, "d d"]
    """`[i, j]`: what having chosen i adds to the log weights of j."""
    edges: Float[Array, "d d"]
    """The posterior of edges that it was given."""


class PolicyNetwork(eqx.Module):
    """A small surrogate and an acquisition network on pairs of variables. All leaves are parameters.

    Permuting variables permutes the answer; padding changes nothing.
    """

    surrogate: Network
    embed: Dense
    embed_nodes: Dense
    layers: PairBlock
    norm: Norm
    hidden: Dense
    out: Dense
    pair_out: Dense
    config: PolicyConfig = eqx.field(static=True)

    def __init__(self, config: PolicyConfig | None = None, *, key: Key) -> None:
        self.config = PolicyConfig() if config is None else config
        key_surrogate, key_rest = jr.split(key)
        self.surrogate = Network(self.config.network(self.config.surrogate_layers), key=key_surrogate)
        parts = draw_parts(_parts, self.config, key_rest)
        self.embed, self.embed_nodes, self.layers, self.norm, self.hidden, self.out, self.pair_out = parts

    def posterior(self, inputs: PolicyInput, data: Dataset, problem: Problem) -> Float[Array, "d d"]:
        """Probabilities of edges: the surrogate's, combined with prior knowledge."""
        return known_edges(problem, self.edge_logits(inputs, data))

    def edge_logits(self, inputs: PolicyInput, data: Dataset) -> Float[Array, "d d"]:
        """Log odds of edges by the surrogate alone."""
        return self.surrogate.from_statistics(inputs.pairs, data.live).edge_logits

    def __call__(
        self, inputs: PolicyInput, edges: Float[Array, "d d"], problem: Problem, target: Array
    ) -> Outlook:
        """The outlook given a posterior of edges."""
        d, config = problem.size, self.config
        places = config.places
        weights, total = path_effects(inputs, edges, target)
        live = problem.live
        more = jnp.stack([edges, edges.T, jnp.clip(weights, -3, 3), jnp.clip(weights.T, -3, 3)], axis=-1)
        more = jnp.where((live[:, None] & live)[..., None], more, 0)
        part = place_middles(places).astype(total.dtype)
        values = inputs.low[:, None] * (1 - part) + inputs.high[:, None] * part
        promised = total[:, None] * values
        own = jnp.stack([total, promised[:, 0] / 3, promised[:, -1] / 3, edges[:, target]], axis=-1)
        nodes = jnp.concatenate([inputs.nodes, own], axis=-1)
        tokens = self.embed_nodes(nodes)
        pairs = self.embed(jnp.concatenate([inputs.pairs, more], axis=-1)) + tokens[:, None] + tokens[None, :]
        seen = self.norm(apply_blocks(self.layers, pairs, live))
        share = live / jnp.maximum(live.sum(), 1)
        whole = jnp.einsum("ijc,i,j->c", seen, share, share)
        at_target = (jnp.arange(d) == target).astype(seen.dtype)
        into, out_of = jnp.einsum("ijc,j->ic", seen, at_target), jnp.einsum("jic,j->ic", seen, at_target)
        own = jnp.einsum("iic->ic", seen)
        wide = jnp.concatenate([into, out_of, own, jnp.broadcast_to(whole, own.shape), nodes], axis=-1)
        hidden = jax.nn.gelu(self.hidden(wide))
        found = self.out(hidden)
        trust, rest = jax.nn.sigmoid(found[:, :1] + 2), found[:, 1:]
        shift, doubt, logits = (rest[:, k * places : (k + 1) * places] for k in range(3))
        # A straight line in the value, bent where the network sees more.
        effect = trust * promised + shift
        possible = problem.manipulable[:, None]
        logits = logits - _SHARPNESS * jax.lax.stop_gradient(effect)
        last = jnp.einsum("ic,i->c", found[:, 1 + 3 * places :], share.astype(found.dtype))
        return Outlook(
            effect=jnp.where(possible, effect, 0),
            doubt=jnp.where(possible, jax.nn.softplus(doubt) + 0.02, 0.02),
            logits=jnp.where(possible, logits, MASKED),
            stop=last[0] - 6,
            enough=last[1],
            together=self.pair_out(seen)[..., 0],
            edges=edges,
        )


def place_middles(places: int) -> Float[Array, " places"]:
    """Positions of the cells in the range from 0 to 1: the ends, and the middles of the slices between them."""
    inner = (jnp.arange(places - 2) + 0.5) / max(places - 2, 1)
    return jnp.concatenate([jnp.zeros(1), inner, jnp.ones(1)])


def place_of(cell: Array, uniform: Array, places: int) -> Array:
    """A point of a cell, uniformly: the ends are points themselves."""
    inner = (cell - 1 + uniform) / max(places - 2, 1)
    return jnp.where(cell == 0, 0.0, jnp.where(cell == places - 1, 1.0, inner))


def _parts(config: PolicyConfig, normals: Normals) -> tuple[Any, ...]:
    width, network = config.width, config.network(config.layers)
    nodes = NODE_FEATURES + 4
    layers = [PairBlock(network, normals=normals) for _ in range(config.layers)]
    return (
        Dense(PAIR_FEATURES + EDGE_FEATURES, width, normals=normals),
        Dense(nodes, width, normals=normals),
        jax.tree.map(lambda *leaves: jnp.stack(leaves), *layers),
        Norm(width),
        Dense(4 * width + nodes, 2 * width, normals=normals),
        Dense(2 * width, 1 + 3 * config.places + 2, normals=normals, scale=0.1),
        Dense(width, 1, normals=normals, scale=0.1),
    )


def masked_logits(outlook: Outlook, taken: Bool[Array, " d"], count: Array) -> Float[Array, " all"]:
    """Log weights of what may be chosen next within one experiment: every cell of what is not yet taken, then the end.

    Before the first variable the end means to stop altogether, afterwards that the set is complete.
    """
    shift = taken.astype(outlook.together.dtype) @ outlook.together
    cells = jnp.where(taken[:, None], MASKED, outlook.logits + shift[:, None])
    end = jnp.where(count == 0, outlook.stop, outlook.enough)
    return jnp.append(cells.ravel(), end)


class PickNoise(NamedTuple):
    """The random numbers of one experiment, so that those of many are drawn at once."""

    gumbel: Float[Array, "*more most all"]
    uniform: Float[Array, "*more most"]


def draw_pick_noise(key: Key, problem: Problem, places: int, *lead: int) -> PickNoise:
    """Random numbers for experiments on this problem."""
    most, cells = problem.max_simultaneous, problem.size * places + 1
    numbers = jr.uniform(key, (*lead, most, cells + 1), minval=1e-7, maxval=1.0)
    return PickNoise(-jnp.log(-jnp.log(numbers[..., :cells])), numbers[..., cells])


def pick(
    outlook: Outlook, problem: Problem, noise: PickNoise, temperature: float | Float[Array, ""] = 1.0
) -> tuple[Picks, Float[Array, ""]]:
    """Picks drawn from the policy, and their log probability under it; temperature 0 takes the likeliest."""
    gumbel = noise.gumbel * temperature

    def choose(logits: Float[Array, " all"], step: int) -> Int32[Array, ""]:
        return jnp.argmax(logits + gumbel[step]).astype(jnp.int32)

    return _walk(outlook, problem, choose)


def log_probability(outlook: Outlook, problem: Problem, picks: Picks) -> Float[Array, ""]:
    """Log probability of given picks."""
    return _walk(outlook, problem, lambda _, step: picks[step])[1]


def _walk(
    outlook: Outlook, problem: Problem, choose: Callable[[Array, int], Array]
) -> tuple[Picks, Float[Array, ""]]:
    """Pick after pick, each by `choose(logits, step)`; after the end nothing more is picked, nor counted."""
    d, places = outlook.logits.shape
    end = d * places
    taken, done = jnp.zeros(d, bool), jnp.asarray(False)
    total, picks = jnp.zeros((), outlook.logits.dtype), []
    for step in range(problem.max_simultaneous):
        logits = masked_logits(outlook, taken, jnp.asarray(step))
        found = jnp.where(done, end, choose(logits, step)).astype(jnp.int32)
        log = jax.nn.log_softmax(logits)[found]
        total = total + jnp.where(done, 0, log)
        done = done | (found == end)
        taken = taken | (~done & (jnp.arange(d) == found // places))
        picks.append(found)
    return jnp.stack(picks), total


def entropy(outlook: Outlook) -> Float[Array, ""]:
    """Entropy of the first pick, in nats."""
    log = jax.nn.log_softmax(masked_logits(outlook, jnp.zeros(outlook.logits.shape[0], bool), jnp.asarray(0)))
    return -jnp.sum(jnp.exp(log) * jnp.where(log > -50, log, 0))


def choice_of(
    outlook: Outlook, problem: Problem, picks: Picks, log: Float[Array, ""], noise: PickNoise
) -> Choice:
    """The experiment for these picks; `noise` places values within their cells."""
    d, places = outlook.logits.shape
    made = picks < d * places
    chosen = made[:, None] & (jnp.arange(d) == (picks // places)[:, None])
    part = place_of(picks % places, noise.uniform, places)
    mask = chosen.any(0)
    where = jnp.sum(jnp.where(chosen, part[:, None], 0), axis=0)
    # In this form the ends are met exactly.
    value = problem.snap(problem.low * (1 - where) + problem.high * where)
    return Choice(mask, jnp.where(mask, value, 0), ~made[0], jnp.exp(log))


def save_policy(path: str | Path, policy: Any, metadata: Mapping[str, Any] | None = None) -> Path:
    """Write a `Policy` or its network to one file, whole or not at all; `metadata` (texts and numbers) says how it was made."""
    network: PolicyNetwork = getattr(policy, "network", policy)
    return write_arrays(path, network, FORMAT, network.config, metadata)


def load_network(path: str | Path, precision: str = "float32") -> PolicyNetwork:
    """The network in a file of `save_policy`."""
    config = config_of(path, PolicyConfig, policy_metadata(path), precision=precision)
    like = eqx.filter_eval_shape(lambda: PolicyNetwork(config, key=jr.key(0)))
    return read_arrays(path, like)


def policy_metadata(path: str | Path) -> dict[str, Any]:
    """The `format`, `config` and `metadata` of a file of weights."""
    return read_metadata(path, FORMAT)


def policy_path(name: str = "default") -> Path:
    """Path of the pretrained weights of this name."""
    return packaged_file("policy", "policies", name)
