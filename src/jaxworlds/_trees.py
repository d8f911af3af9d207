"""Nested Python values by path: their parts as text, and the differences between two values."""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from .arguments import short

_NUMBERS = (bool, int, float, complex)
_LEAVES = (*_NUMBERS, str, bytes, type(None), set, frozenset)
_MOST_SHOWN = 6
LONGEST_REPR = 80
_WEAK = "weakly typed "


class Entry(NamedTuple):
    """A node as text. `kind` is array, static or node; `placement` says where a committed array lives."""

    kind: str
    text: str
    placement: str = ""


def is_array(value: Any) -> bool:
    """Whether `value` has an abstract value of its own: an array, a tracer, a key, or a ShapeDtypeStruct."""
    return hasattr(value, "shape") and hasattr(value, "dtype") and not isinstance(value, type)


def is_key(leaf: Any) -> bool:
    """Whether `leaf` is a typed PRNG key or an array of them; a tracer or ShapeDtypeStruct may be one too."""
    described = isinstance(leaf, jax.Array | jax.ShapeDtypeStruct)
    return described and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def on_key_data(fn: Callable[..., Any], *keys: Any) -> Any:
    """Apply `fn` to the data of PRNG keys, and make keys of the result."""
    data: Any = fn(*map(jax.random.key_data, keys))
    return jax.random.wrap_key_data(data, impl=jax.random.key_impl(keys[0]))


def zero_keys(leaf: jax.ShapeDtypeStruct) -> Any:
    """Zero PRNG keys with the shape and implementation of `leaf`."""
    impl: list[Any] = []

    def bits_of(keys: Any) -> Any:
        impl.append(jax.random.key_impl(keys))
        return jax.random.key_data(keys)

    bits = jax.eval_shape(bits_of, leaf)
    return jax.random.wrap_key_data(jnp.zeros(bits.shape, bits.dtype), impl=impl[0])


def children(node: Any) -> list[tuple[str, Any]] | None:
    """The parts of a container with their path suffixes; None for a leaf."""
    if isinstance(node, _LEAVES) or is_array(node) or isinstance(node, type):
        return None
    if isinstance(node, dict):
        return [(f"[{key!r}]", child) for key, child in node.items()]
    if isinstance(node, tuple) and hasattr(node, "_fields"):
        return [(f".{name}", getattr(node, name)) for name in node._fields]  # pyright: ignore[reportAttributeAccessIssue]
    if isinstance(node, list | tuple):
        return [(f"[{index}]", child) for index, child in enumerate(node)]
    if dataclasses.is_dataclass(node):
        names = [field.name for field in dataclasses.fields(node)]
        return [(f".{name}", getattr(node, name)) for name in names if hasattr(node, name)]
    found = jax.tree_util.tree_flatten_with_path(node, is_leaf=lambda part: part is not node)[0]
    if len(found) == 1 and found[0][1] is node:
        return None
    return [(jax.tree_util.keystr(path), child) for path, child in found]


def _static_fields(node: Any) -> frozenset[str]:
    """Suffixes below `node` that JAX keeps static: marked fields, or all of a static (or no) pytree class."""
    if not dataclasses.is_dataclass(node):
        return frozenset()
    structure = jax.tree_util.tree_structure(node)
    whole = structure.num_leaves == 0 or jax.tree_util.treedef_is_leaf(structure)
    fields = dataclasses.fields(node)
    return frozenset(f".{field.name}" for field in fields if whole or field.metadata.get("static", False))


def aval_text(value: Any) -> str:
    """The abstract value as people read it: `int32[16,30,30]`, `key<fry>[4]`, `weakly typed float32[]`."""
    if isinstance(value, _NUMBERS):
        return f"{_WEAK}{jax.dtypes.canonicalize_dtype(np.result_type(value))}[]"
    numpy_value = isinstance(value, np.ndarray | np.generic)
    # jit sees NumPy arrays after canonicalisation: float64 is float32 while x64 is off.
    dtype = jax.dtypes.canonicalize_dtype(value.dtype) if numpy_value else value.dtype
    weak = _WEAK if getattr(value, "weak_type", False) else ""
    return f"{weak}{dtype}[{','.join(map(str, value.shape))}]"


def entries(value: Any, path: str, *, static: bool = False) -> dict[str, Entry]:
    """Every node of `value` by path; with `static`, numbers count by value and not by dtype."""
    parts = children(value)
    if parts is not None:
        found = {path: Entry("node", type(value).__name__)}
        static_parts = _static_fields(value)
        for suffix, child in parts:
            found |= entries(child, path + suffix, static=static or suffix in static_parts)
        return found
    if value is None:
        return {path: Entry("node", "None")}
    if is_array(value) or (isinstance(value, _NUMBERS) and not static):
        placed = not isinstance(value, Tracer) and getattr(value, "committed", False)
        return {path: Entry("array", aval_text(value), str(getattr(value, "sharding", "")) if placed else "")}
    return {path: Entry("static", short(value, LONGEST_REPR))}


def differences(
    old: dict[str, Entry], new: dict[str, Entry], *, noun: str = "argument", placements: bool = True
) -> list[str]:
    """Readable differences of two results of `entries`, outermost first: path, before and after."""
    found: list[str] = []
    covered: list[str] = []
    for path in sorted(old.keys() | new.keys(), key=len):
        if any(path.startswith(f"{above}{joint}") for above in covered for joint in ".["):
            continue
        before, after = old.get(path), new.get(path)
        if before is not None and after is not None:
            text = _difference(path, before, after, noun, placements)
        else:
            text = f"{noun} tree structure changed: `{path}` is {'new' if before is None else 'gone'}"
        if text is not None:
            covered.append(path)
            found.append(text)
    return shorten(found)


def shorten(lines: Iterable[str]) -> list[str]:
    """The first few lines, with the number of the rest."""
    lines = list(lines)
    hidden = len(lines) - _MOST_SHOWN
    return lines if hidden <= 0 else [*lines[:_MOST_SHOWN], f"… and {hidden} more"]


def _difference(path: str, before: Entry, after: Entry, noun: str, placements: bool) -> str | None:
    if before[:2] == after[:2]:
        if not placements or before.placement == after.placement:
            return None
        where = [entry.placement or "the default device (uncommitted)" for entry in (before, after)]
        return f"{noun} `{path}` ({after.text}) moved from {where[0]} to {where[1]}"
    if before.kind == after.kind == "static":
        return f"static {noun} `{path}` changed from {before.text} to {after.text}"
    text = f"{noun} `{path}` changed from {before.text} to {after.text}"
    if before.text.removeprefix(_WEAK) == after.text.removeprefix(_WEAK):
        return f"{text} (weak_type only: make it strong with `jaxworlds.static.strong`)"
    return f"{text} ({noun} tree structure changed)" if "node" in (before.kind, after.kind) else text
