"""Fuzz every loader: `python tests/support/fuzz.py --inputs 100000 --jobs 2 --out benchmarks/results/cpu/fuzz.json`.

Inputs are loaded in worker processes with a limit on memory and time. A process that dies or hangs is a finding like an
unclear error, and another one goes on after that input. Results are kept loader by loader: the same command goes on where
it was stopped, `--fresh` begins anew. Findings lie in a folder beside the results, each with its input and what was seen.
"""

import argparse
import base64
import json
import os
import resource
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "src")]

from fuzz_cases import Loader, make_input, try_one  # noqa: E402

MEMORY = 1 << 30
"""Bytes of address space that one input may take beyond what the process has at the start."""
SECONDS = 30.0
"""An input that takes longer hangs (wall time: other processes may be at work)."""
SLOW = 4.0
"""Seconds of processor time after which an input counts as a finding too."""
BATCH = 2000


def loaders() -> dict[str, Loader]:
    """All loaders by name."""
    import fuzz_acbo
    import fuzz_arc
    import fuzz_core
    import fuzz_socket
    import fuzz_trace
    import fuzz_zarr

    own = (fuzz_core, fuzz_socket, fuzz_arc, fuzz_trace, fuzz_zarr, fuzz_acbo)
    found = [loader for module in own for loader in module.LOADERS]
    return {loader.name: loader for loader in found}


def shares(chosen: list[Loader], inputs: int, least: int) -> dict[str, int]:
    """How many inputs each loader gets: by weight, and at least `least`."""
    total = sum(loader.weight for loader in chosen)
    return {loader.name: max(least, round(inputs * loader.weight / total)) for loader in chosen}


def work(name: str, seed: int, first: int, count: int) -> None:
    """The worker: one line of JSON per input, the number before it is loaded and the outcome after it."""
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    loader = loaders()[name]
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        seeds = loader.seeds(home)
        path = home / loader.target
        for valid in seeds:  # compiles and imports what loading needs, before memory is limited
            path.write_bytes(valid)
            outcome = try_one(loader, path)
            if outcome.kind != "loaded":
                loader.load(path)  # once more, for its error
                _say({"invalid seed": outcome.kind, "detail": outcome.detail})
                return
        _say({"folder": folder})
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
        for index in range(first, first + count):
            path.write_bytes(make_input(loader, seeds, seed, index))
            _say({"start": index})
            before = time.process_time()
            outcome = try_one(loader, path)
            took = time.process_time() - before
            kind = outcome.kind if took < SLOW or not outcome.fine else "slow"
            kept = "" if kind in ("loaded", "refused") else base64.b64encode(path.read_bytes()).decode()
            _say({"end": index, "kind": kind, "detail": outcome.detail, "seconds": took, "input": kept})
    _say({"done": True})


def _say(fact: dict[str, Any]) -> None:
    sys.__stdout__.write(json.dumps(fact) + "\n")  # pyright: ignore[reportOptionalMemberAccess]
    sys.__stdout__.flush()  # pyright: ignore[reportOptionalMemberAccess]


@dataclass
class Job:
    """A worker at work on some inputs of a loader."""

    loader: Loader
    process: subprocess.Popen[bytes]
    last: int
    """The first input that it does not have to do."""
    folder: Path | None = None
    at: int | None = None
    moved: float = field(default_factory=time.monotonic)
    rest: bytes = b""


class Run:
    """All loaders, the results so far, and the workers."""

    def __init__(self, chosen: list[Loader], goal: dict[str, int], seed: int, out: Path, jobs: int):
        self.chosen, self.goal, self.seed, self.out, self.jobs = chosen, goal, seed, out, jobs
        self.findings = out.with_name(f"{out.stem}_findings")
        self.results: dict[str, Any] = {}
        if out.is_file():
            self.results = json.loads(out.read_text())["loaders"]
        self.queue = [
            (loader, start, min(start + BATCH, goal[loader.name]))
            for loader in chosen
            for start in range(self.results.get(loader.name, {}).get("inputs", 0), goal[loader.name], BATCH)
        ]
        self.selector = selectors.DefaultSelector()
        self.running: list[Job] = []
        self.noise = tempfile.TemporaryFile()  # noqa: SIM115 (as long as the run)

    def start(self, loader: Loader, first: int, last: int) -> None:
        command = [sys.executable, str(Path(__file__)), "--worker", loader.name]
        command += [str(self.seed), str(first), str(last - first)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.noise)
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        job = Job(loader, process, last)
        self.selector.register(process.stdout, selectors.EVENT_READ, job)
        self.running.append(job)

    def entry(self, name: str) -> dict[str, Any]:
        empty = {"inputs": 0, "loaded": 0, "refused": 0, "findings": {}, "slowest_s": 0.0, "seconds": 0.0}
        return self.results.setdefault(name, empty)

    def note(self, job: Job, index: int, kind: str, detail: str, seconds: float, data: str = "") -> None:
        entry = self.entry(job.loader.name)
        entry["inputs"] += 1
        entry["seconds"] += seconds
        entry["slowest_s"] = max(entry["slowest_s"], seconds)
        if kind in ("loaded", "refused"):
            entry[kind] += 1
            return
        entry["findings"][kind] = entry["findings"].get(kind, 0) + 1
        if entry["findings"][kind] <= 20:
            place = self.findings / job.loader.name.replace("/", "_")
            place.mkdir(parents=True, exist_ok=True)
            stem = f"{kind.replace(' ', '_').replace('/', '_')}_{index}"
            suffix = Path(job.loader.target).suffix
            if data:
                (place / f"{stem}{suffix}").write_bytes(base64.b64decode(data))
            elif job.folder is not None and (job.folder / job.loader.target).is_file():
                shutil.copyfile(
                    job.folder / job.loader.target, place / f"{stem}{suffix}"
                )  # of a process that is gone
            (place / f"{stem}.txt").write_text(detail or kind)

    def heard(self, job: Job, fact: dict[str, Any]) -> None:
        job.moved = time.monotonic()
        if "start" in fact:
            job.at = fact["start"]
        elif "end" in fact:
            self.note(job, fact["end"], fact["kind"], fact["detail"], fact["seconds"], fact["input"])
            job.at = None
        elif "folder" in fact:
            job.folder = Path(fact["folder"])
        elif "invalid seed" in fact:
            raise SystemExit(
                f"{job.loader.name}: a valid input is not loaded: {fact['invalid seed']}\n{fact['detail']}"
            )

    def read(self, job: Job) -> bool:
        """Take what the worker said; False when it is gone."""
        assert job.process.stdout is not None
        data = job.process.stdout.read()
        if data is None:
            return True
        job.rest += data
        *lines, job.rest = job.rest.split(b"\n")
        for line in lines:
            self.heard(job, json.loads(line))
        return bool(data)

    def finish(self, job: Job, hung: bool) -> None:
        """Note how a worker ended, and let another go on after an input that ended it."""
        assert job.process.stdout is not None
        self.selector.unregister(job.process.stdout)
        if hung:
            job.process.kill()
        code = job.process.wait()
        self.read(job)
        job.process.stdout.close()
        self.running.remove(job)
        if job.at is not None and code < 0:
            kind, died = "hang" if hung else "crash", signal.Signals(-code).name
            self.note(job, job.at, kind, f"{kind}: the process died of {died}", SECONDS if hung else 0.0)
            if job.at + 1 < job.last:
                self.queue.insert(0, (job.loader, job.at + 1, job.last))
        elif code:
            self.noise.seek(0)
            raise SystemExit(
                f"{job.loader.name}: the worker ended with {code}\n{self.noise.read()[-3000:].decode()}"
            )
        if job.folder is not None:
            shutil.rmtree(job.folder, ignore_errors=True)
        self.save()

    def save(self) -> None:
        import datetime
        import platform

        self.out.parent.mkdir(parents=True, exist_ok=True)
        total = Counter[str]()
        for entry in self.results.values():
            total["inputs"] += entry["inputs"]
            total["findings"] += sum(entry["findings"].values())
        facts = {
            "date": datetime.date.today().isoformat(),
            "seed": self.seed,
            "python": platform.python_version(),
            "inputs": total["inputs"],
            "findings": total["findings"],
            "loaders": {
                name: {**e, "seconds": round(e["seconds"], 2), "slowest_s": round(e["slowest_s"], 3)}
                for name, e in sorted(self.results.items())
            },
        }
        draft = self.out.with_suffix(".tmp")
        draft.write_text(json.dumps(facts, indent=1) + "\n")
        draft.replace(self.out)

    def go(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (
            TextColumn("{task.description:32}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=Console(stderr=True)) as bar:
            shown = bar.add_task("", total=sum(self.goal.values()))
            while self.queue or self.running:
                while self.queue and len(self.running) < self.jobs:
                    self.start(*self.queue.pop(0))
                for key, _ in self.selector.select(timeout=1.0):
                    if not self.read(key.data):
                        self.finish(key.data, hung=False)
                for job in list(self.running):
                    limit = (
                        SECONDS if job.folder is not None else 10 * SECONDS
                    )  # imports and compilation first
                    if time.monotonic() - job.moved > limit:
                        self.finish(job, hung=True)
                done = sum(self.entry(loader.name)["inputs"] for loader in self.chosen)
                bad = sum(sum(self.entry(loader.name)["findings"].values()) for loader in self.chosen)
                names = ", ".join(job.loader.name for job in self.running)
                bar.update(shown, completed=done, description=f"{bad} findings; {names}"[:60])


def main() -> int:
    if sys.argv[1:2] == ["--worker"]:
        name, seed, first, count = sys.argv[2:]
        work(name, int(seed), int(first), int(count))
        return 0
    parser = argparse.ArgumentParser(description="Feed malformed input to every loader.")
    parser.add_argument("--inputs", type=int, default=100_000, help="in total")
    parser.add_argument("--least", type=int, default=1000, help="for each loader")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=[], help="loaders by name, or by the beginning of it")
    parser.add_argument("--out", type=Path, default=Path("fuzz.json"), help="results; findings lie beside it")
    parser.add_argument("--fresh", action="store_true", help="forget earlier results")
    given = parser.parse_args()
    known = loaders()
    chosen = [one for name, one in known.items() if not given.only or name.startswith(tuple(given.only))]
    if not chosen:
        parser.error(f"--only must name some of {', '.join(known)}")
    if given.fresh:
        given.out.unlink(missing_ok=True)
        shutil.rmtree(given.out.with_name(f"{given.out.stem}_findings"), ignore_errors=True)
    run = Run(chosen, shares(chosen, given.inputs, given.least), given.seed, given.out, given.jobs)
    run.go()
    run.save()
    bad = 0
    for loader in chosen:
        entry = run.entry(loader.name)
        bad += sum(entry["findings"].values())
        per = 1e3 * entry["seconds"] / max(entry["inputs"], 1)
        print(
            f"{loader.name:28} {entry['inputs']:7,} inputs  {entry['loaded']:6,} loaded  {entry['refused']:6,} refused  "
            f"{per:6.1f} ms  slowest {entry['slowest_s']:.2f} s  {entry['findings'] or ''}"
        )
    print(f"{bad} findings" + (f" in {run.findings}" if bad else ""))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
