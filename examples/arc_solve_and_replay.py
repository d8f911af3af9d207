"""Solve an ARC puzzle with scripted actions and write its replay as one HTML page.

The player knows the answer; it only shows that the environment's own actions reach it: resize, paint, submit.
"""

from pathlib import Path

import jax
import numpy as np

import jaxarc.tasks
from jaxarc.agents.painter import painting_actions
from jaxarc.envs import JaxArcConfig, UnifiedActionConfig, arc_reset
from jaxarc.utils.visualization import episode_html, episode_png, print_episode, print_task, record_episode

TASK = "0ca9ddb6"  # every coloured cell grows petals


def main() -> None:
    tasks = jaxarc.tasks.load("arc-agi-1", "training")
    print_task(tasks.raw(TASK), title=TASK)

    config = JaxArcConfig(action=UnifiedActionConfig(selection_format="bbox"))
    start = arc_reset(jax.random.key(0), config, tasks, initial_pair_idx=0, task_index=tasks.index_of(TASK))
    state, _ = start
    actions = painting_actions(np.asarray(state.input_grid), np.asarray(state.target_grid))
    episode = record_episode(start, actions, config, task_id=TASK)
    print_episode(episode)

    assert episode.success
    assert episode.outcome == "solved"
    assert episode.final_similarity == 1.0
    assert episode.length == len(actions)
    target = tasks.raw(TASK).train[0][1]
    np.testing.assert_array_equal(episode.steps[-1].after, target)

    page = episode_html(episode, Path("episode.html"))
    Path("episode.png").write_bytes(episode_png(episode))
    assert TASK in page
    print(f"episode.html: {len(page):,} bytes, {episode.length} steps, reward {episode.total_reward:.2f}")


if __name__ == "__main__":
    main()
