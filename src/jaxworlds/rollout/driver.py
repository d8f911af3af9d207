"""`run` and `resume`: many worlds, many steps, one compiled program per chunk, with progress, records and checkpoints.

A *step* is a pure function of the whole batch, `step(carry, x) -> (carry, out)`, exactly what `jax.lax.scan` takes;
write it for one world and batch it with `jax.vmap`. The driver scans it in chunks of equal length, so that between
two chunks the host can show progress, fetch records, save a checkpoint, or stop.
"""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from ..arguments import demand_call, demand_whole
from ..static import strong
from ..taps import AdaptivePeriod
from ._loop import Driver, Job
from ._results import Chunk, Rollout
from .checkpoints import Checkpoint, CheckpointFolder, ProgressOfRun

# Long enough that the dispatch of a chunk vanishes, short enough to stop soon after Ctrl-C. A chunk costs about 35 µs on
# a CPU and 0.45 ms on an H200, where a small step takes 15 µs (benchmarks/results: +6.7 % with chunks of 512 there).
_CHUNK_TARGET, _CHUNK_TARGET_CPU = 2048, 512


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
    - `tap_every`: period of the taps inside `step`; a traced number, so changing it does not recompile.
    - `checkpoint`: folder (or `Checkpoint`) to save to; `resume` continues with the bits of an uninterrupted run.
    - `progress`: show a bar; by default only on a terminal. Ctrl-C and SIGTERM stop at the end of a chunk, save and
      return; the outcome is then "interrupted" or "terminated".
    - `donate_carry=True` gives the given carry's memory away instead of copying it once.
    - `check_memory`: raise `MemoryError`, before the first step, where the compiled program needs more memory than its
      device has left; `False` tries all the same.

    The compiled program is kept for the next call, and with it what the step closes over: pass large arrays as `shared`.

    >>> import jax.numpy as jnp
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
    job = Job(
        *(step, inputs, shared, shared_at, axes, mesh),
        *(keep_records, observe, on_chunk, tap_every, progress, check_memory),
    )
    driver = Driver(job, None if checkpoint is None else _open_folder(checkpoint, mesh))
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
    folder.added = added or {}
    job = Job(
        *(step, inputs, shared, shared_at, axes, mesh),
        *(keep_records, observe, on_chunk, tap_every, progress, check_memory),
    )
    driver = Driver(job, folder)
    described = (jax.Array, jax.ShapeDtypeStruct)  # of the rest, what `run` made: strong arrays of JAX
    like = jax.tree.map(lambda x: x if isinstance(x, described) else jax.eval_shape(lambda: strong(x)), like)
    record = driver.record_shape(like) if keep_records else None
    carry, start, records = folder.load(like, driver.constants, record)
    carry = carry if restored is None else restored(carry)
    saved = start
    if length is not None and length != start.length:
        start = _with_length(start, length, inputs)
    driver.check_inputs(start.length)
    return driver.drive(driver.place(carry, copy=True), start, records, save_first=start != saved)


def _open_folder(checkpoint: Checkpoint | str | Path, mesh: jax.sharding.Mesh | None) -> CheckpointFolder:
    if mesh is None and jax.process_count() > 1:
        raise ValueError(
            "`checkpoint` needs `mesh` when several processes run: without one each has worlds of its own, and one "
            "folder can hold only one run. Pass `mesh=world_mesh()`."
        )
    return CheckpointFolder(checkpoint, devices=1 if mesh is None else mesh.size)


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
        for near in (*range(target, 2 * target + 1), *range(target - 1, target // 2, -1)):
            if blocks % near == 0:
                return near * stride
    return max(1, min(target, max(blocks, 1))) * stride


def _with_length(start: ProgressOfRun, length: int, inputs: PyTree) -> ProgressOfRun:
    """The same run with another length; raise if the saved steps do not allow it."""
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
