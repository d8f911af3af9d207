"""PC and GES (`causal-learn`) on the cases: one equivalence class each, not a distribution."""

import warnings
from importlib import metadata
from typing import Any

import numpy as np
import peer_worker

warnings.filterwarnings("ignore")


def learn(rows: np.ndarray, seed: int, kind: str = "pc", alpha: float = 0.05) -> dict[str, Any]:
    """Directed edges as 1; an edge without a direction as a half both ways."""
    if kind == "pc":
        from causallearn.search.ConstraintBased.PC import pc

        graph = pc(rows, alpha, "fisherz", show_progress=False).G.graph
    else:
        from causallearn.search.ScoreBased.GES import ges

        graph = ges(rows, score_func="local_score_BIC")["G"].graph
    # causal-learn writes the mark at i of the edge i, j: -1 a tail, 1 a head.
    tail, head = graph == -1, graph == 1
    directed = (tail & head.T).astype(float)
    undirected = ((tail & tail.T) | (head & head.T)).astype(float)
    return {"edges": (directed + undirected / 2).tolist()}


def versions() -> dict[str, str]:
    return {name: metadata.version(name) for name in ("causal-learn", "numpy")}


if __name__ == "__main__":
    # Imported before the clock runs.
    import causallearn.search.ConstraintBased.PC
    import causallearn.search.ScoreBased.GES  # noqa: F401

    peer_worker.serve(learn, versions)
