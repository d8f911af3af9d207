"""How an episode starts: random task and pair, the first state, and the restart where an episode is over."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.extend.random import threefry_2x32
from jaxtyping import Array, Bool, Int32, UInt32

from ..tasks.bank import TRAIN, Grid, TaskBank
from . import operations as ops
from .config import JaxArcConfig
from .history import empty_history
from .rules import similarity, with_workspace
from .state import ArcEnvState, has_pair

# Rotations of the rounds (four and four in turn), and the number that is mixed into the key.
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA

Words = UInt32[Array, "*b"]


def threefry(key: tuple[Words, Words], counter: tuple[Words, Words]) -> tuple[Words, Words]:
    """Threefry-2x32, 20 rounds (Salmon et al., 2011): two random words from a key and a counter of two words each.

    Written out in plain arithmetic, so that kernels and XLA draw the same words.
    """
    first, second = key
    keys = (first, second, first ^ second ^ first.dtype.type(_PARITY))
    x, y = counter[0] + first, counter[1] + second
    for group in range(5):
        for by in _ROTATIONS[group % 2]:
            x = x + y
            y = x ^ ((y << by) | (y >> (32 - by)))
        x = x + keys[(group + 1) % 3]
        y = y + keys[(group + 2) % 3] + first.dtype.type(group + 1)
    return x, y


def threefry_once(key: tuple[Words, Words], counter: tuple[Words, Words]) -> tuple[Words, Words]:
    """`threefry` by JAX's own function: the same words, computed once for each environment.

    On a CPU XLA would compute plain arithmetic again for every cell of an observation that depends on it, which made a reset at
    30×30 take 105 µs instead of 2.4 (1024 environments, measured 2026-11-19 on 2 shared cores).
    """
    words = threefry_2x32(jnp.stack(key), jnp.stack(counter))
    return words[0], words[1]


class Start(NamedTuple):
    """Where an episode starts, and the random key that it goes on with."""

    task: Int32[Array, "*b"]
    mode: Int32[Array, "*b"]
    pair: Int32[Array, "*b"]
    place: Int32[Array, "*b"]
    """Row of the pair in the bank."""
    key: tuple[UInt32[Array, "*b"], UInt32[Array, "*b"]]


def sample_start(
    key: tuple[Array, Array],
    bank: Any,
    mode: Array,
    task: Array | None,
    pair: Array | None,
    draw: Callable[..., tuple[Words, Words]] = threefry,
) -> Start:
    """Sample the task and the pair that are None; `key` is the environment's own, and `draw` makes random words of it.

    `bank` is a `TaskBank`, or anything with its methods (a GPU kernel reads memory instead).
    """
    none = jnp.zeros_like(key[0])
    task_bits, pair_bits = draw(key, (none, none + none.dtype.type(1)))
    if task is None:
        task = bank.draw_task(task_bits)
    # Only traced code can choose what does not exist. It must not reach another task: it becomes the nearest.
    task = jnp.clip(task, bank.offset, bank.offset + len(bank) - 1)
    mode = jnp.where(bank.pairs_of(task, mode) > 0, mode, TRAIN).astype(jnp.int32)
    count = bank.pairs_of(task, mode)
    if pair is None:
        # The upper 16 bits times the count, divided by 2^16: any pair is as likely, to 1 in 6,000 for 10 pairs.
        chosen = ((pair_bits >> 16).astype(jnp.int32) * count) >> 16
    else:
        chosen = jnp.clip(pair, 0, count - 1)
    return Start(task, mode, chosen, bank.place_of(task, mode, chosen), draw(key, (none, none)))


def initial_workspace(start: Start, bank: TaskBank, rows: int) -> tuple[ops.Workspace, Grid]:
    """The workspace at the start of an episode, with an empty clipboard, and the target."""
    source = bank.input_at(start.place, rows)
    blank = ops.Workspace(source, jnp.zeros_like(source.planes), jnp.zeros(rows, jnp.uint32))
    return blank, bank.output_at(start.place, rows)


def initial_state(start: Start, bank: TaskBank, config: JaxArcConfig) -> ArcEnvState:
    """The state of one environment at the start of an episode, without its tasks."""
    space, target = initial_workspace(start, bank, config.canvas[0])
    zero, no = jnp.zeros((), jnp.int32), jnp.zeros((), bool)
    marks = (2, bank.max_pairs) if config.action.control_operations else None
    return ArcEnvState(
        planes=space.grid.planes,
        height=space.grid.height,
        width=space.grid.width,
        clipboard=space.clipboard,
        clipboard_mask=space.clipboard_mask,
        task_index=start.task,
        episode_mode=start.mode,
        reset_mode=start.mode,
        reset_pair=start.pair,
        pair_index=start.pair,
        step_count=zero,
        attempts_used=zero,
        similarity=similarity(*ops.agreement(space.grid, target)),
        terminated=no,
        truncated=no,
        success=no,
        # Absent, not empty: XLA places arrays without elements as it likes, and a sharded batch would compile twice.
        wrong=None if marks is None else jnp.zeros(marks, jnp.uint8),
        solved=None if marks is None else jnp.zeros(marks, bool),
        key=jnp.stack(start.key),
        action_history=empty_history(config),
        task_data=None,
        canvas_width=config.canvas[1],
    )


Origin = tuple[Int32[Array, "*b"], Int32[Array, "*b"], Int32[Array, "*b"]]
"""Task, mode and pair that an episode started with."""


class Restart(NamedTuple):
    """The start of the next episode: workspace, next key, task, mode and pair, and the agreement with the target.

    Where the episode is not over, `space` is the old workspace and the rest means nothing.
    """

    space: ops.Workspace
    key: Array
    task: Array
    mode: Array
    pair: Array
    agree: Array
    union: Array


def restart(
    done: Bool[Array, ""],
    space: ops.Workspace,
    key: UInt32[Array, "2"],
    origin: Origin,
    bank: TaskBank,
    how: str,
) -> Restart:
    """Start the next episode where the old one is `done`; `how` is `autoreset` of the config."""
    task, mode, pair = origin
    given = (None if how == "task" else task), (pair if how == "same" else None)
    start = sample_start((key[0], key[1]), bank, mode, *given)
    fresh, target = initial_workspace(start, bank, space.clipboard_mask.shape[-1])
    chosen = jax.tree.map(lambda new, old: jnp.where(done, new, old), fresh, space)
    agree, union = ops.agreement(fresh.grid, target)
    return Restart(chosen, jnp.stack(start.key), start.task, start.mode, start.pair, agree, union)


def with_restart(state: ArcEnvState, done: Bool[Array, ""], fresh: Restart) -> ArcEnvState:
    """The state of one environment, or that of the next episode where the old one is `done`."""
    no = jnp.zeros((), bool)
    new = (
        *(fresh.task, fresh.mode, fresh.mode, fresh.pair, fresh.pair, fresh.key),
        *(jnp.int32(0), jnp.int32(0), similarity(fresh.agree, fresh.union), no, no, no),
        *jax.tree.map(jnp.zeros_like, (state.wrong, state.solved)),
        # The history's words stay: only the length says which belong to the episode.
        jnp.int32(0),
    )
    fields = lambda s: (  # noqa: E731
        *(s.task_index, s.episode_mode, s.reset_mode, s.pair_index, s.reset_pair, s.key),
        *(s.step_count, s.attempts_used, s.similarity, s.terminated, s.truncated, s.success),
        *(s.wrong, s.solved, s.action_history.length),
    )
    chosen = jax.tree.map(lambda a, b: jnp.where(done, a, b), new, fields(state))
    after = eqx.tree_at(fields, state, chosen, is_leaf=lambda leaf: leaf is None)
    return with_workspace(after, fresh.space)


def is_valid_restart(state: ArcEnvState, mode: Array, bank: TaskBank) -> Bool[Array, "*b"]:
    """Whether a new episode has the `mode` of the one before, and its grids fit the canvas.

    `sample_start` takes a demonstration where a task has no test pair: an episode for testing must not go on with that.
    """
    return (state.reset_mode == mode) & grids_fit(state, bank)


def grids_fit(state: ArcEnvState, bank: TaskBank) -> Bool[Array, "*b"]:
    """Whether the grids of a pair that exists fit the canvas."""
    if bank.height <= state.planes.shape[-1] and bank.width <= state.canvas_width:
        return jnp.ones(state.height.shape, bool)  # whatever was packed for a smaller canvas fits
    return has_pair(state, bank)
