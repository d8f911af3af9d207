"""The batch plan: right about memory, never trying what it rejects, and choosing by speed."""

import gc

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.core import Tracer

from jaxworlds.batching import plan_batch_size, world_mesh
from jaxworlds.memory import live_report, predict_memory, process_memory

pytestmark = pytest.mark.devices

MB = 10**6
ROW = 250  # float32: 1 kB each


@pytest.fixture(autouse=True)
def nothing_waits_for_the_collector() -> None:
    """Arrays that earlier tests left in cycles count as live until a collection, which may come in the middle of a test."""
    gc.collect()


def double(x):
    return x * 2


def shapes(n):
    return (jax.ShapeDtypeStruct((n, ROW), jnp.float32),)


def test_keys_of_which_only_the_shape_is_given_are_timed_as_what_they_are():
    seen = set()

    def draw(keys):
        seen.add(str(jax.random.key_impl(keys)))
        return jax.vmap(jax.random.uniform)(keys)

    def keys(n):
        return (jax.eval_shape(lambda: jax.random.split(jax.random.key(0, impl="rbg"), n)),)

    plan_batch_size(draw, keys, limit=10**9, maximum=8, repeats=1)
    assert seen == {"rbg"}


def test_the_plan_is_the_line_through_two_programs():
    held = max(live_report().by_device.values(), default=0)
    plan = plan_batch_size(double, shapes, limit=300 * MB, fraction=0.5, measure=False)
    budget = 150 * MB - held - 32 * MB
    assert plan.budget_bytes == budget
    assert plan.bytes_per_item == 2000
    assert plan.batch_size == plan.max_batch_size == budget // 2000
    assert plan.predicted_bytes == predict_memory(double, *shapes(plan.batch_size)).peak <= budget
    assert plan.reason == "the largest that fits"


def test_live_arrays_leave_less_room():
    free = plan_batch_size(double, shapes, limit=300 * MB, measure=False)
    kept = jnp.zeros((10_000, ROW), jnp.float32)
    less = plan_batch_size(double, shapes, limit=300 * MB, measure=False)
    assert free.budget_bytes - less.budget_bytes == kept.nbytes


def test_planning_allocates_nothing_of_what_it_rejects():
    made = []

    def arguments(n):
        x = jnp.zeros((n, ROW), jnp.float32)
        if not isinstance(x, Tracer):
            made.append(n)
        return (x,)

    live, (_, peak) = live_report().nbytes, process_memory()
    plan = plan_batch_size(double, arguments, limit=200 * MB, sizes=(10**6, 10**9), measure=False)
    assert made == []
    assert live_report().nbytes == live
    assert process_memory()[1] - peak < 100 * MB  # the two programs it compiled are of 2 GB and 2 TB
    assert plan.max_batch_size < 70_000
    measured = plan_batch_size(double, arguments, limit=200 * MB, sizes=(10**6, 10**9), repeats=1)
    assert max(made) == measured.max_batch_size
    assert live_report().nbytes == live


def test_numpy_arguments_that_grow_are_refused_before_a_large_one_is_made():
    made = []

    def arguments(n):
        made.append(n)
        return jnp.zeros((n, ROW)), {"grid": np.zeros((n, ROW), np.float32)}

    message = r"`arguments\(batch_size\)\[1\]\['grid'\]` must take no memory .* Make it with `jnp`"
    with pytest.raises(TypeError, match=message):
        plan_batch_size(lambda x, y: x + y["grid"], arguments, limit=200 * MB, sizes=(10**4, 10**5))
    assert made == [1, 2]


def test_numpy_arguments_that_all_items_share_are_welcome():
    table = np.ones(ROW, np.float32)
    plan = plan_batch_size(
        lambda x, t: x * t, lambda n: (*shapes(n), table), limit=100 * MB, maximum=512, repeats=1
    )
    assert plan.max_batch_size == 512
    assert plan.bytes_per_item == 2000
    assert plan.fixed_bytes == table.nbytes


def test_measuring_picks_the_smallest_size_within_five_percent():
    plan = plan_batch_size(jax.jit(double), shapes, limit=100 * MB, maximum=4096, steps=10, repeats=3)
    assert [trial.batch_size for trial in plan.trials] == [64, 256, 1024, 4096]
    speeds = {trial.batch_size: trial.per_second for trial in plan.trials}
    good = [size for size, speed in speeds.items() if speed >= 0.95 * max(speeds.values())]
    assert plan.batch_size == min(good)
    assert plan.max_batch_size == 4096
    first = plan.trials[0]
    assert first.per_second == pytest.approx(64 * 10 / first.seconds)
    assert [trial.predicted_bytes for trial in plan.trials] == [2000 * size for size in speeds]
    text = str(plan)
    assert text.startswith(f"batch size {plan.batch_size}: the smallest within 5 %")
    assert text.count("\n") == 7
    assert "<-" in text


@pytest.mark.parametrize("wrap", [lambda f: jax.jit(f, donate_argnums=0), eqx.filter_jit(donate="all")])
def test_a_program_that_donates_is_measured_with_fresh_arguments(wrap):
    plan = plan_batch_size(
        wrap(lambda x, key: (x * 2, key)),
        lambda n: (*shapes(n), jax.eval_shape(lambda: jax.random.split(jax.random.key(0), n))),
        limit=100 * MB,
        maximum=512,
        repeats=2,
    )
    assert all(trial.seconds > 0 for trial in plan.trials)
    assert plan.bytes_per_item < 1100  # donated: the output takes the place of the argument


def test_a_program_that_bends_is_corrected():
    def bent(x):  # beyond 20,000 rows it also holds their products
        return (
            jnp.sort(x[:, :, None] * x[:, None, :], axis=0).sum((1, 2)) if x.shape[0] > 20_000 else x.sum(1)
        )

    plan = plan_batch_size(
        bent, lambda n: (jax.ShapeDtypeStruct((n, 16), jnp.float32),), limit=150 * MB, measure=False
    )
    assert plan.predicted_bytes <= plan.budget_bytes
    assert (
        plan.predicted_bytes
        == predict_memory(bent, jax.ShapeDtypeStruct((plan.batch_size, 16), jnp.float32)).peak
    )


def test_worlds_on_a_mesh_are_planned_per_device(devices):
    mesh = world_mesh()
    weights = jax.ShapeDtypeStruct((ROW, ROW), jnp.float32)
    plan = plan_batch_size(
        lambda x, w: x @ w,
        lambda n: (*shapes(n), weights),
        mesh=mesh,
        axes=(0, None),
        limit=100 * MB,
        maximum=100_003,
        repeats=1,
    )
    assert plan.batch_size % len(devices) == 0
    assert plan.max_batch_size <= 100_003
    assert plan.bytes_per_item == pytest.approx(2000 / len(devices), rel=0.01)
    alone = plan_batch_size(
        lambda x, w: x @ w, lambda n: (*shapes(n), weights), limit=100 * MB, measure=False
    )
    largest = plan_batch_size(
        lambda x, w: x @ w,
        lambda n: (*shapes(n), weights),
        mesh=mesh,
        axes=(0, None),
        limit=100 * MB,
        measure=False,
    )
    assert largest.max_batch_size == pytest.approx(alone.max_batch_size * len(devices), rel=0.01)


def test_a_maximum_bounds_a_program_that_does_not_grow():
    def fixed(x):
        return jnp.float32(0)

    def nothing(n):
        return (jnp.zeros((n, 0)),)

    with pytest.raises(ValueError, match=r"does not grow with the batch size. Pass a `maximum`"):
        plan_batch_size(fixed, nothing, limit=100 * MB, measure=False)
    plan = plan_batch_size(fixed, nothing, limit=100 * MB, maximum=77, measure=False)
    assert plan.batch_size == 77
    assert plan.reason == "the `maximum`, which fits"


def test_what_cannot_fit_is_said_clearly():
    def huge(n):
        return (jax.ShapeDtypeStruct((n, 10**9), jnp.float32),)

    with pytest.raises(ValueError, match=r"even a batch of 1 needs 8000\.0 MB per device"):
        plan_batch_size(double, huge, limit=200 * MB, sizes=(2, 4), measure=False)
    with pytest.raises(ValueError, match="no memory is left to plan with"):
        plan_batch_size(double, shapes, limit=10 * MB)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fraction": 0.0}, "`fraction` must be above 0"),
        ({"maximum": 0}, "`maximum` must be at least the number of devices, 1; got 0"),
        ({"sizes": (0, 4)}, "`sizes` must be two batch sizes"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        plan_batch_size(double, shapes, limit=100 * MB, **options)


def test_the_default_limit_is_the_device():
    plan = plan_batch_size(double, lambda n: (jnp.zeros((n, 4), jnp.float32),), maximum=256, measure=False)
    assert plan.batch_size == 256
    assert plan.limit_bytes > 100 * MB
