"""A step of a batch in one kernel: whole numbers and grids of every environment, autoreset included.

A program is one warp and has a few environments, one in each lane. It reads their numbers, has their grids worked on (by
`rows`, or by `small` where a grid fits a word), judges all of them, and puts new tasks where an episode is over. Arrays are
changed in place, and only where they change. What is not whole (similarity, reward) is left to XLA, so that it rounds as it
does elsewhere.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int32, UInt32

from jaxworlds.kernels import in_halves, result, split_kernel

from ..envs.config import JaxArcConfig
from ..envs.operations import Operation
from ..envs.rules import Tally, allowed_operation, update_tally
from ..envs.starts import sample_start
from ..envs.structured_actions import FORMATS, AbstractAction, BboxAction, PointAction
from ..tasks.bank import TEST, TaskBank
from .operations import Memory, Sizes
from .rows import RowGrids
from .small import SmallGrids, is_small, packed_table
from .warp import COUNTED, LANES, GpuWarp, Orders, PlainWarp, Warp

_ENDS = ("terminated", "truncated", "success")
"""How an episode ended: fields of the state, and the last of a `Tally`."""
_ACTIONS = {kind: ("operation", *names) for kind, names in FORMATS.values()}


class Changed(NamedTuple):
    """The whole numbers and grids of a batch of environments: what a step changes in place."""

    planes: UInt32[Array, "b 4 rows"]
    clipboard: UInt32[Array, "b 4 rows"]
    clipboard_mask: UInt32[Array, "b rows"]
    height: Int32[Array, " b"]
    width: Int32[Array, " b"]
    task_index: Int32[Array, " b"]
    episode_mode: Int32[Array, " b"]
    reset_mode: Int32[Array, " b"]
    reset_pair: Int32[Array, " b"]
    pair_index: Int32[Array, " b"]
    step_count: Int32[Array, " b"]
    attempts_used: Int32[Array, " b"]
    terminated: Array
    truncated: Array
    success: Array
    key: UInt32[Array, "b 2"]


class Result(NamedTuple):
    """The results of a step, before an episode that is over restarts."""

    flags: Int32[Array, " b"]
    """Cells that agree with the target and cells of both (11 bits each), then one bit each for what `BITS` names."""
    start: Int32[Array, " b"]
    """Cells that agree and cells of both where a new episode began, and whether that is of another mode than the one
    before (see `starts.is_valid_restart`); means nothing elsewhere."""
    steps: Int32[Array, " b"]
    attempts: Int32[Array, " b"]

    def shares(self, start: bool = False) -> tuple[Array, Array]:
        """Cells that agree with the target, and cells of both; with `start` those where a new episode began."""
        words = self.start if start else self.flags
        return words & 0x7FF, (words >> 11) & 0x7FF

    @property
    def start_in_mode(self) -> Array:
        """Whether a new episode is of the mode of the one before."""
        return (self.start >> 22) == 0

    def bit(self, name: str) -> Array:
        """One of the flags."""
        return ((self.flags >> (22 + BITS.index(name))) & 1) == 1


BITS = ("valid", "submitted", "was_over", "terminated", "truncated", "success", "tested")


def kernel_step(
    changed: Changed,
    bank: TaskBank,
    actions: AbstractAction,
    config: JaxArcConfig,
    *,
    per_program: Callable[[int], int],
    interpret: bool = False,
) -> tuple[Changed, Result]:
    """One step of each environment; a mask action must hold words.

    Several devices take a part of the batch each; `per_program` says how many of such a part one warp works on in turn.
    """

    def step(split: tuple[Changed, AbstractAction], bank: TaskBank) -> tuple[Changed, Result]:
        if split[0].planes.size >= COUNTED:  # one device has what several could have shared
            return in_halves(step, split, bank)
        return _call(*split, bank, config, per_program(split[0].height.shape[0]), interpret)

    return split_kernel(step, (changed, actions), bank)


def _call(
    changed: Changed,
    actions: AbstractAction,
    bank: TaskBank,
    config: JaxArcConfig,
    per_program: int,
    interpret: bool,
) -> tuple[Changed, Result]:
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton as plt

    batch, _, rows = changed.planes.shape
    given = [part.reshape(-1) for part in changed]
    fields = [getattr(actions, name).reshape(-1) for name in _ACTIONS[type(actions)]]
    grids = [bank.inputs, bank.outputs]
    if is_small(*config.canvas):
        grids = [packed_table(table, rows) for table in grids]
    tables = [*grids, bank.input_sizes, bank.output_sizes, bank.first_pair]
    tables += [bank.num_train, bank.num_test, bank.cumulative, bank.offset.reshape(1)]
    arrays = [*given, *fields, *(part.reshape(-1) for part in tables)]
    kernel = functools.partial(
        _kernel,
        pallas=(pl.program_id, plt.load, plt.store),
        warp=PlainWarp if interpret else functools.partial(GpuWarp, plt),
        form=type(actions),
        config=config,
        sizes=Sizes(rows, config.canvas[1], bank.inputs.shape[-1], config.action.rotation == "center"),
        batch=batch,
        tasks=len(bank),
        pairs=bank.inputs.shape[0],
        per_program=per_program,
    )
    told = [result((batch,), jnp.int32, changed.height)] * len(Result._fields)
    call = pl.pallas_call(
        kernel,
        grid=(math.ceil(batch / per_program),),
        in_specs=[pl.no_block_spec] * len(arrays),
        out_specs=[pl.no_block_spec] * (len(given) + len(told)),
        out_shape=[*(result(part.shape, part.dtype, part) for part in given), *told],
        input_output_aliases={k: k for k in range(len(given))},
        compiler_params=plt.CompilerParams(num_warps=1, num_stages=1),
        interpret=interpret,
        name="arc_step",
    )
    out = call(*arrays)
    new = [part.reshape(old.shape) for part, old in zip(out, changed, strict=False)]
    return Changed(*new), Result(*out[len(given) :])


@dataclasses.dataclass(frozen=True)
class _Bank:
    """What `starts.sample_start` asks of a bank, by reading memory: one lane for each environment."""

    read: Callable[[Any, Array], Array]
    first_pair: Any
    num_train: Any
    num_test: Any
    cumulative: Any
    offset: Array
    tasks: int
    pairs: int

    def __len__(self) -> int:
        return self.tasks

    def draw_task(self, bits: Array) -> Array:
        """As `TaskBank.draw_task`: how many running sums the random number reaches."""
        part = (bits >> 8).astype(jnp.float32) * jnp.float32(2**-24)
        rounds = self.tasks.bit_length()

        def narrow(number: Array, below: Array) -> Array:
            further = below + (1 << (rounds - 1 - number))
            exists = further <= self.tasks
            sums = self.read(self.cumulative, jnp.where(exists, further - 1, 0))
            return jnp.where(exists & (sums <= part), further, below)

        below = jax.lax.fori_loop(0, rounds, narrow, jnp.zeros((LANES,), jnp.int32))
        return jnp.minimum(below, self.tasks - 1) + self.offset

    def _row(self, task: Array) -> Array:
        # As XLA reads: a task that the bank does not have becomes the nearest. Memory beyond it is not ours.
        return jnp.clip(task - self.offset, 0, self.tasks - 1)

    def pairs_of(self, task: Array, mode: Array) -> Array:
        """As `TaskBank.pairs_of`."""
        row = self._row(task)
        return jnp.where(mode == TEST, self.read(self.num_test, row), self.read(self.num_train, row))

    def place_of(self, task: Array, mode: Array, pair: Array) -> Array:
        """As `TaskBank.place_of`, within the bank."""
        row = self._row(task)
        first, demos = self.read(self.first_pair, row), self.read(self.num_train, row)
        return jnp.clip(first + jnp.where(mode == TEST, demos, 0) + pair, 0, self.pairs - 1)


def _kernel(
    *refs: Any,
    pallas: tuple[Any, Any, Any],
    warp: Callable[[], Warp],
    form: type,
    config: JaxArcConfig,
    sizes: Sizes,
    batch: int,
    tasks: int,
    pairs: int,
    per_program: int,
) -> None:
    program, load, store = pallas
    count, names = len(Changed._fields), _ACTIONS[form]
    old, rest = Changed(*refs[:count]), refs[count:]
    fields, rest = dict(zip(names, rest, strict=False)), rest[len(names) :]
    inputs, outputs, input_sizes, output_sizes, first_pair, num_train, num_test, cumulative, offset = rest[:9]
    new, told = Changed(*rest[9 : 9 + count]), Result(*rest[9 + count :])
    selections = fields.pop("selection", None)
    memory = Memory(
        *(load, store, old.planes, old.clipboard, old.clipboard_mask),
        *(inputs, outputs, input_sizes, selections),
        *(new.planes, new.clipboard, new.clipboard_mask),
    )

    # One lane for each environment.
    lanes = warp()
    lane = lanes.lane
    start = program(0) * per_program
    at = start + lane
    here = (lane < per_program) & (at < batch)
    own = lambda array: load(array.at[at], mask=here, other=jnp.zeros((), array.dtype))  # noqa: E731
    read = lambda array, index: load(array.at[index], mask=here, other=jnp.zeros((), array.dtype))  # noqa: E731
    bank = _Bank(read, first_pair, num_train, num_test, cumulative, load(offset.at[lane * 0]), tasks, pairs)
    tally = Tally(*(own(getattr(old, name)) for name in ("step_count", "attempts_used", *_ENDS)))
    height, width = own(old.height), own(old.width)
    mode, task, pair = own(old.episode_mode), own(old.task_index), own(old.pair_index)
    numbers = {name: own(array) for name, array in fields.items()}
    placed, sides = here, ()
    if selections is None:
        action = form(**numbers)
        placed, sides = action.on_canvas(*config.canvas), _sides(action)
    operation, known = allowed_operation(tally.over, numbers["operation"], placed, config)
    place = bank.place_of(task, mode, pair)
    target_high = jnp.minimum(read(output_sizes, place * 2), sizes.rows)
    target_wide = read(output_sizes, place * 2 + 1)
    ordered = Orders(
        *(start, jnp.minimum(per_program, batch - start), here, operation, sides, place),
        *(height, width, target_high, target_wide),
    )
    workers = SmallGrids if is_small(*config.canvas) else RowGrids
    worker: Any = workers(memory, lanes, sizes)
    results, held = worker.work(ordered)

    agree, fits = results & 0x7FF, ((results >> 11) & 1) == 1
    new_height, new_width = ((results >> 12) & 31) + 1, ((results >> 17) & 31) + 1
    union = _union(jnp.minimum(new_height, sizes.rows), new_width, target_high, target_wide)
    valid = known & placed & fits & ~tally.over
    submitted = valid & (operation == Operation.SUBMIT)
    solved = agree == union
    after = update_tally(tally, submitted & ~solved, submitted & solved, config.environment)
    flags = agree | (union << 11)
    bits = (valid, submitted, tally.over, after.terminated, after.truncated, after.success, mode == TEST)
    for shift, flag in enumerate(bits):
        flags = flags | (flag.astype(jnp.int32) << (22 + shift))
    write = lambda array, values, mask=here: store(array.at[at], values, mask=mask)  # noqa: E731
    for array, values in zip(told, (flags, None, after.steps, after.attempts), strict=True):
        if values is not None:
            write(array, values)
    done = here & after.over
    ends = done if config.environment.autoreset else here & (lane < 0)
    stays = here & ~ends
    write(new.height, new_height, stays & (new_height != height))
    write(new.width, new_width, stays & (new_width != width))
    write(new.step_count, after.steps, stays)
    write(new.attempts_used, after.attempts, stays & (after.attempts != tally.attempts))
    if not config.environment.autoreset:
        for name, was, values in zip(_ENDS, tally[2:], after[2:], strict=True):
            write(getattr(new, name), values, stays & (was != values))
        worker.finish(ordered, held, ends, worker.nothing())
        return

    def restart() -> Any:
        """New tasks, and the numbers of the states at their start."""
        some = lambda array, index: load(array.at[index], mask=ends, other=jnp.zeros((), array.dtype))  # noqa: E731
        how, held = config.environment.autoreset, dataclasses.replace(bank, read=some)
        keys = some(old.key, at * 2), some(old.key, at * 2 + 1)
        last_mode = some(old.reset_mode, at)
        begin = sample_start(
            *(keys, held, last_mode),
            None if how == "task" else task,
            some(old.reset_pair, at) if how == "same" else None,
        )
        high, wide = (some(input_sizes, begin.place * 2 + side) for side in (0, 1))
        far, broad = (some(output_sizes, begin.place * 2 + side) for side in (0, 1))
        far, near = jnp.minimum(far, sizes.rows), jnp.minimum(high, sizes.rows)
        shared = jnp.minimum(high, far), jnp.minimum(wide, broad)
        zero = jnp.zeros((LANES,), jnp.int32)
        for array, values in (
            *((new.height, high), (new.width, wide), (new.task_index, begin.task)),
            *((new.episode_mode, begin.mode), (new.reset_mode, begin.mode)),
            *((new.reset_pair, begin.pair), (new.pair_index, begin.pair)),
            *((new.step_count, zero), (new.attempts_used, zero)),
        ):
            write(array, values, ends)
        for name, was in zip(_ENDS, tally[2:], strict=True):
            write(getattr(new, name), zero == 1, ends & was)
        for side, words in enumerate(begin.key):
            store(new.key.at[at * 2 + side], words, mask=ends)
        both = _union(near, wide, far, broad)

        agrees, begun = worker.begin(ordered, ends, begin.place, shared)
        other_mode = (begin.mode != last_mode).astype(jnp.int32)
        write(told.start, agrees | (both << 11) | (other_mode << 22), ends)
        return agrees, begun

    any_ends = jnp.max(ends.astype(jnp.int32)) == 1
    _, begun = jax.lax.cond(any_ends, restart, lambda: (results, worker.nothing()))
    worker.finish(ordered, held, ends, begun)


def _union(height: Array, width: Array, other_height: Array, other_width: Array) -> Array:
    """Cells of the union of two top-left rectangles."""
    common = jnp.minimum(height, other_height) * jnp.minimum(width, other_width)
    return height * width + other_height * other_width - common


def _sides(action: AbstractAction) -> tuple[Array, ...]:
    """Top, left, bottom and right of the selected boxes."""
    if isinstance(action, PointAction):
        return action.row, action.col, action.row, action.col
    assert isinstance(action, BboxAction)
    return (
        jnp.minimum(action.r1, action.r2),
        jnp.minimum(action.c1, action.c2),
        jnp.maximum(action.r1, action.r2),
        jnp.maximum(action.c1, action.c2),
    )
