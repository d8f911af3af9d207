"""`jaxworlds doctor`: versions, devices and settings, a one-second check that they work, and remedies."""

import dataclasses
import os
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..memory import device_memory_limit
from ..runtime import RuntimeReport, configure, runtime_report
from . import _installation
from ._installation import Finding


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """Results of all checks."""

    report: RuntimeReport | None
    findings: tuple[Finding, ...]

    @property
    def healthy(self) -> bool:
        """Whether everything works."""
        return all(f.level != "bad" for f in self.findings)


def diagnose() -> Diagnosis:
    """Check the runtime, compiling, callbacks and sharding. A failure is a finding, not an exception."""
    settings = _try("settings", lambda: f"cache {configure().cache_dir}")
    report: list[RuntimeReport] = []
    backend = _try("backend", lambda: report.append(runtime_report()) or report[0].backend)
    if not report:
        return Diagnosis(None, (settings, backend))
    findings = (
        *(finding for finding in (settings, backend) if finding.level == "bad"),
        _try("compile", _check_compile),
        _try("callback", _check_callback),
        _try("sharding", _check_sharding),
        _try("memory", lambda: f"{device_memory_limit() / 1e9:.1f} GB available per device"),
        _installation.cache_finding(report[0]),
        *_installation.package_findings(),
        *_installation.kernel_findings(report[0].backend),
        *_installation.extra_findings(),
        *_installation.odd_settings(report[0], dict(os.environ)),
    )
    return Diagnosis(report[0], findings)


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
    found = jax.jit(lambda a: a * 2 + 1)(shard_worlds(x, world_mesh(devices)))
    np.testing.assert_array_equal(np.asarray(found), x * 2 + 1)
    used = len(found.sharding.device_set)
    if used != len(devices):
        raise RuntimeError(f"{len(devices)} devices were to be used; {used} were")
    return f"worlds spread over {len(devices)} device(s)"


def print_diagnosis(diagnosis: Diagnosis) -> None:
    """Print it."""
    from rich.markup import escape
    from rich.table import Table

    from ._output import people_console

    console = people_console()
    console.print(str(diagnosis.report or "JAX could not be started."), highlight=False, markup=False)
    table = Table(show_edge=False, pad_edge=False, header_style="bold")
    remedies = any(f.remedy for f in diagnosis.findings)
    for column in ("", "check", "found", "remedy")[: 3 + remedies]:
        table.add_column(column, overflow="fold")
    marks = {"ok": "[green]✓[/]", "note": "[yellow]•[/]", "bad": "[red]✗[/]"}
    for f in diagnosis.findings:
        table.add_row(marks[f.level], *map(escape, (f.name, f.detail, f.remedy)[: 2 + remedies]))
    console.print()
    console.print(table)
    broken = "[red]Something does not work: see ✗ above.[/]"
    console.print("\n" + ("[green]Everything works.[/]" if diagnosis.healthy else broken))
