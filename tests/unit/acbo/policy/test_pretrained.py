"""The policy in the package: it loads, tells how it was made, and is as good as it says on models that it never saw."""

import pytest

from acbo.experiments import cells, compare
from acbo.policy import policy_metadata, policy_path
from acbo.strategies import Random, pretrained_policy

pytestmark = pytest.mark.usefixtures("quick_compile")


def test_the_file_is_small_and_tells_its_story() -> None:
    path = policy_path()
    assert path.stat().st_size < 4e6
    story = policy_metadata(path)["metadata"]
    assert story["command"].startswith("python -m acbo.policy.recipe")
    assert {"device", "versions", "updates", "episodes"} <= set(story)
    with pytest.raises(ValueError, match="default"):
        pretrained_policy("nothing")


def test_it_is_near_the_optimum_and_far_below_random() -> None:
    chosen = cells((8,), ("erdos_renyi", "chain"))
    found = compare({"policy": pretrained_policy(), "random": Random()}, chosen, models=40, seed=3)
    mean, half = found.mean("policy")
    assert mean < 0.05, (mean, half)
    for cell in chosen:
        gap, half = found.difference("policy", "random", cell)
        assert gap + half < -0.2
