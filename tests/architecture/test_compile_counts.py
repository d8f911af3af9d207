"""Every compiled entry point of the core compiles once for one shape, and a tap that is off leaves no trace."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxarc.utils.visualization import adaptive_visualization_callback, jax_log_episode_summary, jax_log_grid
from jaxworlds.batching import BucketedBatches, chunked_map, shard_worlds, world_mesh
from jaxworlds.checking import check, checking_on, clear_errors
from jaxworlds.commands.demo import start as demo_start
from jaxworlds.commands.demo import step as demo_step
from jaxworlds.compiling import CompileWatch, compile_ahead, fallback, no_recompile, warm_up
from jaxworlds.measuring import PerformanceMonitor, measure
from jaxworlds.memory import track_memory
from jaxworlds.rollout import Checkpoint, resume, run
from jaxworlds.rollout._chunk import Program, advance, split
from jaxworlds.taps import flush_taps, tap, taps_off

WORLDS, STEPS = 8, 12
Call = Callable[[float], Any]  # one call of an entry point: always the same shapes, other values


def worlds(value: float) -> np.ndarray:
    return np.full(WORLDS, value, np.float32)


def grow(x: Any, t: Any) -> tuple[Any, Any]:
    return x * 1.5 + t, x


class Growth(eqx.Module):
    rate: jax.Array

    def __call__(self, x: Any, t: Any) -> tuple[Any, None]:
        return x * self.rate, None


def run_plain(tmp_path: Path) -> Call:
    return lambda value: run(grow, worlds(value), STEPS, chunk=4).carry


def run_with_records(tmp_path: Path) -> Call:
    return lambda value: run(grow, worlds(value), STEPS, chunk=4, record_every=2).records


def run_on_a_mesh(tmp_path: Path) -> Call:
    return lambda value: run(grow, worlds(value), STEPS, chunk=4, mesh=world_mesh()).carry


def run_on_a_mesh_with_records(tmp_path: Path) -> Call:
    return lambda value: run(grow, worlds(value), STEPS, chunk=4, mesh=world_mesh(), record_every=2).records


def run_with_inputs_and_shared(tmp_path: Path) -> Call:
    def step(x: Any, forcing: Any, table: Any) -> tuple[Any, None]:
        return x + forcing * table.sum(), None

    def call(value: float) -> Any:
        inputs, table = np.full(STEPS, value, np.float32), np.full(3, value, np.float32)
        return run(step, worlds(value), STEPS, chunk=4, inputs=inputs, shared=table).carry

    return call


def run_a_module_with_other_weights(tmp_path: Path) -> Call:
    return lambda value: run(Growth(jnp.float32(value)), worlds(value), STEPS, chunk=4).carry


def run_observed(tmp_path: Path) -> Call:
    def call(value: float) -> Any:
        seen: list[Any] = []
        run(grow, worlds(value), STEPS, chunk=4, observe=jnp.mean, on_chunk=lambda c: seen.append(c.observed))
        return np.array(seen)

    return call


def run_with_a_checkpoint(tmp_path: Path) -> Call:
    def call(value: float) -> Any:
        return run(grow, worlds(value), STEPS, chunk=4, checkpoint=tmp_path / str(value)).carry

    return call


def run_with_another_tap_period(tmp_path: Path) -> Call:
    def tapped(x: Any, t: Any) -> tuple[Any, None]:
        tap("counted_period", x, lambda value: None)
        return x + 1, None

    return lambda value: run(tapped, worlds(value), STEPS, chunk=4, tap_every=int(value)).carry


def resume_a_stopped_run(tmp_path: Path) -> Call:
    def call(value: float) -> Any:
        folder = Checkpoint(tmp_path / str(value))
        stopped = run(grow, worlds(value), STEPS, chunk=4, checkpoint=folder, on_chunk=lambda chunk: True)
        assert stopped.step < STEPS
        rest = resume(grow, worlds(0.0), folder)
        assert rest.finished
        return rest.carry

    return call


def bucketed_batches(tmp_path: Path) -> Call:
    evaluate = BucketedBatches(jax.vmap(jnp.sin), sizes=(8, 16))
    # Another number of rows is no other program either: 5 rows, then 6.
    return lambda value: evaluate(np.full(4 + int(value), value, np.float32))[:5]


def bucketed_batches_on_a_mesh(tmp_path: Path) -> Call:
    evaluate = BucketedBatches(jax.vmap(jnp.sin), sizes=(WORLDS,), mesh=world_mesh())
    return lambda value: evaluate(worlds(value))


def chunked_map_on_the_device(tmp_path: Path) -> Call:
    return lambda value: chunked_map(jnp.sin, jax.device_put(worlds(value)), 3)


def chunked_map_from_the_host(tmp_path: Path) -> Call:
    return lambda value: chunked_map(jnp.cos, worlds(value), 3)


def compiled_ahead(tmp_path: Path) -> Call:
    program = compile_ahead(lambda x: jnp.tanh(x) + 1, jax.ShapeDtypeStruct((WORLDS,), jnp.float32))
    return lambda value: program(worlds(value))


def warmed_up(tmp_path: Path) -> Call:
    step = jax.jit(lambda x: jnp.tanh(x) - 1)
    warm_up({"step": (step, jax.ShapeDtypeStruct((WORLDS,), jnp.float32))})
    return lambda value: step(worlds(value))


def with_fallback(tmp_path: Path) -> Call:
    step = fallback(lambda x: jnp.exp(-x), name="counted_fallback")
    return lambda value: step(worlds(value))


def tapped(tmp_path: Path) -> Call:
    @jax.jit
    def step(x: Any, t: Any, period: Any) -> Any:
        tap("counted_tap", x, lambda value: None, step=t, period=period)
        return x + 1

    return lambda value: step(worlds(value), int(value), int(value) + 1)


def logged_from_jaxarc(tmp_path: Path) -> Call:
    @jax.jit
    def step(x: Any) -> Any:
        grid = jnp.reshape(x, (2, 4)).astype(jnp.int32)
        jax_log_grid(grid, title="counted")
        jax_log_episode_summary(1, 2, x[0], x[1], x[2] > 0)
        adaptive_visualization_callback(lambda value: None, grid, callback_name="counted_adaptive")
        return grid

    return lambda value: step(worlds(value))


def checked(tmp_path: Path) -> Call:
    root = clear_errors(jax.jit(lambda x: jnp.sqrt(check(x, (x < 0).any(), "`x` must not be negative."))))

    def call(value: float) -> Any:
        with checking_on():
            return root(worlds(value))

    return call


def sharded(tmp_path: Path) -> Call:
    total = jax.jit(jax.vmap(lambda x: x * 3))
    return lambda value: total(shard_worlds(worlds(value), world_mesh()))


def tracked(tmp_path: Path) -> Call:
    step = track_memory(jax.jit(lambda x: x * 5), enabled=True, verbose=False)
    return lambda value: step(worlds(value))


def monitored(tmp_path: Path) -> Call:
    step, monitor = jax.jit(lambda x: x * 7), PerformanceMonitor()
    return lambda value: monitor.monitor("step_time", step, worlds(value))


def demo(tmp_path: Path) -> Call:
    begin = jax.jit(jax.vmap(functools.partial(demo_start, size=8)))

    def call(value: float) -> Any:
        keys = jax.random.split(jax.random.key(int(value)), WORLDS)
        dishes = begin(keys, worlds(0.03 + value / 1000), worlds(0.06))
        return run(demo_step, dishes, STEPS, chunk=4).carry.v

    return call


ENTRY_POINTS = [
    run_plain,
    run_with_records,
    run_on_a_mesh,
    run_on_a_mesh_with_records,
    run_with_inputs_and_shared,
    run_a_module_with_other_weights,
    run_observed,
    run_with_a_checkpoint,
    run_with_another_tap_period,
    resume_a_stopped_run,
    bucketed_batches,
    bucketed_batches_on_a_mesh,
    chunked_map_on_the_device,
    chunked_map_from_the_host,
    compiled_ahead,
    warmed_up,
    with_fallback,
    tapped,
    logged_from_jaxarc,
    checked,
    sharded,
    tracked,
    monitored,
    demo,
]


@pytest.mark.parametrize("entry", ENTRY_POINTS, ids=lambda entry: entry.__name__)
def test_the_second_call_of_an_entry_point_compiles_nothing(
    entry: Callable[[Path], Call], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with CompileWatch() as first_call:
        call = entry(tmp_path)
        first = np.asarray(jax.block_until_ready(call(1.0)))
    with CompileWatch() as second_call:
        second = np.asarray(jax.block_until_ready(call(2.0)))
    flush_taps(5.0)
    assert first.shape == second.shape
    assert not np.array_equal(first, second)  # the values did differ, so nothing was answered from a store
    assert second_call.compiles == 0, second_call.report()
    # Programs that another test of this process compiled before need none here; those made in `entry` do.
    if not entry.__name__.startswith(("run_", "resume", "chunked_map", "demo")):
        assert first_call.compiles >= 1


def test_the_count_sees_a_program_that_compiles_for_each_value() -> None:
    scale = jax.jit(lambda x, factor: x * factor, static_argnums=1)
    scale(worlds(1.0), 1.0)
    with CompileWatch() as watch:
        scale(worlds(1.0), 2.0)
    assert watch.compiles == 1


def test_all_chunks_of_a_run_are_one_program() -> None:
    def fresh(x: Any, t: Any) -> tuple[Any, Any]:
        return x - t, x

    with CompileWatch() as watch:
        run(fresh, worlds(1.0), 40, chunk=4, record_every=2)
    assert watch["advance"].compiles == 1


def test_a_measured_function_compiles_once() -> None:
    step = jax.jit(lambda x: jnp.tanh(x) * 2)
    first = measure(step, jax.device_put(worlds(1.0)), repeats=2, min_seconds=0.001)
    again = measure(step, jax.device_put(worlds(2.0)), repeats=2, min_seconds=0.001)
    assert (first.compiles, first.steady_compiles, again.steady_compiles) == (1, 0, 0)
    x = jax.device_put(worlds(3.0))
    with no_recompile():  # measuring compiled the very program that calls use
        step(x)


@pytest.mark.parametrize("record_every", [None, 1, 3])
def test_the_drivers_program_holds_no_trace_of_taps_that_are_off(record_every: int | None) -> None:
    def make(with_tap: bool) -> Callable[..., Any]:
        def step(x: Any, t: Any) -> tuple[Any, Any]:
            x = jnp.sin(x) + t
            if with_tap:
                tap("never", x)
                tap("never_either", {"x": x}, print, where=x > 0)
            return x, x.sum()

        return jax.vmap(step, in_axes=(0, None))

    def text(with_tap: bool) -> str:
        static, arrays = split(make(with_tap), "step")
        shared, nothing = split(None, "shared")
        program = Program(
            step=static,
            shared=shared,
            observe=None,
            steps=STEPS,
            record_every=record_every,
        )
        clock = jax.ShapeDtypeStruct((2,), np.int32)
        carry = jax.ShapeDtypeStruct((WORLDS,), np.float32)
        return advance.lower(carry, arrays, nothing, clock, None, program=program).as_text()

    with taps_off():
        off = text(True)
    assert "callback" not in off
    assert "callback" in text(True)  # on, it is there: the comparison below can fail
    assert off == text(False)
    with taps_off():
        assert off == text(False)
