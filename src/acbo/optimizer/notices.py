"""Facts about a problem that make its advice doubtful: each is warned of once, when it is first met."""

import functools

from .state import State

FEW_ROWS = 5
"""Fewer rows than this may have the same target by chance."""
ROUNDING = 1e-12
"""Part of a value that is rounding."""


def notices(state: State) -> dict[str, str]:
    """What the user should know of a problem before trusting advice, by kind."""
    found = {}
    settings = state.settings
    goal = settings.names.index(settings.target)
    seen = [row.values[goal] for row in state.rows]
    # Rounding may leave a constant with a spread in its last digits.
    if len(seen) >= FEW_ROWS and max(seen) - min(seen) <= ROUNDING * max(map(abs, seen)):
        found["constant"] = (
            f"the target {settings.target!r} is {seen[0]:g} in all {len(state.rows)} rows: nothing can be learned of what "
            "changes it, and any advice is a guess. Check its column, or tell rows in which it varies."
        )
    if settings.strategy == "policy" and len(settings.names) > trained_variables():
        found["size"] = (
            f"the policy was trained on at most {trained_variables()} variables; this problem has {len(settings.names)}, and "
            "its answers there were never tested. Leave out variables that cannot matter, or pass "
            "`strategy='expected_improvement'`."
        )
    return found


@functools.cache
def trained_variables() -> int:
    """The most variables of the models that the policy in the package was trained on, from the file of its weights."""
    from acbo.policy.weights import policy_metadata, policy_path

    return int(policy_metadata(policy_path())["metadata"]["options"]["size"])
