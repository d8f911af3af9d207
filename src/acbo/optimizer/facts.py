"""An optimization, a problem and a file of weights as plain data, for scripts."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from acbo.answers import likely_edges

from .optimizer import Optimizer
from .state import FORMAT, Settings

SEEN = 0.005
"""Edges less likely than this are left out."""


def file_facts(path: Path) -> dict[str, Any]:
    """What a problem (.toml), a file of weights (.safetensors) or a saved optimization holds."""
    if path.suffix == ".toml":
        from .problem_file import read_problem

        return {"kind": "problem", **settings_facts(read_problem(path).settings())}
    if path.suffix == ".safetensors":
        return {"kind": "weights", **weights_facts(path)}
    return {"kind": "optimization", **optimization_facts(saved_optimization(path))}


def saved_optimization(path: Path) -> Optimizer:
    """The optimization in a file, which is not written to; refused where the file is something else."""
    with path.open("rb") as file:
        if FORMAT.encode() not in file.read(200):
            raise ValueError(
                f"`file` must be a saved optimization, a .safetensors file or a problem .toml; {path} is none of them."
            )
    return Optimizer.load(path, keep=False)


def settings_facts(settings: Settings) -> dict[str, Any]:
    """The question: variables with what they can be set to and cost, target, and what is known."""
    return {
        "target": settings.target,
        "objective": settings.objective,
        "strategy": settings.strategy,
        "mechanism": settings.mechanism,
        "variables": [dataclasses.asdict(variable) for variable in settings.variables],
        "graph": settings.graph.to_json(),
    }


def optimization_facts(optimizer: Optimizer) -> dict[str, Any]:
    """The question, how far it went, what is believed, and the recommendation."""
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
        edges = np.asarray(optimizer.believed.edges)
        facts["edges"] = likely_edges(edges, list(state.settings.names), SEEN)
        facts["recommended"] = dataclasses.asdict(optimizer.recommend())
    return facts


def weights_facts(path: Path) -> dict[str, Any]:
    """The arrays of a safetensors file and what is written beside them, read from its header alone."""
    with path.open("rb") as file:
        try:
            header = json.loads(file.read(min(int.from_bytes(file.read(8), "little"), 1 << 24)))
            facts = dict(header.pop("__metadata__", {}))
            arrays = {name: {"shape": row["shape"], "dtype": row["dtype"]} for name, row in header.items()}
            for row in arrays.values():
                if not isinstance(row["dtype"], str) or not all(type(n) is int for n in row["shape"]):
                    raise ValueError("an array has no type or shape")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"{path} must be a safetensors file; its header cannot be read.") from error
    numbers = sum(math.prod(row["shape"]) for row in arrays.values())
    return {"format": facts.pop("format", "weights"), "numbers": numbers, "arrays": arrays, "facts": facts}
