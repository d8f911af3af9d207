"""The runtime: settings that must precede JAX's backend, a report of what runs, and the start of several processes.

Nothing here imports jax until a function is called, so `from jaxworlds.runtime import configure` can be the
first line of a program. `import jax` starts no backend either; the first array or `jax.devices()` does.
"""

import dataclasses
import importlib
import importlib.metadata
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any, Literal

from ._cache_entries import remove_unfinished

Dtype = Literal["float32", "float64"]
Device = Literal["cpu", "gpu", "tpu"]

_FRACTION_NAMES = ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION")
_PREALLOCATE_NAME = "XLA_PYTHON_CLIENT_PREALLOCATE"
_GIB = 1024**3


@dataclasses.dataclass(frozen=True)
class Settings:
    """What `configure` was asked for so far; `None` means JAX's own default is in force."""

    dtype: str | None = None
    device: str | None = None
    memory_limit_gb: float | None = None
    preallocate: bool | None = None
    cpu_devices: int | None = None
    cache_dir: Path | Literal["off"] | None = None


class RuntimeConflictError(RuntimeError):
    """A setting differs from what JAX already runs with."""


_settings = Settings()


def settings() -> Settings:
    """The settings in force."""
    return _settings


def configure(
    dtype: Dtype | None = None,
    device: Device | None = None,
    memory_limit_gb: float | None = None,
    cache_dir: str | Path | None = None,
    *,
    preallocate: bool | None = None,
    cpu_devices: int | None = None,
) -> Settings:
    """Choose precision, device, memory and compilation cache; best called before any JAX operation.

    Arguments left out stay as they are, so several calls add up. A call after JAX has started is fine as long
    as it asks for what already runs; otherwise it raises `RuntimeConflictError` and changes nothing.

    - `dtype`: `"float32"` or `"float64"` as the default floating type (`jax_enable_x64`).
    - `device`: `"cpu"`, `"gpu"` or `"tpu"`. Asking for a device that is not there raises at once.
    - `memory_limit_gb`: budget per device. On a GPU it caps what JAX may take, unless
      `XLA_CLIENT_MEM_FRACTION` is set, which then rules; everywhere it bounds batch planning.
    - `cache_dir`: a folder for the persistent compilation cache, `"off"`, or `"auto"`, which the first call takes if
      it is left out: the folder named by `JAXWORLDS_CACHE_DIR`, else the one JAX was given, else the user's cache
      folder. Programs are kept apart by jaxlib version and processor.
    - `preallocate`: whether JAX takes its GPU memory at once.
    - `cpu_devices`: number of simulated CPU devices.

    >>> configure(dtype="float32", device="cpu", cache_dir="off").dtype
    'float32'
    """
    global _settings
    _require("dtype", dtype, ("float32", "float64"))
    _require("device", device, ("cpu", "gpu", "tpu"))
    if memory_limit_gb is not None and not 0 < memory_limit_gb < float("inf"):
        raise ValueError(
            f"`memory_limit_gb` must be positive; got {memory_limit_gb}. Leave it out for no limit."
        )
    if cpu_devices is not None and cpu_devices < 1:
        raise ValueError(f"`cpu_devices` must be at least 1; got {cpu_devices}. Leave it out for one device.")

    # Conflicts first: a call that cannot be honoured must change nothing.
    if cache_dir is None and _settings.cache_dir is None:
        cache_dir = "auto"
    folder = _cache_folder(cache_dir)
    if backend_started():
        _refuse_conflicts(device, memory_limit_gb, preallocate, cpu_devices)
    else:
        _prepare_backend(device, memory_limit_gb, preallocate, cpu_devices)

    if dtype is not None:
        _jax().config.update("jax_enable_x64", dtype == "float64")
    if folder is not None:
        _use_cache(folder)
    asked = {
        "dtype": dtype,
        "device": device,
        "memory_limit_gb": memory_limit_gb,
        "preallocate": preallocate,
        "cpu_devices": cpu_devices,
        "cache_dir": folder,
    }
    _settings = dataclasses.replace(_settings, **{k: v for k, v in asked.items() if v is not None})
    return _settings


def backend_started() -> bool:
    """Whether JAX has started a backend in this process (asking does not start one)."""
    if "jax" not in sys.modules:
        return False
    # JAX has no public question for this in 0.10-0.12; without the private one we assume it has not started.
    bridge = importlib.import_module("jax._src.xla_bridge")
    return bool(getattr(bridge, "backends_are_initialized", lambda: False)())


def _jax() -> Any:
    return importlib.import_module("jax")


def _version(package: str) -> str:
    return importlib.metadata.version(package)


def _require(name: str, value: str | None, allowed: tuple[str, ...]) -> None:
    if value is not None and value not in allowed:
        choices = ", ".join(repr(a) for a in allowed)
        raise ValueError(f"`{name}` must be one of {choices}; got {value!r}. Leave it out to keep what runs.")


def _refuse_conflicts(
    device: str | None, memory_limit_gb: float | None, preallocate: bool | None, cpu_devices: int | None
) -> None:
    jax = _jax()
    running = jax.default_backend()
    late = "Call `configure` before the first JAX operation of the process"
    if device is not None and device != running:
        if not _has_platform(device):
            raise RuntimeConflictError(_no_device(device, running))
        raise RuntimeConflictError(
            f"`device={device!r}` differs from what already runs: {running!r}. {late}, or start the process with "
            f"JAX_PLATFORMS={'cuda' if device == 'gpu' else device}."
        )
    if cpu_devices is not None and running == "cpu" and cpu_devices != jax.local_device_count():
        raise RuntimeConflictError(
            f"`cpu_devices={cpu_devices}` differs from what already runs: {jax.local_device_count()}. {late}."
        )
    if running != "gpu":
        return
    if (
        memory_limit_gb is not None
        and _fraction_set() is None
        and memory_limit_gb != _settings.memory_limit_gb
    ):
        stats = jax.local_devices()[0].memory_stats() or {}
        limit = stats.get("bytes_limit", 0) / _GIB
        if memory_limit_gb < limit:
            raise RuntimeConflictError(
                f"`memory_limit_gb={memory_limit_gb}` is below what JAX already took: {limit:.1f} GB. {late}, "
                "or set XLA_CLIENT_MEM_FRACTION before it."
            )
    took = os.environ.get(_PREALLOCATE_NAME, "true").lower() not in ("false", "0")
    if preallocate is not None and preallocate != took:
        raise RuntimeConflictError(
            f"`preallocate={preallocate}` differs from what already runs: {took}. {late}."
        )


def _prepare_backend(
    device: str | None, memory_limit_gb: float | None, preallocate: bool | None, cpu_devices: int | None
) -> None:
    jax = _jax()
    if device in ("gpu", "tpu"):
        _refuse_hopeless(device)
    kept = {name: os.environ.get(name) for name in (_PREALLOCATE_NAME, _FRACTION_NAMES[0])}
    if preallocate is not None:
        os.environ[_PREALLOCATE_NAME] = "true" if preallocate else "false"
    if memory_limit_gb is not None and device != "cpu" and _fraction_set() is None:
        total = _gpu_total_bytes()
        if total is not None:
            os.environ[_FRACTION_NAMES[0]] = f"{min(0.95, memory_limit_gb * _GIB / total):.4f}"
    if device in ("gpu", "tpu"):
        # Only a started backend knows for sure whether the device is there, and a later surprise is worse.
        running = _started_backend()
        if running != device:
            for name, value in kept.items():
                os.environ.pop(name, None) if value is None else os.environ.update({name: value})
            raise RuntimeConflictError(_no_device(device, running))
    elif device == "cpu":
        jax.config.update("jax_platforms", "cpu")
    if cpu_devices is not None and not backend_started():
        jax.config.update("jax_num_cpu_devices", cpu_devices)


def _refuse_hopeless(device: str) -> None:
    """Refuse a device that JAX cannot find, without starting a backend: no plugin for it, or hidden by a setting."""
    asked = [p.strip() for p in (_jax().config.jax_platforms or "").split(",") if p.strip()]
    names = {"gpu": {"gpu", "cuda", "rocm"}, "tpu": {"tpu"}}[device]
    hidden = bool(asked) and not names & set(asked)
    package = {"gpu": "jax_plugins", "tpu": "libtpu"}[device]
    if hidden or not (importlib.util.find_spec(package) or importlib.metadata.entry_points(group=package)):
        raise RuntimeConflictError(_no_device(device, "cpu"))


def _started_backend() -> str:
    """Start the backend and name it; "none" where JAX_PLATFORMS demands a device that is not there."""
    try:
        return _jax().default_backend()
    except (RuntimeError, AssertionError):
        return "none"


def _has_platform(device: str) -> bool:
    try:
        return bool(_jax().devices(device))
    except RuntimeError:
        return False


def _no_device(device: str, running: str) -> str:
    asked = _jax().config.jax_platforms
    because = (
        f" JAX_PLATFORMS={asked}, or an earlier `configure`, limits what JAX looks for." if asked else ""
    )
    remedy = {
        "gpu": "Check `nvidia-smi`, install `jax[cuda13]` (or `jax[cuda12]`)",
        "tpu": "Run on a TPU host with `jax[tpu]`",
        "cpu": "Remove JAX_PLATFORMS",
    }[device]
    return f"`device={device!r}` is not there: JAX found only {running!r}.{because} {remedy}, or pass `device='cpu'`."


def _fraction_set() -> str | None:
    return next((os.environ[name] for name in _FRACTION_NAMES if name in os.environ), None)


def _gpu_total_bytes() -> int | None:
    """Memory of the first GPU, asked of the driver because JAX is not to be started yet."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    query = [tool, "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        text = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True).stdout
        return int(text.split()[0]) * 1024**2
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        warnings.warn(
            f"nvidia-smi did not tell the GPU's memory ({error}); `memory_limit_gb` only bounds planning.",
            stacklevel=4,
        )
        return None


def _cache_folder(cache_dir: str | Path | None) -> Path | Literal["off"] | None:
    """The folder to use for this jaxlib and processor, made if need be; None leaves the cache as it is."""
    if cache_dir is None:
        return None
    is_default = cache_dir == "auto" and not os.environ.get("JAXWORLDS_CACHE_DIR")
    if cache_dir == "auto":
        cache_dir = os.environ.get("JAXWORLDS_CACHE_DIR") or None
        if cache_dir is None:
            if given := _jax().config.jax_compilation_cache_dir:
                return Path(given)
            cache_dir = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jaxworlds"
    if str(cache_dir) == "off":
        return "off"
    folder = Path(cache_dir).expanduser().absolute() / program_key()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        writable = os.access(folder, os.W_OK)
    except OSError:
        writable = False
    if not writable and is_default:
        warnings.warn(
            f"{folder} cannot be written: programs are not cached. Set JAXWORLDS_CACHE_DIR.", stacklevel=3
        )
        return "off"
    if not writable:
        raise ValueError(
            f"`cache_dir` must be a folder that can be written; got {str(cache_dir)!r}. "
            'Pass another folder, set JAXWORLDS_CACHE_DIR, or pass `cache_dir="off"`.'
        )
    return folder


def _use_cache(folder: Path | Literal["off"]) -> None:
    """Point JAX's persistent cache at a folder, or turn it off."""
    jax = _jax()
    chosen = None if folder == "off" else str(folder)
    if jax.config.jax_compilation_cache_dir != chosen:
        if folder != "off":
            remove_unfinished(folder)
        jax.config.update("jax_compilation_cache_dir", chosen)
        # The folder is read once, at the first compilation; a later change needs the reset.
        importlib.import_module("jax.experimental.compilation_cache.compilation_cache").reset_cache()
    if chosen is not None:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def program_key() -> str:
    """Names what a compiled CPU program depends on: a shared home folder serves machines that differ."""
    import hashlib

    cpu = hashlib.blake2b(_cpu_description().encode(), digest_size=4).hexdigest()
    return f"jaxlib-{_version('jaxlib')}-{platform.machine()}-{cpu}"


def _cpu_description() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    keep = ("model name", "flags", "Features", "CPU part")
    return "\n".join(dict.fromkeys(line for line in lines if line.startswith(keep)))


def device_words(kind: str, platform: str) -> str:
    """A device for people: what it is called, and what it is where that says more."""
    return kind if kind == platform else f"{kind} ({platform})"


def cores() -> int:
    """Cores this process may use, which in a container is fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cpu_name() -> str:
    """The processor as its maker calls it."""
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
    """What runs: versions, devices, precision, cache and the environment variables that matter."""

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
                used = (device.memory_used_bytes or 0) / _GIB
                lines.append(
                    f"memory:    device {device.id}: {used:.2f} of {device.memory_limit_bytes / _GIB:.1f} GiB"
                )
        lines += [f"{name}={value}" for name, value in self.environment.items()]
        return "\n".join(lines)


def runtime_report() -> RuntimeReport:
    """Report what runs. Starts JAX's backend if nothing has yet."""
    jax = _jax()
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
        jaxlib=_version("jaxlib"),
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


def start_processes(
    coordinator: str | None = None,
    processes: int | None = None,
    process: int | None = None,
    *,
    timeout_s: int = 120,
    silence_s: int = 60,
    same: dict[str, str] | None = None,
) -> None:
    """Join this process to the others of the same run, on one host or several; call it before any JAX operation.

    Under SLURM, Open MPI or a cloud TPU all three arguments may be left out. Elsewhere give every process the same
    `coordinator` ("host:port", reachable from all), the number of `processes` and its own `process` number from 0.
    Afterwards `jax.devices()` lists the devices of all processes. Calling it again is harmless. Where other machines can reach
    the coordinator, the environment variable `JAXWORLDS_TOKEN` must hold the same secret in all processes.

    - `timeout_s`: how long the processes wait for each other; then each raises a `ConnectionError` that says who is missing.
    - `silence_s`: after so long without a sign of life from another process (it is frozen, or its machine is gone) it counts
      as lost. The end of a process is noticed at once. The others then end too, with exit code 75 and a sentence, since JAX
      cannot go on without one.
    - `same`: names and values that must be equal in all processes, beside the versions of packages; a `ValueError` otherwise.
    """
    jax = _jax()
    if jax.distributed.is_initialized():
        if coordinator is None and processes is None and process is None:
            return
        running = (jax.process_count(), jax.process_index())
        if processes not in (None, running[0]) or process not in (None, running[1]):
            raise RuntimeConflictError(
                f"`processes={processes}, process={process}` differs from what already runs: processes={running[0]}, "
                f"process={running[1]}. Start a new Python process to join another run."
            )
        return
    from .processes.launchers import told
    from .processes.membership import join

    place = told()
    if place is not None:
        if processes not in (None, place.processes):
            raise ValueError(
                f"`processes` (`--hosts`) must be the {place.processes} that {place.launcher} started; got {processes}."
            )
        coordinator = coordinator or place.coordinator
        if coordinator is None:
            raise ValueError(
                f"`coordinator` must be given, as name:port of the first process: {place.launcher} does not tell where it runs."
            )
        processes = processes or place.processes
        process = place.process if process is None else process
    given = (coordinator, processes, process)
    if any(value is None for value in given) and any(value is not None for value in given):
        raise ValueError(
            "`coordinator`, `processes` and `process` must be given together, or all left out for automatic "
            f"detection; got coordinator={coordinator!r}, processes={processes}, process={process}."
        )
    if processes is not None and process is not None and not 0 <= process < processes:
        raise ValueError(f"`process` must be in 0..{processes - 1}; got {process}. Count processes from 0.")
    for name, value in (("timeout_s", timeout_s), ("silence_s", silence_s)):
        if value < 1:
            raise ValueError(f"`{name}` must be at least 1; got {value}.")
    if backend_started():
        raise RuntimeConflictError(
            "`start_processes` must come before the first JAX operation, but JAX has already started its backend. "
            "Move the call to the top of the program."
        )
    if coordinator is None or processes is None or process is None:
        _start_by_jax(timeout_s)
        return
    join(coordinator, processes, process, place, facts=same or {}, patience_s=timeout_s, silence_s=silence_s)


def _start_by_jax(timeout_s: int) -> None:
    """Where neither arguments nor a launcher that we know say who this is, JAX looks for itself: TPU pods, Kubernetes."""
    try:
        _jax().distributed.initialize(initialization_timeout=timeout_s)
    except (ValueError, RuntimeError) as error:
        raise RuntimeError(
            f"the processes could not be joined: {error}\nGive every process `coordinator='host:port'`, "
            "`processes=N` and `process=0..N-1`, and check that the port of process 0 is reachable from all hosts."
        ) from error
