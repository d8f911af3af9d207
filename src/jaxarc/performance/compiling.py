"""What compiling costs and whether it works: warm-up, profile and diagnosis of reset and step."""

import os
from typing import Any

import jax
import jax.random as jr
import numpy as np
from jaxtyping import Array

from jaxworlds.compiling import CompileWatch
from jaxworlds.measuring import Profile, measure, profile, time_call

from ..dispatch import Stepped, arc_reset, arc_step
from ..envs.config import JaxArcConfig
from ..envs.observations import ArcObservation
from ..envs.state import ArcEnvState
from ..envs.structured_actions import AbstractAction
from .runners import scripted_action
from .targets import verify_config_hashability


def optimized_reset(key: Array, config: JaxArcConfig, task_data: Any) -> tuple[ArcEnvState, ArcObservation]:
    """`arc_reset`, which is compiled already: a second `jit` around it would only copy the tasks."""
    return arc_reset(key, config, task_data)


def optimized_step(state: ArcEnvState, action: AbstractAction, config: JaxArcConfig) -> Stepped:
    """`arc_step`, which is compiled already: a second `jit` around it would copy the tasks at every step."""
    return arc_step(state, action, config)


def process_action(state: ArcEnvState, action: AbstractAction, config: JaxArcConfig) -> Stepped:
    """`arc_step` with an action of any type; each type has a program of its own, compiled at its first use."""
    return arc_step(state, action, config)


def warm_up_functions(config: JaxArcConfig, task: Any) -> None:
    """Compile `arc_reset`, and `arc_step` for actions of the config's format, by running each once.

    Keys from `jax.random.key` and from `jax.random.PRNGKey` have different types, so a reset is run with both.
    """
    _, raw_s = time_call(arc_reset, jr.PRNGKey(42), config, task)
    (state, _), reset_s = time_call(arc_reset, jr.key(42), config, task)
    _, step_s = time_call(arc_step, state, scripted_action(config, np.array(0)), config)
    print(f"✅ Functions warmed up (reset {raw_s + reset_s:.2f} s, step {step_s:.2f} s)")


def profile_jit_compilation(config: JaxArcConfig, task: Any, num_runs: int = 100) -> dict[str, float]:
    """Seconds to trace, lower and compile `arc_reset` (`compilation_time`), and seconds of a run (`execution_time`).

    `speedup` is their quotient: how much longer the first call takes than a later one. The run is the median of
    `num_runs` samples that each wait for their results. What this process has traced before is not traced again,
    and a program in the persistent cache is read from there; the printed line says so.
    """

    def reset(key: Array, task_data: Any) -> Any:
        return arc_reset(key, config, task_data)

    task_data = arc_reset(jr.key(42), config, task)[0].task_data
    found = measure(reset, jr.key(42), task_data, repeats=num_runs, min_seconds=0.0)
    compilation = (found.trace_s or 0.0) + (found.lower_s or 0.0) + (found.compile_s or 0.0)
    speedup = compilation / found.median_s
    print(found)
    print(f"Speedup after compilation: {speedup:.0f}x (compile over run, not a speed-up of the program)")
    return {"compilation_time": compilation, "execution_time": found.median_s, "speedup": speedup}


def debug_jit_compilation(config: Any, task: Any) -> bool:
    """Say whether `config` is hashable, reset and step compile, and a second round compiles nothing new.

    Returns whether all is well. What cannot compile raises its own error, which says more than a verdict.
    """
    if not verify_config_hashability(config):
        return False
    try:
        state = _round(config, task, 0)
    except Exception as error:
        print(f"❌ JIT compilation failed: {type(error).__name__}")
        raise
    print("✅ JIT compilation successful")
    with CompileWatch() as watch:
        _round(config, task, 1)
        # A state that was stepped must fit the same program as one that was reset.
        arc_step(state, scripted_action(config, np.array(2)), config)
    if watch.compiles:
        print(f"❌ A second round compiled again:\n{watch}")
        return False
    print("✅ A second round compiled nothing")
    return True


def _round(config: JaxArcConfig, task: Any, step: int) -> ArcEnvState:
    state, _ = arc_reset(jr.key(step), config, task)
    return jax.block_until_ready(arc_step(state, scripted_action(config, np.array(step)), config)[0])


def profile_with_jax_profiler(
    config: JaxArcConfig, task: Any, output_dir: str | os.PathLike[str] = "./jax_profile"
) -> Profile:
    """Capture a reset and 100 steps with JAX's profiler into `output_dir`, and print what takes the time.

    Compilation is not in the capture: everything runs once before it.
    """

    def workload() -> Any:
        state, _ = arc_reset(jr.key(42), config, task)
        for step in range(100):
            state, *_ = arc_step(state, scripted_action(config, np.array(step)), config)
        return state

    found = profile(workload, folder=output_dir, calls=1)
    print(found)
    print(f"Profile saved to {found.folder}")
    print(f"View with: tensorboard --logdir={found.folder}")
    return found
