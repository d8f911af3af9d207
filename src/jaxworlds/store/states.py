"""States in files: leaves by their path, verified by checksums.

Nothing here uses pickle. Files appear whole or not at all, and reading verifies a checksum over every byte
(of memory-mapped data when asked). A file that is damaged, foreign or of another state raises `StoreError`.
"""

import os
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from . import _leaves
from ._container import MisfitError, PathLike, StoreError, open_container, write_container
from ._leaves import Header, LeafInfo, show


def content_hash(tree: Any) -> str:
    """Hexadecimal BLAKE2b over the paths, types, shapes and bytes of all leaves.

    The order of fields does not matter, and a JAX and a NumPy array of equal content hash alike.
    """
    leaves, _ = _flatten(tree)
    hashes = [_leaves.leaf_hash(path, leaves[path]) for path in sorted(leaves)]
    return blake2b("\n".join(hashes).encode("ascii"), digest_size=32).hexdigest()


def save_state(
    path: PathLike,
    tree: Any,
    *,
    exclude: Any = None,
    meta: dict[str, Any] | None = None,
    codec: str | None = None,
) -> None:
    """Write the leaves of `tree` to `path`, each under its path in the tree, atomically.

    Leaves are arrays of any dtype (bfloat16, float8 and int4 too), typed PRNG keys and plain Python values.
    Structure and static fields are not written: `load_state` takes them from its `like`.

    `exclude` says what to leave out, such as a large table that many states share: path prefixes
    (`[".task_data"]`), a function of the path, or a prefix of the tree with booleans. Of them the file keeps
    a content hash, which loading verifies. `meta` is a dict of plain values for `read_header`.
    `codec` is `"zstd"`, `"zlib"`, `"raw"`, or None for the best one present.

        save_state("run/state.jxw", state, exclude=[".task_data"], meta={"step": 1000})
        state = load_state("run/state.jxw", like=state)
    """
    if not isinstance(path, str | os.PathLike):
        raise TypeError(
            f"`path` must be the name of a file; got {type(path).__name__}. The order is save_state(path, tree)."
        )
    leaves, _ = _flatten(tree)
    left_out = _left_out(exclude, list(leaves))
    rows = [_row(leaf_path, leaf, leaf_path in left_out) for leaf_path, leaf in leaves.items()]
    header = _leaves.header_json("state", rows, meta=_leaves.encode(dict(meta or {}), "meta"))
    blobs = (_leaves.leaf_bytes(row.path, leaves[row.path]) for row in rows if row.has_blob)
    write_container(path, header, blobs, codec)


def load_state(
    path: PathLike, like: Any, *, excluded: Any = None, added: Mapping[str, Any] | None = None
) -> Any:
    """Read a state that `save_state` wrote, into the structure of `like`.

    `like` is a tree of the same paths, types and shapes; its arrays may be `jax.ShapeDtypeStruct`. A leaf
    comes back as NumPy where `like` has NumPy and as a JAX array otherwise, on the sharding of `like` where
    that is committed or given. JAX arrays come back strongly typed, even where `like` is weak. Any difference
    between `like` and the file is a `StoreError` that lists the paths.

    Leaves that were left out at saving are taken from `excluded` (a mapping from path prefix to subtree, like
    `{".task_data": bank}`, or a whole tree) and else from `like`; they must hash to the value in the file.

    A file of an earlier version of a class still loads: a field that is None on one side and missing on the other fits,
    `added` gives values by path for fields that are new, and a class names renamed fields in `SAVED_NAMES`, a mapping
    from each name of now to the name in files.
    """
    targets, treedef = _flatten(like)
    given = _leaves_of(excluded)
    added = {where: value for where, value in (added or {}).items() if targets.get(where) is not None}
    loaded: dict[str, Any] = dict.fromkeys(targets) | added
    with open_container(path) as reader:
        header = _leaves.parse_header(reader)
        _leaves.demand_kind(header, "state", "`CompressedStorage.load`")
        _demand_fit(header, targets, added)
        for row in header.leaves:
            if row.left_out:
                loaded[row.path] = _verify(path, row, given.get(row.path, targets.get(row.path)))
            else:
                data = reader.next_blob(row.nbytes) if row.has_blob else b""
                loaded[row.path] = _restore(path, row, data, targets.get(row.path))
        reader.finish()
    return jax.tree.unflatten(treedef, [loaded[leaf_path] for leaf_path in targets])


def read_header(path: PathLike) -> Header:
    """The verified header of a saved file, without its arrays; `print` shows it leaf by leaf."""
    with open_container(path) as reader:
        return _leaves.parse_header(reader)


def _flatten(tree: Any) -> tuple[dict[str, Any], Any]:
    """Leaves by path, and the structure. None counts as a leaf, so that it never fits where a value stood."""
    pairs, treedef = jax.tree_util.tree_flatten_with_path(tree, is_leaf=lambda node: node is None)
    leaves: dict[str, Any] = {}
    for path, leaf in pairs:
        name = _saved_path(tree, path)
        if name in leaves:
            raise ValueError(
                f"two leaves of the tree share the path {name}. Give its keys different `repr`s."
            )
        leaves[name] = leaf
    return leaves, treedef


def _saved_path(tree: Any, path: tuple[Any, ...]) -> str:
    """The path of a leaf in files: as in the tree, with the names of fields that their classes keep in files."""
    parts, node = [], tree
    for key in path:
        match key:
            case jax.tree_util.GetAttrKey(name=name):
                key = jax.tree_util.GetAttrKey(getattr(type(node), "SAVED_NAMES", {}).get(name, name))
                node = getattr(node, name, None)
            case jax.tree_util.SequenceKey(idx=place) | jax.tree_util.DictKey(key=place):
                node = None if node is None else node[place]
            case _:
                node = None
        parts.append(key)
    return jax.tree_util.keystr(tuple(parts))


def _row(path: str, leaf: Any, left_out: bool) -> LeafInfo:
    info = _leaves.describe(path, leaf)
    if not left_out:
        return info
    return LeafInfo(path, info.kind, info.dtype, info.shape, left_out=_leaves.leaf_hash(path, leaf))


def _under(prefix: str, path: str) -> bool:
    """Whether `path` is `prefix` or below it: `.a` holds `.a[0]` but not `.ab`."""
    return path.startswith(prefix) and path[len(prefix) : len(prefix) + 1] in ("", ".", "[")


def _left_out(exclude: Any, paths: list[str]) -> set[str]:
    """The paths that `exclude` selects, in any of its forms."""
    if exclude is None:
        return set()
    if isinstance(exclude, str):
        exclude = [exclude]
    if isinstance(exclude, list | tuple | set | frozenset) and all(isinstance(item, str) for item in exclude):
        prefixes = list(exclude)
    else:
        flags, _ = _flatten(exclude)
        if not all(isinstance(flag, bool | np.bool_) for flag in flags.values()):
            if callable(exclude):
                return {path for path in paths if exclude(path)}
            raise TypeError(
                f"`exclude` must be path prefixes, a function or a tree of booleans; got {exclude!r}."
            )
        prefixes = [prefix for prefix, flag in flags.items() if flag]
    for prefix in prefixes:  # a name that matches nothing would silently save everything
        if not any(_under(prefix, path) for path in paths):
            shown = ", ".join(paths[:12]) + (", ..." if len(paths) > 12 else "")
            raise ValueError(f"`exclude` must name leaves of the tree; {prefix!r} names none of {shown}.")
    return {path for path in paths if any(_under(prefix, path) for prefix in prefixes)}


def _leaves_of(excluded: Any) -> dict[str, Any]:
    """Leaves by path from `excluded`: prefixes with subtrees, or a whole tree."""
    if excluded is None:
        return {}
    if isinstance(excluded, Mapping) and all(
        isinstance(key, str) and key[:1] in (".", "[") for key in excluded
    ):
        trees = {prefix: _flatten(tree)[0] for prefix, tree in excluded.items()}
        return {prefix + path: leaf for prefix, leaves in trees.items() for path, leaf in leaves.items()}
    return _flatten(excluded)[0]


def _demand_fit(header: Header, targets: dict[str, Any], added: Mapping[str, Any]) -> None:
    """Refuse a file whose leaves are not those of `like`. None needs no place in a file, and `added` has none."""
    rows = {row.path: row for row in header.leaves}
    faults = []
    for path, target in targets.items():
        demand, row = _leaves.describe(path, target), rows.get(path)
        if row is None and not (target is None or path in added):
            faults.append(f"{show(path)}: `like` demands {demand.spelling}; the file has no such leaf")
        elif row is not None and (row.kind, row.dtype, row.shape) != (
            demand.kind,
            demand.dtype,
            demand.shape,
        ):
            faults.append(f"{show(path)}: `like` demands {demand.spelling}; the file holds {row.spelling}")
    extra = [row for row in header.leaves if row.path not in targets and row.spelling != "Python NoneType"]
    faults += [f"{show(row.path)}: the file holds {row.spelling}; `like` has no such leaf" for row in extra]
    if faults or len(rows) < len(header.leaves):
        lines = [f"{header.path}: the file does not fit `like`:", *(fault[:300] for fault in faults[:8])]
        lines += [f"... and {len(faults) - 8} more"] if len(faults) > 8 else []
        raise MisfitError(
            "\n  ".join(lines) + "\nBuild `like` with the code and configuration that saved the file. "
            "`print(read_header(path))` lists its leaves."
        )


def _verify(path: PathLike, row: LeafInfo, leaf: Any) -> Any:
    """Return the leaf given for one that was left out at saving; raise if its content differs."""
    if isinstance(leaf, jax.ShapeDtypeStruct):
        raise StoreError(
            f"{path}: {show(row.path)} was left out at saving, and `like` holds only its shape. "
            f"Pass the data itself: `load_state(path, like, excluded={{{row.path!r}: data}})`."
        )
    found = _leaves.leaf_hash(row.path, leaf)
    if found != row.left_out:
        raise StoreError(
            f"{path}: the file was saved with other data at {show(row.path)}, which was left out: it demands "
            f"{row.spelling} with hash {row.left_out[:12]}; got {_leaves.describe(row.path, leaf).spelling} with "
            f"hash {found[:12]}. Pass the data of that run in `excluded` or `like`."
        )
    return leaf


def _restore(path: PathLike, row: LeafInfo, data: bytes, target: Any) -> Any:
    """One leaf from its row and bytes, of the family (JAX, NumPy, Python) and placement of `target`."""
    try:
        if row.kind == "python":
            plain = data if row.dtype == "bytes" else _leaves.decode(row.value, [])
            if type(plain).__name__ != row.dtype:
                raise ValueError(f"it is a {type(plain).__name__}, not a {row.dtype}")
            return plain
        if row.kind == "key":
            value = _leaves.array_from_bytes(data, "uint32", row.data_shape)
            value = jax.random.wrap_key_data(jnp.asarray(value), impl=row.impl)
        else:
            value = _leaves.array_from_bytes(data, row.dtype, row.shape)
    except _leaves.MALFORMED as error:
        raise StoreError(
            f"{path}: {show(row.path)} cannot be restored ({str(error)[:200]}). Save it again."
        ) from error
    if isinstance(target, np.generic):
        return value[()]
    if isinstance(target, np.ndarray):
        return value
    # On the devices of `target`; uncommitted if the target is uncommitted.
    bound = target.committed if isinstance(target, jax.Array) else target.sharding is not None
    placed = jax.device_put(value, target.sharding) if bound else jax.device_put(value)
    if placed.dtype != target.dtype or placed.shape != target.shape:
        raise StoreError(
            f"{path}: {show(row.path)} must become {target.dtype}{list(target.shape)}; JAX makes it "
            f"{placed.dtype}{list(placed.shape)}. For 64 bits set `jax_enable_x64`, or use NumPy in `like`."
        )
    return placed
