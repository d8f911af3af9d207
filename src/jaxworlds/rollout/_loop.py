"""The loop of a run: launch a chunk, handle the previous one on the host, save, stop on request."""

import dataclasses
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .. import checking as _checking  # noqa: F401 - its switch must exist before anything is traced: making it retraces all
from .._trees import differences, entries, is_key, zero_keys
from ..arguments import demand_call, short
from ..batching import world_shardings
from ..compile_events import CompileEvents
from ..kernels import warn_of_missing_kernels
from ..memory import demand_memory
from ..static import strong
from ..taps import AdaptivePeriod
from . import _host
from ._chunk import Program, advance, bytes_beyond, call_step, merge, split
from ._results import Chunk, Outcome, Rollout
from .checkpoints import CheckpointFolder, ProgressOfRun

# Programs that need less beyond their arguments are not compared with what is free: asking takes milliseconds.
_WORTH_ASKING = 64 * 2**20


@dataclasses.dataclass(frozen=True)
class Job:
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


class Driver:
    """One run: holds what does not change from chunk to chunk, and loops."""

    def __init__(self, job: Job, folder: CheckpointFolder | None) -> None:
        self.job, self.folder = job, folder
        shared_at = job.shared_at
        shared = jax.tree.map(_as_array, job.shared if shared_at is None else shared_at(0, 0))
        standing = shared
        if shared_at is not None:  # an empty array stands in for what the function only describes
            is_shape = lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct)  # noqa: E731
            standing = jax.tree.map(lambda leaf: np.zeros(0) if is_shape(leaf) else leaf, shared)
        self.step, step_arrays = split(job.step, "step")
        self.shared, shared_arrays = split(standing, "shared")
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
        mesh = self.job.mesh
        where = None if mesh is None else jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
        return jax.tree.map(lambda leaf: _host.put(leaf, where, fresh=False), arrays)

    def share(self, at: int, steps: int) -> list[Any]:
        """The shared arrays of this chunk, on the device."""
        if self.job.shared_at is None:
            return self.shared_arrays
        static, arrays = split(jax.tree.map(_as_array, self.job.shared_at(at, steps)), "shared")
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
        for path, leaf in jax.tree_util.tree_leaves_with_path(carry):
            if not eqx.is_array_like(leaf):  # such as the activation function of a network
                raise TypeError(
                    f"`carry{jax.tree_util.keystr(path)}` must be an array; got {short(leaf)}. Move it out of the "
                    "carry: `arrays, rest = eqx.partition(carry, eqx.is_array)`, and `eqx.combine(arrays, rest)` in `step`."
                )
        self.worlds = _host.count_worlds(carry, self.job.axes, strict=self.job.mesh is not None)
        seen = {id(leaf) for leaf in jax.tree.leaves((self.constants["shared"], self.constants["step"]))}

        def is_taken(leaf: Any) -> bool:
            """Whether the memory of this leaf has another user: the caller, NumPy, a constant, or a leaf before it."""
            taken = copy or not isinstance(leaf, jax.Array) or id(leaf) in seen
            seen.add(id(leaf))
            return taken

        fresh = jax.tree.map(is_taken, carry)
        carry = strong(carry)
        if self.job.mesh is None:
            return jax.tree.map(lambda leaf, new: _host.put(leaf, None, fresh=new), carry, fresh)
        shardings = world_shardings(carry, self.job.mesh, self.job.axes)
        self.shardings = tuple(jax.tree.leaves(shardings))
        return jax.tree.map(
            lambda leaf, new, where: _host.put(leaf, where, fresh=new), carry, fresh, shardings
        )

    def program(self, steps: int, record_every: int | None) -> Program:
        return Program(self.step, self.shared, self.job.observe, steps, record_every, self.shardings)

    def arguments(self, carry: Any, at: int, steps: int) -> tuple[Any, ...]:
        every = self.job.tap_every
        every = every.value if isinstance(every, AdaptivePeriod) else every
        inputs = jax.tree.map(lambda a: a[at : at + steps], self.job.inputs)
        return carry, self.step_arrays, self.share(at, steps), np.array([at, every], np.int32), inputs

    def record_shape(self, like: Any) -> Any:
        """The shape of one step's `out`."""
        step = merge(self.step, self.step_arrays)
        x = jnp.int32(0) if self.job.inputs is None else jax.tree.map(lambda a: a[0], self.job.inputs)

        def out(carry: Any, arrays: list[Any]) -> Any:
            shared = merge(self.shared, arrays)
            return call_step(step, (carry, x, *(() if shared is None else (shared,))))[1]

        return jax.eval_shape(out, like, self.shared_arrays)

    def _program_text(self, carry: Any, start: ProgressOfRun) -> str:
        """The program of a whole chunk, free of placement: it is the same on any number of devices."""
        shape = jax.ShapeDtypeStruct
        program = dataclasses.replace(self.program(start.chunk, start.record_every), shardings=None)
        bare = jax.tree.map(lambda a: shape(a.shape, a.dtype), (carry, self.step_arrays, self.shared_arrays))
        inputs = jax.tree.map(lambda a: shape((start.chunk, *a.shape[1:]), a.dtype), self.job.inputs)
        return advance.lower(*bare, shape((2,), np.int32), inputs, program=program).as_text()

    def drive(
        self, carry: Any, start: ProgressOfRun, records: list[Any], *, save_first: bool = False
    ) -> Rollout:
        state = _Loop(start, records, at=start.step)
        with (
            CompileEvents(every_thread=True) as events,
            _host.stop_on_signal() as asked,
            _host.progress_bar(self.job.progress, self.worlds, start.step, start.length) as bar,
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
                    state.outcome = _host.OUTCOMES.get(_host.most_urgent(max(asked.level, state.wish)))
                if self.folder is not None and (
                    state.outcome or state.at == start.length or _host.most_urgent(self.folder.due())
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
        """Remedy if only this share of the memory is free."""
        fit = int(0.9 * share * self.worlds)
        fewer = "Make the worlds smaller"
        if self.worlds > 1 and fit > 0:
            fewer = f"Take about {fit:,} worlds instead of {self.worlds:,}"
        return f"{fewer}, spread them over more devices with `mesh`, or pass `check_memory=False` to try all the same."

    def _all_records(self, carry: Any, state: "_Loop") -> Any:
        if state.records:
            return _host.join(state.records)

        def no_rows(record: jax.ShapeDtypeStruct) -> Any:
            none = jax.ShapeDtypeStruct((0, *record.shape), record.dtype)
            return zero_keys(none) if is_key(none) else np.zeros(none.shape, none.dtype)

        return jax.tree.map(no_rows, self.record_shape(carry))

    def _save(self, carry: Any, state: "_Loop") -> None:
        assert self.folder is not None
        self.folder.save(_host.to_host(carry), state.start, state.at, state.unsaved, self.constants)
        state.unsaved = []

    def check_inputs(self, length: int) -> None:
        """Every input must have one entry per step."""
        for path, leaf in jax.tree_util.tree_leaves_with_path(self.job.inputs):
            if np.shape(leaf)[:1] != (length,):
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
            records = _host.to_host(pending.records)
            if self.job.keep_records:
                state.records.append(records)
            if self.folder is not None:
                state.unsaved.append(records)
        if isinstance(self.job.tap_every, AdaptivePeriod):
            self.job.tap_every.update(seconds)
        if self.job.on_chunk is not None:
            chunk = Chunk(pending.step, state.start.length, _host.to_host(pending.observed), records, seconds)
            if _host.is_true(self.job.on_chunk(chunk)):
                state.wish = _host.STOP
        bar(pending.step)


@dataclasses.dataclass
class _Loop:
    """State of the loop."""

    start: ProgressOfRun
    records: list[Any]
    at: int
    began: float = dataclasses.field(default_factory=time.perf_counter)
    settled: float = 0.0
    unsaved: list[Any] = dataclasses.field(default_factory=list)
    wish: int = 0
    outcome: Outcome | None = None


class _Pending(NamedTuple):
    """A launched chunk whose result has not been awaited."""

    step: int
    records: Any
    observed: Any
    sign: Any
    launched: float


def _as_array(leaf: Any) -> Any:
    return jnp.array(leaf) if isinstance(leaf, np.ndarray | np.generic) else leaf


def _shape_of(leaf: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, weak_type=getattr(leaf, "weak_type", False))
