"""Peers in virtual environments of their own: making them, and running one over a file of cases."""

import hashlib
import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from peer_tools import Missing, make_environments

HERE = Path(__file__).resolve().parent
ENVIRONMENTS = {"dibs": "dibs-lib==1.3.3", "causal-learn": "causal-learn==0.1.4.8"}
# One thread, so that CPU seconds are those of the work and not of threads that wait.
ONE_THREAD = {
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "JAX_PLATFORMS": "cpu",
}


def set_up(folder: Path) -> None:
    """Make the environments that are not there yet; one that cannot be made says why."""
    make_environments(folder, ENVIRONMENTS)


def file_name(environment: str, values: np.ndarray, options: Mapping[str, Any]) -> str:
    """A name for the answers of a peer so set to these cases: others are not taken for them.

    The first cases are the same whatever their number, so that their answers serve longer runs too.
    """
    asked = (
        np.ascontiguousarray(values[:2], np.float32).tobytes() + json.dumps(options, sort_keys=True).encode()
    )
    return f"{environment}-{options['kind']}-{values.shape[2]}-{hashlib.sha256(asked).hexdigest()[:12]}"


def answers_of(
    folder: Path | None,
    environment: str,
    script: str,
    values: np.ndarray,
    options: Mapping[str, Any],
    run: bool = True,
) -> dict[str, Any]:
    """What a peer says of the cases `[case, row, variable]`, kept in `folder/answers` case by case.

    Without `run` only what is there is taken, which may be fewer cases.
    """
    if folder is None:
        raise Missing("no environments named; make them with --setup-peers DIR")
    base = folder / "answers" / file_name(environment, values, options)
    cases, answers = base.with_suffix(".npz"), base.with_suffix(".json")
    base.parent.mkdir(exist_ok=True)
    done = len(json.loads(answers.read_text())["answers"]) if answers.exists() else 0
    if done < len(values) and run:
        if not (folder / environment / "ready").exists():
            raise Missing(f"not installed in {folder}; run with --setup-peers")
        np.savez(cases, values=values)
        # A peer must not import our packages by way of PYTHONPATH.
        inherited = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        python = folder / environment / "bin" / "python"
        command = [str(python), str(HERE / script), str(cases), str(answers), json.dumps(dict(options))]
        ended = subprocess.run(
            command, env=inherited | ONE_THREAD, text=True, stderr=subprocess.PIPE, check=False
        )
        if ended.returncode:
            raise Missing((ended.stderr.strip().splitlines() or [f"ended with {ended.returncode}"])[-1])
    elif not done:
        raise Missing(f"no answers in {base.parent}; run without --answered")
    document = json.loads(answers.read_text())
    return document | {"answers": document["answers"][: len(values)]}
