"""Static values for compiled functions: hashable configs, freezing with named paths, and strong types."""

import dataclasses
import difflib
import functools
import math
from collections.abc import Callable
from typing import Any, TypeVar, dataclass_transform, overload

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from . import _trees
from .arguments import short

T = TypeVar("T")


def exact_key(value: Any) -> Any:
    """A hashable stand-in with exact equality: 1, 1.0 and True differ, 0.0 and -0.0 differ, NaN equals NaN.

    Python's own equality would let `jit` answer a call with 1.0 by the program traced for 1, and retrace on
    every NaN (ledger: 5 of 5 calls).
    """
    if isinstance(value, float):
        return (type(value), value.hex())
    if isinstance(value, complex):
        return (type(value), value.real.hex(), value.imag.hex())
    if isinstance(value, np.generic) and not value.dtype.hasobject:  # also float32 and bfloat16
        return (type(value), value.dtype, value.tobytes())
    if isinstance(value, tuple):
        return (type(value), tuple(map(exact_key, value)))
    if isinstance(value, frozenset):
        return (type(value), frozenset(map(exact_key, value)))
    return (type(value), value)


class Frozen:
    """A hashable image of a list, dict, set, NumPy array or NaN, made by `freeze` and undone by `thaw`.

    It is registered as a static pytree node, so it passes through `jax.jit` as it stands.
    """

    __slots__ = ("_hash", "_key", "items", "kind")

    def __init__(self, kind: str, items: tuple[Any, ...]) -> None:
        self.kind = kind
        self.items = items
        self._key = (kind, exact_key(items))
        self._hash = hash(self._key)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Frozen) and self._hash == other._hash and self._key == other._key

    def __repr__(self) -> str:
        return f"freeze({short(thaw(self), _trees.LONGEST_REPR)})"

    def __reduce__(self) -> tuple[Any, ...]:
        # String hashes differ between processes, so the cached hash must not travel.
        return (Frozen, (self.kind, self.items))


jax.tree_util.register_static(Frozen)


def freeze(obj: Any, *, name: str = "value") -> Any:
    """`obj` with every list, dict, set and NumPy array made hashable, so that it can be a static argument.

    Tuples stay tuples and hashable values stay themselves. What cannot be frozen is refused by its path,
    which starts with `name`. `thaw(freeze(x))` restores values, types and dict order.

    >>> freeze({"sizes": [3, 4]}) == freeze({"sizes": [3, 4]})
    True
    """
    kind = type(obj)
    named = issubclass(kind, tuple) and hasattr(obj, "_fields")
    if kind in (list, dict, tuple) or named:
        parts = tuple(freeze(child, name=name + suffix) for suffix, child in _trees.children(obj) or [])
        if kind in (list, dict):
            return Frozen(kind.__name__, parts if kind is list else (tuple(obj), parts))
        return kind(*parts) if named else parts
    if kind is set:
        return Frozen("set", (frozenset(obj),))
    if kind is np.ndarray and not obj.dtype.hasobject:
        return Frozen("ndarray", (obj.dtype, obj.shape, obj.tobytes()))
    if kind is float and math.isnan(obj):
        return Frozen("nan", ())
    return _require_hashable(obj, name)


def thaw(obj: Any) -> Any:
    """The value that `freeze` was given, with its lists, dicts and sets; arrays are fresh and writable."""
    if isinstance(obj, Frozen):
        return _THAWING[obj.kind](*obj.items)
    if type(obj) is tuple or (isinstance(obj, tuple) and hasattr(obj, "_fields")):
        parts = tuple(map(thaw, obj))
        return type(obj)(*parts) if hasattr(obj, "_fields") else parts
    return obj


_THAWING: dict[str, Callable[..., Any]] = {
    "list": lambda *parts: [thaw(part) for part in parts],
    "dict": lambda keys, values: dict(zip(keys, map(thaw, values), strict=True)),
    "set": set,
    "ndarray": lambda dtype, shape, data: np.frombuffer(data, dtype).reshape(shape).copy(),
    "nan": lambda: math.nan,
}


def unhashable_path(obj: Any, name: str = "config") -> str | None:
    """Path of the innermost part without a hash, such as `config.action.table[2]`; None if none."""
    found = _unhashable_part(obj, name)
    return None if found is None else found[0]


def _unhashable_part(obj: Any, path: str) -> tuple[str, Any] | None:
    try:
        hash(obj)
    except TypeError:
        inner = (_unhashable_part(child, path + suffix) for suffix, child in _trees.children(obj) or ())
        return next(filter(None, inner), (path, obj))
    return None


def is_hashable_config(obj: Any) -> bool:
    """Whether `obj` can be a static argument of a jitted function."""
    return unhashable_path(obj) is None


def _require_hashable(value: Any, path: str) -> Any:
    """`value` itself when hashable; otherwise an error that names the unhashable part and its remedy."""
    found = _unhashable_part(value, path)
    if found is None:
        return value
    bad, part = found
    kind = f"{type(part).__module__}.{type(part).__name__}".removeprefix("builtins.")
    if isinstance(part, Tracer):
        what = f"a traced value {_trees.aval_text(part)}"
        remedy = "Build the config outside the jitted function."
    elif isinstance(part, jax.Array):
        what = f"a jax array of shape {part.shape} and dtype {part.dtype}"
        remedy = "Pass it as a traced argument, or freeze a small constant: `freeze(numpy.asarray(x))`."
    elif isinstance(part, np.ndarray):
        what = f"a NumPy array of shape {part.shape} and dtype {part.dtype}"
        remedy = (
            "Pass it as a traced argument, a few numbers as a list (`x.tolist()`), "
            "or store a small constant as `freeze(x)`, read with `thaw`."
        )
    elif isinstance(part, dict):
        what, remedy = "a dict", "Use a nested `@config`, or store `freeze(x)` and read it with `thaw`."
    elif isinstance(part, list | set):
        what, remedy = f"a {kind}", "Use a tuple or frozenset."
    else:
        what, remedy = f"a {kind}", "Make its class a `@config`, or give it `__hash__` and `__eq__`."
    raise TypeError(f"`{bad}` must be hashable to be static; got {what}. {remedy}")


def _immutable(value: Any, path: str) -> Any:
    """A field of a config: lists become tuples, sets become frozensets, the rest must be hashable."""
    if type(value) is set:
        return frozenset(value)
    if type(value) is list or type(value) is tuple:
        return tuple(_immutable(part, f"{path}[{index}]") for index, part in enumerate(value))
    return _require_hashable(value, path)


def _config_key(self: Any) -> tuple[int, Any]:
    """The hash and the exact key of a config, computed once."""
    cached = self.__dict__.get("_cached_key")
    if cached is None:
        values = [getattr(self, field.name) for field in dataclasses.fields(self) if field.compare]
        key = (type(self), tuple(map(exact_key, values)))
        cached = (hash(key), key)
        object.__setattr__(self, "_cached_key", cached)
    return cached


def _config_eq(self: Any, other: object) -> Any:
    if self is other:
        return True
    return _config_key(self) == _config_key(other) if type(self) is type(other) else NotImplemented


def _config_state(self: Any) -> dict[str, Any]:
    # String hashes differ between processes, so the cached hash must not travel.
    return {name: value for name, value in self.__dict__.items() if name != "_cached_key"}


@overload
def config(cls: type[T], /) -> type[T]: ...
@overload
def config(*, kw_only: bool = False) -> Callable[[type[T]], type[T]]: ...
@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def config(cls: Any = None, /, *, kw_only: bool = False) -> Any:
    """Make a class a configuration: a frozen dataclass with a cached hash, static for JAX wherever it goes.

    Equal values share one trace, exactly: 1 and 1.0 differ, and NaN equals itself. Lists become tuples and
    sets frozensets; dicts and arrays are refused by path. The class's own `__post_init__` then validates. A
    config is a static pytree node: it passes through `jit`, `vmap`, `scan` and `eqx.filter_jit`, and works in
    `static_argnames` too.

    >>> @config
    ... class Limits:
    ...     max_steps: int = 100
    >>> Limits(max_steps=5).replace(max_steps=6)
    Limits(max_steps=6)
    """
    make = functools.partial(_make_config, kw_only=kw_only)
    return make if cls is None else make(cls)


def _make_config(cls: Any, *, kw_only: bool) -> Any:
    validate = getattr(cls, "__post_init__", None)

    def __post_init__(self: Any, *init_vars: Any) -> None:
        for field in dataclasses.fields(self):
            name, value = f"{type(self).__name__}.{field.name}", getattr(self, field.name)
            if isinstance(value, dict) and dataclasses.is_dataclass(field.default):
                kind = type(field.default).__name__
                must = f"`{name}` must be of the class {kind}; got a dict"
                raise TypeError(f"{must}. Write `{field.name}={kind}(...)`.")
            object.__setattr__(self, field.name, _immutable(value, name))
        if validate is not None:
            validate(self, *init_vars)

    cls.__post_init__ = __post_init__
    made = dataclasses.dataclass(frozen=True, eq=False, kw_only=kw_only)(cls)
    init = made.__init__

    @functools.wraps(init)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        for name in kwargs.keys() - {field.name for field in dataclasses.fields(self) if field.init}:
            raise TypeError(_no_field(type(self), name))
        init(self, *args, **kwargs)

    made.__init__, made.__hash__ = __init__, lambda self: _config_key(self)[0]
    made.__eq__, made.__getstate__ = _config_eq, _config_state
    if "replace" not in {field.name for field in dataclasses.fields(made)}:
        made.replace = replace
    jax.tree_util.register_static(made)
    return made


def _no_field(made: Any, name: str) -> str:
    """Message for an unknown field: the fields that exist, and the part that has this one."""
    fields = [field for field in dataclasses.fields(made) if field.init]
    names = [field.name for field in fields]
    near = difflib.get_close_matches(name, names, n=2)
    inside = [
        f"{field.name}={type(field.default).__name__}({name}=...)"
        for field in fields
        if dataclasses.is_dataclass(field.default)
        and name in {part.name for part in dataclasses.fields(field.default)}
    ]
    hint = f" Write `{inside[0]}`." if inside else f" Did you mean `{'` or `'.join(near)}`?" if near else ""
    return f"`{name}` is no field of {made.__name__}; it has {', '.join(names)}.{hint}"


def replace(config: T, /, **changes: Any) -> T:
    """A copy with some fields changed and validated again. Also a method: `limits.replace(max_steps=5)`."""
    instance: Any = config
    names = [field.name for field in dataclasses.fields(instance) if field.init]
    for name in changes:
        if name not in names:
            raise TypeError(_no_field(type(config), name))
    return dataclasses.replace(instance, **changes)


def strong(tree: Any) -> Any:
    """`tree` without weak types: Python numbers become arrays of JAX's default dtypes, weak arrays strong.

    A state whose weak leaf turns strong in the first step makes that step compile twice.
    """

    def strong_leaf(leaf: Any) -> Any:
        if isinstance(leaf, np.ndarray | np.generic):
            return jnp.asarray(leaf)
        if isinstance(leaf, bool | int | float | complex):
            return jnp.asarray(leaf, dtype=jax.dtypes.canonicalize_dtype(np.result_type(leaf)))
        if isinstance(leaf, jax.Array) and jax.typeof(leaf).weak_type:
            return jax.lax.convert_element_type(leaf, leaf.dtype)
        return leaf

    return jax.tree.map(strong_leaf, tree)


def aval_differences(a: Any, b: Any) -> list[str]:
    """Differences of two pytrees in structure, shape, dtype, weak type, key kind and static parts, by path.

    An empty list proves that a function compiled for `a` serves `b`: the state of `reset` and that of `step`.
    """
    old, new = _trees.entries(a, "tree"), _trees.entries(b, "tree")
    found = _trees.differences(old, new, noun="leaf", placements=False)
    if not found and jax.tree.structure(a) != jax.tree.structure(b):
        found = [f"tree structure changed from {jax.tree.structure(a)} to {jax.tree.structure(b)}"]
    return found
