"""Values as bytes and JSON: names of dtypes, arrays as bytes, and plain Python objects as tagged JSON."""

import base64
import math
import struct
import types
from collections.abc import Callable
from typing import Any

import jax
import ml_dtypes
import numpy as np

from .._trees import is_key
from ._container import Buffer

_STANDARD = frozenset(
    ["bool", "complex64", "complex128"]
    + [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
    + [f"float{bits}" for bits in (16, 32, 64)]
)
# Deeper nesting is almost always an object that contains itself; JSON itself stops near 1,000 levels.
_MAX_DEPTH = 100


def dtype_name(dtype: Any) -> str | None:
    """A name that restores `dtype` exactly, or None where the bytes alone do not carry the values.

    `dtype.str` cannot serve: it is `<V2` for bfloat16 and `<f1` for float8_e5m2.
    """
    dtype = np.dtype(dtype)
    extended = getattr(ml_dtypes, dtype.name, None)
    if extended is not None and dtype == np.dtype(extended):
        return dtype.name
    if dtype.name in _STANDARD:
        return dtype.name if dtype.isnative else dtype.str
    if dtype.kind in "USMm":
        return dtype.str
    return None  # objects, records, and float128, whose padding bytes are arbitrary


def dtype_from_name(name: str) -> np.dtype:
    """The dtype that `dtype_name` named; ValueError for any other text."""
    extended = getattr(ml_dtypes, name, None)
    try:
        dtype = np.dtype(name if extended is None else extended)
    except (TypeError, SyntaxError) as error:
        raise ValueError(f"unknown dtype {name!r}") from error
    if dtype_name(dtype) != name:
        raise ValueError(f"unknown dtype {name!r}")
    return dtype


def array_bytes(array: np.ndarray) -> Buffer:
    """The elements in C order; no copy where they lie so already."""
    array = np.asarray(array, order="C")
    return array.reshape(-1).view(np.uint8).data if array.nbytes else b""


def array_from_bytes(data: bytes, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """A writable array that owns its memory."""
    kind = dtype_from_name(dtype)
    if kind.itemsize * math.prod(shape) != len(data):
        raise ValueError(f"{dtype}{list(shape)} does not take {len(data)} bytes")
    array = np.empty(shape, kind)
    if data:
        array.reshape(-1).view(np.uint8)[:] = np.frombuffer(data, np.uint8)
    return array


def encode(value: Any, where: str, blob: Callable[[str, Any], int] | None = None, depth: int = 0) -> Any:
    """A plain object as JSON that restores it exactly; TypeError that names the place of anything else.

    Text, booleans, None, finite floats, integers of 64 bits and lists stand for themselves; the rest
    is tagged.
    `blob(where, leaf)` takes arrays and bytes and returns their number; without it arrays are refused.
    """
    if depth > _MAX_DEPTH:
        raise ValueError(f"{where[:60]}... is nested over {_MAX_DEPTH} levels deep. Does it contain itself?")

    def inner(item: Any, key: Any) -> Any:
        return encode(item, f"{where}[{key!r}]", blob, depth + 1)

    kind = type(value)  # exact types: a subclass would come back as its base
    if value is None or kind in (bool, str):
        return value
    if kind is int:  # as hexadecimal text beyond 64 bits, since Python limits decimal text to 4,300 digits
        return value if abs(value) < 1 << 63 else {"int": hex(value)}
    if kind is float:  # JSON has no NaN
        return value if math.isfinite(value) else {"float": struct.pack("<d", value).hex()}
    if kind is list:
        return [inner(item, i) for i, item in enumerate(value)]
    if kind is tuple:
        return {"tuple": [inner(item, i) for i, item in enumerate(value)]}
    if kind is dict:
        return {"dict": [[_encode_key(key, where), inner(item, key)] for key, item in value.items()]}
    if kind is bytes and blob is None:
        return {"bytes": base64.b64encode(value).decode("ascii")}
    if is_key(value):
        raise TypeError(
            f"{where} is a typed PRNG key. Use `save_state`, or store `jax.random.key_data(key)`."
        )
    if blob is not None and (kind in (bytes, np.ndarray, np.memmap) or isinstance(value, jax.Array)):
        return {"blob": blob(where, value)}
    if isinstance(value, np.generic) and dtype_name(value.dtype) is not None:
        return {"numpy": [dtype_name(value.dtype), bytes(array_bytes(np.asarray(value))).hex()]}
    allowed = "dict, list, tuple, str, int, float, bool, None, bytes, " + (
        "arrays" if blob else "NumPy scalars"
    )
    raise TypeError(f"{where} is {a_what(value)}; must be one of {allowed}. Convert it first.")


def decode(value: Any, blobs: list[Any]) -> Any:
    """The inverse of `encode`; ValueError where the JSON was not made by it."""
    match value:
        case None | bool() | str() | int() | float():
            return value
        case list():
            return [decode(item, blobs) for item in value]
        case {"tuple": list(items)}:
            return tuple(decode(item, blobs) for item in items)
        case {"dict": list(items)}:
            return {decode(key, blobs): decode(item, blobs) for key, item in items}
        case {"numpy": [str(dtype), str(data)]}:
            return array_from_bytes(bytes.fromhex(data), dtype, ())[()]
        case {"float": str(data)}:
            return struct.unpack("<d", bytes.fromhex(data))[0]
        case {"int": str(digits)}:
            return int(digits, 16)
        case {"bytes": str(data)}:
            return base64.b64decode(data)
        case {"blob": int(index)} if 0 <= index < len(blobs):
            return blobs[index]
    raise ValueError(f"unknown encoding {str(value)[:80]}")


def a_what(value: Any) -> str:
    """Kind of a value for messages: `a function`, `of type collections.deque`."""
    if isinstance(value, types.FunctionType | types.BuiltinFunctionType | types.MethodType):
        return "a function"
    return f"of type {type(value).__module__}.{type(value).__qualname__}"


def _encode_key(key: Any, where: str) -> Any:
    if type(key) in (str, int):
        return encode(key, where)
    raise TypeError(f"{where} has the key {key!r}, {a_what(key)}; keys must be str or int. Convert it first.")
