"""The one driver: many worlds, many steps, one compiled program per chunk, with progress, records and resume.

A *step* is a pure function of the whole batch, `step(carry, x) -> (carry, out)`, exactly what `jax.lax.scan` takes;
write it for one world and batch it with `jax.vmap`. The driver scans it in chunks of equal length, so that between
two chunks the host can show progress, fetch records, save a checkpoint, or stop.
"""

import dataclasses
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from .. import checking as _checking  # noqa: F401 - its switch must exist before anything is traced: making it retraces all
from .._trees import differences, entries, is_key, zero_keys
from ..arguments import demand_call, demand_whole, short
from ..batching import world_shardings
from ..compile_events import CompileEvents
from ..kernels import warn_of_missing_kernels
from ..memory import demand_memory
from ..static import strong
from ..taps import AdaptivePeriod
from ._chunk import Program, advance, bytes_beyond, call_step, merge, split
from ._host import (
    OUTCOMES,
    STOP,
    count_worlds,
    is_true,
    join,
    most_urgent,
    progress_bar,
    put,
    stop_on_signal,
    to_host,
)
from .checkpoints import Checkpoint, CheckpointFolder, ProgressOfRun

Outcome = Literal["finished", "stopped", "interrupted", "terminated"]

# Long enough that the dispatch of a chunk vanishes, short enough to stop soon after Ctrl-C. A chunk costs about 35 µs on
# a CPU and 0.45 ms on an H200, where a small step takes 15 µs (benchmarks/results: +6.7 % with chunks of 512 there).
_CHUNK_TARGET, _CHUNK_TARGET_CPU = 2048, 512

# Programs that need less beyond their arguments are not compared with what is free: asking takes milliseconds.
_WORTH_ASKING = 64 * 2**20


@dataclasses.dataclass(frozen=True)
class Chunk:
    """What the host sees after a chunk: where the run stands, what was observed, and the records of this chunk."""

    step: int
    length: int
    observed: Any
    records: Any
    seconds: float


@dataclasses.dataclass(frozen=True)
class Rollout:
    """The result of a run: the last carry, the records, and how it went."""

    carry: Any
    records: Any
    recorded_steps: np.ndarray
    step: int
    length: int
    first_step: int
    outcome: Outcome
    worlds: int
    seconds: float
    compile_seconds: float
    chunk: int

    @property
    def finished(self) -> bool:
        """Whether every step was taken."""
        return self.step == self.length

    @property
    def world_steps_per_second(self) -> float:
        """Steady rate of the steps taken by this call, over all worlds, compilation excluded."""
        return self.worlds * (self.step - self.first_step) / max(self.seconds - self.compile_seconds, 1e-9)

    def __str__(self) -> str:
        worlds, unit = (f"{self.worlds:,} worlds, ", "world-steps/s") if self.worlds != 1 else ("", "steps/s")
        return (
            f"{self.outcome} at step {self.step:,} of {self.length:,}: {worlds}"
            f"{self.world_steps_per_second:,.0f} {unit} ({self.seconds:.2f} s, "
            f"{self.compile_seconds:.2f} s of it compiling)"
        )


def run(
    step: Callable[..., tuple[Any, Any]],
    carry: PyTree,
    length: int,
    *,
    inputs: PyTree = None,
    shared: PyTree = None,
    shared_at: Callable[[int, int], PyTree] | None = None,
    axes: PyTree = 0,
    mesh: jax.sharding.Mesh | None = None,
    chunk: int | None = None,
    record_every: int | None = None,
    keep_records: bool = True,
    observe: Callable[[Any], Any] | None = None,
    on_chunk: Callable[[Chunk], Any] | None = None,
    tap_every: int | AdaptivePeriod = 1,
    checkpoint: Checkpoint | str | Path | None = None,
    progress: bool | None = None,
    donate_carry: bool = False,
    check_memory: bool = True,
) -> Rollout:
    """Take `length` steps of all worlds.

    - `step(carry, x)` returns `(carry, out)`. `x` is the step's number (int32, from 0), or `inputs` at that step.
    - `inputs`: pytree with a leading axis of `length`; NumPy arrays stay on the host and travel chunk by chunk.
    - `shared`: constants for all worlds (a task bank, a velocity field), handed over as `step(carry, x, shared)`.
      They are neither copied into the carry, nor donated, nor saved.
    - `shared_at(step, steps)`: in place of `shared`, what the chunk of `steps` steps from `step` on shares, for example
      the part of a time series that it needs. It is called once for each chunk, while the device still works on the
      chunk before, and always returns the same structure and shapes. A result may reuse the memory of the one before
      (donate it): the driver keeps none longer than its chunk. The first call of all has `steps=0` and asks for the
      shapes; a checkpoint compares the arrays returned there, so give `jax.ShapeDtypeStruct` for those that change.
    - `axes`: pytree prefix of the carry, `0` where the leading axis counts worlds, `None` where one value serves all.
      Where the leaves do not agree on the number of worlds, as in a training, the whole carry counts as one.
    - `mesh`: spread the worlds over these devices, see `jaxworlds.world_mesh`. Worlds are independent, so the steps
      need no communication. Integer worlds have the same bits on any mesh; with floating point XLA may round the
      last bit otherwise for another number of worlds per device, as it does for another batch size.
    - `record_every=k`: keep `out` of every k-th step; `Rollout.records` holds them as NumPy arrays. Recording is part
      of the program, so with floating-point worlds another k may change the last bit, as any recompilation may.
    - `observe(carry)`: a small value computed at the end of each chunk and given to `on_chunk`: the cheapest way to
      watch a run, because the program holds no callback. `on_chunk` may return true to stop the run.
    - `tap_every`: period of the taps inside `step`; a traced number, so changing it does not compile anew.
    - `checkpoint`: folder (or `Checkpoint`) to save to; `resume` continues with the bits of an uninterrupted run.
    - `progress`: show a bar; by default only on a terminal. Ctrl-C and SIGTERM stop at the end of a chunk, save and
      return; the outcome is then "interrupted" or "terminated".
    - `donate_carry=True` gives the given carry's memory away instead of copying it once.
    - `check_memory`: raise `MemoryError`, before the first step, where the compiled program needs more memory than its
      device has left; `False` tries all the same.

    The compiled program is kept for the next call, and with it what the step closes over: pass large arrays as `shared`.

    >>> result = run(lambda x, t: (x + 1, None), jnp.zeros(4), 10)
    >>> result.carry.tolist(), result.outcome
    ([10.0, 10.0, 10.0, 10.0], 'finished')
    """
    demand_call(step, "step", "run(step, carry, length)")
    length = _whole_length(length)
    if record_every is not None:
        record_every = demand_whole(record_every, "record_every", "Leave it out to record nothing.")
    if chunk is not None:
        chunk = demand_whole(chunk, "chunk", "It counts steps; leave it out for a good number.")
    chunk = _chunk_length(length, chunk, record_every)
    job = _Job(
        step=step,
        inputs=inputs,
        shared=shared,
        shared_at=shared_at,
        axes=axes,
        mesh=mesh,
        keep_records=keep_records,
        observe=observe,
        on_chunk=on_chunk,
        tap_every=tap_every,
        progress=progress,
        check_memory=check_memory,
    )
    driver = _Driver(job, _open_folder(checkpoint, mesh))
    driver.check_inputs(length)
    placed = driver.place(carry, copy=not donate_carry)
    if driver.folder is not None:
        driver.folder.begin()
    start = ProgressOfRun(step=0, length=length, chunk=chunk, record_every=record_every, parts=())
    return driver.drive(placed, start, records=[])


def resume(
    step: Callable[..., tuple[Any, Any]],
    like: PyTree,
    checkpoint: Checkpoint | str | Path,
    *,
    inputs: PyTree = None,
    shared: PyTree = None,
    shared_at: Callable[[int, int], PyTree] | None = None,
    axes: PyTree = 0,
    mesh: jax.sharding.Mesh | None = None,
    keep_records: bool = True,
    observe: Callable[[Any], Any] | None = None,
    on_chunk: Callable[[Chunk], Any] | None = None,
    tap_every: int | AdaptivePeriod = 1,
    progress: bool | None = None,
    restored: Callable[[Any], Any] | None = None,
    added: Mapping[str, Any] | None = None,
    length: int | None = None,
    check_memory: bool = True,
) -> Rollout:
    """Continue a checkpointed run to its end, with the bits of the uninterrupted run.

    `like` is the carry as it was given to `run`, or its shapes (`jax.eval_shape`); `step`, `inputs` and `shared` (or
    `shared_at`) are those of the run. Length, chunk and recording come from the folder. On another number of devices
    the run goes on with a warning, since floating-point worlds may then differ in the last bit. `restored(carry)` may put
    the worlds of the checkpoint into another order before they are spread, where `step` wants one on every device.
    `added` gives values, by path, for leaves of the carry and of one step's record that checkpoints of an earlier version
    do not hold.
    Where the folder holds a finished run, its result is returned; with another `length` it goes on to that, as if it had
    been asked for at first. A folder without a checkpoint raises `StoreError`.
    """
    demand_call(step, "step", "resume(step, like, checkpoint)")
    folder = _open_folder(checkpoint, mesh)
    assert folder is not None
    folder.added = added or {}
    job = _Job(
        step=step,
        inputs=inputs,
        shared=shared,
        shared_at=shared_at,
        axes=axes,
        mesh=mesh,
        keep_records=keep_records,
        observe=observe,
        on_chunk=on_chunk,
        tap_every=tap_every,
        progress=progress,
        check_memory=check_memory,
    )
    driver = _Driver(job, folder)
    like = jax.tree.map(_as_placed, like)
    record = driver.record_shape(like) if keep_records else None
    carry, start, records = folder.load(like, driver.constants, record)
    carry = carry if restored is None else restored(carry)
    saved = start
    if length is not None and length != start.length:
        start = _with_length(start, length, inputs)
    driver.check_inputs(start.length)
    return driver.drive(driver.place(carry, copy=True), start, records, save_first=start != saved)


def _with_length(start: ProgressOfRun, length: int, inputs: PyTree) -> ProgressOfRun:
    """The same run with another end, if what is saved of it fits."""
    length = _whole_length(length)
    if inputs is not None:
        raise ValueError(
            f"`length` must be {start.length}, as it was, for a run with `inputs`; got {length}. These are saved, one for "
            "each step: begin a new run with `carry` of this one."
        )
    if length < start.step:
        raise ValueError(
            f"`length` must be at least {start.step}, the steps that were made; got {length}. Begin a new run for fewer."
        )
    if start.step % (start.record_every or 1):
        raise ValueError(
            f"`length` must stay {start.length}: the run has ended at step {start.step}, between two of its records (every "
            f"{start.record_every}); got {length}. Begin a new run with `carry` of this one."
        )
    return dataclasses.replace(start, length=length)


def _as_placed(leaf: Any) -> Any:
    """A leaf as `run` placed it: NumPy arrays and Python numbers took JAX's types."""
    is_described = isinstance(leaf, jax.Array | jax.ShapeDtypeStruct)
    return leaf if is_described else jax.eval_shape(lambda: strong(leaf))


def _open_folder(
    checkpoint: Checkpoint | str | Path | None, mesh: jax.sharding.Mesh | None
) -> CheckpointFolder | None:
    if checkpoint is None:
        return None
    if mesh is None and jax.process_count() > 1:
        raise ValueError(
            "`checkpoint` needs `mesh` when several processes run: without one each has worlds of its own, and one "
            "folder can hold only one run. Pass `mesh=world_mesh()`."
        )
    options = checkpoint if isinstance(checkpoint, Checkpoint) else Checkpoint(checkpoint)
    return CheckpointFolder(options, devices=1 if mesh is None else mesh.size)


def _whole_length(length: Any) -> int:
    if not isinstance(length, int | np.integer) or not 0 <= length < 2**31:
        raise ValueError(
            f"`length` must be a whole number from 0 to 2**31 - 1; got {length!r}. Split a longer run in two."
        )
    return int(length)


def _chunk_length(length: int, chunk: int | None, record_every: int | None) -> int:
    """The steps of one chunk: a multiple of the recording stride and, where one is near, a divisor of the length."""
    if record_every is not None and record_every < 1:
        raise ValueError(
            f"`record_every` must be at least 1; got {record_every}. Leave it out to record nothing."
        )
    stride = record_every or 1
    if chunk is not None:
        if chunk < 1 or chunk % stride:
            raise ValueError(
                f"`chunk` must be a positive multiple of `record_every` ({stride}); got {chunk}. "
                f"Pass `chunk={max(stride, chunk // stride * stride)}`, or leave it out."
            )
        return chunk
    wanted = _CHUNK_TARGET_CPU if jax.default_backend() == "cpu" else _CHUNK_TARGET
    blocks, target = length // stride, max(1, wanted // stride)
    if length % stride == 0:
        near = [b for b in range(target, 2 * target + 1) if blocks % b == 0]
        near += [b for b in range(target - 1, target // 2, -1) if blocks % b == 0]
        if near:
            return near[0] * stride
    return max(1, min(target, max(blocks, 1))) * stride


def _demand_arrays(carry: Any) -> None:
    """Refuse a carry with something in it that no program carries, such as the activation function of a network."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(carry):
        if not eqx.is_array_like(leaf):
            raise TypeError(
                f"`carry{jax.tree_util.keystr(path)}` must be an array; got {short(leaf)}. Keep what is none out of the "
                "carry: `arrays, rest = eqx.partition(carry, eqx.is_array)`, and `eqx.combine(arrays, rest)` in `step`."
            )


def _as_array(leaf: Any) -> Any:
    return jnp.array(leaf) if isinstance(leaf, np.ndarray | np.generic) else leaf


def _stand_in(leaf: Any) -> Any:
    """A leaf, or an array that stands for one of which only the shape is given."""
    return np.zeros(0) if isinstance(leaf, jax.ShapeDtypeStruct) else leaf


def _no_rows(record: jax.ShapeDtypeStruct) -> Any:
    """The records of no steps."""
    none = jax.ShapeDtypeStruct((0, *record.shape), record.dtype)
    return zero_keys(none) if is_key(none) else np.zeros(none.shape, none.dtype)


def _shape_of(leaf: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, weak_type=getattr(leaf, "weak_type", False))


@dataclasses.dataclass(frozen=True)
class _Job:
    """The arguments that `run` and `resume` share; `run` explains them."""

    step: Callable[..., tuple[Any, Any]]
    inputs: Any
    shared: Any
    shared_at: Callable[[int, int], Any] | None
    axes: Any
    mesh: jax.sharding.Mesh | None
    keep_records: bool
    observe: Callable[[Any], Any] | None
    on_chunk: Callable[[Chunk], Any] | None
    tap_every: int | AdaptivePeriod
    progress: bool | None
    check_memory: bool

    def __post_init__(self) -> None:
        if self.mesh is not None and not isinstance(self.mesh, jax.sharding.Mesh):
            raise TypeError(
                f"`mesh` must be a mesh of devices; got {short(self.mesh)}. Write `world_mesh({short(self.mesh)})`."
            )
        if self.shared is not None and self.shared_at is not None:
            raise ValueError(
                "`shared` and `shared_at` must not both be given: the second takes the place of the first. "
                "Let `shared_at` return the constants too."
            )
        for name in ("observe", "on_chunk", "shared_at"):
            if (function := getattr(self, name)) is not None:
                demand_call(function, name, f"run(step, carry, length, {name}=function)")


class _Driver:
    """One run: holds what does not change from chunk to chunk, and loops."""

    def __init__(self, job: _Job, folder: CheckpointFolder | None) -> None:
        self.job, self.folder = job, folder
        shared_at = job.shared_at
        shared = jax.tree.map(_as_array, job.shared if shared_at is None else shared_at(0, 0))
        standing = shared if shared_at is None else jax.tree.map(_stand_in, shared)
        self.step, step_arrays = split(job.step, "step")
        self.shared, shared_arrays = split(standing, "shared")
        self.has_shared = shared is not None
        self.constants = {"inputs": job.inputs, "shared": shared_arrays, "step": step_arrays}
        if shared_at is None:
            self.shared_arrays = self._replicate(shared_arrays)
        else:  # the arrays come with each chunk, their shapes stay
            leaves = jax.tree.leaves(shared)
            compared = leaves if folder is not None else []
            self.constants["shared"] = [leaf for leaf in compared if eqx.is_array(leaf)]
            self.shared_arrays = [
                None if array is None else _shape_of(leaf)
                for leaf, array in zip(leaves, shared_arrays, strict=True)
            ]
        self.step_arrays = self._replicate(step_arrays)
        self.shardings: tuple[Any, ...] | None = None
        self.worlds = 1

    def _replicate(self, arrays: list[Any]) -> list[Any]:
        where = (
            None
            if self.job.mesh is None
            else jax.sharding.NamedSharding(self.job.mesh, jax.sharding.PartitionSpec())
        )
        return jax.tree.map(lambda leaf: put(leaf, where, fresh=False), arrays)

    def share(self, at: int, steps: int) -> list[Any]:
        """What all worlds share in this chunk, on the device."""
        if self.job.shared_at is None:
            return self.shared_arrays
        given = jax.tree.map(_as_array, self.job.shared_at(at, steps))
        static, arrays = split(given, "shared")
        found = jax.tree.map(_shape_of, arrays)
        if static != self.shared or found != self.shared_arrays:
            trees = (merge(self.shared, self.shared_arrays), merge(static, found))
            changes = differences(*(entries(tree, "shared", static=True) for tree in trees), noun="value")
            raise ValueError(
                "`shared_at` must return the same structure, shapes and types for every chunk; "
                f"at step {at}: {'; '.join(changes)}. Pad arrays that vary, and return numbers that vary as arrays."
            )
        return self._replicate(arrays)

    def place(self, carry: Any, *, copy: bool) -> Any:
        """Put the carry where it will live, with strong types; a copy leaves the caller's arrays alone."""
        _demand_arrays(carry)
        self.worlds = count_worlds(carry, self.job.axes, strict=self.job.mesh is not None)
        seen = {id(leaf) for leaf in jax.tree.leaves((self.constants["shared"], self.constants["step"]))}

        def is_taken(leaf: Any) -> bool:
            """Whether the memory of this leaf has another user: the caller, NumPy, a constant, or a leaf before it."""
            taken = copy or not isinstance(leaf, jax.Array) or id(leaf) in seen
            seen.add(id(leaf))
            return taken

        fresh = jax.tree.map(is_taken, carry)
        carry = strong(carry)
        if self.job.mesh is None:
            return jax.tree.map(lambda leaf, new: put(leaf, None, fresh=new), carry, fresh)
        shardings = world_shardings(carry, self.job.mesh, self.job.axes)
        self.shardings = tuple(jax.tree.leaves(shardings))
        return jax.tree.map(lambda leaf, new, where: put(leaf, where, fresh=new), carry, fresh, shardings)

    def program(self, steps: int, record_every: int | None) -> Program:
        return Program(
            step=self.step,
            shared=self.shared,
            observe=self.job.observe,
            steps=steps,
            record_every=record_every,
            has_inputs=self.job.inputs is not None,
            has_shared=self.has_shared,
            shardings=self.shardings,
        )

    def arguments(self, carry: Any, at: int, steps: int) -> tuple[Any, ...]:
        every = (
            self.job.tap_every.value if isinstance(self.job.tap_every, AdaptivePeriod) else self.job.tap_every
        )
        inputs = jax.tree.map(lambda a: a[at : at + steps], self.job.inputs)
        return carry, self.step_arrays, self.share(at, steps), np.array([at, every], np.int32), inputs

    def record_shape(self, like: Any) -> Any:
        """The shape of one step's `out`."""
        step = merge(self.step, self.step_arrays)
        x = jnp.int32(0) if self.job.inputs is None else jax.tree.map(lambda a: a[0], self.job.inputs)

        def out(carry: Any, arrays: list[Any]) -> Any:
            extra = (merge(self.shared, arrays),) if self.has_shared else ()
            return call_step(step, (carry, x, *extra))[1]

        return jax.eval_shape(out, like, self.shared_arrays)

    def _program_text(self, carry: Any, start: ProgressOfRun) -> str:
        """The program of a whole chunk, free of placement: it is the same on any number of devices."""
        bare = lambda tree: jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), tree)  # noqa: E731
        program = dataclasses.replace(self.program(start.chunk, start.record_every), shardings=None)
        inputs = jax.tree.map(
            lambda a: jax.ShapeDtypeStruct((start.chunk, *a.shape[1:]), a.dtype), self.job.inputs
        )
        clock = jax.ShapeDtypeStruct((2,), np.int32)
        arguments = (bare(carry), bare(self.step_arrays), bare(self.shared_arrays), clock, inputs)
        return advance.lower(*arguments, program=program).as_text()

    def drive(
        self, carry: Any, start: ProgressOfRun, records: list[Any], *, save_first: bool = False
    ) -> Rollout:
        state = _Loop(start, records)
        with (
            CompileEvents(every_thread=True) as events,
            stop_on_signal() as asked,
            progress_bar(self.job.progress, self.worlds, start.step, start.length) as bar,
        ):
            if self.folder is not None and not start.finished:
                self.folder.note_program(self._program_text(carry, start))
            # So that a run killed in its first chunk, or one of no steps, can be resumed too.
            if self.folder is not None and (save_first or start.step == 0):
                self._save(carry, state)
            pending: _Pending | None = None
            while state.at < start.length and state.outcome is None:
                steps = min(start.chunk, start.length - state.at)
                arguments = self.arguments(carry, state.at, steps)
                program = self.program(steps, start.record_every)
                if self.job.check_memory and state.at == start.step:
                    needed = bytes_beyond(arguments, program)
                    if needed > _WORTH_ASKING:
                        demand_memory(needed, self._fewer_worlds)
                launched = time.perf_counter()
                carry, out, observed, sign = advance(*arguments, program=program)
                del arguments
                if state.at == start.step:  # tracing has looked for kernels
                    warn_of_missing_kernels(self.worlds * (start.length - start.step))
                state.at += steps
                # The device already works on this chunk while the host deals with the one before.
                if pending is not None:
                    self._settle(pending, state, bar)
                pending = _Pending(state.at, out, observed, sign, launched)
                if state.at < start.length:
                    state.outcome = OUTCOMES.get(most_urgent(max(asked.level, state.wish)))
                if self.folder is not None and (
                    state.outcome or state.at == start.length or most_urgent(self.folder.due())
                ):
                    self._settle(pending, state, bar)
                    pending = None
                    self._save(carry, state)
            if pending is not None:
                self._settle(pending, state, bar)
            jax.block_until_ready(carry)
        stride = start.record_every
        return Rollout(
            carry=carry,
            records=self._all_records(carry, state) if stride and self.job.keep_records else None,
            recorded_steps=np.arange(1, state.at // stride + 1) * stride if stride else np.arange(0),
            step=state.at,
            length=start.length,
            first_step=start.step,
            outcome=state.outcome or "finished",
            worlds=self.worlds,
            seconds=time.perf_counter() - state.began,
            compile_seconds=events.seconds,
            chunk=start.chunk,
        )

    def _fewer_worlds(self, share: float) -> str:
        """What to do where only this share of the memory is there."""
        fit = int(0.9 * share * self.worlds)
        fewer = (
            f"Take about {fit:,} worlds instead of {self.worlds:,}"
            if self.worlds > 1 and fit > 0
            else "Make the worlds smaller"
        )
        return f"{fewer}, spread them over more devices with `mesh`, or pass `check_memory=False` to try all the same."

    def _all_records(self, carry: Any, state: "_Loop") -> Any:
        if state.records:
            return join(state.records)
        return jax.tree.map(_no_rows, self.record_shape(carry))

    def _save(self, carry: Any, state: "_Loop") -> None:
        assert self.folder is not None
        self.folder.save(to_host(carry), state.start, state.at, state.unsaved, self.constants)
        state.unsaved, state.saved = [], state.at

    def check_inputs(self, length: int) -> None:
        """Every input must have one entry per step."""
        for path, leaf in jax.tree_util.tree_leaves_with_path(self.job.inputs):
            if np.ndim(leaf) == 0 or leaf.shape[0] != length:
                raise ValueError(
                    f"`inputs{jax.tree_util.keystr(path)}` must have a leading axis of `length`={length}; got shape "
                    f"{np.shape(leaf)}. Give one input per step."
                )

    def _settle(self, pending: "_Pending", state: "_Loop", bar: Any) -> None:
        """Wait for a chunk, then hand what it produced to the host side."""
        jax.block_until_ready(pending.sign)
        now = time.perf_counter()
        # A chunk waits for the one before it, so its own time begins when that one was done.
        seconds, state.settled = now - max(pending.launched, state.settled), now
        records = None
        if pending.records is not None:
            records = to_host(pending.records)
            if self.job.keep_records:
                state.records.append(records)
            if self.folder is not None:
                state.unsaved.append(records)
        if isinstance(self.job.tap_every, AdaptivePeriod):
            self.job.tap_every.update(seconds)
        if self.job.on_chunk is not None:
            chunk = Chunk(pending.step, state.start.length, to_host(pending.observed), records, seconds)
            if is_true(self.job.on_chunk(chunk)):
                state.wish = STOP
        bar(pending.step)


@dataclasses.dataclass
class _Loop:
    """Where the loop stands."""

    start: ProgressOfRun
    records: list[Any]
    began: float = dataclasses.field(default_factory=time.perf_counter)
    settled: float = 0.0
    at: int = -1
    saved: int = -1
    unsaved: list[Any] = dataclasses.field(default_factory=list)
    wish: int = 0
    outcome: Outcome | None = None

    def __post_init__(self) -> None:
        self.at = self.saved = self.start.step


@dataclasses.dataclass(frozen=True)
class _Pending:
    """A chunk that was launched and not yet waited for."""

    step: int
    records: Any
    observed: Any
    sign: Any
    launched: float
