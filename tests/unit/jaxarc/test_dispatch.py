"""Who carries out a step: `explain` names the path and the reason, and steps take the path that it names."""

import shutil

import jax
import jax.numpy as jnp
import pytest

from jaxarc import dispatch
from jaxarc.envs import (
    EnvironmentConfig,
    JaxArcConfig,
    PointAction,
    UnifiedActionConfig,
    UnifiedDatasetConfig,
    arc_reset,
    batch_reset,
    batch_step,
    explain,
    functional,
)
from jaxarc.testing import create_mock_task

CONFIG = JaxArcConfig(dataset=UnifiedDatasetConfig(6, 6))
KEYS = jax.random.split(jax.random.key(0), 3)
ACTIONS = PointAction(*jnp.zeros((3, 3), jnp.int32))
needs_compiler = pytest.mark.skipif(
    not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="no C++ compiler"
)
needs_cpu = pytest.mark.skipif(jax.default_backend() != "cpu", reason="speaks of the CPU")


def beyond(grid, selection):
    """An operation as a user writes it."""
    return jnp.where(selection, 7, grid)


def config_of(**action) -> JaxArcConfig:
    return JaxArcConfig(dataset=UnifiedDatasetConfig(6, 6), action=UnifiedActionConfig(**action))


def task():
    return create_mock_task(4, canvas=6)


@needs_cpu
@needs_compiler
def test_explain_names_the_path_that_a_step_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    states, _ = batch_reset(KEYS, CONFIG, task())
    assert str(explain(states, ACTIONS, CONFIG)).startswith("cpu: C++ kernels for operations 0 to 33")
    step = lambda states: batch_step(states, ACTIONS, CONFIG)[0].planes  # noqa: E731
    assert "jaxarc_work" in jax.jit(step).lower(states).as_text()
    monkeypatch.setenv("JAXARC_KERNELS", "off")
    path = explain(states, ACTIONS, CONFIG)
    assert (path.name, path.reason) == ("xla", "`JAXARC_KERNELS=off` turns the kernels off")
    assert "jaxarc_work" not in jax.jit(lambda states: step(states)).lower(states).as_text()


@needs_cpu
@needs_compiler
def test_an_operation_of_a_user_is_stepped_and_explained() -> None:
    config = config_of(extra_operations=(beyond,))
    state, _ = arc_reset(KEYS[0], config, task())
    action = PointAction(42, 1, 2)
    path = explain(state, action, config)
    assert path.name == "cpu"
    assert path.reason.endswith("XLA for `extra_operations`")
    after, *_ = functional.arc_step(state, action, config)
    assert int(after.working_grid[1, 2]) == 7


def test_a_gpu_leaves_to_xla_what_its_kernel_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(dispatch, "why_no_gpu_kernels", lambda: None)
    states, _ = batch_reset(KEYS, CONFIG, task())
    assert explain(states, ACTIONS, CONFIG).name == "gpu"
    for config, word in (
        (config_of(extra_operations=(beyond,)), "extra_operations"),
        (config_of(control_operations=True), "control_operations"),
        (JaxArcConfig(EnvironmentConfig(debug_level=1), UnifiedDatasetConfig(6, 6)), "checks are on"),
    ):
        states, _ = batch_reset(KEYS, config, task())
        path = explain(states, ACTIONS, config)
        assert path.name == "xla"
        assert word in path.reason
    one = jax.tree.map(lambda *x: jnp.stack(x), *(arc_reset(key, CONFIG, task())[0] for key in KEYS))
    assert "tasks of its own" in explain(one, ACTIONS, CONFIG).reason
    monkeypatch.setattr(dispatch, "why_no_gpu_kernels", lambda: "compute capability 8.0 or newer")
    states, _ = batch_reset(KEYS, CONFIG, task())
    assert explain(states, ACTIONS, CONFIG).reason == "compute capability 8.0 or newer"
    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")
    assert explain(states, ACTIONS, CONFIG).reason == "there are no kernels for TPUs"


def test_functions_have_one_home() -> None:
    assert functional.batch_step is dispatch.batch_step is batch_step
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        functional.nothing  # noqa: B018
