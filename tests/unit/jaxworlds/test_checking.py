"""Runtime checks inside compiled code."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxworlds.checking import (
    CheckError,
    check,
    checking_off,
    checking_on,
    clear_errors,
    is_checking,
    set_checking,
)

MESSAGE = "`x` must be positive; got a negative value. Clip it first."


def root(x, on_error=None):
    return jnp.sqrt(check(x, x < 0, MESSAGE, on_error=on_error))


def text(fn, *args):
    return jax.jit(fn).lower(*args).as_text()


def test_off_is_absent_from_the_program():
    x = jnp.ones(3)
    bare = text(lambda x: jnp.sqrt(x), x)
    assert text(lambda x: root(x), x) == bare
    with checking_on():
        assert text(lambda x: root(x), x) != bare
        assert text(lambda x: root(x, "off"), x) == bare


def test_flipping_retraces_and_flipping_back_does_not():
    traces = []

    @jax.jit
    def step(x):
        traces.append(is_checking())
        return check(x, jnp.array(False), MESSAGE)

    x = jnp.ones(2)
    step(x)
    with checking_on():
        step(x)
        with checking_off():
            step(x)
    step(x)
    assert traces == [False, True]
    set_checking(True)
    try:
        step(x)
        assert is_checking()
    finally:
        set_checking(False)
    assert not is_checking()
    assert traces == [False, True]


@pytest.mark.parametrize("jit", [jax.jit, eqx.filter_jit, lambda fn: fn])
def test_a_failed_check_is_clear_at_the_boundary(jit):
    step = clear_errors(jit(root))
    with checking_on():
        assert step(jnp.asarray([4.0]))[0] == 2
        with pytest.raises(CheckError) as error:
            step(jnp.asarray([-4.0]))
    assert str(error.value) == MESSAGE
    assert jnp.isnan(step(jnp.asarray([-4.0])))[0]


def test_other_errors_pass_through_the_boundary():
    def host(x):
        raise RuntimeError("disk is full")

    step = clear_errors(jax.jit(lambda x: jax.pure_callback(host, x, x)))
    with checking_on(), pytest.raises(jax.errors.JaxRuntimeError, match="disk is full"):
        step(jnp.ones(()))


def test_checks_work_under_vmap_and_scan():
    def run(xs):
        return jax.lax.scan(lambda c, x: (c + root(x), None), 0.0, xs)[0]

    step = clear_errors(jax.jit(jax.vmap(run)))
    with checking_on():
        assert step(jnp.ones((2, 3))).tolist() == [3.0, 3.0]
        with pytest.raises(CheckError, match="must be positive"):
            step(jnp.asarray([[1.0, 1.0], [1.0, -1.0]]))


def test_nan_marks_only_the_bad_lane_and_only_floats():
    def one(x, n):
        return check((x, n), x < 0, MESSAGE, on_error="nan")

    with checking_on():
        values, counts = jax.jit(jax.vmap(one))(jnp.asarray([1.0, -1.0, 2.0]), jnp.arange(3))
    np.testing.assert_array_equal(values, [1.0, np.nan, 2.0])
    assert counts.tolist() == [0, 1, 2]
    assert counts.dtype == jnp.int32


def test_the_environment_is_read_at_trace_time(monkeypatch):
    monkeypatch.setenv("EQX_ON_ERROR", "nan")
    with checking_on():
        assert jnp.isnan(jax.jit(lambda x: root(x))(jnp.float32(-1)))
        monkeypatch.setenv("EQX_ON_ERROR", "explode")
        with pytest.raises(ValueError, match="must be one of raise, nan, breakpoint, off; got 'explode'"):
            root(jnp.float32(1))
