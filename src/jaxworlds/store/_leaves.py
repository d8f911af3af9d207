"""The leaves of a file: the table of their paths, types and shapes, and their values as bytes or tagged JSON."""

import base64
import dataclasses
import hashlib
import json
import math
import struct
import sys
import types
from collections.abc import Callable
from typing import Any

import jax
import ml_dtypes
import numpy as np

from .._trees import is_key
from ._container import FORMAT_VERSION, Buffer, ContainerReader, StoreError

# What reading a header or structure raises when the JSON is whole but was not made by this module.
MALFORMED = (KeyError, IndexError, TypeError, ValueError, RecursionError, AttributeError, OverflowError)
_STANDARD = frozenset(np.dtype(char).name for char in np.typecodes["AllInteger"] + "?efdFD")
# Deeper nesting is almost always an object that contains itself; JSON itself stops near 1,000 levels.
_MAX_DEPTH = 100


@dataclasses.dataclass(frozen=True)
class LeafInfo:
    """One row of a file's table: path, type and shape of a leaf.

    `kind` is `array`, `key` (typed PRNG keys; `impl` names their generator) or `python` (`dtype` is a type).
    `left_out` is the content hash of a leaf that was not written, and empty for the others.
    """

    path: str
    kind: str
    dtype: str
    shape: tuple[int, ...] = ()
    nbytes: int = 0
    impl: str = ""
    data_shape: tuple[int, ...] = ()
    value: Any = None
    left_out: str = ""

    def __str__(self) -> str:
        note = f"  left out, hash {self.left_out[:12]}" if self.left_out else ""
        return f"{show(self.path)}: {self.spelling}{note}"

    @property
    def spelling(self) -> str:
        """Type and shape as people write them: `float32[3,4]`, `key<fry>[2]`, `Python int`."""
        if self.kind == "python":
            return f"Python {self.dtype}"
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"

    @property
    def has_blob(self) -> bool:
        """Whether the file holds bytes for this leaf; other Python values stand in the header."""
        return not self.left_out and (self.kind != "python" or self.dtype == "bytes")

    def to_json(self) -> dict[str, Any]:
        """The row without the fields that hold their default."""
        fields = {field.name: field.default for field in dataclasses.fields(self)}
        return {name: getattr(self, name) for name in fields if getattr(self, name) != fields[name]}

    @classmethod
    def from_json(cls, row: dict[str, Any]) -> "LeafInfo":
        """The inverse of `to_json`; ValueError where a field is of another kind."""
        shapes = {name: tuple(row.get(name, ())) for name in ("shape", "data_shape")}
        made = cls(**{**row, **shapes})
        sizes = (made.nbytes, *made.shape, *made.data_shape)
        if not all(type(n) is int and 0 <= n < 1 << 62 for n in sizes):
            raise ValueError(f"the sizes of {str(made.path)[:60]!r} are {str(sizes)[:80]}")
        texts = (made.path, made.kind, made.dtype, made.impl, made.left_out)
        if not all(isinstance(text, str) for text in texts):
            raise ValueError(f"the row of {str(made.path)[:60]!r} holds something else than text")
        return made


@dataclasses.dataclass(frozen=True)
class Header:
    """The header of a file, from `read_header`; prints one leaf per line."""

    path: str
    version: int
    kind: str
    codec: str
    meta: dict[str, Any]
    leaves: tuple[LeafInfo, ...]

    def __str__(self) -> str:
        title = f"{self.path}: {self.kind}, format {self.version}, {self.codec}, {len(self.leaves)} leaves"
        meta = [f"meta {key}: {value!r}" for key, value in self.meta.items()]
        return "\n  ".join([title, *meta, *map(str, self.leaves)])


def header_json(kind: str, rows: list[LeafInfo], **more: Any) -> dict[str, Any]:
    """The header to write for a file of this kind."""
    return {"kind": kind, "byteorder": sys.byteorder, "leaves": [row.to_json() for row in rows], **more}


def parse_header(reader: ContainerReader) -> Header:
    """The header of an open file as a value."""
    header, path = reader.header, reader.path
    try:
        rows = tuple(LeafInfo.from_json(row) for row in header["leaves"])
        meta = decode(header["meta"], []) if "meta" in header else {}
        if not isinstance(meta, dict):
            raise ValueError(f"its meta is a {type(meta).__name__}")
        parsed = Header(str(path), FORMAT_VERSION, str(header["kind"]), str(header["codec"]), meta, rows)
        byteorder = header["byteorder"]
    except MALFORMED as error:
        raise StoreError(
            f"{path}: the header is malformed ({repr(error)[:200]}). Save the file again."
        ) from error
    if byteorder != sys.byteorder:
        raise StoreError(
            f"{path}: must be {sys.byteorder}-endian; found {repr(byteorder)[:40]}. Convert it elsewhere."
        )
    return parsed


def demand_kind(header: Header, kind: str, reader_of_other: str) -> None:
    """Refuse a file of the other kind, and say how to read it."""
    if header.kind != kind:
        raise StoreError(
            f"{header.path}: must hold a saved {kind}; found a saved {header.kind[:40]}. "
            f"Read it with {reader_of_other}."
        )


def show(path: str) -> str:
    """A path for messages; the empty path is the root."""
    return f"`{path}`" if path else "the root"


def describe(path: str, leaf: Any) -> LeafInfo:
    """The row of a leaf, without moving its bytes; a `jax.ShapeDtypeStruct` stands for its array."""
    abstract = isinstance(leaf, jax.ShapeDtypeStruct)
    if is_key(leaf):
        data = jax.eval_shape(jax.random.key_data, leaf)
        nbytes = math.prod(data.shape) * data.dtype.itemsize
        impl = "" if abstract else str(jax.random.key_impl(leaf))
        return LeafInfo(path, "key", str(leaf.dtype), tuple(leaf.shape), nbytes, impl, tuple(data.shape))
    # Subclasses of np.ndarray, such as masked arrays, hold more than their bytes.
    plain = type(leaf) in (np.ndarray, np.memmap)
    if plain or isinstance(leaf, jax.Array | jax.ShapeDtypeStruct | np.generic):
        name = dtype_name(leaf.dtype)
        if name is None:
            raise TypeError(
                f"{show(path)} has dtype {leaf.dtype}, which has no safe form in bytes. Convert it."
            )
        shape = tuple(map(int, leaf.shape))
        return LeafInfo(path, "array", name, shape, math.prod(shape) * np.dtype(leaf.dtype).itemsize)
    if leaf is None or type(leaf) in (bool, int, float, str):
        return LeafInfo(path, "python", type(leaf).__name__, value=encode(leaf, show(path)))
    if type(leaf) is bytes:
        return LeafInfo(path, "python", "bytes", nbytes=len(leaf))
    raise TypeError(
        f"{show(path)} is {a_what(leaf)}; a state holds arrays, typed keys and plain Python values. "
        "Keep it out of the tree, for example with `eqx.partition(tree, eqx.is_array)`."
    )


def leaf_bytes(path: str, leaf: Any) -> Buffer:
    """The bytes of a leaf, on the host."""
    if isinstance(leaf, bytes):
        return leaf
    if isinstance(leaf, jax.ShapeDtypeStruct):
        raise TypeError(f"{show(path)} is a `jax.ShapeDtypeStruct`, which has no content. Pass an array.")
    if isinstance(leaf, jax.Array):
        if not (leaf.is_fully_addressable or leaf.is_fully_replicated):
            raise ValueError(
                f"{show(path)} lives partly on other processes and cannot be read by this one. "
                "Save per process, or gather it with `jax.experimental.multihost_utils.process_allgather`."
            )
        if is_key(leaf):
            leaf = jax.random.key_data(leaf)
    return array_bytes(np.asarray(leaf))


def leaf_hash(path: str, leaf: Any) -> str:
    """BLAKE2b over path, type, shape and bytes of one leaf."""
    info = describe(path, leaf)
    state = hashlib.blake2b(json.dumps(info.to_json(), sort_keys=True).encode("ascii"), digest_size=32)
    if info.has_blob:
        state.update(b"\0")  # JSON never holds it, so text and bytes cannot be confused
        state.update(leaf_bytes(path, leaf))
    return state.hexdigest()


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
    allowed = (
        f"dict, list, tuple, str, int, float, bool, None, bytes, {'arrays' if blob else 'NumPy scalars'}"
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
