"""Episodes: policies, random actions, and the results of a rollout; `rollout` and `evaluate` of `jaxarc.agents` are here too."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float32, Int32, PRNGKeyArray, PyTree, UInt32

from jaxworlds.arguments import demand_key
from jaxworlds.lazy import lazy_names
from jaxworlds.static import config

from ..tasks import planes
from .config import JaxArcConfig
from .observations import ArcObservation
from .state import ArcEnvState
from .structured_actions import FORMATS, AbstractAction, BboxAction, MaskAction, PointAction

if TYPE_CHECKING:
    from ..agents.rollout import rollout as rollout
    from ..agents.scores import Score as Score
    from ..agents.scores import evaluate as evaluate
    from ..agents.scores import score_submissions as score_submissions

# On first use: the definitions in this folder import nothing of what steps an environment.
__getattr__, __dir__ = lazy_names(__name__)


Policy = Callable[[PyTree, ArcObservation, PRNGKeyArray], AbstractAction]
"""`policy(params, observation, key)` gives the action; of a batch, one for each environment."""


def random_actions(
    key: PRNGKeyArray | UInt32[Array, " words"],
    config: JaxArcConfig,
    batch: int | None = None,
    selection_format: str | None = None,
) -> AbstractAction:
    """A batch of actions, or one: operations uniform over those allowed, coordinates uniform over the canvas.

    A mask selects each cell with probability one half.
    """
    form = selection_format or config.action.selection_format
    if form not in FORMATS:
        raise ValueError(f"`selection_format` must be 'point', 'bbox' or 'mask'; got {form!r}.")
    rows, cols = config.canvas
    allowed = config.action.allowed_operations or config.action.existing_operations
    shape = () if batch is None else (batch,)
    # One draw for the whole batch is what a GPU likes best, and half a word is enough for a number.
    words = jr.bits(demand_key(key), ({"point": 2, "bbox": 3, "mask": 1 + rows}[form], *shape), jnp.uint32)
    chosen = _below(words[0] >> 16, len(allowed))
    every = allowed == tuple(range(len(allowed)))
    operation = chosen if every else jnp.asarray(allowed, jnp.int32)[chosen]
    if form == "mask":
        return MaskAction(operation, jnp.moveaxis(words[1:], 0, -1) & planes.low_bits(jnp.int32(cols)))
    row, col = _below(words[0] & 0xFFFF, rows), _below(words[1] >> 16, cols)
    if form == "point":
        return PointAction(operation, row, col)
    other_row, other_col = _below(words[1] & 0xFFFF, rows), _below(words[2] >> 16, cols)
    return BboxAction(operation, row, col, other_row, other_col)


def _below(halves: UInt32[Array, "*b"], count: int) -> Int32[Array, "*b"]:
    """Numbers from 0 to `count` − 1 from 16 random bits each, all as likely (to 1 in 2^16 ÷ count)."""
    return ((halves * jnp.uint32(count)) >> 16).astype(jnp.int32)


def random_policy(config: JaxArcConfig, selection_format: str | None = None) -> Policy:
    """A policy that ignores the observation and draws `random_actions`: one, or one for each environment of a batch.

    Equal settings make equal policies, so that a compiled rollout is found again.
    """
    return _RandomPolicy(config, selection_format)


@config
class _RandomPolicy:
    settings: JaxArcConfig
    selection_format: str | None

    def __call__(self, params: PyTree, seen: ArcObservation, key: PRNGKeyArray) -> AbstractAction:
        batch = seen.step_count.shape[0] if seen.step_count.ndim else None
        return random_actions(key, self.settings, batch, self.selection_format)


class Played(eqx.Module):
    """Results of a rollout, one number for each environment: summed rewards, episodes ended and solved, steps taken."""

    states: ArcEnvState
    observations: ArcObservation
    reward: Float32[Array, " b"]
    episodes: Int32[Array, " b"]
    successes: Int32[Array, " b"]
    steps: Int32[Array, " b"]
