"""`jaxworlds doctor`: what runs here, a one-second check that it works, and a remedy for anything odd."""

import dataclasses
import importlib.util
import os
import re
import shutil
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, entry_points, requires, version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..kernels import native
from ..own_files import remedy, trouble_of
from ..runtime import RuntimeReport, configure, runtime_report
from .demo import GROUP

_EFFECTS = {"fast": "files are compressed with zlib, slower, and less is known of memory"}


@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing the doctor looked at. `level` is "ok", "note" (works, could be better) or "bad" (does not work)."""

    name: str
    level: str
    detail: str
    remedy: str = ""


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """The whole examination."""

    report: RuntimeReport | None
    findings: tuple[Finding, ...]

    @property
    def healthy(self) -> bool:
        """Whether everything works."""
        return all(f.level != "bad" for f in self.findings)


def diagnose() -> Diagnosis:
    """Look at the runtime and try compile, callback and sharding once each. Whatever fails is a finding, not an error."""
    settings = _try("settings", lambda: f"cache {configure().cache_dir}")
    report: list[RuntimeReport] = []
    backend = _try("backend", lambda: report.append(runtime_report()) or report[0].backend)
    if not report:
        return Diagnosis(None, (settings, backend))
    checks = {
        "compile": _check_compile,
        "callback": _check_callback,
        "sharding": _check_sharding,
        "memory": _check_memory,
    }
    tried = [_try(name, check) for name, check in checks.items()]
    troubles = [f for f in (settings, backend) if f.level == "bad"]
    odd = _oddities(report[0], dict(os.environ))
    return Diagnosis(
        report[0],
        (*troubles, *tried, _cache(report[0]), *_packages(), *_kernels(report[0].backend), *_extras(), *odd),
    )


def _try(name: str, check: Callable[[], str]) -> Finding:
    remedies = {
        "settings": "set JAXWORLDS_CACHE_DIR to a folder that can be written, or to off",
        "backend": "unset JAX_PLATFORMS, or set it to a device that is there, such as cpu",
        "memory": "update jaxlib, or give `memory_limit_gb` to `jaxworlds.configure`",
        "compile": "reinstall jax and jaxlib of one version; on a GPU check the driver with `nvidia-smi`",
        "callback": "avoid taps and progress from inside programs here; sampling between chunks still works",
        "sharding": "run on one device: leave `--devices` out, or `mesh=None` in Python; and report this",
    }
    began = time.perf_counter()
    try:
        detail = check()
    except Exception as error:  # noqa: BLE001 - whatever fails here is what the person asked to see
        return Finding(name, "bad", f"{type(error).__name__}: {error}", remedies[name])
    return Finding(name, "ok", f"{detail} ({(time.perf_counter() - began) * 1e3:.0f} ms)")


def _check_compile() -> str:
    x = np.arange(12, dtype=np.float32).reshape(3, 4) / 12
    found = jax.jit(lambda a: jnp.tanh(a @ a.T).sum())(x)
    np.testing.assert_allclose(found, np.tanh(x @ x.T).sum(), rtol=1e-3)
    return "a compiled program agrees with NumPy"


def _check_callback() -> str:
    from ..taps import flush_taps, tap, taps_on

    seen: list[Any] = []

    def program(x: Any) -> Any:
        tap("doctor", x, seen.append)
        return x + 1

    with taps_on():
        jax.block_until_ready(jax.jit(jax.vmap(program))(jnp.arange(3.0)))
        flush_taps()
    if len(seen) != 1 or np.asarray(seen[0]).tolist() != [0.0, 1.0, 2.0]:
        raise RuntimeError(f"one call with [0, 1, 2] was expected; the host saw {seen}")
    return "one host call for a whole batch"


def _check_sharding() -> str:
    from ..batching import shard_worlds, world_mesh

    devices = jax.local_devices()
    x = np.arange(4 * len(devices), dtype=np.float32)
    spread = shard_worlds(x, world_mesh(devices))
    found = jax.jit(lambda a: a * 2 + 1)(spread)
    np.testing.assert_array_equal(np.asarray(found), x * 2 + 1)
    used = len(found.sharding.device_set)
    if used != len(devices):
        raise RuntimeError(f"{len(devices)} devices were to be used; {used} were")
    return f"worlds spread over {len(devices)} device(s)"


def _check_memory() -> str:
    from ..memory import device_memory_limit

    return f"{device_memory_limit() / 1e9:.1f} GB available per device"


def _cache(report: RuntimeReport) -> Finding:
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


def _packages() -> list[Finding]:
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


def _kernels(backend: str) -> list[Finding]:
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


def _extras() -> list[Finding]:
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


def _oddities(report: RuntimeReport, environment: dict[str, str]) -> list[Finding]:
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


def print_diagnosis(diagnosis: Diagnosis) -> None:
    """Show it to a person."""
    from rich.markup import escape
    from rich.table import Table

    from ._output import people_console

    console = people_console()
    console.print(
        "JAX could not be started." if diagnosis.report is None else str(diagnosis.report),
        highlight=False,
        markup=False,
    )
    table = Table(show_edge=False, pad_edge=False, header_style="bold")
    remedies = any(f.remedy for f in diagnosis.findings)
    for column in ("", "check", "found", *(("remedy",) if remedies else ())):
        table.add_column(column, overflow="fold")
    marks = {"ok": "[green]✓[/]", "note": "[yellow]•[/]", "bad": "[red]✗[/]"}
    for f in diagnosis.findings:
        table.add_row(
            marks[f.level], escape(f.name), escape(f.detail), *((escape(f.remedy),) if remedies else ())
        )
    console.print()
    console.print(table)
    console.print(
        "\n[green]Everything works.[/]"
        if diagnosis.healthy
        else "\n[red]Something does not work: see ✗ above.[/]"
    )
