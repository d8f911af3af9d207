"""Checks that raise from compiled code when you ask for them, under the name the guides use."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxworlds.checking import check, checking_on

from ..envs.config import JaxArcConfig
from ..envs.environment import COORDINATES, INCONSISTENT, OPERATION
from ..envs.rules import is_allowed
from ..envs.state import ArcEnvState, consistent, state_axes
from ..envs.structured_actions import AbstractAction, demand_action
from ..tasks.bank import as_bank


class JAXErrorHandler:
    """Validation inside compiled code, whatever the debug level: calling it is asking for it.

    `EQX_ON_ERROR` decides what a failure does ("raise", "nan" or "breakpoint"), as it is when the caller is traced.
    Use what comes back: a check whose result nobody uses is optimised away.
    """

    @staticmethod
    def validate_action(action: AbstractAction, config: JaxArcConfig) -> AbstractAction:
        """`action`, which fails if its operation does not exist or is not allowed, or a coordinate is off the canvas."""

        def demands(one: AbstractAction) -> tuple[Array, Array]:
            one.selection_rows(*config.canvas)  # a mask of another shape raises at once
            return is_allowed(one.operation, config), one.on_canvas(*config.canvas)

        action = demand_action(action)
        look = eqx.filter_vmap(demands) if action.operation.ndim else demands
        known, placed = look(action)
        with checking_on():
            action = check(action, ~jnp.all(known), OPERATION)
            return check(action, ~jnp.all(placed), COORDINATES)

    @staticmethod
    def validate_state_consistency(state: ArcEnvState) -> ArcEnvState:
        """`state`, which fails if reset and step could not have made it."""
        look = lambda one: consistent(one, as_bank(one.task_data))  # noqa: E731
        if state.height.ndim:
            look = jax.vmap(look, in_axes=(state_axes(state),))
        fine = jnp.all(look(state))
        with checking_on():
            return check(state, ~fine, INCONSISTENT)
