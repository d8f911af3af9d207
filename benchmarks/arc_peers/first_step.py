"""Seconds of the first steps of a new process, as JSON: `python first_step.py CACHE_FOLDER`.

Nothing is imported or made ready before the clock starts, so this runs as a process of its own.
"""

import json
import sys
import time

START = time.perf_counter()

import jax  # noqa: E402

import jaxworlds  # noqa: E402
from jaxarc.envs import JaxArcConfig, PointAction, arc_reset, arc_step  # noqa: E402
from jaxarc.testing import create_mock_task  # noqa: E402


def main() -> None:
    seconds = {"import_s": time.perf_counter() - START}
    jaxworlds.configure(cache_dir=sys.argv[1])
    config, task, key = JaxArcConfig(), create_mock_task(), jax.random.key(0)
    jax.block_until_ready(key)
    seconds["backend_s"] = time.perf_counter() - START - sum(seconds.values())
    state, _ = jax.block_until_ready(arc_reset(key, config, task))
    seconds["first arc_reset_s"] = time.perf_counter() - START - sum(seconds.values())
    action = PointAction(operation=0, row=1, col=1)
    cpu = time.process_time()
    state = jax.block_until_ready(arc_step(state, action, config))[0]
    cpu = time.process_time() - cpu
    seconds["first arc_step_s"] = time.perf_counter() - START - sum(seconds.values())
    jax.block_until_ready(arc_step(state, action, config))
    seconds["second arc_step_s"] = time.perf_counter() - START - sum(seconds.values())
    parts = ("backend_s", "first arc_reset_s", "first arc_step_s")
    there = sum(seconds[part] for part in parts)
    print(json.dumps(seconds | {"first arc_step CPU_s": cpu, "from import to there_s": there}))


if __name__ == "__main__":
    main()
