"""A step of a whole batch on a GPU: one kernel for all that is whole, and XLA for the rest.

The rules are those of `jaxarc.envs.rules`; what comes back is what the plain path gives, bit for bit.
"""

import functools
import re
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from jaxworlds.static import replace

from ...tasks.bank import TaskBank
from ..config import JaxArcConfig
from ..rules import Outcome, Tally, grids_fit, reported, similarity, with_outcome, without_result
from ..state import ArcEnvState
from ..structured_actions import AbstractAction, BboxAction, MaskAction, PointAction
from .looking import fused_look
from .operations import COUNTED
from .small import is_small
from .step import Kept, Told, kernel_step
from .switch import switched_on
from .warp import LANES


def can_fuse(states: ArcEnvState, actions: AbstractAction, config: JaxArcConfig) -> bool:
    """Whether `fused_step` knows these actions and settings, and this version of jax can build its kernel."""
    if config.action.control_operations or config.action.extra_operations or states.wrong is not None:
        return False
    if not 0 < states.planes.size < COUNTED * jax.device_count():
        return False
    return isinstance(actions, PointAction | BboxAction | MaskAction) and kernels_exist()


def kernels_exist() -> bool:
    """Whether kernels can be built here, and are not turned off."""
    return switched_on() and _can_build()


@functools.cache
def _can_build() -> bool:
    """Whether kernels can be built: by this jax, and for all GPUs of all hosts.

    The part of jax that builds them may go (jax 0.11 says so), and older GPUs lack some instructions.
    """
    if jax.default_backend() != "gpu":
        return False
    for version in {str(getattr(device, "compute_capability", "")) for device in jax.devices()}:
        if not re.fullmatch(r"\d+\.\d+", version) or float(version) < 8.0:  # AMD's have names
            return False
    try:
        from jax.experimental.pallas import triton
    except ImportError:
        return False
    return hasattr(triton, "load") and hasattr(triton, "elementwise_inline_asm")


def unless_mapped(fused: Callable[..., Any], plain: Callable[..., Any]) -> Callable[..., Any]:
    """`fused`, or under one more `jax.vmap`, which the kernel does not know, `plain`."""

    @jax.custom_batching.custom_vmap
    def chosen(*given: Any) -> Any:
        return fused(*given)

    @chosen.def_vmap
    def _(size: int, batched: Any, *given: Any) -> tuple[Any, Any]:
        axes = jax.tree.map(lambda has: 0 if has else None, tuple(batched))
        made = jax.vmap(plain, in_axes=axes, axis_size=size)(*given)
        return made, jax.tree.map(lambda _: True, made)

    return chosen


def fused_step(
    states: ArcEnvState,
    bank: TaskBank,
    actions: AbstractAction,
    config: JaxArcConfig,
    interpret: bool = False,
) -> Any:
    """`batch_step` without checks, for a batch that shares its tasks."""
    rows, cols = config.canvas
    bank = jax.lax.stop_gradient(bank)
    ordered = actions
    if isinstance(actions, MaskAction):
        words = jax.vmap(lambda action: action.selection_rows(rows, cols))(actions)
        # The kernel looks at coordinates of points and boxes only.
        on_canvas = jax.vmap(lambda action: action.on_canvas(rows, cols))(actions)
        ordered = MaskAction(jnp.where(on_canvas, actions.operation, jnp.int32(-1)), words)
    kept = Kept(*(getattr(states, name) for name in Kept._fields))
    per_program = functools.partial(_per_program, config.canvas)
    new, told = kernel_step(kept, bank, ordered, config, per_program=per_program, interpret=interpret)
    outcome = _outcome(states, told)
    done = outcome.tally.over
    # Where the old mode is needed: an array that is read after it was changed in place would be copied first.
    acted = eqx.tree_at(lambda s: s.episode_mode, states, told.bit("tested").astype(jnp.int32))
    report = jax.vmap(
        lambda state, outcome, action: reported(
            *(state, state, outcome, action.on_canvas(rows, cols), action, bank, config)
        )
    )(acted, outcome, actions)
    info = report.info
    look = lambda state: fused_look(state, bank, config, interpret)  # noqa: E731
    end = _with(states, new, report.history)
    if config.environment.autoreset is None:
        end = eqx.tree_at(lambda s: s.similarity, end, outcome.near)
        info["final_observation"] = look(end)
        return end, info["final_observation"], report.reward, done, info
    near = jnp.where(done, similarity(told.begun_agree, told.begun_union), outcome.near)
    length = jnp.where(done, 0, report.history.length)
    end = eqx.tree_at(lambda s: (s.similarity, s.action_history.length), end, (near, length))
    end = without_result(end, done & ~(told.begun_in_mode & grids_fit(end, bank)))
    info["final_observation"] = look(_before_restart(states, bank, ordered, outcome, config, interpret))
    return end, look(end), report.reward, done, info


def _per_program(canvas: tuple[int, int], batch: int) -> int:
    """Environments that one warp works on in turn: one while warps are idle, else a few, for starting one takes time."""
    if is_small(*canvas):
        return LANES  # all at once
    return next((many for most, many in ((16384, 1), (65536, 4), (262144, 8)) if batch < most), 16)


def _outcome(states: ArcEnvState, told: Told) -> Outcome:
    """What the kernel's words say, as the rules name it."""
    over = told.bit("was_over")
    tally = Tally(
        told.steps, told.attempts, *(told.bit(name) for name in ("terminated", "truncated", "success"))
    )
    solved = told.agree == told.union
    near = jnp.where(over, states.similarity, similarity(told.agree, told.union))
    no = jnp.zeros_like(over)
    before = states.similarity
    return Outcome(over, told.bit("valid"), told.bit("submitted"), solved, no, tally, near, before, near)


def _with(states: ArcEnvState, new: Kept, history: Any) -> ArcEnvState:
    return eqx.tree_at(
        lambda s: (*(getattr(s, name) for name in Kept._fields), s.action_history), states, (*new, history)
    )


def _before_restart(
    states: ArcEnvState,
    bank: TaskBank,
    actions: AbstractAction,
    outcome: Outcome,
    config: JaxArcConfig,
    interpret: bool,
) -> ArcEnvState:
    """The states as the step left them, before new episodes began.

    They come from the kernel once more, without autoreset: XLA leaves that out where nobody looks at them, and looking
    costs a second step. The kernel itself would have to write them always.
    """
    staying = replace(config, environment=replace(config.environment, autoreset=None))
    kept = Kept(*(getattr(states, name) for name in Kept._fields))
    per_program = functools.partial(_per_program, config.canvas)
    left, _ = kernel_step(kept, bank, actions, staying, per_program=per_program, interpret=interpret)
    return with_outcome(_with(states, left, states.action_history), outcome.tally, outcome.near)
