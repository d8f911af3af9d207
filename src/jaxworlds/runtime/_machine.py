"""The machine: its processor and cores, what a compiled program depends on, and a report of what runs on it."""

import dataclasses
import hashlib
import importlib
import importlib.metadata
import os
import platform
from pathlib import Path


def program_key() -> str:
    """Key of compiled CPU programs: version and processor, since machines may share a home folder."""
    cpu = hashlib.blake2b(_cpu_description().encode(), digest_size=4).hexdigest()
    return f"jaxlib-{importlib.metadata.version('jaxlib')}-{platform.machine()}-{cpu}"


def _cpu_description() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    keep = ("model name", "flags", "Features", "CPU part")
    return "\n".join(dict.fromkeys(line for line in lines if line.startswith(keep)))


def device_words(kind: str, platform: str) -> str:
    """A device as text: its name, with its platform if that adds something."""
    return kind if kind == platform else f"{kind} ({platform})"


def cores() -> int:
    """Cores this process may use, which in a container is fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cpu_name() -> str:
    """Model name of the processor."""
    for line in _cpu_description().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


@dataclasses.dataclass(frozen=True)
class DeviceInfo:
    """One device: its name, and its memory where the backend tells it."""

    id: int
    kind: str
    platform: str
    process: int
    memory_limit_bytes: int | None
    memory_used_bytes: int | None


@dataclasses.dataclass(frozen=True)
class RuntimeReport:
    """Versions, devices, precision, cache and the environment variables that matter."""

    python: str
    jax: str
    jaxlib: str
    cpu: str
    cores: int
    backend: str
    devices: tuple[DeviceInfo, ...]
    processes: int
    process: int
    dtype: str
    cache_dir: str | None
    cache_entries: int
    cache_bytes: int
    environment: dict[str, str]

    def __str__(self) -> str:
        kinds = ", ".join(dict.fromkeys(device_words(d.kind, d.platform) for d in self.devices))
        cache = "off"
        if self.cache_dir:
            cache = f"{self.cache_dir} ({self.cache_entries} programs, {self.cache_bytes / 1e6:.1f} MB)"
        lines = [
            f"Python {self.python}, jax {self.jax}, jaxlib {self.jaxlib}",
            f"processor: {self.cpu}, {self.cores} cores",
            f"backend:   {self.backend}, {len(self.devices)} device(s): {kinds}",
            f"processes: {self.processes} (this is {self.process})",
            f"precision: {self.dtype}",
            f"cache:     {cache}",
        ]
        for device in self.devices:
            if device.memory_limit_bytes:
                used = (device.memory_used_bytes or 0) / 2**30
                lines.append(
                    f"memory:    device {device.id}: {used:.2f} of {device.memory_limit_bytes / 2**30:.1f} GiB"
                )
        lines += [f"{name}={value}" for name, value in self.environment.items()]
        return "\n".join(lines)


def runtime_report() -> RuntimeReport:
    """Report versions, devices and settings. Starts JAX's backend if it is not running."""
    jax = importlib.import_module("jax")
    folder = jax.config.jax_compilation_cache_dir
    files = [f for f in Path(folder).rglob("*-cache") if f.is_file()] if folder else []
    devices = []
    for device in jax.devices():
        stats = (device.memory_stats() if device.process_index == jax.process_index() else None) or {}
        devices.append(
            DeviceInfo(
                id=device.id,
                kind=device.device_kind,
                platform=device.platform,
                process=device.process_index,
                memory_limit_bytes=stats.get("bytes_limit"),
                memory_used_bytes=stats.get("bytes_in_use"),
            )
        )
    prefixes = ("JAX_", "XLA_", "JAXWORLDS_", "EQX_", "CUDA_VISIBLE_DEVICES")
    return RuntimeReport(
        python=platform.python_version(),
        jax=jax.__version__,
        jaxlib=importlib.metadata.version("jaxlib"),
        cpu=cpu_name(),
        cores=cores(),
        backend=jax.default_backend(),
        devices=tuple(devices),
        processes=jax.process_count(),
        process=jax.process_index(),
        dtype="float64" if jax.config.jax_enable_x64 else "float32",
        cache_dir=folder,
        cache_entries=len(files),
        cache_bytes=sum(f.stat().st_size for f in files),
        environment={
            k: "(set)" if k.endswith("_TOKEN") else v
            for k, v in sorted(os.environ.items())
            if k.startswith(prefixes)
        },
    )
