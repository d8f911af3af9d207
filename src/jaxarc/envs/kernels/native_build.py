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
        source = _SOURCE.read_bytes()
        key = hashlib.blake2b(source + program_key().encode(), digest_size=8).hexdigest()
        library = ctypes.CDLL(str(_compiled(key)))
        known = {name: f"{name}_{key}" for name in FUNCTIONS}
        for name, target in known.items():
            jax.ffi.register_ffi_target(target, jax.ffi.pycapsule(getattr(library, name)), platform="cpu")
    except (OSError, subprocess.SubprocessError, AttributeError) as error:
        _log.info("no kernels for the CPU, XLA's code is used instead: %s", error)
        return None
    return known


def _compiled(key: str) -> Path:
    """The library, compiled if it is not there yet. Several processes may do so at once: the last one's file stays."""
    folder = _folder()
    library = folder / f"jaxarc-{key}.so"
    if library.is_file():
        return library
    temporary = folder / f".{library.name}.{secrets.token_hex(8)}.tmp"
    command = [*_compiler(), *_FLAGS, f"-I{jax.ffi.include_dir()}", str(_SOURCE), "-o", str(temporary)]
    try:
        for flags in (["-march=native"], []):  # some compilers do not know this machine
            done = subprocess.run(
                [*command, *flags], capture_output=True, text=True, timeout=120, check=False
            )
            if done.returncode == 0:
                os.replace(temporary, library)
                return library
    finally:
        temporary.unlink(missing_ok=True)
    raise OSError(f"{shlex.join(command)} failed: {done.stderr[-2000:]}")


def _compiler() -> list[str]:
    if given := os.environ.get("CXX"):
        return shlex.split(given)
    found = next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
    if found is None:
        raise OSError("there is no C++ compiler")
    return [found]


def _folder() -> Path:
    """Where compiled programs are kept, or a folder for this process alone if they shall not be or cannot."""
    given = os.environ.get("JAXWORLDS_CACHE_DIR")
    if given != "off":
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jaxworlds"
        folder = (Path(given).expanduser().absolute() if given else home) / program_key()
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    return Path(tempfile.mkdtemp(prefix="jaxarc-"))
