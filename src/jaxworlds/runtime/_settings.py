"""Settings that must precede JAX's backend: precision, device, memory, compilation cache."""

import dataclasses
import importlib
import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any, Literal, get_args

from ._cache import cache_folder, use_cache

Dtype = Literal["float32", "float64"]
Device = Literal["cpu", "gpu", "tpu"]

_FRACTION_NAMES = ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION")
_PREALLOCATE_NAME = "XLA_PYTHON_CLIENT_PREALLOCATE"
_GIB = 1024**3


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings given to `configure` so far; `None` means JAX's own default."""

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
    for name, value, allowed in (("dtype", dtype, get_args(Dtype)), ("device", device, get_args(Device))):
        if value is not None and value not in allowed:
            choices = ", ".join(map(repr, allowed))
            raise ValueError(
                f"`{name}` must be one of {choices}; got {value!r}. Leave it out to keep the present setting."
            )
    if memory_limit_gb is not None and not 0 < memory_limit_gb < float("inf"):
        raise ValueError(
            f"`memory_limit_gb` must be positive; got {memory_limit_gb}. Leave it out for no limit."
        )
    if cpu_devices is not None and cpu_devices < 1:
        raise ValueError(f"`cpu_devices` must be at least 1; got {cpu_devices}. Leave it out for one device.")

    # Conflicts first: a call that cannot be honoured must change nothing.
    if cache_dir is None and _settings.cache_dir is None:
        cache_dir = "auto"
    folder = cache_folder(cache_dir)
    adopt = _refuse_conflicts if backend_started() else _prepare_backend
    adopt(device, memory_limit_gb, preallocate, cpu_devices)

    if dtype is not None:
        import_jax().config.update("jax_enable_x64", dtype == "float64")
    if folder is not None:
        use_cache(folder)
    asked = Settings(dtype, device, memory_limit_gb, preallocate, cpu_devices, folder)
    _settings = dataclasses.replace(_settings, **{k: v for k, v in vars(asked).items() if v is not None})
    return _settings


def backend_started() -> bool:
    """Whether JAX has started a backend in this process (asking does not start one)."""
    if "jax" not in sys.modules:
        return False
    # JAX has no public question for this in 0.10-0.12; without the private one we assume it has not started.
    bridge = importlib.import_module("jax._src.xla_bridge")
    return bool(getattr(bridge, "backends_are_initialized", lambda: False)())


def import_jax() -> Any:
    """JAX, imported when a function needs it: an import of this package must not take half a second."""
    return importlib.import_module("jax")


def _refuse_conflicts(
    device: str | None, memory_limit_gb: float | None, preallocate: bool | None, cpu_devices: int | None
) -> None:
    jax = import_jax()
    running = jax.default_backend()
    late = "Call `configure` before the first JAX operation of the process"
    if device is not None and device != running:
        try:
            jax.devices(device)
        except RuntimeError as error:
            raise RuntimeConflictError(_no_device(device, running)) from error
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
    news = memory_limit_gb != _settings.memory_limit_gb and _fraction_set() is None
    if memory_limit_gb is not None and news:
        limit = (jax.local_devices()[0].memory_stats() or {}).get("bytes_limit", 0) / _GIB
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
    jax = import_jax()
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
        try:
            running = jax.default_backend()
        except (RuntimeError, AssertionError):  # JAX_PLATFORMS demands a device that is not there
            running = "none"
        if running != device:
            for name, value in kept.items():
                os.environ.pop(name, None) if value is None else os.environ.update({name: value})
            raise RuntimeConflictError(_no_device(device, running))
    elif device == "cpu":
        jax.config.update("jax_platforms", "cpu")
    if cpu_devices is not None and not backend_started():
        jax.config.update("jax_num_cpu_devices", cpu_devices)


def _refuse_hopeless(device: str) -> None:
    """Raise for a device that JAX cannot find, without starting a backend: no plugin, or hidden by a setting."""
    asked = [p.strip() for p in (import_jax().config.jax_platforms or "").split(",") if p.strip()]
    names = {"gpu": {"gpu", "cuda", "rocm"}, "tpu": {"tpu"}}[device]
    hidden = bool(asked) and not names & set(asked)
    package = {"gpu": "jax_plugins", "tpu": "libtpu"}[device]
    if hidden or not (importlib.util.find_spec(package) or importlib.metadata.entry_points(group=package)):
        raise RuntimeConflictError(_no_device(device, "cpu"))


def _no_device(device: str, running: str) -> str:
    asked = import_jax().config.jax_platforms
    limits = f" JAX_PLATFORMS={asked}, or an earlier `configure`, limits what JAX looks for." if asked else ""
    remedy = {
        "gpu": "Check `nvidia-smi`, install `jax[cuda13]` (or `jax[cuda12]`)",
        "tpu": "Run on a TPU host with `jax[tpu]`",
        "cpu": "Remove JAX_PLATFORMS",
    }[device]
    return f"`device={device!r}` is not there: JAX found only {running!r}.{limits} {remedy}, or pass `device='cpu'`."


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
