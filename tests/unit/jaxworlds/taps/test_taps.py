"""Taps: one call per batch, nothing when off, and a sink that cannot break the program."""

import contextlib
import logging
import subprocess
import sys
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxworlds import taps
from jaxworlds.taps import (
    AdaptivePeriod,
    ambient,
    flush_taps,
    register_sink,
    tap,
    tap_stats,
    taps_off,
    taps_on,
)

pytestmark = pytest.mark.devices


@pytest.fixture(autouse=True)
def _fresh():
    taps.reset_tap_stats()
    yield
    taps.set_taps(True)
    flush_taps(5.0)
    for name in list(taps._sinks._registrations):
        taps.unregister_sink(name)
    taps.reset_tap_stats()


class Got(list):
    """A sink that keeps what it receives, and waits for JAX before it is read."""

    def sink(self, value):
        self.append(value)

    def all(self):
        flush_taps(5.0)
        return list(self)


def scan_with_tap(sink, length=6, **arguments):
    """A jitted scan that taps its carry at each step."""

    @jax.jit
    def run(x, period):
        def step(x, t):
            tap("carry", x, sink, step=t, period=period, **arguments)
            return x + 1, None

        return jax.lax.scan(step, x, jnp.arange(length))[0]

    return run


# Off means absent


def make_step(with_tap):
    def step(x):
        y = jnp.sin(x)
        if with_tap:
            tap("y", y, print, step=0, where=y[0] > 0)
        return y * 2

    return step


def test_a_tap_that_is_off_is_not_in_the_program():
    x = jnp.ones(3)
    plain = jax.jit(make_step(False)).lower(x).as_text()
    with taps_off():
        assert jax.jit(make_step(True)).lower(x).as_text() == plain
    on = jax.jit(make_step(True)).lower(x).as_text()
    assert "callback" in on
    assert "callback" not in plain


def test_flipping_the_switch_traces_once_per_setting_and_never_reuses_the_other_program():
    got, traces = Got(), []

    @jax.jit
    def f(x):
        traces.append(taps.taps_enabled())
        tap("x", x, got.sink)
        return x + 1

    f(1.0)
    with taps_off():
        f(1.0)
        with taps_on():
            f(1.0)
        f(1.0)
    f(1.0)
    assert traces == [True, False]
    assert len(got.all()) == 3


def test_the_process_default_reaches_other_threads():
    got = Got()
    f = jax.jit(lambda x: tap("x", x, got.sink))
    taps.set_taps(False)
    thread = threading.Thread(target=f, args=(1.0,))
    thread.start()
    thread.join()
    f(1.0)
    assert got.all() == []
    with taps_on():
        f(1.0)
    assert len(got.all()) == 1


# One call per batch

BATCH = jnp.arange(24.0).reshape(2, 4, 3)


def twice(x, got):
    tap("x", x, got.sink)
    return 2 * x


def scanned(x, step):
    return jax.lax.scan(lambda x, _: (step(x), None), x, None, length=3)[0]


@pytest.mark.parametrize("jit", [jax.jit, lambda f: f], ids=["jit", "eager"])
def test_nested_vmap_calls_the_host_once_with_batch_axes_in_front(jit):
    got = Got()
    out = jit(jax.vmap(jax.vmap(lambda x: twice(x, got))))(BATCH)
    [value] = got.all()
    np.testing.assert_array_equal(value, BATCH)
    np.testing.assert_array_equal(out, 2 * BATCH)
    assert isinstance(value, np.ndarray)
    assert tap_stats()["x"].items == 8


def test_vmap_over_another_axis_still_puts_the_batch_in_front():
    got = Got()
    jax.jit(jax.vmap(lambda x: twice(x, got), in_axes=2))(BATCH)
    np.testing.assert_array_equal(got.all()[0], np.moveaxis(BATCH, 2, 0))


def test_vmap_of_scan_and_scan_of_vmap_call_once_per_step():
    def vmap_of_scan(got):
        return jax.vmap(jax.vmap(lambda x: scanned(x, lambda x: twice(x, got))))

    def scan_of_vmap(got):
        return lambda x: scanned(x, jax.vmap(jax.vmap(lambda x: twice(x, got))))

    for program in (vmap_of_scan, scan_of_vmap):
        got = Got()
        jax.jit(program(got))(BATCH)
        values = got.all()
        assert [v.shape for v in values] == [(2, 4, 3)] * 3
        np.testing.assert_array_equal(values[2], 4 * BATCH)


def test_leaves_that_are_not_batched_are_broadcast_and_other_objects_pass_unchanged():
    got = Got()

    def f(x, shared):
        tap("tree", {"x": x, "shared": shared, "title": "ok", "key": jax.random.key(7)}, got.sink)

    jax.jit(jax.vmap(f, in_axes=(0, None)))(jnp.arange(3), jnp.arange(5))
    [value] = got.all()
    np.testing.assert_array_equal(value["x"], [0, 1, 2])
    np.testing.assert_array_equal(value["shared"], np.broadcast_to(np.arange(5), (3, 5)))
    np.testing.assert_array_equal(
        value["key"], np.broadcast_to(jax.random.key_data(jax.random.key(7)), (3, 2))
    )
    assert value["title"] == "ok"


def test_values_a_sink_keeps_stay_what_they_were():
    got = Got()
    scan_with_tap(got.sink, length=50)(jnp.zeros((64, 30, 30), jnp.int32), None)
    assert [int(v.min()) for v in got.all()] == list(range(50))
    assert [int(v.max()) for v in got] == list(range(50))


# Differentiation


def loss(x, got, wrap=lambda f: f):
    @wrap
    def step(x, t):
        tap("x", x, got.sink, step=t)
        return jnp.sin(x), None

    return jax.lax.scan(step, x, jnp.arange(5))[0].sum()


@pytest.mark.parametrize("wrap", [lambda f: f, jax.checkpoint], ids=["plain", "checkpoint"])
def test_the_gradient_is_untouched_and_the_tap_runs_in_the_forward_pass_only(wrap):
    got, x = Got(), BATCH[0]
    gradient = jax.jit(jax.vmap(jax.grad(lambda x: loss(x, got, wrap))))(x)
    assert [v.shape for v in got.all()] == [x.shape] * 5
    with taps_off():
        np.testing.assert_array_equal(gradient, jax.jit(jax.vmap(jax.grad(lambda x: loss(x, got, wrap))))(x))


@pytest.mark.parametrize("sampling", [{}, {"period": 1}], ids=["step", "period"])
def test_step_keeps_a_loop_invariant_tap_inside_a_differentiated_scan(sampling):
    got = Got()

    def f(x):
        def step(x, t):
            tap("constant", jnp.ones(3), got.sink, step=t, **sampling)
            return jnp.sin(x), None

        return jax.lax.scan(step, x, jnp.arange(5))[0]

    jax.jit(jax.grad(f))(1.0)
    assert len(got.all()) == 5


# Selection


def test_where_sends_only_the_chosen_elements_and_nothing_when_there_are_none():
    got = Got()
    f = jax.jit(jax.vmap(lambda x, done: tap("done", {"x": x}, got.sink, where=done)))
    x = jnp.arange(12).reshape(6, 2)
    f(x, jnp.array([False, True, False, False, True, False]))
    f(x, jnp.zeros(6, bool))
    [value] = got.all()
    np.testing.assert_array_equal(value["x"], x[jnp.array([1, 4])])
    assert (tap_stats()["done"].calls, tap_stats()["done"].items) == (1, 2)


def test_where_batched_over_one_of_two_axes():
    got = Got()
    f = jax.vmap(jax.vmap(lambda x, d: tap("done", x, got.sink, where=d), in_axes=(0, None)))
    jax.jit(f)(BATCH, jnp.array([False, True]))
    np.testing.assert_array_equal(got.all()[0], BATCH[1])


@pytest.mark.parametrize("jit", [jax.jit, lambda f: f], ids=["jit", "eager"])
def test_where_without_vmap(jit):
    got = Got()
    f = jit(lambda x, where: tap("x", x, got.sink, where=where))
    f(BATCH, jnp.array(False))
    assert got.all() == []
    f(BATCH, jnp.array(True))
    f(BATCH, jnp.array([False, True]))
    whole, part = got.all()
    np.testing.assert_array_equal(whole, BATCH)
    np.testing.assert_array_equal(part, BATCH[1:])


def test_steps_per_world_select_like_where():
    got = Got()
    jax.jit(jax.vmap(lambda x, t: tap("x", x, got.sink, step=t, period=3)))(jnp.arange(7) * 10, jnp.arange(7))
    np.testing.assert_array_equal(got.all()[0], [0, 30, 60])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"period": 2}, "`period` needs `step`"),
        ({"period": 2, "step": 1.5}, "`step` must be one integer"),
        ({"period": np.ones(2, int), "step": 1}, "`period` must be one integer"),
        ({"where": np.ones(3, bool)}, "`where` selects along the leading axes"),
        ({"where": 1}, "`where` must be boolean"),
    ],
)
def test_wrong_use_says_what_to_do(arguments, message):
    with pytest.raises((ValueError, TypeError), match=message):
        tap("x", jnp.ones(2), print, **arguments)


# Sampling


def test_a_traced_period_samples_without_recompiling():
    got, traces = Got(), []

    @jax.jit
    def run(x, period):
        traces.append(1)

        def step(x, t):
            tap("x", x, got.sink, step=t, period=period)
            return x + 1, None

        return jax.lax.scan(step, x, jnp.arange(10))[0]

    fired = {}
    for period in (1, 3, 10, 0, -2):
        run(jnp.int32(0), np.int32(period))
        fired[period] = [int(v) for v in got.all()]
        got.clear()
    assert fired == {1: list(range(10)), 3: [0, 3, 6, 9], 10: [0], 0: [], -2: []}
    assert len(traces) == 1


def test_a_period_known_while_tracing_needs_no_gate():
    def text(**sampling):
        return jax.jit(lambda x: tap("x", x, print, **sampling)).lower(1.0).as_text()

    assert "callback" not in text(step=3, period=2)
    assert "callback" not in text(step=jnp.int32(3), period=0)
    assert "callback" in text(step=4, period=2)
    assert "case" not in text(step=4, period=2)


def ambient_program(got, step_function):
    @jax.jit
    def run(x, period):
        def body(x, t):
            with ambient(t, period):
                return step_function(x, got), None

        return jax.lax.scan(body, x, jnp.arange(6))[0]

    return run


def one_world(x, got):
    tap("x", x, got.sink)
    tap("own", x, step=0, period=1)
    return x + 1


@pytest.mark.parametrize("layers", [[], ["vmap"], ["jit"], ["jit", "vmap"], ["vmap", "jit", "vmap"]])
def test_ambient_step_and_period_reach_taps_inside_a_driver(layers):
    got = Got()

    def step(x, got):
        f = lambda x: one_world(x, got)  # noqa: E731
        for layer in layers:
            f = getattr(jax, layer)(f)
        return f(x)

    shape = (2, 4)[: layers.count("vmap")]
    run = ambient_program(got, step)
    for period, at in ((2, [0, 2, 4]), (4, [0, 4]), (0, [])):
        run(jnp.zeros(shape, jnp.int32), np.int32(period))
        assert [(v.shape, int(v.max())) for v in got.all()] == [(shape, t) for t in at]
        got.clear()
    assert run._cache_size() == 1
    assert tap_stats()["own"].calls == 18


def test_a_jitted_step_is_not_shared_between_two_ambient_programs():
    """A shared trace would hold the first program's step: a leaked tracer."""
    got = Got()
    inner = jax.jit(lambda x: one_world(x, got))
    for _ in range(2):
        ambient_program(got, lambda x, _: inner(x))(0, np.int32(3))
    inner(0)
    assert [int(v) for v in got.all()] == [0, 3, 0, 3, 0]


# Failing sinks


def test_a_failing_sink_never_breaks_the_computation_and_is_cut_off(caplog):
    def broken(value):
        raise OSError("disk full")

    with caplog.at_level(logging.WARNING, "jaxworlds.taps"):
        assert int(scan_with_tap(broken, length=10)(0, None)) == 10
        flush_taps(5.0)
    stats = tap_stats()["carry"]
    assert (stats.calls, stats.errors, stats.skipped, stats.cut_off) == (10, 3, 7, True)
    assert stats.last_error == "OSError: disk full"
    first, cut = caplog.messages
    assert "disk full" in first
    assert "Traceback" in first
    assert "cut off" in cut


def test_only_failures_in_a_row_cut_off_and_a_new_registration_is_a_new_chance():
    seen = []

    def moody(value):
        seen.append(int(value))
        if value % 3:
            raise SystemExit("no")

    register_sink("carry", moody, max_failures=3)
    run = scan_with_tap(None, length=9)
    run(0, None)
    flush_taps(5.0)
    assert seen == list(range(9))
    assert (tap_stats()["carry"].errors, tap_stats()["carry"].cut_off) == (6, False)

    register_sink("carry", moody, max_failures=2)
    run(0, None)
    flush_taps(5.0)
    assert seen[9:] == [0, 1, 2]
    register_sink("carry", moody, max_failures=2)
    run(0, None)
    flush_taps(5.0)
    assert seen[12:] == [0, 1, 2]


def test_keyboard_interrupt_in_a_sink_stops_the_run():
    def interrupted(value):
        raise KeyboardInterrupt

    with pytest.raises((KeyboardInterrupt, jax.errors.JaxRuntimeError), match=r"KeyboardInterrupt|^$"):
        jax.block_until_ready(scan_with_tap(interrupted)(0, None))
    with contextlib.suppress(jax.errors.JaxRuntimeError):
        jax.effects_barrier()
    assert int(scan_with_tap(print, length=1)(1, None)) == 2


# Queues


def test_a_full_queue_drops_and_counts_and_flush_waits_for_the_rest():
    gate, seen = threading.Event(), []

    def slow(value):
        gate.wait(5)
        seen.append(int(value))

    register_sink("carry", slow, queue=3)
    assert int(scan_with_tap(None, length=10)(0, None)) == 10
    assert seen == [], "the program waited for a sink that runs in the background"
    assert not flush_taps(0.05)
    gate.set()
    assert flush_taps(5.0)
    stats = tap_stats()["carry"]
    assert seen == sorted(seen)
    assert len(seen) in (3, 4)  # whether the thread took one before the queue was full
    assert stats.dropped == 10 - len(seen)
    assert stats.delivered == len(seen)


def test_a_replaced_queue_still_delivers_what_it_holds():
    first, second, gate = [], [], threading.Event()
    register_sink("carry", lambda v: (gate.wait(5), first.append(int(v))), queue=10)
    run = scan_with_tap(None, length=2)
    run(0, None)
    jax.effects_barrier()
    register_sink("carry", lambda v: second.append(int(v)), queue=10)
    run(5, None)
    gate.set()
    assert flush_taps(5.0)
    assert (first, second) == ([0, 1], [5, 6])


@pytest.mark.parametrize(("argument", "value"), [("queue", 0), ("max_failures", 0)])
def test_register_sink_refuses_nonsense(argument, value):
    with pytest.raises(ValueError, match=f"`{argument}` must be at least 1"):
        register_sink("x", print, **{argument: value})


@pytest.mark.own_process
def test_a_normal_exit_loses_no_queued_value_and_waits_only_so_long():
    code = """
import sys, time, jax, jaxworlds.taps as taps
from jax._src import xla_bridge
assert not xla_bridge._backends, "importing taps started a backend"
def slow(v):
    time.sleep(0.02)
    print("got", int(v), flush=True)
taps.register_sink("x", slow, queue=100)
taps.register_sink("stuck", lambda v: time.sleep(60), queue=1)
taps._sinks._EXIT_WAIT_SECONDS = 1.0
for i in range(5):
    taps.tap("x", i)
taps.tap("stuck", 0)
print("end of main", flush=True)
"""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split("\n")[:-1] == ["end of main", *(f"got {i}" for i in range(5))]
    assert "still queued" in done.stderr
    assert time.perf_counter() - start < 30


# Statistics and adaptation


def test_statistics_count_calls_items_bytes_and_time_and_reset_clears_them():
    register_sink("slow", lambda value: time.sleep(0.002))
    f = jax.jit(jax.vmap(lambda x: tap("slow", x)))
    for _ in range(3):
        f(jnp.ones((4, 8), jnp.float32))
    flush_taps(5.0)
    stats = tap_stats()["slow"]
    assert (stats.calls, stats.delivered, stats.items, stats.bytes) == (3, 3, 12, 3 * 4 * 8 * 4)
    assert 2.0 <= stats.min_ms <= stats.avg_ms <= stats.max_ms <= stats.total_ms <= stats.blocking_ms
    assert str(stats).startswith("slow: 3 calls, 12 items")
    taps.reset_tap_stats()
    assert tap_stats() == {}


def test_without_a_sink_the_last_value_is_kept():
    scan_with_tap(None, length=4)(jnp.int32(0), None)
    flush_taps(5.0)
    assert int(tap_stats()["carry"].last_value) == 3


def test_the_report_names_every_tap_and_the_stall(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    tap("grids", jnp.ones(3))
    taps.print_tap_report()
    out = capsys.readouterr().out
    assert "grids" in out
    assert f"{1e3 * taps.measure_call_cost():.2f} ms" in out
    assert tap_stats()["grids"].stall_ms_per_call == 1e3 * taps.measure_call_cost() > 0


def test_the_report_is_whole_in_a_terminal_of_80(capsys, monkeypatch, caplog):
    monkeypatch.setenv("COLUMNS", "80")
    tap("a name of a tap that is long", jnp.ones(3))
    broken = lambda value: 1 / 0  # noqa: E731
    for _ in range(3):
        tap("broken", 1, broken)
    flush_taps(5.0)
    taps.print_tap_report()
    out = capsys.readouterr().out
    assert "…" not in out
    for word in ("avg", "total", "blocking", "3 errors", "cut off", "ok"):
        assert word in out
    assert max(map(len, out.splitlines())) <= 80


def test_counting_is_right_with_many_threads():
    def work():
        for i in range(50):
            tap("threads", i, lambda v: None)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert tap_stats()["threads"].calls == tap_stats()["threads"].delivered == 200


def test_adaptive_period_brings_a_slow_sink_under_its_budget_without_recompiling():
    chunk, budget = 20, 0.1
    register_sink("x", lambda value: time.sleep(0.005))

    @jax.jit
    def run(x, start, period):
        def step(x, t):
            tap("x", x, step=t, period=period)
            return jnp.sin(x), None

        return jax.lax.scan(step, x, start + jnp.arange(chunk))[0]

    period, fractions = AdaptivePeriod("x", budget=budget), []
    x = run(
        jnp.ones(3), np.int32(0), np.int32(0)
    )  # compiled, and no call yet: the first chunk is a plain one
    for i in range(80):
        every = period.value  # its first read measures the cost of a call; that is not time of the chunk
        began, before = time.perf_counter(), taps._sinks.cost_so_far("x")[1]
        x = run(x, np.int32(i * chunk), every)
        flush_taps(5.0)
        time.sleep(0.01)  # the work of a real chunk
        elapsed = time.perf_counter() - began
        fractions.append((taps._sinks.cost_so_far("x")[1] - before, elapsed))
        period.update(elapsed)
    assert run._cache_size() == 1
    assert fractions[0][0] / fractions[0][1] > 5 * budget
    shares = [blocked / elapsed for blocked, elapsed in np.sum(np.reshape(fractions[5:], (3, 25, 2)), axis=1)]
    # One call more or less in a window is a tenth of it, and a busy machine sleeps long: hence the margin and the middle.
    assert 0 < sorted(shares)[1] < 1.5 * budget


def test_adaptive_period_rises_by_the_ratio_falls_by_half_and_rests_between(monkeypatch):
    monkeypatch.setattr(taps._periods, "call_cost", 0.0)
    cost = [0, 0.0]
    monkeypatch.setattr(taps._sinks, "cost_so_far", lambda name: tuple(cost))
    period = AdaptivePeriod("x", budget=0.1, initial=4, maximum=50)

    def after(calls, seconds, elapsed=1.0):
        cost[0] += calls
        cost[1] += seconds
        period.update(elapsed)
        return period.period

    assert after(1, 0.2) == 8  # twice the budget
    assert after(1, 0.07) == 8  # between half and all of it
    assert after(1, 0.04) == 4
    assert after(0, 0.0) == 4  # no call: wait
    assert after(1, 0.2, elapsed=1.0) == 4  # 0.2 s in the two seconds since the last call: on budget
    assert after(5, 9.0) == 50
    assert period.value.dtype == np.int32
    assert period.value.shape == ()


def test_adaptive_period_refuses_nonsense():
    with pytest.raises(ValueError, match="`budget`"):
        AdaptivePeriod("x", budget=0.0)
    with pytest.raises(ValueError, match="`initial`"):
        AdaptivePeriod("x", initial=0)
    with pytest.raises(ValueError, match="`elapsed_seconds`"):
        AdaptivePeriod("x").update(0.0)


# Many devices


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit], ids=["auto", "explicit"])
def test_a_sharded_batch_arrives_whole_and_stays_sharded(devices, kind, capfd):
    mesh = jax.make_mesh((len(devices),), ("worlds",), axis_types=(kind,))
    got = Got()
    x = jax.device_put(jnp.arange(16 * 9).reshape(16, 9), NamedSharding(mesh, P("worlds")))

    @jax.jit
    def run(x, period):
        def step(x, t):
            x = jax.vmap(world)(x)
            tap("sampled", x, got.sink, step=t, period=period)
            return x, None

        def world(x):
            tap("each", x, where=x[0] % 2 == 0)
            return x + 1

        x = jax.lax.scan(step, x * 2, jnp.arange(4))[0]
        tap("last", x)
        return x

    out = run(x, 2)
    expected = np.arange(16 * 9).reshape(16, 9) * 2
    assert [v.tolist() for v in got.all()] == [(expected + 1).tolist(), (expected + 3).tolist()]
    np.testing.assert_array_equal(tap_stats()["last"].last_value, expected + 4)
    assert tap_stats()["each"].items == 2 * 16
    assert out.sharding.is_equivalent_to(x.sharding, 2)
    assert "rematerialization" not in capfd.readouterr().err


def test_inside_shard_map_each_shard_calls(devices):
    got = Got()
    mesh = jax.make_mesh((len(devices),), ("worlds",), axis_types=(AxisType.Auto,))

    @jax.jit
    @jax.shard_map(mesh=mesh, in_specs=P("worlds"), out_specs=P("worlds"))
    def run(x):
        return jax.vmap(lambda x: twice(x, got))(x)

    run(jnp.arange(16.0))
    values = got.all()
    assert len(values) == len(devices)
    assert sorted(np.concatenate(values)) == list(range(16))
