"""Looking at a run as its configuration says: lines, pictures, replays and arrays of episodes, in a folder."""

import json
import queue
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jaxworlds.memory import LazyLoader
from jaxworlds.store import atomic_write

from ...envs.config import debug_level_number
from .archive import STEP_NUMBERS, EpisodeArchive
from .console import print_episode, print_step
from .memory import MemoryManager, VisualizationCache
from .records import EpisodeRecord, StepRecord, operation_name
from .replay import episode_html
from .svg import episode_svg

_QUEUE = 256  # steps and episodes that may wait for the writing thread


class VisualizationSession:
    """Shows and keeps what a run does, as much as `config` (a `VisualizationConfig`, or all settings) says.

    Each level adds to the one before it: "off" does nothing, "minimal" prints a line for each episode,
    "standard" writes its picture and a line of `episodes.jsonl`, "verbose" prints every step, "research" keeps
    everything: an HTML replay, all arrays (`load` brings them back) and a line of `steps.jsonl` for each step.

    With `async_logging` a thread of its own does the work: a step that finds 256 others waiting is dropped and
    counted (`dropped`), an episode waits. Leaving the session waits for all of it. What fails is counted
    (`errors`, `last_error`) and never reaches the caller. With `performance_monitoring` the time of every call is
    kept: `performance()` tells, and `performance.json` at the end, from level "standard" on.

    `memory_management`: episodes stay in a cache of `max_cache_mb`, which together with loaded ones takes at most
    `max_total_mb`; with `lazy_loading` saved episodes come back as a `LazyLoader`; with `compression` arrays are
    saved compressed and under checksums, else as plain `.npz`.

    ```python
    with VisualizationSession(config.visualization, "runs/today") as session:
        session.log_episode(record_episode(arc_reset(key, config, task), policy, config))
    ```
    """

    def __init__(self, config: Any, folder: str | Path, *, console: Any = None) -> None:
        config = getattr(config, "visualization", config)
        debug = config.debug
        level = debug_level_number(debug.level)
        self.level = level if config.enabled else 0
        self.folder = Path(folder)
        self.errors, self.dropped = 0, 0
        self.last_error: BaseException | None = None
        memory = debug.memory_management
        self._lazy = memory.lazy_loading
        self._archive = EpisodeArchive(self.folder / "episodes", memory.compression)
        self.manager = MemoryManager(memory.max_total_mb)
        self.cache = self.manager.register_cache(VisualizationCache(memory.max_cache_mb))
        self._console = console
        self._times: dict[str, list[float]] | None = {} if debug.performance_monitoring else None
        self._lock = threading.Lock()
        self._episodes = _last_number(self.folder)  # an earlier run in this folder keeps its episodes
        self._queue: queue.Queue[Callable[[], None] | None] | None = None
        if debug.async_logging and self.level:
            self._queue = queue.Queue(_QUEUE)
            self._thread = threading.Thread(target=self._work, name="visualization", daemon=True)
            self._thread.start()

    def log_step(self, step: StepRecord, *, number: int | None = None) -> None:
        """Show one step (from "verbose" on); `number` is the step's own in its episode."""
        start = time.perf_counter()
        if self.level >= 3:
            self._hand_over(lambda: self._do("show_step", lambda: self._show_step(step, number)), wait=False)
        self._count("log_step", start)

    def log_episode(self, episode: EpisodeRecord, key: str | None = None) -> str:
        """Show and keep one episode (from "minimal" on); returns the name it is kept under."""
        start = time.perf_counter()
        if key is None:
            self._episodes += 1
            key = f"episode_{self._episodes:05d}"
        elif not key or key in (".", "..") or Path(key).name != key:
            raise ValueError(f"`key` must be a file name without folders; got {key!r}.")
        if self.level:
            self._do("keep", lambda: self.cache.put(key, episode))
            self._hand_over(lambda: self._write_episode(key, episode), wait=True)
        self._count("log_episode", start)
        return key

    def load(self, key: str) -> Any:
        """An episode logged before, from the cache or the folder; a `LazyLoader` of it with `lazy_loading`.

        KeyError where it is in neither: only level "research" saves what the cache may forget.
        """
        if key not in self.cache:
            self.flush()
        if key not in self.cache and key not in self._archive:
            raise KeyError(
                f"no episode {key!r} in the cache or in {self._archive.folder}; level 'research' saves all."
            )
        if not self._lazy:
            return self._fetch(key)
        return self.manager.register_lazy_loader(LazyLoader(lambda: self._fetch(key), max_idle_time=300.0))

    def flush(self) -> None:
        """Wait until everything logged so far is shown and written."""
        if self._queue is not None:
            self._queue.join()

    def performance(self) -> dict[str, dict[str, float]]:
        """Calls and milliseconds of each kind of work, by name; empty without `performance_monitoring`.

        `log_step` and `log_episode` are what the caller waited; the others are the work itself.
        """
        with self._lock:
            times = {name: list(taken) for name, taken in (self._times or {}).items()}
        return {
            name: {
                "calls": len(taken),
                "avg_ms": 1e3 * sum(taken) / len(taken),
                "max_ms": 1e3 * max(taken),
                "total_ms": 1e3 * sum(taken),
            }
            for name, taken in times.items()
        }

    def __enter__(self) -> "VisualizationSession":
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Finish all work, stop the thread, write the times, and let go of the memory."""
        if self._queue is not None:
            self._queue.put(None)
            self._thread.join()
            self._queue = None
        if self.level >= 2 and self._times:
            times = json.dumps(self.performance(), indent=2) + "\n"
            self._do("report", lambda: self._write_text("performance.json", times))
        self.manager.cleanup_memory()

    def _fetch(self, key: str) -> EpisodeRecord:
        found = self.cache.get(key)
        if found is None:
            found = self._archive.load(key)
            self.cache.put(key, found)
        return found

    def _hand_over(self, job: Callable[[], None], wait: bool) -> None:
        if self._queue is None:
            job()
            return
        try:
            self._queue.put(job, block=wait)
        except queue.Full:
            self.dropped += 1

    def _work(self) -> None:
        waiting = self._queue
        assert waiting is not None
        while (job := waiting.get()) is not None:
            job()  # counts its own failures, so it does not raise
            waiting.task_done()
        waiting.task_done()

    def _do(self, name: str, job: Callable[[], Any]) -> None:
        """Run `job`; a failure is counted and goes no further: looking must not stop a run."""
        start = time.perf_counter()
        try:
            job()
        except Exception as error:  # noqa: BLE001 - any failure of showing or writing, see above
            with self._lock:
                self.errors, self.last_error = self.errors + 1, error
        self._count(name, start)

    def _count(self, name: str, start: float) -> None:
        if self._times is not None:
            with self._lock:
                self._times.setdefault(name, []).append(time.perf_counter() - start)

    def _show_step(self, step: StepRecord, number: int | None) -> None:
        print_step(step, title="" if number is None else f"step {number}:", console=self._console)
        if self.level >= 4:
            facts = {"number": number, "operation": step.operation, "name": operation_name(step.operation)}
            numbers = {name: getattr(step, name) for name in STEP_NUMBERS}
            self._append("steps.jsonl", {**facts, **numbers, "selected": int(step.selection.sum())})

    def _write_episode(self, key: str, episode: EpisodeRecord) -> None:
        """Everything that the level asks for; one part that fails does not keep the others from being made."""
        self._do("print", lambda: print_episode(episode, console=self._console))
        if self.level >= 2:
            self._do("svg", lambda: self._write_text(f"{key}.svg", episode_svg(episode)))
            self._do("summary", lambda: self._append("episodes.jsonl", _summary(key, episode)))
        if self.level >= 4:
            self._do("html", lambda: episode_html(episode, self.folder / f"{key}.html"))
            self._do("arrays", lambda: self._archive.save(key, episode))

    def _write_text(self, name: str, text: str) -> None:
        with atomic_write(self.folder / name, "w") as file:
            file.write(text)

    def _append(self, name: str, row: dict[str, Any]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.folder / name, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def _last_number(folder: Path) -> int:
    """The highest number of an episode that the folder holds already; 0 if none."""
    found = (re.match(r"episode_(\d+)", file.name) for file in folder.rglob("episode_*"))
    return max((int(match[1]) for match in found if match), default=0)


def _summary(key: str, episode: EpisodeRecord) -> dict[str, Any]:
    names = ("task_id", "mode", "outcome", "success", "length", "total_reward", "final_similarity")
    facts = {name: getattr(episode, name) for name in names}
    return {"key": key, **facts} | ({} if episode.steps else {"final_similarity": None})
