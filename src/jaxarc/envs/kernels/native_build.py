"""Compiling `native.cc` with the system's compiler, once for each machine, and giving its functions to XLA."""

import contextlib
import ctypes
import functools
import hashlib
import logging
import os
import secrets
import shlex
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path

import jax

from jaxworlds.runtime import program_key

from .switch import switched_on

FUNCTIONS = ("jaxarc_work", "jaxarc_compare", "jaxarc_restart")
_SOURCE = Path(__file__).with_name("native.cc")
_FLAGS = ("-std=c++17", "-O3", "-fPIC", "-shared")
_DIGEST = 16
_log = logging.getLogger("jaxarc")
_lock = threading.Lock()


def wanted() -> bool:
    """Whether kernels may be used: not switched off by `JAXARC_KERNELS=off`, and the CPU is the one device."""
    # XLA cannot split a kernel's batch among devices: with several, its own code is the faster way.
    return switched_on() and jax.default_backend() == "cpu" and jax.device_count() == 1


def names() -> dict[str, str] | None:
    """The names under which XLA knows the kernels, or None where they cannot be compiled; tried once per process."""
    with _lock:
        return _registered()


@functools.lru_cache(maxsize=1)
def _registered() -> dict[str, str] | None:
    try:
        source = _SOURCE.read_bytes() + " ".join(_FLAGS).encode()
        key = hashlib.blake2b(source + program_key().encode(), digest_size=8).hexdigest()
        library = _library(key)
        known = {name: f"{name}_{key}" for name in FUNCTIONS}
        for name, target in known.items():
            jax.ffi.register_ffi_target(target, jax.ffi.pycapsule(getattr(library, name)), platform="cpu")
    except NoCompilerError as error:
        _log.info("no kernels for the CPU, XLA's code is used instead: %s", error)
        return None
    # Whatever is wrong with somebody's compiler or folders: a step must still run.
    except (OSError, subprocess.SubprocessError, AttributeError, RuntimeError, ValueError) as error:
        _log.warning("no kernels for the CPU, XLA's slower code is used instead: %s", error)
        return None
    return known


class NoCompilerError(OSError):
    """There is nothing to compile with."""


def _library(key: str) -> ctypes.CDLL:
    """The library, from the cache or compiled; what lies in the cache and cannot be used is made again."""
    folder = _folder()
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="jaxarc-") as own:
            return ctypes.CDLL(str(_compiled(Path(own), key)))
    path = folder / f"jaxarc-{key}.so"
    if not (path.is_file() and _is_whole(path)):
        path = _compiled(folder, key)
    return ctypes.CDLL(str(path))


def _is_whole(path: Path) -> bool:
    """Whether a library is as it was written: to load a part of one may kill the process."""
    content = path.read_bytes()
    return _digest(content[:-_DIGEST]) == content[-_DIGEST:]


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_DIGEST).digest()


def _compiled(folder: Path, key: str) -> Path:
    """The library, newly compiled. Several processes may do so at once: the last one's file stays."""
    library = folder / f"jaxarc-{key}.so"
    temporary = folder / f".{library.name}.{secrets.token_hex(8)}.tmp"
    command = [*_compiler(), *_FLAGS, f"-I{jax.ffi.include_dir()}", str(_SOURCE), "-o", str(temporary)]
    try:
        for flags in (["-march=native"], []):  # some compilers do not know this machine
            done = subprocess.run([*command, *flags], capture_output=True, timeout=120, check=False)
            if done.returncode == 0:
                with temporary.open("r+b") as file:
                    content = file.read()
                    file.write(_digest(content))  # at the end, where no loader looks
                    os.fsync(file.fileno())
                os.replace(temporary, library)
                return library
    finally:
        temporary.unlink(missing_ok=True)
    raise OSError(f"{shlex.join(command)} failed: {done.stderr[-2000:].decode(errors='replace')}")


def _compiler() -> list[str]:
    if given := os.environ.get("CXX"):
        return shlex.split(given)
    found = next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
    if found is None:
        raise NoCompilerError("there is no C++ compiler")
    return [found]


def _folder() -> Path | None:
    """Where compiled programs are kept; None if they shall not be, or cannot."""
    given = os.environ.get("JAXWORLDS_CACHE_DIR")
    if given == "off":
        return None
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jaxworlds"
    folder = (Path(given).expanduser().absolute() if given else home) / program_key()
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    return folder if os.access(folder, os.W_OK) else None
