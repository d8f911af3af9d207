"""Kernels that a wheel for Linux on x86-64 brings: one library for each level of the processor, found by its sources."""

import hashlib
import platform
from collections.abc import Iterator
from pathlib import Path

_HEADER = Path(__file__).with_name("native.h")
_DIGEST = 16
_AVX = frozenset("ssse3 sse4_1 sse4_2 cx16 popcnt lahf_lm avx".split())
_V3 = _AVX | frozenset("avx2 bmi1 bmi2 f16c fma abm movbe".split())
LEVELS = {
    "x86-64-v4": _V3 | frozenset("avx512f avx512bw avx512cd avx512dq avx512vl".split()),
    "x86-64-v3": _V3,
    "x86-64-v2+avx": _AVX,
}
"""What libraries are built for, as compilers call it, the fastest first, and what Linux says of such processors. Without AVX
there is no jaxlib."""


def cpu_levels() -> tuple[str, ...]:
    """The levels whose code this processor runs, the fastest first; none on other machines."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        return ()
    flags = _cpu_flags()
    return tuple(level for level, needed in LEVELS.items() if needed <= flags)


def _cpu_flags() -> frozenset[str]:
    """What the processor has and the kernel lets programs use."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return frozenset()
    return frozenset(next((line for line in lines if line.startswith("flags")), "").split())


def source_key(source: Path, macros: tuple[str, ...] = ()) -> str:
    """A digest of a source with our header, and one of its macros: what was built of other sources does not fit."""
    parts = [source.read_bytes() + _HEADER.read_bytes(), " ".join(macros).encode()]
    return "_".join(hashlib.blake2b(part, digest_size=8).hexdigest() for part in parts[: 1 + bool(macros)])


def prebuilt_folder(source: Path) -> Path:
    """Where the libraries of a source lie in an installed wheel; a checkout has no such folder."""
    return source.with_name("prebuilt")


def prebuilt_libraries(source: Path, macros: tuple[str, ...] = ()) -> Iterator[tuple[str, Path]]:
    """Whole libraries of exactly this source that this processor runs, with their levels, the fastest first."""
    folder = prebuilt_folder(source)
    if folder.is_dir():
        paths = {level: folder / f"{source_key(source, macros)}-{level}.so" for level in cpu_levels()}
        yield from ((level, path) for level, path in paths.items() if is_whole(path))


def prebuilt_level(source: Path) -> str | None:
    """The level of the libraries of a source, with any macros, that are used here; None if there are none."""
    folder = prebuilt_folder(source)
    key = source_key(source) if folder.is_dir() else ""
    found = (level for level in cpu_levels() if any(map(is_whole, folder.glob(f"{key}*-{level}.so"))))
    return next(found, None)


def seal(content: bytes) -> bytes:
    """A digest, to stand at the end of a library, where no loader looks."""
    return hashlib.blake2b(content, digest_size=_DIGEST).digest()


def is_whole(path: Path) -> bool:
    """Whether a library is there and as it was built: a part of one may kill the process."""
    content = path.read_bytes() if path.is_file() else b""
    return seal(content[:-_DIGEST]) == content[-_DIGEST:]
