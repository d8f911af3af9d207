"""Runs one structure learner over the cases of a file, saving after each; needs NumPy alone.

    python dibs_svgd.py CASES.npz ANSWERS.json '{"kind": "marginal", "cases": 10}'

A learner is a function `learn(rows, seed, **options) -> answer`; `rows` is [n, d] and the answer holds matrices `[i, j]`
about i → j as nested lists. What is in the file of answers already is not computed again, so a run that breaks off goes
on where it was. Both clocks run in this process: `cpu_s` counts all its threads and does not mind other processes.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Learn = Callable[..., dict[str, Any]]


def serve(learn: Learn, versions: Callable[[], dict[str, str]]) -> None:
    """Answer the cases named on the command line."""
    cases, answers, options = Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3])
    count = options.pop("cases", None)
    values = np.load(cases)["values"][:count].astype(np.float64)
    document: dict[str, Any] = {"options": options, "versions": versions(), "answers": []}
    if answers.exists():
        document["answers"] = json.loads(answers.read_text())["answers"]
    for seed in range(len(document["answers"]), len(values)):
        cpu, wall = time.process_time(), time.perf_counter()
        answer = learn(values[seed], seed, **options)
        answer |= {"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}
        document["answers"].append(answer)
        _save(answers, document)
        print(f"{seed}: {answer['wall_s']:.3f} s, CPU {answer['cpu_s']:.3f} s", flush=True)
    _save(answers, document)


def _save(path: Path, document: dict[str, Any]) -> None:
    """The whole file or the one before."""
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps(document))
    os.replace(beside, path)
