"""Choose a batch size: memory predicted from compiled programs, then speed among sizes that fit."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import PyTree

from .._trees import is_key, zero_keys
from ..memory import MB, device_memory_limit, live_bytes, predict_memory
from .meshes import world_shardings

# Runtime scratch that no program reports: 10-17 MB measured (ledger/core.md, part 3), doubled for safety.
_SCRATCH = 32 * MB


@dataclass(frozen=True)
class BatchTrial:
    """One batch size: the memory its program needs, and its speed where it was run."""

    batch_size: int
    predicted_bytes: int
    seconds: float | None = None
    """Best time of one call."""
    per_second: float | None = None
    """Items (times `steps`) per second."""


@dataclass(frozen=True)
class BatchPlan:
    """The chosen batch size and the trials behind it; bytes are per device."""

    batch_size: int
    max_batch_size: int
    """The largest that fits the budget (and `maximum`)."""
    predicted_bytes: int
    limit_bytes: int
    budget_bytes: int
    fixed_bytes: float | int
    bytes_per_item: float | int
    reason: str
    trials: tuple[BatchTrial, ...]

    def __str__(self) -> str:
        line = f"{self.fixed_bytes / MB:.2f} MB + {self.bytes_per_item / 1000:.3f} kB per item"
        budget = f"a budget of {self.budget_bytes / MB:.1f} MB (limit {self.limit_bytes / MB:.1f} MB)"
        lines = [
            f"batch size {self.batch_size}: {self.reason}",
            f"  memory per device: {line}; {self.predicted_bytes / MB:.1f} MB of {budget}",
            f"  at most {self.max_batch_size} fit",
        ]
        timed = [trial for trial in self.trials if trial.seconds is not None]
        if timed:
            lines.append(f"  {'batch':>10} {'memory MB':>12} {'ms/call':>10} {'per second':>14}")
        for trial in timed:
            mark = " <-" if trial.batch_size == self.batch_size else ""
            speed = f"{(trial.seconds or 0) * 1e3:>10.3f} {trial.per_second or 0:>14.0f}"
            lines.append(f"  {trial.batch_size:>10} {trial.predicted_bytes / MB:>12.1f} {speed}{mark}")
        return "\n".join(lines)


def plan_batch_size(
    fn: Callable[..., Any],
    arguments: Callable[[int], tuple[Any, ...]],
    *,
    limit: int | None = None,
    fraction: float | int = 0.85,
    sizes: tuple[int, int] = (256, 4096),
    maximum: int | None = None,
    mesh: Mesh | None = None,
    axes: PyTree = 0,
    measure: bool = True,
    steps: int = 1,
    repeats: int = 5,
) -> BatchPlan:
    """Find the batch size for `fn(*arguments(batch_size))` without ever trying one that does not fit.

    Two compilations give memory as a line in the batch size; the largest batch within the budget follows, and
    one more compilation confirms it. With `measure`, that size and parts of it are timed, and the smallest
    within 5 % of the best throughput is chosen: beyond it a larger batch only costs memory.

    - `fn`: the batched program: jitted, `eqx.filter_jit`-wrapped, or plain.
    - `arguments`: makes its arguments for a batch size; jax arrays or `jax.ShapeDtypeStruct`. For planning it
      is only evaluated abstractly, so they take no memory; for measuring, at sizes that fit. A NumPy array
      would be real at every size, so one that grows with the batch is a TypeError.
    - `limit`: bytes per device; by default `device_memory_limit()`. The budget is `fraction` of it, less live
      arrays and 32 MB of runtime scratch.
    - `sizes`: the two batch sizes to compile. `maximum`: bound on the answer.
    - `mesh`, `axes`: spread the worlds over devices as `shard_worlds` does (`axes` per argument); the answer
      is then a multiple of the device count, and bytes are those of one device.
    - `steps`: steps that one call does per item, so that speeds read as steps per second.

    ```python
    plan = plan_batch_size(jax.vmap(step), lambda n: (jax.vmap(reset)(jax.random.split(key, n)),))
    print(plan)
    ```
    """
    unit = 1 if mesh is None else mesh.size
    if not 0 < fraction <= 1:
        raise ValueError(f"`fraction` must be above 0 and at most 1; got {fraction}.")
    if maximum is not None and maximum < unit:
        raise ValueError(f"`maximum` must be at least the number of devices, {unit}; got {maximum}.")
    if min(sizes) < 1:
        raise ValueError(f"`sizes` must be two batch sizes of at least 1; got {sizes}.")
    if not isinstance(limit, int | float | np.number | None):
        raise TypeError(f"`limit` must be a number of bytes; got {limit!r}. Write 8 * 10**9 for 8 GB.")
    limit = device_memory_limit(None if mesh is None else mesh.devices.flat[0]) if limit is None else limit
    budget = _budget(limit, fraction)
    program = _Batched(fn, arguments, mesh, axes)
    program.demand_abstract(unit)

    # Different multiples of `unit`, within the maximum where two exist.
    large = _floor(max(sizes) if maximum is None else min(max(sizes), maximum), unit)
    small = _floor(min(*sizes, large // 2), unit)
    probes = (small, large) if small < large else (large, large + unit)
    points = [(size, program.need(size)) for size in probes]
    most = _largest(points, budget, maximum, unit)
    confirmed = program.need(most)
    while confirmed > budget and most > unit:  # the line bends: aim again from the new point, always lower
        points = [points[0], (most, confirmed)] if points[0][0] < most else points
        most = _floor(min(_largest(points, budget, maximum, unit), 0.9 * most), unit)
        confirmed = program.need(most)
    if confirmed > budget:
        raise ValueError(
            f"even a batch of {most} needs {confirmed / MB:.1f} MB per device, over the budget of "
            f"{budget / MB:.1f} MB. Make the program smaller, or raise `limit` ({limit / MB:.1f} MB)."
        )

    slope, fixed = _line(points)
    fractions = sorted({_floor(most / 4**power, unit) for power in range(4)})
    trials = [BatchTrial(size, round(fixed + slope * size)) for size in fractions]
    trials[-1] = chosen = BatchTrial(most, confirmed)
    reason = "the `maximum`, which fits" if most == maximum else "the largest that fits"
    if measure:
        trials = [program.with_time(trial, steps, repeats) for trial in trials]
        best = max(trial.per_second or 0.0 for trial in trials)
        chosen = next(trial for trial in trials if (trial.per_second or 0.0) >= 0.95 * best)
        reason = f"the smallest within 5 % of the best speed ({best:.0f} per second)"
    return BatchPlan(
        batch_size=chosen.batch_size,
        max_batch_size=most,
        predicted_bytes=chosen.predicted_bytes,
        limit_bytes=limit,
        budget_bytes=budget,
        fixed_bytes=fixed,
        bytes_per_item=slope,
        reason=reason,
        trials=tuple(trials),
    )


def _budget(limit: int, fraction: float | int) -> int:
    held = max(live_bytes().values(), default=0)
    budget = int(limit * fraction) - held - _SCRATCH
    if budget <= 0:
        raise ValueError(
            f"no memory is left to plan with: {fraction:.0%} of `limit` ({limit / MB:.1f} MB) less "
            f"{held / MB:.1f} MB of live arrays and {_SCRATCH / MB:.0f} MB of scratch. Free some or raise it."
        )
    return budget


def _floor(size: float | int, unit: int) -> int:
    return max(unit, int(size // unit) * unit)


def _line(points: Sequence[tuple[int, int]]) -> tuple[float, float]:
    """Slope and intercept through two (batch size, bytes) points."""
    (small, low), (large, high) = points
    slope = (high - low) / (large - small)
    return slope, low - slope * small


def _largest(points: Sequence[tuple[int, int]], budget: int, maximum: int | None, unit: int) -> int:
    slope, fixed = _line(points)
    if slope <= 0 and maximum is None:
        raise ValueError(
            "the memory of `fn` does not grow with the batch size. Pass a `maximum` to bound it."
        )
    fits = (budget - fixed) / slope if slope > 0 else float("inf")
    return _floor(min(fits, float("inf") if maximum is None else maximum), unit)


@dataclass(frozen=True)
class _Batched:
    """A program whose arguments depend on the batch size, spread over a mesh where one is given."""

    fn: Callable[..., Any]
    arguments: Callable[[int], tuple[Any, ...]]
    mesh: Mesh | None
    axes: PyTree

    def shapes(self, size: int) -> tuple[Any, ...]:
        """The shapes (and shardings) of `arguments(size)`."""
        made = jax.tree.map(_shape_of, eqx.filter_eval_shape(self.arguments, size))
        if not isinstance(made, tuple):
            raise TypeError(f"`arguments` must return the tuple of arguments; got {type(made).__name__}.")
        if self.mesh is None:
            return made

        def place(leaf: Any, where: Any) -> Any:
            return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where) if _is_shape(leaf) else leaf

        axes = tuple(self.axes) if isinstance(self.axes, list | tuple) else self.axes
        return jax.tree.map(place, made, world_shardings(made, self.mesh, axes))

    def demand_abstract(self, unit: int) -> None:
        """Raise for NumPy arrays that grow with the batch, judged by the two smallest sizes."""
        seen: list[dict[str, tuple[int, ...]]] = []

        def note(size: int) -> Any:
            made = self.arguments(size)
            leaves = {
                jax.tree_util.keystr(at): leaf for at, leaf in jax.tree_util.tree_leaves_with_path(made)
            }
            seen.append({path: leaf.shape for path, leaf in leaves.items() if isinstance(leaf, np.ndarray)})
            return made

        for size in (unit, 2 * unit):
            eqx.filter_eval_shape(note, size)
        for path, shape in seen[1].items():
            if seen[0].get(path) != shape:
                raise TypeError(
                    f"`arguments(batch_size){path}` must take no memory at sizes that are only considered; got "
                    f"a NumPy array, of shape {shape} for a batch of {2 * unit}. Make it with `jnp`, or return "
                    "`jax.ShapeDtypeStruct(shape, dtype)`."
                )

    def need(self, size: int) -> int:
        return predict_memory(self.fn, *self.shapes(size)).peak

    def real(self, size: int) -> tuple[Any, ...]:
        """Arguments to run with; shapes become zeros, and PRNG keys real keys."""
        if self.mesh is None:
            return jax.block_until_ready(jax.tree.map(_zeros, self.arguments(size)))
        # Made in place on every device: one device could not hold them all before they are spread.
        shapes, others = eqx.partition(self.shapes(size), _is_shape)

        def make() -> Any:
            filled = jax.tree.map(_zeros, self.arguments(size))
            return jax.tree.map(lambda shape, leaf: leaf, shapes, filled)

        made = jax.jit(make, out_shardings=jax.tree.map(lambda shape: shape.sharding, shapes))()
        return eqx.combine(jax.block_until_ready(made), others)

    def with_time(self, trial: BatchTrial, steps: int, repeats: int) -> BatchTrial:
        """Run one size that fits. A result is dropped before the next call, or two would be held at once."""
        size = trial.batch_size
        call = self.fn if hasattr(self.fn, "lower") else eqx.filter_jit(self.fn)
        best, args = float("inf"), self.real(size)
        jax.block_until_ready(call(*args))
        for _ in range(repeats):
            if any(isinstance(leaf, jax.Array) and leaf.is_deleted() for leaf in jax.tree.leaves(args)):
                del args  # donated by the last call
                args = self.real(size)
            start = time.perf_counter()
            jax.block_until_ready(call(*args))
            best = min(best, time.perf_counter() - start)
        return BatchTrial(size, trial.predicted_bytes, best, size * steps / best)


def _is_shape(leaf: Any) -> bool:
    return isinstance(leaf, jax.ShapeDtypeStruct)


def _shape_of(leaf: Any) -> Any:
    if isinstance(leaf, np.ndarray | np.generic):
        return jax.ShapeDtypeStruct(leaf.shape, jax.dtypes.canonicalize_dtype(leaf.dtype))
    return leaf


def _zeros(leaf: Any) -> Any:
    if not _is_shape(leaf):
        return leaf
    return zero_keys(leaf) if is_key(leaf) else jnp.zeros(leaf.shape, leaf.dtype, device=leaf.sharding)
