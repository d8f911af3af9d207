"""A folder of compressed objects, one checksummed file per key."""

import itertools
import json
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..arguments import short
from . import _leaves
from ._container import PathLike, StoreError, choose_codec, open_container, write_container

_SUFFIX = ".jxw"
_PORTS = {f"{port}{digit}" for port in ("com", "lpt") for digit in "0123456789¹²³"}
_DEVICES = {"con", "prn", "aux", "nul"} | _PORTS


class CompressedStorage:
    """A folder of compressed objects, one file per key.

    Objects are nested dicts (keys str or int), lists, tuples, str, int, float, bool, None, bytes, NumPy
    scalars and arrays. They come back exactly, but JAX arrays come back as NumPy arrays. Anything else is a
    TypeError that names its place in the object.

    A key is the name of its file, and is refused, not rewritten, where some system would not take it: it has
    1 to 200 bytes of UTF-8 (normal form C), no control characters and none of `/ \\ : * ? " < > |`, does not
    start or end with a dot or a space, and is no device name of Windows (`con`, `nul`, `com1`, ...).

        storage = CompressedStorage("visualization_cache")
        storage.save({"episode_grids": grids, "metadata": {"episode_id": "test_001"}}, "episode_001")
        grids = storage.load("episode_001")["episode_grids"]
    """

    def __init__(self, folder: PathLike, codec: str | None = None):
        """`codec` is `"zstd"`, `"zlib"`, `"raw"`, or None for the best one present; reading takes any."""
        self.folder = Path(folder)
        self.codec = choose_codec(codec)

    def save(self, obj: Any, key: str) -> None:
        """Store `obj` under `key`, replacing an earlier one; the folder is made if missing."""
        file = self._file(key)
        found: list[tuple[_leaves.LeafInfo, Any]] = []

        def blob(where: str, leaf: Any) -> int:
            found.append((_leaves.describe(where, leaf), leaf))
            return len(found) - 1

        structure = json.dumps(_leaves.encode(obj, "obj", blob), allow_nan=False).encode("ascii")
        header = _leaves.header_json(
            "object", [row for row, _ in found], key=key, structure_bytes=len(structure)
        )
        blobs = (_leaves.leaf_bytes(row.path, leaf) for row, leaf in found)
        write_container(file, header, itertools.chain([structure], blobs), self.codec)

    def load(self, key: str) -> Any:
        """The object stored under `key`; KeyError if it is missing, `StoreError` if it is damaged."""
        file = self._existing(key)
        with open_container(file) as reader:
            header = _leaves.parse_header(reader)
            _leaves.demand_kind(header, "object", "`load_state`")
            saved_key = reader.header.get("key")
            if saved_key != key:
                raise StoreError(
                    f"{file}: must hold the key {key!r}; found {repr(saved_key)[:80]}. Rename the file back."
                )
            try:
                length = reader.header["structure_bytes"]
                if type(length) is not int or not 0 <= length < 1 << 62:
                    raise ValueError(f"the length of its structure is {str(length)[:40]}")
                structure = json.loads(reader.next_blob(length))
                leaves = [_leaf(row, reader.next_blob(row.nbytes)) for row in header.leaves]
                reader.finish()
                return _leaves.decode(structure, leaves)
            except StoreError:
                raise
            except _leaves.MALFORMED as error:
                raise StoreError(
                    f"{file}: the object is malformed ({repr(error)[:200]}). Save it again."
                ) from error

    def keys(self) -> list[str]:
        """All keys, sorted."""
        files = self.folder.glob(f"*{_SUFFIX}") if self.folder.is_dir() else ()
        names = (file.name.removesuffix(_SUFFIX) for file in files)
        return sorted(name for name in names if not _fault(name))

    def delete(self, key: str) -> None:
        """Remove `key`; KeyError if it is missing."""
        self._existing(key).unlink()

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and not _fault(key) and self._file(key).is_file()

    def __len__(self) -> int:
        return len(self.keys())

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __bool__(self) -> bool:
        return True  # an empty storage is still a storage: `storage or default` must not drop it

    def __repr__(self) -> str:
        return f"CompressedStorage({str(self.folder)!r}, codec={self.codec!r})"

    def _file(self, key: str) -> Path:
        if not isinstance(key, str):
            raise TypeError(
                f"`key` must be a string; got {short(key)}. The order is save(obj, key) and load(key)."
            )
        fault = _fault(key)
        if fault:
            raise ValueError(f"`key` must be a plain file name; {key!r} {fault}. Use one like 'episode_001'.")
        return self.folder / f"{key}{_SUFFIX}"

    def _existing(self, key: str) -> Path:
        file = self._file(key)
        if not file.is_file():
            known = self.keys()
            listed = ", ".join(known[:8]) + (", ..." if len(known) > 8 else "")
            raise KeyError(f"no object {key!r} in {self.folder}, which holds {len(known)}: {listed}")
        return file


def _leaf(row: _leaves.LeafInfo, data: bytes) -> Any:
    return data if row.dtype == "bytes" else _leaves.array_from_bytes(data, row.dtype, row.shape)


def _fault(key: str) -> str:
    """Why `key` cannot be a file name everywhere; empty where it can."""
    if not key:
        return "is empty"
    if any(unicodedata.category(char) in ("Cc", "Cs") for char in key):
        return "holds a control character or half a surrogate pair"
    if bad := set(key) & set('/\\:*?"<>|'):
        return f"holds {' '.join(sorted(bad))}"
    if key[0] in ". " or key[-1] in ". ":
        return "starts or ends with a dot or a space"
    if key.split(".")[0].rstrip(" ").lower() in _DEVICES:
        return "is a device name on Windows"
    if unicodedata.normalize("NFC", key) != key:
        return "is not in Unicode normal form C (`unicodedata.normalize('NFC', key)` is)"
    length = len(key.encode())
    return f"is {length} bytes long, over 200" if length > 200 else ""
