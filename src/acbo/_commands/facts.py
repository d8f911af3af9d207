"""An optimization, a problem and a file of weights as plain data, for scripts."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from acbo.answers import likely_edges
from acbo.optimizer.optimizer import Optimizer
from acbo.optimizer.state import FORMAT, Settings

from .problem_file import read_problem

SEEN = 0.005
"""Edges less likely than this are left out."""


def file_facts(path: Path) -> dict[str, Any]:
    """Contents of a problem (.toml), a file of weights (.safetensors) or a saved optimization."""
    if path.suffix == ".toml":
        return {"kind": "problem", **settings_facts(read_problem(path).settings())}
    if path.suffix == ".safetensors":
        return {"kind": "weights", **weights_facts(path)}
    return {"kind": "optimization", **optimization_facts(saved_optimization(path))}


def saved_optimization(path: Path) -> Optimizer:
    """The optimization in a file, opened for reading only; raises for any other file."""
    with path.open("rb") as file:
        if FORMAT.encode() not in file.read(200):
            raise ValueError(
                f"`file` must be a saved optimization, a .safetensors file or a problem .toml; got {path}, which is none of them."
            )
    return Optimizer.load(path, keep=False)


def settings_facts(settings: Settings) -> dict[str, Any]:
    """The problem as plain data: variables with ranges and costs, target, strategy and graph."""
    facts = dataclasses.asdict(settings)
    return {
        word: facts[word] for word in ("target", "objective", "strategy", "mechanism", "variables", "graph")
    }


def optimization_facts(optimizer: Optimizer) -> dict[str, Any]:
    """The problem, its progress, the likely edges, and the recommendation."""
    state = optimizer.state
    facts = {
        **settings_facts(state.settings),
        "rows": len(state.rows),
        "experiments": len(state.made),
        "pending": [dataclasses.asdict(pending) for pending in state.pending],
        "spent": state.spent,
        "remaining": optimizer.remaining,
        "stopped": state.stopped,
        "edges": [],
        "recommended": None,
    }
    if state.rows:
        edges = np.asarray(optimizer.current_belief.edges)
        facts["edges"] = likely_edges(edges, list(state.settings.names), SEEN)
        facts["recommended"] = dataclasses.asdict(optimizer.recommend())
    return facts


_LONGEST_HEADER = 1 << 24


class _SizeError(Exception):
    """The sizes of the arrays do not add up to the file."""


def _check_sizes(header: dict[str, Any], held: int) -> None:
    """Raise unless the arrays follow one another in `held` bytes, each as large as its type and shape say."""
    at = 0
    for name, row in sorted(header.items(), key=lambda pair: pair[1]["data_offsets"]):
        start, end = row["data_offsets"]
        digits = "".join(c for c in row["dtype"].split("_")[0] if c.isdigit())  # F32, BF16, F8_E4M3, BOOL
        bits = 8 if row["dtype"] == "BOOL" else int(digits)
        if any(n < 0 for n in row["shape"]) or 8 * (end - start) != bits * math.prod(row["shape"]):
            raise _SizeError(f"array {name[:60]!r} claims another size than its type and shape take")
        if start != at:
            raise _SizeError(f"array {name[:60]!r} does not lie behind the one before it")
        at = end
    if at != held:
        raise _SizeError(f"its arrays claim {at:,} bytes and the file holds {held:,} for them")


def weights_facts(path: Path) -> dict[str, Any]:
    """The arrays and the metadata of a safetensors file, read from its header alone."""
    with path.open("rb") as file:
        try:
            held = path.stat().st_size - 8
            length = int.from_bytes(file.read(8), "little")
            if length > max(held, 0):
                raise _SizeError(f"its header claims {length:,} bytes and {max(held, 0):,} follow")
            header = json.loads(file.read(min(length, _LONGEST_HEADER)))
            facts = dict(header.pop("__metadata__", {}))
            _check_sizes(header, held - length)
            arrays = {name: {"shape": row["shape"], "dtype": row["dtype"]} for name, row in header.items()}
            for row in arrays.values():
                if not isinstance(row["dtype"], str) or not all(type(n) is int for n in row["shape"]):
                    raise ValueError("an array has no type or shape")
        except _SizeError as error:
            raise ValueError(
                f"{path} must be a safetensors file; {error}. It is damaged: get it again."
            ) from error
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"{path} must be a safetensors file; its header cannot be read.") from error
    numbers = sum(math.prod(row["shape"]) for row in arrays.values())
    return {"format": facts.pop("format", "weights"), "numbers": numbers, "arrays": arrays, "facts": facts}
