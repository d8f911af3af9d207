"""Memory of compiled programs (predicted), of devices (free) and of this process (held)."""

import math
import re
import sys
import types
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from ..runtime import settings
from ..text import format_bytes
from ._host_memory import MemoryUnknownError, host_memory_free, process_memory

MB = 10**6


def tree_bytes(tree: Any) -> int:
    """Bytes held by `tree`: arrays exactly, everything else by `sys.getsizeof`; a shared object counts once.

    Walks containers, pytrees and the attributes of plain objects, so that a class that hides an array is not
    taken for 48 bytes. `jax.ShapeDtypeStruct` counts as the array it describes.
    """
    seen: dict[int, Any] = {}  # holds the objects, so that no id is used twice during the walk
    stack, total = [tree], 0
    while stack:
        node = stack.pop()
        if node is None or id(node) in seen:
            continue
        seen[id(node)] = node
        if isinstance(node, jax.ShapeDtypeStruct):
            total += math.prod(node.shape) * node.dtype.itemsize
        elif isinstance(nbytes := getattr(node, "nbytes", None), int | np.integer):
            total += int(nbytes)
        elif isinstance(node, dict):  # before jax.tree: jax refuses keys that cannot be sorted
            stack.extend(node.values())
        elif isinstance(node, list | tuple | set | frozenset):
            stack.extend(node)
        elif isinstance(node, type | types.FunctionType | types.ModuleType):
            continue  # code, which nobody frees
        elif len(leaves := jax.tree.leaves(node)) != 1 or leaves[0] is not node:
            stack.extend(leaves)
        elif hasattr(node, "__dict__"):
            stack.extend(vars(node).values())
        else:
            total += sys.getsizeof(node)
    return total


# --- prediction ---


@dataclass(frozen=True)
class MemoryPrediction:
    """Bytes that one run of a compiled program needs, on each device that it runs on.

    `peak` is arguments + outputs + temporaries + scratch - aliased, where `aliased` are outputs written into
    donated arguments, and `scratch` is what a sort or top-k takes on a CPU behind the compiler's back. Other
    live arrays and about 10-17 MB of the runtime come on top (measured on CPU, ledger/core.md part 3). What an
    FFT takes itself is not in it, on any device: of one program 3.4 GB were predicted and 8.9 GB taken on a
    GPU (benchmarks/results/nvidia-h200).
    """

    arguments: int
    outputs: int
    temporaries: int
    aliased: int
    scratch: int = 0

    @property
    def peak(self) -> int:
        """Bytes at the worst moment."""
        return self.arguments + self.outputs + self.temporaries + self.scratch - self.aliased

    def __str__(self) -> str:
        parts = f"arguments {format_bytes(self.arguments)} + outputs {format_bytes(self.outputs)}"
        parts += f" + temporaries {format_bytes(self.temporaries)} - aliased {format_bytes(self.aliased)}"
        parts += f" + scratch {format_bytes(self.scratch)}" if self.scratch else ""
        return f"peak {format_bytes(self.peak)} per device ({parts})"


def predict_memory(fn: Any, /, *args: Any, **kwargs: Any) -> MemoryPrediction:
    """Predict the memory of `fn(*args, **kwargs)` from its compiled program, without running it.

    `fn` is a `jax.jit`- or `eqx.filter_jit`-wrapped function, a plain function (compiled as `eqx.filter_jit`
    would), or an already compiled program (then without arguments). Arguments may be arrays or
    `jax.ShapeDtypeStruct`. With several devices the numbers are those of one device.

    ```python
    grids = jax.ShapeDtypeStruct((4096, 30, 30), jnp.int32)
    predict_memory(lambda x: x + 1, grids).peak  # 2 * 4096 * 30 * 30 * 4 bytes
    ```
    """
    program = _inner(fn)
    if not hasattr(program, "memory_analysis"):
        program = _inner(_lower(fn, args, kwargs).compile())
    stats = program.memory_analysis()
    if isinstance(stats, list | tuple):  # one entry per program part on some backends
        stats = stats[0] if stats else None
    fields = ("argument", "output", "temp", "alias")
    found = [int(getattr(stats, f"{name}_size_in_bytes", 0)) for name in fields]
    known = hasattr(program, "in_avals") and hasattr(program, "out_info")
    needs_nothing = known and not tree_bytes(jax.tree.leaves((program.in_avals, program.out_info)))
    if not any(found) and not needs_nothing:
        raise MemoryUnknownError(
            f"the backend {jax.default_backend()!r} gave no memory analysis for this program (all sizes "
            "are 0, as some older GPU versions do). Run it once at a small size and read "
            "`live_report().device_stats` instead, or update jaxlib."
        )
    return MemoryPrediction(*found, scratch=_hidden_scratch(program))


def _inner(program: Any) -> Any:
    """JAX's own compiled program, which equinox hides behind `.compiled`."""
    return getattr(program, "compiled", program)


# An instruction of optimized HLO: name, result (one array or a tuple of them), operation, and the rest.
_INSTRUCTION = re.compile(r"^ *(?:ROOT )?%([\w.\-]+) = (.*?) ([\w\-]+)\((.*)$", re.MULTILINE)
_ARRAY = re.compile(r"([a-z]+)(\d*)\w*\[([\d,]*)\]")


def _hidden_scratch(program: Any) -> int:
    """Bytes that the worst sort or top-k of a CPU program takes and XLA's analysis leaves out.

    XLA's CPU runtime allocates them itself. All figures here and below were measured with jax 0.10.2, as the
    growth of the resident process beyond the analysis.
    """
    if jax.default_backend() != "cpu" or not hasattr(program, "as_text"):
        return 0
    instructions = {name: rest for name, *rest in _INSTRUCTION.findall(program.as_text() or "")}
    largest = 0
    for result, operation, details in instructions.values():
        if operation == "sort":
            along = re.search(r"dimensions=\{(\d+)", details)
            largest = max(largest, _sort_scratch(result, int(along[1]) if along else 0))
        elif '"TopK"' in details:
            operand = re.search(r"%([\w.\-]+)", details)
            source = instructions[operand[1]][0] if operand and operand[1] in instructions else result
            # Top-k holds the positions of one row as int32, for any k: 50 and 100 MB for 12.5 and 25 million
            # floats, 12 MB for 8 rows of 3 million. (XLA sorts for other types, and for all of a row.)
            largest = max(largest, 4 * _sizes(source)[-1])
    return largest


def _sizes(result: str) -> list[int]:
    return [int(size) for size in _ARRAY.findall(result)[0][2].split(",") if size]


def _sort_scratch(result: str, dimension: int) -> int:
    """A row is sorted through a copy of 16 bytes per element and operand; one array of integers through half.

    200, 400 and 600 MB for 1, 2 and 3 operands of 12.5 million floats; 25 MB for as many int32.
    """
    operands = _ARRAY.findall(result)
    kind, bits, _ = operands[0]
    row = _sizes(result)[dimension]
    one_integer = len(operands) == 1 and kind in ("s", "u")
    return row * int(bits) // 16 if one_integer else 16 * len(operands) * row


def _is_traced(leaf: Any) -> bool:
    return eqx.is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct | np.ndarray | np.generic)


def _lower(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Lower `fn` from shapes alone, with its own donation."""
    if isinstance(fn, types.MethodType):  # a bound jitted method forwards `.lower` without its `self`
        fn, args = fn.__func__, (fn.__self__, *args)
    # `eqx.filter_jit` takes a ShapeDtypeStruct for a static value, so its wrapper is rebuilt around shapes.
    from_equinox = hasattr(fn, "donate_first") and hasattr(fn, "__wrapped__")
    if hasattr(fn, "lower") and not from_equinox:
        return fn.lower(*args, **kwargs)
    if not callable(fn):
        raise TypeError(f"`fn` must be a function or a compiled program; got {type(fn).__name__}.")
    inner: Any = getattr(fn, "__wrapped__", fn) if from_equinox else fn
    first, rest = args[:1], (inner, args[1:], kwargs)
    traced_first, static_first = eqx.partition(first, _is_traced)
    traced_rest, static_rest = eqx.partition(rest, _is_traced)

    def whole(traced_first: Any, traced_rest: Any) -> Any:
        (*args,) = eqx.combine(traced_first, static_first)
        inner, more, kwargs = eqx.combine(traced_rest, static_rest)
        return eqx.filter(inner(*args, *more, **kwargs), eqx.is_array)

    donated = [at for at, name in enumerate(("donate_first", "donate_rest")) if getattr(fn, name, False)]
    return jax.jit(whole, donate_argnums=donated).lower(traced_first, traced_rest)


# --- limits ---


def device_memory_limit(device: Any = None) -> int:
    """Bytes that the arrays and temporaries of this process may take on `device` (default: the first device).

    An accelerator answers itself. On a CPU it is what the machine and its control group have left now, plus
    what live arrays already hold, shared evenly among the (simulated) CPU devices of the process.
    `memory_limit_gb` of `jaxworlds.configure`, a budget per device, lowers it.
    """
    device = jax.local_devices()[0] if device is None else device
    stats = device.memory_stats() or {}
    if "bytes_limit" in stats:
        limit = int(stats["bytes_limit"])
    elif device.platform == "cpu":
        everything = host_memory_free() + sum(live_bytes("cpu").values())
        limit = everything // len(jax.local_devices(backend="cpu"))
    else:
        raise MemoryUnknownError(
            f"the device {device} reports no `bytes_limit`. Pass the limit in bytes yourself."
        )
    configured = settings().memory_limit_gb
    return limit if configured is None else min(limit, int(configured * 2**30))


def demand_memory(needed: int, remedy: Callable[[float], str]) -> None:
    """Refuse a program that takes `needed` bytes beyond its arguments where its device has less left, before it runs.

    `remedy(share)` says what to do; `share` of the need would fit. Where the system says nothing of memory, nothing is
    refused.
    """
    device = jax.local_devices()[0]
    try:
        stats = device.memory_stats() or {}
        held = stats.get("bytes_in_use", live_bytes(device.platform).get(device, 0))
        free = max(device_memory_limit(device) - held, 0)
    except MemoryUnknownError:
        return
    if needed > free:
        raise MemoryError(
            f"the program needs {format_bytes(needed)} beyond its arguments on each device, and {format_bytes(free)} are free. "
            f"{remedy(free / needed)}"
        )


# --- what is held now ---


def live_bytes(platform: str | None = None) -> dict[Any, int]:
    """Bytes of live `jax.Array`s on each local device; arrays that share one buffer count once."""
    totals: Counter[Any] = Counter()
    for array in _live_arrays(platform):
        totals.update(_bytes_by_device(array))
    return dict(totals)


def _live_arrays(platform: str | None = None) -> list[jax.Array]:
    """One of those that share a buffer, as `device_put` onto the same device makes them."""
    unique: dict[Any, jax.Array] = {}
    for array in jax.live_arrays(platform):
        if not array.is_deleted():
            devices = array.sharding.device_set
            alone = array.size == 0 or len(devices) > 1
            unique.setdefault(id(array) if alone else (array.unsafe_buffer_pointer(), *devices), array)
    return list(unique.values())


def _bytes_by_device(array: jax.Array) -> dict[Any, int]:
    # From the sharding: looking at `addressable_shards` would make new arrays, which would count as live.
    shard = math.prod(array.sharding.shard_shape(array.shape)) * array.dtype.itemsize
    return dict.fromkeys(array.sharding.addressable_devices, shard)


@dataclass(frozen=True)
class LiveReport:
    """What this process holds: live arrays (exact), resident host memory, and what the devices report."""

    count: int
    nbytes: int
    by_device: dict[str, int]
    largest: tuple[tuple[tuple[int, ...], str, int, int], ...]
    """(shape, dtype, how many, bytes together), most bytes first."""
    process_bytes: int
    process_peak_bytes: int
    device_stats: dict[str, dict[str, int] | None]
    """`device.memory_stats()` by device; None where the backend keeps none, as on a CPU."""

    def __str__(self) -> str:
        lines = [f"{self.count} live arrays, {self.nbytes / MB:.2f} MB"]
        lines += [f"  {device}: {nbytes / MB:.2f} MB" for device, nbytes in self.by_device.items()]
        lines += [
            f"  {many} x {dtype}{list(shape)}: {n / MB:.2f} MB" for shape, dtype, many, n in self.largest
        ]
        peak = self.process_peak_bytes / MB
        lines.append(f"process: {self.process_bytes / MB:.1f} MB resident now, {peak:.1f} MB at most")
        for device, stats in self.device_stats.items():
            if stats:
                used, limit = stats.get("bytes_in_use", 0) / MB, stats.get("bytes_limit", 0) / MB
                top = stats.get("peak_bytes_in_use", 0) / MB
                lines.append(f"{device}: {used:.1f} MB in use, {top:.1f} MB at most, limit {limit:.1f} MB")
        return "\n".join(lines)


def live_report(top: int = 8) -> LiveReport:
    """Count what is held now; `top` bounds the list of largest (shape, dtype) groups."""
    arrays, by_device, groups = _live_arrays(), Counter(), {}
    for array in arrays:
        parts = _bytes_by_device(array)
        by_device.update({str(device): nbytes for device, nbytes in parts.items()})
        many, total = groups.get((array.shape, str(array.dtype)), (0, 0))
        groups[array.shape, str(array.dtype)] = many + 1, total + sum(parts.values())
    rows = sorted(((*kind, *sums) for kind, sums in groups.items()), key=lambda row: -row[3])
    now, peak = process_memory()
    return LiveReport(
        count=len(arrays),
        nbytes=sum(by_device.values()),
        by_device=dict(sorted(by_device.items())),
        largest=tuple(rows[:top]),
        process_bytes=now,
        process_peak_bytes=peak,
        device_stats={str(device): device.memory_stats() for device in jax.local_devices()},
    )


# --- smaller arrays ---


def optimize_array_memory(arr: np.ndarray | jax.Array, *, lossless: bool = False) -> Any:
    """The same values in the smallest type: NumPy in, NumPy out; jax in, jax out.

    Integers never lose a value: signed ones stay signed, unsigned ones unsigned. float64 becomes float32 (and
    complex128 complex64), unless a finite value would become infinite or a nonzero one zero; with
    `lossless=True` only if every value is exactly representable. All else, and empty arrays, stay as
    they are.

    ```python
    optimize_array_memory(np.array([1, 2, 3]))  # int64 -> int8
    optimize_array_memory(np.array([1.1, 2.2]))  # float64 -> float32
    optimize_array_memory(np.array([1.1, 2.2]), lossless=True)  # stays float64
    ```
    """
    if isinstance(arr, Tracer):
        raise TypeError(
            "`arr` must have values, since they decide the type; got a traced array. Call it outside jit."
        )
    if not isinstance(arr, np.ndarray | jax.Array):
        raise TypeError(
            f"`arr` must be a NumPy or jax array; got {type(arr).__name__}. Use `np.asarray(...)` first."
        )
    if arr.size == 0:
        return arr
    if arr.dtype in (np.float64, np.complex128):
        return _narrow_float(arr, lossless)
    if not isinstance(arr.dtype, np.dtype) or arr.dtype.kind not in "iu":
        return arr
    low, high = int(arr.min()), int(arr.max())
    for size in (1, 2, 4):
        info = np.iinfo(f"{arr.dtype.kind}{size}")
        if arr.dtype.itemsize > size and info.min <= low and high <= info.max:
            return arr.astype(info.dtype)
    return arr


def _narrow_float(arr: Any, lossless: bool) -> Any:
    xp = np if isinstance(arr, np.ndarray) else jnp
    with np.errstate(over="ignore", under="ignore"):
        narrow = arr.astype(np.float32 if arr.dtype == np.float64 else np.complex64)
    parts, narrow_parts = ((x.real, x.imag) if x.dtype.kind == "c" else (x,) for x in (arr, narrow))
    for before, after in zip(parts, narrow_parts, strict=True):
        if lossless:
            lost = (before != after) & ~xp.isnan(before)
        else:
            lost = (xp.isfinite(before) & ~xp.isfinite(after)) | ((before != 0) & (after == 0))
        if bool(lost.any()):
            return arr
    return narrow
