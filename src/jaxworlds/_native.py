"""C++ kernels for CPUs: compiled with the system's compiler, once for each machine, and given to XLA by name."""

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

from .runtime import program_key

_HEADER = Path(__file__).with_name("native.h")
_FLAGS = ("-std=c++17", "-O3", "-fPIC", "-shared")
_DIGEST = 16
_lock = threading.Lock()


class NoCompilerError(OSError):
    """There is nothing to compile with."""


def switched_on(switch: str) -> bool:
    """Whether the environment variable `switch` allows kernels: 'auto', which it is unless set, or 'off'."""
    given = os.environ.get(switch, "auto")
    if given not in ("auto", "off"):
        raise ValueError(f"`{switch}` must be 'auto' or 'off'; got {given!r}. Unset it for 'auto'.")
    return given == "auto"


def registered(
    source: Path, functions: tuple[str, ...], package: str, define: str = ""
) -> dict[str, str] | None:
    """The names under which XLA knows the functions of a C++ file, or None where they cannot be compiled.

    Tried once per process. `package` names the library in the cache and the logger that says why there is none. The file
    may include `native.h`, which lies beside this module. `define` is a macro that makes another library of the same file.
    """
    with _lock:
        return _registered(source, functions, package, define)


@functools.cache
def _registered(
    source: Path, functions: tuple[str, ...], package: str, define: str
) -> dict[str, str] | None:
    log = logging.getLogger(package)
    try:
        text = source.read_bytes() + _HEADER.read_bytes() + " ".join((*_FLAGS, define)).encode()
        key = hashlib.blake2b(text + program_key().encode(), digest_size=8).hexdigest()
        library = load(source, package, key, define)
        known = {name: f"{name}_{key}" for name in functions}
        for name, target in known.items():
            jax.ffi.register_ffi_target(target, jax.ffi.pycapsule(getattr(library, name)), platform="cpu")
    except NoCompilerError as error:
        log.info("no kernels for the CPU, XLA's code is used instead: %s", error)
        return None
    # Whatever is wrong with somebody's compiler or folders: a step must still run.
    except (OSError, subprocess.SubprocessError, AttributeError, RuntimeError, ValueError) as error:
        log.warning("no kernels for the CPU, XLA's slower code is used instead: %s", error)
        return None
    return known


def load(source: Path, package: str, key: str, define: str = "") -> ctypes.CDLL:
    """The library, from the cache or compiled; what lies in the cache and cannot be used is made again."""
    folder = _folder()
    name = f"{package}-{key}.so"
    if folder is None:
        with tempfile.TemporaryDirectory(prefix=f"{package}-") as own:
            return ctypes.CDLL(str(_compiled(source, Path(own) / name, define)))
    path = folder / name
    if not (path.is_file() and _is_whole(path)):
        _compiled(source, path, define)
    return ctypes.CDLL(str(path))


def _is_whole(path: Path) -> bool:
    """Whether a library is as it was written: to load a part of one may kill the process."""
    content = path.read_bytes()
    return _digest(content[:-_DIGEST]) == content[-_DIGEST:]


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_DIGEST).digest()


def _compiled(source: Path, library: Path, define: str = "") -> Path:
    """The library, newly compiled. Several processes may do so at once: the last one's file stays."""
    temporary = library.with_name(f".{library.name}.{secrets.token_hex(8)}.tmp")
    folders = (jax.ffi.include_dir(), _HEADER.parent)
    command = [
        *_compiler(),
        *_FLAGS,
        *([f"-D{define}"] if define else []),
        *(f"-I{folder}" for folder in folders),
        str(source),
        "-o",
        str(temporary),
    ]
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
