"""C++ kernels for CPUs: from the wheel, or compiled once for each machine, and given to XLA by name."""

import contextlib
import ctypes
import functools
import logging
import os
import re
import secrets
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
import warnings
from pathlib import Path
from types import FrameType

import jax

from ..runtime import cache_home, program_key
from .prebuilt import is_whole, prebuilt_libraries, seal, source_key

_HEADER = Path(__file__).with_name("native.h")
_FLAGS = ("-std=c++17", "-O3", "-fPIC", "-shared")
_LONG = 100_000
"""World-steps from which on a run is worth a word about missing kernels: a tenth of a second with them."""
_lock = threading.Lock()
_EFFECT = re.compile(r"^// Without this: (.+?)\.?$", re.MULTILINE)
_missing: dict[str, tuple[str, str]] = {}
"""Packages whose kernels were looked for and not found: how much slower they are, and why there are none."""
_origins: dict[tuple[Path, tuple[str, ...]], str] = {}
_warned = False
GET_COMPILER = (
    "install a C++ compiler (`apt install g++`, `conda install cxx-compiler`), or name yours in CXX"
)
"""What people can do without one."""


class MissingKernelsWarning(UserWarning):
    """A long run goes without the kernels that would make it faster."""


class NoCompilerError(OSError):
    """No C++ compiler was found."""


def switched_on(switch: str) -> bool:
    """Whether the environment variable `switch` allows kernels: 'auto' (the default) or 'off'."""
    given = os.environ.get(switch, "auto")
    if given not in ("auto", "off"):
        raise ValueError(f"`{switch}` must be 'auto' or 'off'; got {given!r}. Unset it for 'auto'.")
    return given == "auto"


def kernel_targets(
    source: Path, functions: tuple[str, ...], package: str, macros: tuple[str, ...] = ()
) -> dict[str, str] | None:
    """XLA's names of the functions in a C++ file; None if they cannot be compiled.

    Tried once per process. `package` names the library in the cache and the logger that reports a failure. The file
    may include `native.h`, which lies beside this module, and says in its head what a CPU is without it (`slower`).
    `macros`, such as `("ON_SPHERE", "OP_PASTE=29")`, are defined for the compiler; other macros make another library.
    """
    with _lock:
        return _register(source, functions, package, macros)


def warn_of_missing_kernels(world_steps: int) -> None:
    """Warn once per process if a run of `world_steps` begins without kernels that could not be built."""
    global _warned
    if _warned or world_steps < _LONG or not _missing:
        return
    _warned = True
    effects = " and ".join(f"{name} is {slower}" for name, (slower, _) in sorted(_missing.items()))
    switches = " ".join(f"{name.upper()}_KERNELS=off" for name in sorted(_missing))
    why = next(iter(_missing.values()))[1]
    warnings.warn(
        f"this run has no C++ kernels for the CPU ({effects}): {why[:200]}. To change that, "
        f"{GET_COMPILER}; `jaxworlds doctor` checks it. {switches} in the environment silences this warning.",
        MissingKernelsWarning,
        stacklevel=_level_of_user(sys._getframe()),
    )


def _level_of_user(frame: FrameType) -> int:
    """`stacklevel`, counted from `frame`, of the innermost line outside of our and other installed packages."""
    ours, installed = f"{_HEADER.parents[2]}{os.sep}", f"{os.sep}{Path(jax.__file__).parents[1].name}{os.sep}"
    level = 1
    while frame.f_back is not None:
        file = frame.f_code.co_filename
        if not file.startswith(ours) and installed not in file:
            break
        frame, level = frame.f_back, level + 1
    return level


@functools.cache
def _register(
    source: Path, functions: tuple[str, ...], package: str, macros: tuple[str, ...]
) -> dict[str, str] | None:
    log = logging.getLogger(package)
    for level, path in prebuilt_libraries(source, macros):
        try:
            known = _give_to_xla(ctypes.CDLL(str(path)), functions, path.stem)
        except Exception as error:  # noqa: BLE001 - XLA refuses libraries for other versions of it: we compile
            log.warning("the prebuilt kernels for %s do not fit this installation: %s", level, error)
        else:
            _origins[source, macros] = f"prebuilt for {level}"
            _missing.pop(package, None)
            return known
    try:
        key = library_key(source, macros)
        known = _give_to_xla(load(source, package, key, macros), functions, key)
    except NoCompilerError as error:
        log.info("no kernels for the CPU, XLA's code is used instead: %s", error)
        _missing[package] = slower(source), str(error)
        return None
    # Whatever is wrong with somebody's compiler or folders: a step must still run.
    except (OSError, subprocess.SubprocessError, AttributeError, RuntimeError, ValueError) as error:
        log.warning("no kernels for the CPU, XLA's slower code is used instead: %s", error)
        _missing[package] = slower(source), " ".join(str(error).split())
        return None
    _origins[source, macros] = "compiled here"
    _missing.pop(package, None)
    return known


def _give_to_xla(library: ctypes.CDLL, functions: tuple[str, ...], key: str) -> dict[str, str]:
    """Register the functions of a library under names that end in `key`."""
    known = {name: f"{name}_{key}" for name in functions}
    for name, target in known.items():
        jax.ffi.register_ffi_target(target, jax.ffi.pycapsule(getattr(library, name)), platform="cpu")
    return known


def kernel_origin(source: Path, macros: tuple[str, ...] = ()) -> str:
    """Where the kernels came from that `kernel_targets` found: "prebuilt for x86-64-v3" or "compiled here"."""
    return _origins[source, macros]


def slower(source: Path) -> str:
    """How much slower a CPU is without the kernels, by the head of the source: "about 9 times slower"."""
    found = _EFFECT.search(source.read_text(encoding="utf-8", errors="replace")) if source.is_file() else None
    return found[1] if found else "slower"


def library_key(source: Path, macros: tuple[str, ...] = ()) -> str:
    """Key of a library: a digest of its source, the compiler's options, JAX and the processor, and one of its macros."""
    return source_key(source, macros, " ".join(_FLAGS) + program_key())


def is_built(source: Path, package: str) -> bool:
    """Whether a library of a source, with any macros, is in the cache and can be loaded."""
    folder = _folder()
    found = folder.glob(f"{package}-{library_key(source)}*.so") if folder is not None else ()
    return any(map(_can_be_loaded, found))


def try_compiler() -> str:
    """Compile, load and call a one-line function; returns the compiler's command."""
    with tempfile.TemporaryDirectory(prefix="jaxworlds-") as folder:
        source = Path(folder) / "probe.cc"
        source.write_text('#include "native.h"\nextern "C" int probe() { return 7; }\n')
        library = ctypes.CDLL(str(_compile(source, Path(folder) / "probe.so")))
        if library.probe() != 7:
            raise RuntimeError("a compiled function of one line gave a wrong answer")
    return shlex.join(_compiler())


def load(source: Path, package: str, key: str, macros: tuple[str, ...] = ()) -> ctypes.CDLL:
    """Load the library from the cache, compiling it if it is missing or cannot be used."""
    folder = _folder()
    name = f"{package}-{key}.so"
    if folder is None:
        with tempfile.TemporaryDirectory(prefix=f"{package}-") as own:
            return ctypes.CDLL(str(_compile(source, Path(own) / name, macros)))
    path = folder / name
    if not _can_be_loaded(path):
        _compile(source, path, macros)
    return ctypes.CDLL(str(path))


def _can_be_loaded(path: Path) -> bool:
    """Whether a library exists, only this user can have written it, and it is whole."""
    return path.is_file() and _is_ours(path) and is_whole(path)


def _is_ours(path: Path) -> bool:
    """Whether only this user (or root) can have written `path`: loading a library runs its code."""
    if not hasattr(os, "getuid"):
        return True
    found = path.lstat()
    sticky = path.is_dir() and found.st_mode & stat.S_ISVTX
    # Many systems give each user a group of his own and let it write.
    others = stat.S_IWOTH | (0 if found.st_gid == os.getgid() else stat.S_IWGRP)
    ours = not stat.S_ISLNK(found.st_mode) and found.st_uid in (os.getuid(), 0)
    return ours and (bool(sticky) or not found.st_mode & others)


def _compile(source: Path, library: Path, macros: tuple[str, ...] = ()) -> Path:
    """Compile the library. Several processes may do so at once: the last one's file stays."""
    temporary = library.with_name(f".{library.name}.{secrets.token_hex(8)}.tmp")
    options = [f"-D{macro}" for macro in macros]
    options += [f"-I{folder}" for folder in (jax.ffi.include_dir(), _HEADER.parent)]
    command = [*_compiler(), *_FLAGS, *options, str(source), "-o", str(temporary)]
    try:
        for flags in (["-march=native"], []):  # some compilers do not know this machine
            done = subprocess.run([*command, *flags], capture_output=True, timeout=120, check=False)
            if done.returncode == 0:
                with temporary.open("r+b") as file:
                    file.write(seal(file.read()))
                    os.fsync(file.fileno())
                temporary.chmod(0o755)
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
    """The cache folder; None if the cache is off or cannot be used."""
    home = cache_home()
    if home == "off":
        return None
    folder = home / program_key()
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK):
        return None
    folder = folder.resolve()
    place = open_to_others(folder)
    if place is not None:
        _say_open(str(place))
    return folder if place is None else None


def open_to_others(folder: Path) -> Path | None:
    """The first folder, from `folder` upwards, that other users can write to; None if there is no such folder."""
    folder = folder.resolve()
    return next((place for place in (folder, *folder.parents) if not _is_ours(place)), None)


@functools.cache
def _say_open(place: str) -> None:
    logging.getLogger("jaxworlds").warning(
        "kernels are compiled again in every process and not kept: others can write to %s, so that a library found in the "
        "cache could be theirs. Make that folder yours alone (`chmod go-w`), or set JAXWORLDS_CACHE_DIR to one that is.",
        place,
    )
