"""Kernels that a wheel for Linux on x86-64 brings: one library for each level of the processor, found by its sources."""

import hashlib
import platform
from collections.abc import Iterator
from pathlib import Path

_HEADER = Path(__file__).with_name("native.h")
_DIGEST = 16
_AVX = frozenset(("ssse3", "sse4_1", "sse4_2", "cx16", "popcnt", "lahf_lm", "avx"))
_V3 = _AVX | frozenset(("avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"))
LEVELS = {
    "x86-64-v4": _V3 | frozenset(("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")),
    "x86-64-v3": _V3,
    "x86-64-v2+avx": _AVX,
}
"""What libraries are built for, the fastest first, and the flags of such processors. Without AVX there is no jaxlib."""


def prebuilt_libraries(source: Path, macros: tuple[str, ...] | None = ()) -> Iterator[tuple[str, Path]]:
    """Whole libraries of exactly this source that this processor runs, with their levels, the fastest first.

    None for `macros` finds those with any. They lie in a folder `prebuilt` beside the source; a checkout has none.
    """
    name = source_key(source, macros or ()) + ("*" if macros is None else "")
    for level in cpu_levels() if source.with_name("prebuilt").is_dir() else ():
        found = source.with_name("prebuilt").glob(f"{name}-{level}.so")
        yield from ((level, path) for path in found if is_whole(path))


def source_key(source: Path, macros: tuple[str, ...] = (), more: str = "") -> str:
    """A digest of a source with our header and `more`, and one of its macros: a library of other sources has another."""
    text = source.read_bytes() + _HEADER.read_bytes() + more.encode()
    parts = [text, " ".join(macros).encode()] if macros else [text]
    return "_".join(hashlib.blake2b(part, digest_size=8).hexdigest() for part in parts)


def cpu_levels() -> tuple[str, ...]:
    """The levels whose code this processor runs, the fastest first; none on other machines."""
    flags = _cpu_flags() if (platform.system(), platform.machine()) == ("Linux", "x86_64") else frozenset()
    return tuple(level for level, needed in LEVELS.items() if needed <= flags)


def _cpu_flags() -> frozenset[str]:
    """What the processor has and Linux lets programs use."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").is_file() else []
    return frozenset(next((line for line in lines if line.startswith("flags")), "").split())


def seal(content: bytes) -> bytes:
    """A digest, to stand at the end of a library, where no loader looks."""
    return hashlib.blake2b(content, digest_size=_DIGEST).digest()


def is_whole(path: Path) -> bool:
    """Whether a library is there and as it was built: a part of one may kill the process."""
    content = path.read_bytes() if path.is_file() else b""
    return seal(content[:-_DIGEST]) == content[-_DIGEST:]
