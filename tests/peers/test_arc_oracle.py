"""The compiled environment beside the NumPy oracle: a sample of `make oracle`, which takes a million steps."""

import arc_compare
import pytest

SCENARIOS = {scenario.name: scenario for scenario in arc_compare.SCENARIOS}
# Each compiles a program of its own, so the suite takes those that differ most; `make oracle` takes all.
SAMPLE = (
    *("point 30x30", "bbox 30x30", "another format than the history's", "test pairs, two attempts"),
    *("tiny point", "full words", "one row", "all pairs, autoreset", "no test pairs to go to"),
)


@pytest.mark.parametrize("name", SAMPLE)
def test_random_play_is_the_oracles_play(name: str) -> None:
    match = arc_compare.play(SCENARIOS[name], steps=500, batch=64, seed=11)
    assert match.mismatches == []
    assert match.live_steps >= 500
    assert match.seen["valid"] > 100
    assert match.seen["invalid"] > 5


def test_tiny_tasks_are_solved_by_chance() -> None:
    match = arc_compare.play(SCENARIOS["tiny point"], steps=500, batch=64, seed=3)
    assert match.mismatches == []
    assert match.seen["success"] > 10


def test_a_wrong_environment_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison can fail: an oracle whose moves go the other way disagrees."""
    apply = arc_compare.arc_oracle.apply

    def inverted(grid, clipboard, source, operation, *rest):
        swapped = {20: 21, 21: 20, 22: 23, 23: 22}.get(operation, operation)
        return apply(grid, clipboard, source, swapped, *rest)

    monkeypatch.setattr(arc_compare.arc_oracle, "apply", inverted)
    match = arc_compare.play(SCENARIOS["bbox 30x30"], steps=300, batch=64, seed=5)
    assert match.mismatches
