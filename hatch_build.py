"""Builds the kernels for CPUs into the wheel for Linux on x86-64: `JAXWORLDS_PREBUILT=1 python -m hatchling build -t wheel`.

Without that variable a wheel is pure Python, as it always was. The libraries need the C library of Linux alone, in a version
of 2014, and are built against the headers of the oldest jax that we support: XLA takes libraries for older versions of it.
"""

import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parent
SWITCH = "JAXWORLDS_PREBUILT"
GLIBC: tuple[int, ...] = (2, 17)
"""The newest symbols of the C library that a library may ask for; jaxlib itself asks for 2.27."""
TAG = f"py3-none-manylinux_{GLIBC[0]}_{GLIBC[1]}_x86_64"
NEEDED = {"libc.so.6", "libm.so.6"}

# What kernels use of the C++ library, so that they need none: the builder's would ask for a C library as new as the builder's.
RUNTIME = """
#include <cstdlib>
#include <new>
extern "C" { char __libc_single_threaded = 0; }  // counts of shared pointers are always atomic
static void* demand(void* found) { return found ? found : (std::abort(), nullptr); }
void* operator new(std::size_t size) { return demand(std::malloc(size ? size : 1)); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  void* found = nullptr;
  return demand(posix_memalign(&found, std::size_t(alignment), size) ? nullptr : found);
}
void operator delete(void* given) noexcept { std::free(given); }
void operator delete(void* given, std::size_t) noexcept { std::free(given); }
void operator delete(void* given, std::size_t, std::align_val_t) noexcept { std::free(given); }
namespace std { void __throw_length_error(const char*) { std::abort(); } }
"""
EXPORTS = "{ global: jax*; local: *; };"
FLAGS = ("-std=c++17", "-O3", "-fPIC", "-shared", "-s", "-Wno-psabi", "-Wl,-z,defs")
FREESTANDING = ("-fno-exceptions", "-fno-rtti", "-nodefaultlibs")
LIBRARIES = ("-lm", "-lc", "-lgcc")


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the libraries to a wheel, and says in its tag what they need."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel" or version == "editable" or os.environ.get(SWITCH) != "1":
            return
        self.folder = tempfile.mkdtemp(prefix="jaxworlds-prebuilt-")
        demand_oldest_jax(self.metadata.core.dependencies)
        for place, library in build_libraries(Path(self.folder)):
            build_data["force_include"][str(library)] = place
        build_data["pure_python"], build_data["tag"] = False, TAG

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        shutil.rmtree(getattr(self, "folder", ""), ignore_errors=True)


def demand_oldest_jax(dependencies: list[str]) -> None:
    """Refuse to build with a newer jax than the oldest that is supported, and on other machines."""
    import jax

    oldest = next(line.partition(">=")[2] for line in dependencies if line.startswith("jax>="))
    if not f"{jax.__version__}.".startswith(f"{oldest}."):
        raise RuntimeError(
            f"{SWITCH}=1 needs jax {oldest}, the oldest that pyproject.toml allows; got {jax.__version__}. A library built "
            "against newer headers is refused by older versions of XLA."
        )
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise RuntimeError(
            f"{SWITCH}=1 needs Linux on x86-64; got {platform.system()}, {platform.machine()}."
        )


def build_libraries(folder: Path) -> Iterator[tuple[str, Path]]:
    """Build each library for each level; yields its place in the wheel and where it lies in `folder`."""
    sys.path.insert(0, str(ROOT / "src"))
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    from jaxarc.kernels import native as arc
    from jaxtrace.kernels import cpu as trace
    from jaxworlds.kernels import prebuilt

    wanted = [(arc.SOURCE, arc.MACROS), *((trace.SOURCE, trace.macros(sphere)) for sphere in (False, True))]
    for source, macros in wanted:
        for level in prebuilt.LEVELS:
            package = source.relative_to(ROOT / "src").parts[0]
            name = f"{prebuilt.source_key(source, macros)}-{level}.so"
            library = folder / package / name
            library.parent.mkdir(exist_ok=True)
            compile_library(source, macros, level, library)
            demand_portable(library)
            library.write_bytes(library.read_bytes() + prebuilt.seal(library.read_bytes()))
            yield str(source.relative_to(ROOT / "src").parent / "prebuilt" / name), library


def compile_library(source: Path, macros: tuple[str, ...], level: str, library: Path) -> None:
    """Compile a library that needs no C++ library."""
    import jax

    runtime, exports = library.with_name("runtime.cc"), library.with_name("exports.map")
    runtime.write_text(RUNTIME)
    exports.write_text(EXPORTS)
    include = [jax.ffi.include_dir(), str(ROOT / "src" / "jaxworlds" / "kernels")]
    options = [
        *f"-march={level}".replace("+", " -m").split(),
        f"-Wl,--version-script={exports}",
        *(f"-D{macro}" for macro in macros),
    ]
    options += [f"-I{place}" for place in include]
    command = [
        os.environ.get("CXX", "g++"),
        *FLAGS,
        *FREESTANDING,
        *options,
        str(source),
        str(runtime),
        *LIBRARIES,
    ]
    subprocess.run([*command, "-o", str(library)], check=True)


def demand_portable(library: Path) -> None:
    """Refuse a library that asks for more than the tag of the wheel says."""
    found = subprocess.run(["objdump", "-p", "-T", str(library)], capture_output=True, text=True, check=True)
    needed = set(re.findall(r"^ *NEEDED +(\S+)", found.stdout, re.MULTILINE))
    versions: set[tuple[int, ...]] = {
        tuple(map(int, v.split("."))) for v in re.findall(r"GLIBC_([0-9.]+)", found.stdout)
    }
    newest: tuple[int, ...] = max(versions | {(0,)})
    if needed - NEEDED or newest > GLIBC:
        asked = f"{sorted(needed)} and glibc {'.'.join(map(str, newest))}"
        raise RuntimeError(f"{library.name} asks for {asked}; the wheel's tag, {TAG}, promises less.")
