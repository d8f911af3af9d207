"""The doctor's checks of the installation: cache, packages, kernels, extras and surprising settings."""

import dataclasses
import importlib.util
import os
import re
import shutil
import time
from importlib.metadata import PackageNotFoundError, entry_points, requires, version
from pathlib import Path
from typing import Any

import jax

from ..kernels import native
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
    if report.cache_dir is None:
        return Finding(
            "cache",
            "note",
            "off: every process compiles again",
            "unset JAXWORLDS_CACHE_DIR; in Python leave `cache_dir` of `jaxworlds.configure` out",
        )
    if not os.access(report.cache_dir, os.W_OK):
        return Finding(
            "cache",
            "bad",
            f"{report.cache_dir} cannot be written",
            "set JAXWORLDS_CACHE_DIR to another folder",
        )
    place = native.open_to_others(Path(report.cache_dir))
    if place is not None:
        return Finding(
            "cache",
            "note",
            f"others can write to {place}: compiled programs found in {report.cache_dir} could be theirs, and would run as yours",
            f"type `chmod go-w {place}` if it is yours, or set JAXWORLDS_CACHE_DIR to a folder that only you can write",
        )
    free = shutil.disk_usage(report.cache_dir).free
    if free < 10**9:
        return Finding(
            "cache", "note", f"{free / 1e6:.0f} MB of disk left at {report.cache_dir}", "free some space"
        )
    return Finding(
        "cache",
        "ok",
        f"{report.cache_dir}: {report.cache_entries} programs, {report.cache_bytes / 1e6:.1f} MB",
    )


def package_findings() -> list[Finding]:
    """Whether the systems' packages are as they were installed."""
    found = []
    for package in sorted({point.module.split(".")[0] for point in entry_points(group=GROUP)}):
        trouble = trouble_of(package)
        if trouble is not None:
            found.append(Finding(f"package {package}", "bad", trouble, remedy(package)))
    return found


def _kernel_sources() -> dict[str, Path]:
    """The C++ sources of the systems that are installed here, by package. Nothing is imported for it."""
    packages = {point.module.split(".")[0] for point in entry_points(group=GROUP)}
    found = {}
    for package in sorted(packages):
        spec = importlib.util.find_spec(package)
        for place in (spec.submodule_search_locations or ()) if spec else ():
            for source in Path(place).rglob("native.cc"):
                found[package] = source
    return found


def kernel_findings(backend: str) -> list[Finding]:
    """Whether the systems' kernels for a CPU can be compiled, and whether they are."""
    sources = _kernel_sources()
    if not sources or backend != "cpu":
        return []
    off = [name for name in sources if os.environ.get(f"{name.upper()}_KERNELS") == "off"]
    built = [name for name in sources if name not in off and native.is_built(sources[name], name)]
    began = time.perf_counter()
    compiler, trouble = "", ""
    try:
        compiler = native.try_compiler()
    except Exception as error:  # noqa: BLE001 - whatever fails here is what the person asked to see
        trouble = " ".join(str(error).split())[:300]
    if compiler:
        took = f"{(time.perf_counter() - began) * 1e3:.0f} ms"
        found = [Finding("compiler", "ok", f"{compiler} compiles kernels for the CPU ({took})")]
    elif len(built) + len(off) == len(sources):
        found = [Finding("compiler", "ok", f"{trouble}, but all kernels are compiled already")]
    else:
        found = [Finding("compiler", "note", trouble, native.GET_COMPILER)]
    for name in sources:
        if name in off:
            remedy = f"unset {name.upper()}_KERNELS"
            found.append(
                Finding(
                    f"{name} kernels",
                    "note",
                    f"switched off: {native.slower(sources[name])} on this CPU",
                    remedy,
                )
            )
        elif name in built:
            found.append(Finding(f"{name} kernels", "ok", "compiled, in the cache"))
        elif compiler:
            found.append(Finding(f"{name} kernels", "ok", "will be compiled at the first use, in seconds"))
        else:
            found.append(
                Finding(
                    f"{name} kernels",
                    "note",
                    f"none: {native.slower(sources[name])} on this CPU",
                    native.GET_COMPILER,
                )
            )
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
        if missing:
            effect = _EFFECTS.get(extra, "what needs them says so")
            findings.append(
                Finding(
                    f"extra {extra}",
                    "note",
                    f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} absent: {effect}",
                    f"pip install 'jaxworlds[{extra}]'",
                )
            )
        else:
            findings.append(Finding(f"extra {extra}", "ok", f"{', '.join(packages)}"))
    return findings


def _is_installed(name: str) -> bool:
    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True


def odd_settings(report: RuntimeReport, environment: dict[str, str]) -> list[Finding]:
    """Settings that work but surprise people."""
    odd = []
    if report.jax.split(".")[:2] != report.jaxlib.split(".")[:2]:
        odd.append(
            Finding(
                "versions",
                "bad",
                f"jax {report.jax} with jaxlib {report.jaxlib}",
                "type `pip install -U jax jaxlib`",
            )
        )
    if report.backend == "cpu" and shutil.which("nvidia-smi") and not environment.get("JAX_PLATFORMS"):
        odd.append(
            Finding(
                "gpu",
                "note",
                "there is an NVIDIA driver, but jax runs on the CPU",
                "type `pip install 'jax[cuda13]'`",
            )
        )
    config: Any = jax.config
    if config.jax_disable_jit:
        odd.append(
            Finding("jit", "bad", "JAX_DISABLE_JIT is set: nothing is compiled", "unset JAX_DISABLE_JIT")
        )
    if config.jax_debug_nans:
        odd.append(
            Finding(
                "nans",
                "note",
                "JAX_DEBUG_NANS is set: every program runs slower",
                "unset JAX_DEBUG_NANS outside debugging",
            )
        )
    if "--xla_backend_optimization_level=0" in environment.get("XLA_FLAGS", ""):
        odd.append(Finding("flags", "note", "XLA_FLAGS turns optimization off", "unset XLA_FLAGS"))
    if "XLA_PYTHON_CLIENT_MEM_FRACTION" in environment:
        odd.append(
            Finding(
                "flags",
                "note",
                "XLA_PYTHON_CLIENT_MEM_FRACTION is the old name",
                "unset it, and set XLA_CLIENT_MEM_FRACTION to its value",
            )
        )
    return odd
