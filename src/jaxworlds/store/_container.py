"""The file format of the store: atomic writes, and a container whose every byte is under a checksum.

    prefix   magic, version, header length, total length, digests of the header, of all blobs, of the prefix
    header   JSON (UTF-8)
    blobs    each: codec, stored length, digest, bytes; the digest also covers header and position

Each digest is verified before the bytes under it are interpreted, and each length is bounded by the size of
the file before anything is allocated. So a flipped bit, a cut, or a block from another file is refused.
"""

import contextlib
import errno
import hashlib
import json
import os
import secrets
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from ..special_files import demand_file

PathLike = str | os.PathLike[str]
Buffer = bytes | memoryview

FORMAT_VERSION = 1
# As in PNG: a byte over 127, both line ends and Ctrl-Z, so that a transfer in text mode is seen at once.
MAGIC = b"\x89JXW\r\n\x1a\n"
_PREFIX = struct.Struct("<8sIQQ16s16s16s")
_FRAME = struct.Struct("<BQ16s")
# Most bytes in a block of zstd, and fewest that it takes: what a file declares beyond that it cannot hold.
_BLOCK, _BLOCK_HEAD = 1 << 17, 3
_CODECS = ("raw", "zlib", "zstd")  # the position is the number in the file: only ever append
_FOREIGN = {
    b"\x93NUMPY": "a .npy array; read it with `open_array`",
    b"PK\x03\x04": "a zip or .npz archive",
    b"\x89PNG": "a PNG picture",
    b"\x89HDF": "an HDF5 file",
    b"\x28\xb5\x2f\xfd": "a bare zstd stream",
    b"\x1f\x8b": "a gzip file",
    b"\x80\x04": "a pickle, which jaxworlds never reads",
    b"\x80\x05": "a pickle, which jaxworlds never reads",
}
DISK_ERRORS = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EIO, errno.EROFS)
DAMAGED = "The file is damaged: restore it from a copy, or save it again."


class StoreError(ValueError):
    """A file is damaged, foreign or does not fit; the message names file, demand, finding and remedy."""


class MisfitError(StoreError):
    """The file is whole, but it was made for another structure than the one it is loaded into."""


@contextlib.contextmanager
def atomic_write(path: PathLike, mode: str = "wb") -> Iterator[IO[Any]]:
    """Open `path` for writing so that readers see the old file or the whole new one, never a part.

    Bytes go to a temporary file in the same folder (made if missing), which is synced to disk and renamed at
    the end. On any exception the temporary is removed and the old file stays; only a killed process may leave
    its hidden `.*.tmp` file behind. `mode` is `"wb"` or `"w"` (UTF-8 text).

        with atomic_write("runs/result.json", "w") as file:
            json.dump(result, file)
    """
    if mode not in ("wb", "w"):
        raise ValueError(
            f"`mode` must be 'wb' or 'w'; got {mode!r}. An atomic write replaces the whole file."
        )
    target = Path(path)
    if target.is_dir():
        demand_file(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    # 40 characters are at most 160 bytes of UTF-8; with the suffix still under the usual limit of 255.
    temporary = target.with_name(f".{target.name[:40]}.{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, mode.replace("w", "x"), encoding=None if "b" in mode else "utf-8") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException as error:  # a KeyboardInterrupt must not leave the temporary behind either
        temporary.unlink(missing_ok=True)
        # A full disk does not say which file it was, and nobody knows the temporary.
        nameless = isinstance(error, OSError) and error.filename is None and error.errno in DISK_ERRORS
        if isinstance(error, OSError) and (nameless or error.filename == str(temporary)):
            error.filename = str(target)
        raise
    sync_folder(target.parent)


def sync_folder(folder: Path) -> None:
    """Make a rename in `folder` durable; Windows has no such call."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def digest16(*parts: Buffer, key: bytes = b"") -> bytes:
    """BLAKE2b of 16 bytes over the joined parts."""
    state = hashlib.blake2b(digest_size=16, key=key)
    for part in parts:
        state.update(part)
    return state.digest()


def choose_codec(codec: str | None) -> str:
    """The codec to write with: as asked, or the best one that is installed."""
    if codec is None:
        return "zlib" if _zstandard() is None else "zstd"
    if codec not in _CODECS:
        raise ValueError(f"`codec` must be one of {', '.join(_CODECS)} or None; got {codec!r}.")
    if codec == "zstd" and _zstandard() is None:
        raise ImportError(
            "codec 'zstd' needs the package zstandard: install `jaxworlds[fast]`, or pass `codec='zlib'`."
        )
    return codec


def write_container(
    path: PathLike, header: dict[str, Any], blobs: Iterable[Buffer], codec: str | None = None
) -> None:
    """Write `header` and the blobs to `path` atomically; blobs are taken one at a time."""
    codec = choose_codec(codec)
    text = json.dumps({**header, "codec": codec}, allow_nan=False).encode("ascii")
    header_digest = digest16(text)
    compress = _compressor(codec)
    with atomic_write(path) as file:
        file.write(bytes(_PREFIX.size))  # the total length is known at the end
        file.write(text)
        digests = []
        for index, blob in enumerate(blobs):
            used, stored = _pack(blob, codec, compress)
            digests.append(_frame_digest(header_digest, index, used, stored))
            file.write(_FRAME.pack(used, len(stored), digests[-1]))
            file.write(stored)
        total = file.tell()
        file.seek(0)
        fields = (MAGIC, FORMAT_VERSION, len(text), total, header_digest, digest16(*digests))
        file.write(_PREFIX.pack(*fields, digest16(_PREFIX.pack(*fields, bytes(16)))))


class ContainerReader:
    """A verified header, then the blobs in order; made by `open_container`."""

    def __init__(self, path: PathLike, file: IO[bytes]):
        self.path, self._file = path, file
        self._digests: list[bytes] = []
        self.header, self._header_digest, self._blobs_digest, self._total = _read_header(path, file)

    def next_blob(self, length: int) -> bytes:
        """The next blob, which must be `length` bytes once unpacked."""
        index = len(self._digests)
        where = f"{self.path}: blob {index}"
        if self._total - self._file.tell() < _FRAME.size:
            raise StoreError(f"{where} is missing. {DAMAGED}")
        codec, stored_length, digest = _FRAME.unpack(self._file.read(_FRAME.size))
        if stored_length > self._total - self._file.tell():
            raise StoreError(f"{where} claims {stored_length} bytes, more than the file holds. {DAMAGED}")
        stored = self._file.read(stored_length)
        if digest != _frame_digest(self._header_digest, index, codec, stored):
            raise StoreError(f"{where} does not match its checksum. {DAMAGED}")
        self._digests.append(digest)
        return _unpack(where, codec, stored, length)

    def finish(self) -> None:
        """Demand that every byte was read and that all blobs were written together.

        Without this, blobs of two versions of one file, whose headers are equal, could be mixed.
        """
        if self._file.tell() != self._total or digest16(*self._digests) != self._blobs_digest:
            raise StoreError(f"{self.path}: the blobs are not the ones the file was saved with. {DAMAGED}")


@contextlib.contextmanager
def open_container(path: PathLike) -> Iterator[ContainerReader]:
    """Open `path` and verify its prefix, length and header."""
    demand_file(path)
    with open(path, "rb") as file:
        yield ContainerReader(path, file)


def _read_header(path: PathLike, file: IO[bytes]) -> tuple[dict[str, Any], bytes, bytes, int]:
    size = os.fstat(file.fileno()).st_size
    prefix = file.read(_PREFIX.size)
    if not prefix:
        raise StoreError(f"{path}: the file is empty. {DAMAGED}")
    if prefix[: len(MAGIC)] != MAGIC:
        kind = next((name for start, name in _FOREIGN.items() if prefix.startswith(start)), None)
        found = f"this is {kind}" if kind else f"the file starts with {prefix[:8]!r}"
        raise StoreError(f"{path}: must be a file that jaxworlds saved; {found}. Check the path.")
    if len(prefix) < _PREFIX.size:
        raise StoreError(f"{path}: the file is cut off after {size} bytes, inside its prefix. {DAMAGED}")
    _, version, header_length, total, header_digest, blobs_digest, digest = _PREFIX.unpack(prefix)
    if version != FORMAT_VERSION:
        older = "Load it with the older jaxworlds and save it again"
        remedy = "Update jaxworlds" if version > FORMAT_VERSION else older
        raise StoreError(f"{path}: must have format version {FORMAT_VERSION}; found {version}. {remedy}.")
    if digest != digest16(prefix[:-16], bytes(16)):
        raise StoreError(f"{path}: the prefix does not match its checksum. {DAMAGED}")
    if size != total:
        raise StoreError(f"{path}: must be {total} bytes long; found {size}. {DAMAGED}")
    if header_length > (rest := size - _PREFIX.size):
        raise StoreError(
            f"{path}: the header claims {header_length} bytes; {rest} follow the prefix. {DAMAGED}"
        )
    text = file.read(header_length)
    if digest16(text) != header_digest:
        raise StoreError(f"{path}: the header does not match its checksum. {DAMAGED}")
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path}: the header is not valid JSON ({error}). {DAMAGED}") from error
    if not isinstance(header, dict):
        raise StoreError(
            f"{path}: the header must be a JSON object; found {type(header).__name__}. {DAMAGED}"
        )
    return header, header_digest, blobs_digest, total


def _frame_digest(header_digest: bytes, index: int, codec: int, stored: Buffer) -> bytes:
    """Bound to header and position: a blob of another file or another place never passes."""
    return digest16(struct.pack("<QBQ", index, codec, len(stored)), stored, key=header_digest)


def _zstandard() -> Any:
    try:
        import zstandard
    except ImportError:
        return None
    return zstandard


def _compressor(codec: str) -> Callable[[Buffer], bytes]:
    if codec == "zstd":
        return _zstandard().ZstdCompressor(level=3).compress
    # Measured on 15 MB of random grids in a 30x30 frame, 2-core machine: level 3 packs 156 MB/s to 7.5 %,
    # level 6 47 MB/s to 6.3 %; zstd 532 MB/s to 7.1 %.
    return lambda data: zlib.compress(data, 3)


def _pack(data: Buffer, codec: str, compress: Callable[[Buffer], bytes]) -> tuple[int, Buffer]:
    """Number of the codec and the bytes to store: raw where compression gains nothing."""
    raw = _CODECS.index("raw")
    if codec == "raw" or len(data) < 64:
        return raw, data
    # Four samples first: normal float32 noise shrinks by 7 % only, at 30 MB/s with zlib (same machine).
    if len(data) > 1 << 20:
        step = len(data) // 4
        sample = b"".join(bytes(data[start : start + 16384]) for start in range(0, 4 * step, step))
        if len(compress(sample)) > 0.9 * len(sample):
            return raw, data
    packed = compress(data)
    return (_CODECS.index(codec), packed) if len(packed) < len(data) else (raw, data)


def _unpack(where: str, codec: int, stored: bytes, length: int) -> bytes:
    """The bytes of a blob; never more than `length` of them are made."""
    if codec >= len(_CODECS):
        raise StoreError(f"{where} uses the unknown codec {codec}. Update jaxworlds.")
    unpack = {"zlib": _unpack_zlib, "zstd": _unpack_zstd}.get(_CODECS[codec])
    try:
        data = stored if unpack is None else unpack(where, stored, length)
    except zlib.error as error:
        raise StoreError(f"{where} cannot be decompressed ({error}). {DAMAGED}") from error
    if data is None or len(data) != length:
        raise StoreError(f"{where} must unpack to {length} bytes and does not. {DAMAGED}")
    return data


def _unpack_zlib(where: str, stored: bytes, length: int) -> bytes | None:
    stream = zlib.decompressobj()
    data = stream.decompress(stored, length + 1)
    return data if stream.eof and not stream.unused_data else None


def _unpack_zstd(where: str, stored: bytes, length: int) -> bytes | None:
    zstandard = _zstandard()
    if zstandard is None:
        raise StoreError(
            f"{where} is compressed with zstd, which is not installed here: install `jaxworlds[fast]`."
        )
    try:
        most = _BLOCK * (len(stored) // _BLOCK_HEAD + 1)
        if zstandard.frame_content_size(stored) != length or length > most:
            return None
        return zstandard.ZstdDecompressor().decompress(stored)
    except zstandard.ZstdError as error:
        raise StoreError(f"{where} cannot be decompressed ({error}). {DAMAGED}") from error
