"""A step of a whole batch on a GPU: one kernel for integers and grids, and XLA for floats.

The rules are those of `jaxarc.envs.rules`; the results are those of the definition, bit for bit.
"""

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from jaxworlds.static import replace

from ..envs.config import JaxArcConfig
from ..envs.environment import Stepped
from ..envs.rules import Outcome, Tally, report_step, similarity, with_outcome, without_result
from ..envs.starts import grids_fit
from ..envs.state import ArcEnvState
from ..envs.structured_actions import AbstractAction, BboxAction, MaskAction, PointAction
from ..tasks.bank import TaskBank
from .batch_observe import observe_batch
from .small import is_small
from .step import Changed, Result, kernel_step
from .warp import COUNTED, LANES


def why_no_batch_kernel(states: ArcEnvState, actions: AbstractAction, config: JaxArcConfig) -> str | None:
    """Why `step_batch` cannot take these states, actions and settings; None if it can."""
    if config.action.extra_operations:
        return "`extra_operations` are yours, and the GPU's kernel knows only the built-in ones"
    if config.action.control_operations or states.wrong is not None:
        return "`control_operations` change the pair, which the GPU's kernel cannot"
    if not states.planes.size:
        return "the batch is empty"
    if states.planes.size >= COUNTED * jax.device_count():
        return (
            f"the batch has {states.planes.size:,} words, and a kernel counts fewer than 2^31 on each device"
        )
    if not isinstance(actions, PointAction | BboxAction | MaskAction):
        return f"the GPU's kernel knows points, boxes and masks, and not {type(actions).__name__}"
    return None


def unless_mapped(fused: Callable[..., Any], plain: Callable[..., Any]) -> Callable[..., Any]:
    """`fused`; or `plain` under one more `jax.vmap`, which the kernel does not support."""

    @jax.custom_batching.custom_vmap
    def choose(*given: Any) -> Any:
        return fused(*given)

    @choose.def_vmap
    def _(size: int, batched: Any, *given: Any) -> tuple[Any, Any]:
        axes = jax.tree.map(lambda has: 0 if has else None, tuple(batched))
        made = jax.vmap(plain, in_axes=axes, axis_size=size)(*given)
        return made, jax.tree.map(lambda _: True, made)

    return choose


def step_batch(
    states: ArcEnvState,
    bank: TaskBank,
    actions: AbstractAction,
    config: JaxArcConfig,
    interpret: bool = False,
) -> Stepped:
    """`batch_step` without checks, for a batch that shares its tasks."""
    rows, cols = config.canvas
    bank = jax.lax.stop_gradient(bank)
    ordered = actions
    if isinstance(actions, MaskAction):
        words = jax.vmap(lambda action: action.selection_rows(rows, cols))(actions)
        # The kernel looks at coordinates of points and boxes only.
        on_canvas = jax.vmap(lambda action: action.on_canvas(rows, cols))(actions)
        ordered = MaskAction(jnp.where(on_canvas, actions.operation, jnp.int32(-1)), words)
    changed = Changed(*(getattr(states, name) for name in Changed._fields))
    per_program = functools.partial(_per_program, config.canvas)
    new, result = kernel_step(changed, bank, ordered, config, per_program=per_program, interpret=interpret)
    outcome = _outcome(states, result)
    done = outcome.tally.over
    # Where the old mode is needed: an array that is read after it was changed in place would be copied first.
    acted = eqx.tree_at(lambda s: s.episode_mode, states, result.bit("tested").astype(jnp.int32))
    reward, history, info = jax.vmap(
        lambda state, outcome, action: report_step(
            *(state, state, outcome, action.on_canvas(rows, cols), action, bank, config)
        )
    )(acted, outcome, actions)
    look = lambda state: observe_batch(state, bank, config, interpret)  # noqa: E731
    end = _with(states, new, history)
    if config.environment.autoreset is None:
        end = eqx.tree_at(lambda s: s.similarity, end, outcome.similarity)
        info["final_observation"] = look(end)
        return end, info["final_observation"], reward, done, info
    near = jnp.where(done, similarity(*result.shares(start=True)), outcome.similarity)
    length = jnp.where(done, 0, history.length)
    end = eqx.tree_at(lambda s: (s.similarity, s.action_history.length), end, (near, length))
    end = without_result(end, done & ~(result.start_in_mode & grids_fit(end, bank)))
    info["final_observation"] = look(_before_restart(states, bank, ordered, outcome, config, interpret))
    return end, look(end), reward, done, info


def _per_program(canvas: tuple[int, int], batch: int) -> int:
    """Environments that one warp works on in turn: one while warps are idle, else a few, for starting one takes time."""
    if is_small(*canvas):
        return LANES  # all at once
    return next((many for most, many in ((16384, 1), (65536, 4), (262144, 8)) if batch < most), 16)


def _outcome(states: ArcEnvState, result: Result) -> Outcome:
    """What the kernel's words say, as the rules name it."""
    over = result.bit("was_over")
    tally = Tally(
        result.steps, result.attempts, *(result.bit(name) for name in ("terminated", "truncated", "success"))
    )
    agree, union = result.shares()
    near = jnp.where(over, states.similarity, similarity(agree, union))
    no = jnp.zeros_like(over)
    before = states.similarity
    return Outcome(
        over, result.bit("valid"), result.bit("submitted"), agree == union, no, tally, near, before, near
    )


def _with(states: ArcEnvState, new: Changed, history: Any) -> ArcEnvState:
    return eqx.tree_at(
        lambda s: (*(getattr(s, name) for name in Changed._fields), s.action_history), states, (*new, history)
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
    changed = Changed(*(getattr(states, name) for name in Changed._fields))
    per_program = functools.partial(_per_program, config.canvas)
    left, _ = kernel_step(changed, bank, actions, staying, per_program=per_program, interpret=interpret)
    return with_outcome(_with(states, left, states.action_history), outcome.tally, outcome.similarity)
