"""Compile events: what JAX traced, lowered and compiled within a block, as `jax.monitoring` reports it."""

import threading
from typing import Any

import jax

_TRACE = "/jax/core/compile/jaxpr_trace_duration"
_LOWER = "/jax/core/compile/jaxpr_to_mlir_module_duration"
_COMPILE = "/jax/core/compile/backend_compile_duration"
_CACHE_HIT = "/jax/compilation_cache/cache_hits"


class CompileEvents:
    """Traces and compiles of this thread inside a `with` block, as `jax.monitoring` reports them.

    `compiles` counts programs handed to the backend; `disk_hits` of them came from the persistent cache.
    `trace_s` is the longest single trace: a function's trace contains those of the functions it calls.
    `lower_s` and `compile_s` are sums. With `every_thread` the work of all threads counts.
    """

    def __init__(self, *, every_thread: bool = False) -> None:
        self.trace_s = 0.0
        self.lower_s = 0.0
        self.compile_s = 0.0
        self.compiles = 0
        self.disk_hits = 0
        self._every_thread = every_thread
        self._thread = 0
        self._lock = threading.Lock()

    @property
    def seconds(self) -> float:
        """Seconds of the longest trace, and of all lowering and compiling."""
        return self.trace_s + self.lower_s + self.compile_s

    def __enter__(self) -> "CompileEvents":
        self._thread = threading.get_ident()
        jax.monitoring.register_event_duration_secs_listener(self._on_duration)
        jax.monitoring.register_event_listener(self._on_event)
        return self

    def __exit__(self, *_: object) -> None:
        jax.monitoring.unregister_event_duration_listener(self._on_duration)
        jax.monitoring.unregister_event_listener(self._on_event)

    def _on_duration(self, event: str, duration_secs: float, **_: Any) -> None:
        if not self._counts():
            return
        with self._lock:
            if event == _TRACE:
                self.trace_s = max(self.trace_s, duration_secs)
            elif event == _LOWER:
                self.lower_s += duration_secs
            elif event == _COMPILE:
                self.compile_s += duration_secs
                self.compiles += 1

    def _on_event(self, event: str, **_: Any) -> None:
        if event == _CACHE_HIT and self._counts():
            with self._lock:
                self.disk_hits += 1

    def _counts(self) -> bool:
        return self._every_thread or threading.get_ident() == self._thread
