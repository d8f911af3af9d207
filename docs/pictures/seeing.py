"""Draws the pictures of docs/jaxarc/seeing.md: a task, and an episode that solves one of its pairs.

python docs/pictures/seeing.py
"""

from pathlib import Path

import jax

import jaxarc.tasks
from jaxarc.demo import enclosed_floods
from jaxarc.envs import JaxArcConfig, PointAction, UnifiedDatasetConfig, arc_reset
from jaxarc.envs.operations import Operation
from jaxarc.utils.visualization import episode_svg, record_episode, task_svg
from jaxworlds.store import atomic_write

TASK, PAIR = "00d62c1b", 2


def pictures() -> dict[str, str]:
    """Every file of this script with what it must hold."""
    tasks = jaxarc.tasks.load("arc-agi-1", split="training")
    task, config = tasks.raw(TASK), JaxArcConfig(dataset=UnifiedDatasetConfig(20, 20))
    begun = arc_reset(jax.random.key(0), config, tasks.get_task_by_id(TASK), initial_pair_idx=PAIR)
    actions = [*enclosed_floods(*task.train[PAIR]), PointAction(Operation.SUBMIT, 0, 0)]
    episode = record_episode(begun, actions, config, task_id=TASK)
    return {"seeing-task.svg": task_svg(task), "seeing-episode.svg": episode_svg(episode)}


def main() -> None:
    for name, text in pictures().items():
        with atomic_write(Path(__file__).with_name(name), "w") as file:
            file.write(text)


if __name__ == "__main__":
    main()
