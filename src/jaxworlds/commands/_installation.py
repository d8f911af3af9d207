"""The doctor's checks of the installation: cache, packages, kernels, extras and surprising settings."""

import dataclasses
import functools
import importlib.util
import os
import re
import shutil
import time
from importlib.metadata import PackageNotFoundError, entry_points, requires, version
from pathlib import Path
from typing import Any

import jax

from ..kernels import native, prebuilt_libraries
from ..own_files import remedy, trouble_of
from ..runtime import RuntimeReport
from .demo import GROUP


@dataclasses.dataclass(frozen=True)
class Finding:
    """Result of one check. `level` is "ok", "note" (works, could be better) or "bad" (does not work)."""

    name: str
    level: str
    detail: str
    remedy: str = ""


_EFFECTS = {"fast": "files are compressed with zlib, slower, and less is known of memory"}


def cache_finding(report: RuntimeReport) -> Finding:
    finding, folder = functools.partial(Finding, "cache"), report.cache_dir
    if folder is None:
        remedy = "unset JAXWORLDS_CACHE_DIR; in Python leave `cache_dir` of `jaxworlds.configure` out"
        return finding("note", "off: every process compiles again", remedy)
    if not os.access(folder, os.W_OK):
        return finding("bad", f"{folder} cannot be written", "set JAXWORLDS_CACHE_DIR to another folder")
    place = native.open_to_others(Path(folder))
    if place is not None:
        return finding(
            "note",
            f"others can write to {place}: compiled programs found in {folder} could be theirs, and would run as yours",
            f"type `chmod go-w {place}` if it is yours, or set JAXWORLDS_CACHE_DIR to a folder that only you can write",
        )
    free = shutil.disk_usage(folder).free
    if free < 10**9:
        return finding("note", f"{free / 1e6:.0f} MB of disk left at {folder}", "free some space")
    return finding("ok", f"{folder}: {report.cache_entries} programs, {report.cache_bytes / 1e6:.1f} MB")


def _systems() -> list[str]:
    """The packages of the installed systems."""
    return sorted({point.module.split(".")[0] for point in entry_points(group=GROUP)})


def package_findings() -> list[Finding]:
    """Whether the systems' packages are as they were installed."""
    return [
        Finding(f"package {name}", "bad", trouble, remedy(name))
        for name in _systems()
        if (trouble := trouble_of(name))
    ]


def _kernel_sources() -> dict[str, Path]:
    """The C++ sources of the systems that are installed here, by package. Nothing is imported for it."""
    found = {}
    for package in _systems():
        spec = importlib.util.find_spec(package)
        for place in (spec.submodule_search_locations or ()) if spec else ():
            for source in Path(place).rglob("native.cc"):
                found[package] = source
    return found


def kernel_findings(backend: str) -> list[Finding]:
    """Whether the systems' kernels for a CPU are prebuilt or compiled, and whether they can be compiled."""
    sources = _kernel_sources()
    if not sources or backend != "cpu":
        return []
    prebuilt = {
        name: level for name in sources for level, _ in [*prebuilt_libraries(sources[name], None)][:1]
    }
    off = [name for name in sources if os.environ.get(f"{name.upper()}_KERNELS") == "off"]
    built = [name for name, source in sources.items() if name in prebuilt or native.is_built(source, name)]
    began = time.perf_counter()
    compiler, trouble = "", ""
    try:
        compiler = native.try_compiler()
    except Exception as error:  # noqa: BLE001 - whatever fails here is what the person asked to see
        trouble = " ".join(str(error).split())[:300]
    if compiler:
        took = f"{(time.perf_counter() - began) * 1e3:.0f} ms"
        found = [Finding("compiler", "ok", f"{compiler} compiles kernels for the CPU ({took})")]
    elif set(sources) <= {*built, *off}:
        found = [Finding("compiler", "ok", f"{trouble}, and none is needed: all kernels are built")]
    else:
        found = [Finding("compiler", "note", trouble, native.GET_COMPILER)]
    for name, source in sources.items():
        finding = functools.partial(Finding, f"{name} kernels")
        slower = f"{native.slower(source)} on this CPU"
        if name in off:
            found.append(finding("note", f"switched off: {slower}", f"unset {name.upper()}_KERNELS"))
        elif name in prebuilt:
            found.append(finding("ok", f"prebuilt for {prebuilt[name]}"))
        elif name in built:
            found.append(finding("ok", "compiled, in the cache"))
        elif compiler:
            found.append(finding("ok", "will be compiled at the first use, in seconds"))
        else:
            found.append(finding("note", f"none: {slower}", native.GET_COMPILER))
    return found


def extra_findings() -> list[Finding]:
    """The extras of this distribution, and which of their packages are missing."""
    try:
        lines = requires("jaxworlds") or []
    except PackageNotFoundError:
        return []
    needed: dict[str, list[str]] = {}
    for line in lines:
        found = re.match(r"""([A-Za-z0-9._-]+).*;\s*extra\s*==\s*['"]([a-z]+)['"]\s*$""", line)
        if found and found[1] != "jaxworlds" and found[2] not in ("all", "dev", "docs"):
            needed.setdefault(found[2], []).append(found[1])
    findings = []
    for extra, packages in needed.items():
        missing = [name for name in packages if not _is_installed(name)]
        finding = Finding(f"extra {extra}", "ok", ", ".join(packages))
        if missing:
            effect = _EFFECTS.get(extra, "what needs them says so")
            detail = f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} absent: {effect}"
            finding = Finding(finding.name, "note", detail, f"pip install 'jaxworlds[{extra}]'")
        findings.append(finding)
    return findings


def _is_installed(name: str) -> bool:
    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True


def odd_settings(report: RuntimeReport, environment: dict[str, str]) -> list[Finding]:
    """Settings that work but surprise people."""
    odd: list[Finding] = []

    def add(name: str, level: str, detail: str, remedy: str) -> None:
        odd.append(Finding(name, level, detail, remedy))

    config: Any = jax.config
    if report.jax.split(".")[:2] != report.jaxlib.split(".")[:2]:
        pair = f"jax {report.jax} with jaxlib {report.jaxlib}"
        add("versions", "bad", pair, "type `pip install -U jax jaxlib`")
    if report.backend == "cpu" and shutil.which("nvidia-smi") and not environment.get("JAX_PLATFORMS"):
        idle = "there is an NVIDIA driver, but jax runs on the CPU"
        add("gpu", "note", idle, "type `pip install 'jax[cuda13]'`")
    if config.jax_disable_jit:
        add("jit", "bad", "JAX_DISABLE_JIT is set: nothing is compiled", "unset JAX_DISABLE_JIT")
    if config.jax_debug_nans:
        slow = "JAX_DEBUG_NANS is set: every program runs slower"
        add("nans", "note", slow, "unset JAX_DEBUG_NANS outside debugging")
    if "--xla_backend_optimization_level=0" in environment.get("XLA_FLAGS", ""):
        add("flags", "note", "XLA_FLAGS turns optimization off", "unset XLA_FLAGS")
    if "XLA_PYTHON_CLIENT_MEM_FRACTION" in environment:
        old = "XLA_PYTHON_CLIENT_MEM_FRACTION is the old name"
        add("flags", "note", old, "unset it, and set XLA_CLIENT_MEM_FRACTION to its value")
    return odd
