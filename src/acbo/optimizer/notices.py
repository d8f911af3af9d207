"""Warnings about problems that make advice doubtful, each given once."""

import functools

import numpy as np
from jaxtyping import Bool

from acbo.policy.policy_network import policy_metadata, policy_path

from .state import State

FEW_ROWS = 5
"""Fewer rows than this may have the same target by chance."""
ROUNDING = 1e-12
"""Part of a value that is rounding."""


def notices(state: State) -> dict[str, str]:
    """Warnings about a problem, by kind."""
    found = {}
    settings = state.settings
    goal = settings.goal
    seen = [row.values[goal] for row in state.rows]
    # Rounding may leave a constant with a spread in its last digits.
    if len(seen) >= FEW_ROWS and max(seen) - min(seen) <= ROUNDING * max(map(abs, seen)):
        found["constant"] = (
            f"the target {settings.target!r} is {seen[0]:g} in all {len(state.rows)} rows: nothing can be learned of what "
            "changes it, and any advice is a guess. Check its column, or tell rows in which it varies."
        )
    for v in settings.settable:
        if v.levels is None or len(v.levels) != 2:
            continue
        low, high = v.levels
        values = [row.values[settings.names.index(v.name)] for row in state.rows]
        apart = [value for value in values if value not in v.levels]
        if len(apart) >= FEW_ROWS:
            found[f"levels of {v.name}"] = (
                f"{v.name!r} has the levels {low:g} and {high:g} alone, and {len(apart)} of {len(state.rows)} rows have other "
                f"values, such as {apart[0]:g}: experiments never try any between. If it is a range, write "
                f"{{{v.name!r}: ({low:g}, {high:g})}}."
            )
    causes = _ancestors(settings.graph.matrix(settings.names), goal) if settings.graph.known else set()
    if settings.graph.known and not any(settings.names.index(v.name) in causes for v in settings.settable):
        found["graph"] = (
            f"by the `graph` given no variable that can be set is a cause of {settings.target!r}, so the advice is to set "
            "nothing, whatever experiments give. Add the missing edges, or leave `graph` out where nothing is known of it."
        )
    if settings.strategy == "policy" and len(settings.names) > trained_variables():
        found["size"] = (
            f"the policy was trained on at most {trained_variables()} variables; this problem has {len(settings.names)}, and "
            "its answers there were never tested. Leave out variables that cannot matter, or pass "
            "`strategy='expected_improvement'`."
        )
    return found


def _ancestors(graph: Bool[np.ndarray, "d d"], goal: int) -> set[int]:
    """Direct and indirect causes of a variable."""
    found: set[int] = set()
    while new := {int(cause) for v in (goal, *found) for cause in np.flatnonzero(graph[:, v])} - found:
        found |= new
    return found


@functools.cache
def trained_variables() -> int:
    """The most variables of the models that the policy in the package was trained on, from the file of its weights."""
    return int(policy_metadata(policy_path())["metadata"]["options"]["size"])
