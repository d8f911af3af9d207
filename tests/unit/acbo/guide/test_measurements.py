"""The acbo guide's measuring names: its shapes, said honestly."""

import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from acbo.guide.measurements import (
    benchmark_sustained_performance,
    measure_compilation_speedup,
    monitor_memory_usage,
)


def test_first_over_second_call_with_the_guides_tuple(capsys):
    traces = []

    @jax.jit
    def step(params, batch):
        traces.append(1)
        time.sleep(0.05)
        return params + batch.sum()

    result = measure_compilation_speedup(step, jnp.ones(3), jnp.ones(4))
    speedup, first, second = result
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(first, [5.0, 5.0, 5.0])
    assert len(result) == 3
    assert len(traces) == 1
    assert result.first_call_s >= 0.05
    assert speedup == result.ratio == result.first_call_s / result.second_call_s
    printed = capsys.readouterr().out
    assert "not a speed-up" in printed
    assert f"{speedup:.1f}x" in printed


def test_both_calls_are_waited_for_and_donated_arguments_survive():
    def step(params):
        jax.debug.callback(lambda _: time.sleep(0.03), params)
        return params * 2

    params = jnp.ones(3)
    result = measure_compilation_speedup(jax.jit(step, donate_argnums=0), params)
    assert result.second_call_s >= 0.03
    np.testing.assert_array_equal(params, np.ones(3))


def test_comparing_the_tuple_with_a_number_explains_itself():
    result = measure_compilation_speedup(jax.jit(lambda x: x + 1), jnp.ones(2))
    with pytest.raises(TypeError, match=r"3-tuple, which does not compare with 100\. Unpack it"):
        assert result > 100  # the guide's own test
    with pytest.raises(TypeError, match="no speed-up"):
        assert result <= 100


def test_sustained_ratio_is_regular_over_jax(capsys):
    ran = []

    def fast(x):
        ran.append("fast")
        time.sleep(0.002)
        return x

    def slow(x):
        ran.append("slow")
        time.sleep(0.02)
        return x

    ratio = benchmark_sustained_performance(fast, slow, (jnp.ones(2),), n_runs=6)
    assert isinstance(ratio, float)
    assert ratio > 1
    pairs = [tuple(ran[-12:][i : i + 2]) for i in range(0, 12, 2)]
    assert all(set(pair) == {"fast", "slow"} for pair in pairs)  # interleaved, one of each per round
    printed = capsys.readouterr().out
    for part in ("Median JAX time", "Median regular time", f"Sustained speedup: {ratio:.1f}x"):
        assert part in printed


def test_memory_counts_device_arrays(capsys):
    result, increase, peak = monitor_memory_usage(jax.jit(lambda x: jnp.tile(x, 1000)), jnp.ones(1000))
    assert result.shape == (1_000_000,)
    assert increase >= 4_000_000  # tracemalloc sees next to nothing of it
    assert peak >= increase
    assert capsys.readouterr().out
