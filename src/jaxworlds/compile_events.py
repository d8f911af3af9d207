"""Compile events: what JAX traces, lowers and compiles, as `jax.monitoring` reports it."""

import threading
from typing import Any

import jax

_PHASES = {
    "/jax/core/compile/jaxpr_trace_duration": "trace",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "lower",
    "/jax/core/compile/backend_compile_duration": "compile",
}
_DISK = {"/jax/compilation_cache/cache_hits": True, "/jax/compilation_cache/cache_misses": False}


class CompileListener:
    """Receives every compile event of the process between `listen` and `stop_listening`."""

    def listen(self) -> None:
        """Register with JAX."""
        jax.monitoring.register_event_duration_secs_listener(self._on_duration)
        jax.monitoring.register_event_listener(self._on_event)

    def stop_listening(self) -> None:
        """Unregister."""
        jax.monitoring.unregister_event_duration_listener(self._on_duration)
        jax.monitoring.unregister_event_listener(self._on_event)

    def on_phase(self, phase: str, seconds: float, function: str) -> None:
        """Called after a `phase` of `function`: "trace", "lower" or "compile"."""

    def on_disk(self, hit: bool) -> None:
        """Called after the disk cache was asked for a program."""

    def _on_duration(self, event: str, duration_secs: float, **details: Any) -> None:
        if event in _PHASES:
            self.on_phase(_PHASES[event], duration_secs, str(details.get("fun_name", "unknown")))

    def _on_event(self, event: str, **_: Any) -> None:
        if event in _DISK:
            self.on_disk(_DISK[event])


class CompileEvents(CompileListener):
    """Traces and compiles of this thread inside a `with` block.

    `compiles` counts programs handed to the backend; `disk_hits` of them came from the persistent cache.
    `trace_s` is the longest single trace: a function's trace contains those of the functions it calls.
    `lower_s` and `compile_s` are sums. With `every_thread` the work of all threads counts.
    """

    def __init__(self, *, every_thread: bool = False) -> None:
        self.trace_s = self.lower_s = self.compile_s = 0.0
        self.compiles = self.disk_hits = 0
        self._every_thread, self._thread = every_thread, 0
        self._lock = threading.Lock()

    @property
    def seconds(self) -> float:
        """Seconds of the longest trace, and of all lowering and compiling."""
        return self.trace_s + self.lower_s + self.compile_s

    def __enter__(self) -> "CompileEvents":
        self._thread = threading.get_ident()
        self.listen()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop_listening()

    def on_phase(self, phase: str, seconds: float, function: str) -> None:
        if not self._counts():
            return
        with self._lock:
            if phase == "trace":
                self.trace_s = max(self.trace_s, seconds)
            elif phase == "lower":
                self.lower_s += seconds
            else:
                self.compile_s += seconds
                self.compiles += 1

    def on_disk(self, hit: bool) -> None:
        if hit and self._counts():
            with self._lock:
                self.disk_hits += 1

    def _counts(self) -> bool:
        return self._every_thread or threading.get_ident() == self._thread
