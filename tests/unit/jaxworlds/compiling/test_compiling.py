"""Compiling ahead, warm-up, the compile watch, the recompile guard and the loud fallback."""

import functools
import logging
import threading
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from jaxworlds.compiling import (
    CompileWatch,
    FallbackError,
    FallbackWarning,
    RecompileError,
    _calls,
    compile_ahead,
    fallback,
    fallback_counts,
    no_recompile,
    reset_fallback_counts,
    set_strict,
    warm_up,
)
from jaxworlds.static import config, freeze

Shape = jax.ShapeDtypeStruct


@config
class Rules:
    factor: int = 2


class State(eqx.Module):
    grid: jax.Array
    size: int = eqx.field(static=True, default=1)


def grids(*shape):
    """Made by NumPy, so that no eager operation of JAX compiles inside a watch."""
    return State(jnp.asarray(np.ones(shape, np.float32)))


def make_step(jit=jax.jit):
    @jit
    def step(state, lr, rules=Rules()):  # noqa: B008 - configs are immutable
        return jax.tree.map(lambda x: x * lr * rules.factor, state)

    return step


# ---- compile_ahead -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("jit", [jax.jit, eqx.filter_jit, lambda fn: fn])
def test_compile_ahead_from_shapes_runs_and_measures(jit):
    program = compile_ahead(make_step(jit), State(Shape((4, 3), jnp.float32)), Shape((), jnp.float32))
    out = program(grids(4, 3), jnp.float32(3))
    np.testing.assert_array_equal(out.grid, np.full((4, 3), 6.0, np.float32))
    assert program.name == "step"
    assert min(program.trace_s, program.lower_s, program.compile_s) > 0
    assert program.seconds == pytest.approx(program.trace_s + program.lower_s + program.compile_s)
    assert program.memory.outputs >= 48
    assert program.memory.arguments >= 52
    assert program.memory.peak >= 100
    assert program.program_bytes == len(program.lowered.as_text()) > 100
    assert "compile" in str(program)
    assert "MB" in str(program)


@pytest.mark.parametrize("jit", [jax.jit, eqx.filter_jit, lambda fn: fn])
def test_compiled_refuses_other_arguments_by_path(jit):
    program = compile_ahead(
        make_step(jit), State(Shape((4, 3), jnp.float32)), Shape((), jnp.float32), Rules(2)
    )
    good = jnp.float32(1)
    with pytest.raises(
        TypeError, match=r"`step`.*\n.*`state.grid` changed from float32\[4,3\] to float32\[5,3\]"
    ):
        program(grids(5, 3), good, Rules(2))
    with pytest.raises(TypeError, match=r"static argument `rules.factor` changed from 2 to 3"):
        program(grids(4, 3), good, Rules(3))
    with pytest.raises(
        TypeError, match=r"argument `state` changed from State to Array|tree structure changed"
    ):
        program([grids(4, 3)], good, Rules(2))
    assert program(grids(4, 3), good, Rules(2)).grid[0, 0] == 2


def test_compile_ahead_with_static_names_donation_and_mixed_arguments():
    def power(x, y, n):
        return x**n + y

    program = compile_ahead(
        power, Shape((3,), jnp.float32), jnp.ones(3), n=3, static_argnames="n", donate_argnums=0
    )
    assert program.memory.aliased == 12
    x = jnp.full(3, 2.0)
    assert program(x, jnp.ones(3), n=3).tolist() == [9.0, 9.0, 9.0]
    assert x.is_deleted()
    with pytest.raises(TypeError, match="static argument `n` changed from 3 to 4"):
        program(jnp.ones(3), jnp.ones(3), n=4)
    with pytest.raises(TypeError, match="`power` is jitted already"):
        compile_ahead(jax.jit(power, static_argnames="n"), 1.0, 1.0, n=2, static_argnames="n")


def test_compile_ahead_raises_when_the_function_cannot_compile():
    with pytest.raises(jax.errors.TracerBoolConversionError):
        compile_ahead(lambda x: x if x > 0 else -x, Shape((), jnp.float32))


def test_compile_ahead_of_partials_methods_and_keys():
    class Model(eqx.Module):
        weight: jax.Array

        @eqx.filter_jit
        def __call__(self, key, x):
            return self.weight * x + 0 * jr.normal(key, x.shape)

    model = Model(jnp.float32(2))
    keys = jax.eval_shape(lambda: jr.key(0, impl="rbg"))
    bound = functools.partial(Model.__call__, model)
    assert compile_ahead(bound, keys, Shape((2,), jnp.float32))(
        model, jr.key(1, impl="rbg"), jnp.ones(2)
    ).tolist() == [2.0, 2.0]
    assert compile_ahead(eqx.filter_jit(model), keys, Shape((3,), jnp.float32)).memory.outputs >= 12


def test_compiled_keeps_no_array_of_its_first_arguments():
    x = jnp.ones(1000) * 2
    before = len(jax.live_arrays())
    program = compile_ahead(make_step(), State(x), jnp.float32(1))
    del x
    assert len(jax.live_arrays()) < before + 1
    assert program.name == "step"


# ---- warm_up -------------------------------------------------------------------------------------------------


def test_calls_after_warm_up_compile_nothing():
    step, filtered = make_step(), make_step(eqx.filter_jit)
    state, lr = grids(6, 3), jnp.float32(2)
    shapes = State(Shape((6, 3), jnp.float32))
    report = warm_up({"plain": (step, shapes, lr)}, (filtered, shapes, 2.0), (filtered, shapes, 3.0))
    assert list(report.programs) == ["plain", "step", "step'"]
    assert report.seconds > 0
    assert "warmed up 3 functions" in str(report)
    with CompileWatch() as watch, no_recompile():
        assert step(state, lr).grid.shape == (6, 3)
        assert filtered(state, 2.0).grid.shape == (6, 3)
        assert filtered(state, 3.0).grid.shape == (6, 3)
        assert report["plain"](state, lr).grid.shape == (6, 3)
    assert (watch.traces, watch.compiles) == (0, 0)


def test_warm_up_of_a_keyword_call_with_progress(capsys):
    scale = jax.jit(lambda x, *, by: x * by)
    x, by = jnp.ones(7), jnp.float32(2)
    warm_up((functools.partial(scale, by=by), Shape((7,), jnp.float32)), progress=True)
    with no_recompile():
        scale(x, by=by)
    assert "warm-up" in capsys.readouterr().out


def test_warm_up_refuses_plain_functions():
    with pytest.raises(TypeError, match=r"`<lambda>` must be a jitted function.*`jax.jit`"):
        warm_up((lambda x: x, 1.0))


# ---- CompileWatch --------------------------------------------------------------------------------------------


def test_watch_counts_per_function_and_ignores_cached_calls():
    step = make_step()
    inputs = [grids(2, 3), grids(4, 3)]
    with CompileWatch() as watch:
        for state in (*inputs, *inputs):
            step(state, 1.0)
        step(inputs[0], 2.0)
    seen = watch["step"]
    assert (seen.traces, seen.compiles) == (2, 2)
    assert (watch.traces, watch.compiles) == (2, 2)
    assert watch["other"].traces == 0
    assert min(seen.trace_s, seen.lower_s, seen.compile_s) > 0
    assert watch.compile_seconds == pytest.approx(seen.seconds)
    assert watch.reasons == ["step: argument `state.grid` changed from float32[2,3] to float32[4,3]"]
    assert "step: 2 traces, 2 compiles" in watch.report()
    assert "again because argument `state.grid`" in str(watch)


@pytest.mark.parametrize("jit", [jax.jit, eqx.filter_jit])
def test_watch_names_weak_types_statics_and_structure(jit):
    step = make_step(jit)
    state = grids(3, 3)
    weak, strong_ = jnp.asarray(1.0), jnp.float32(1)
    calls = [
        ((state, weak), None),
        ((state, strong_), "argument `lr` changed from weakly typed float32[] to float32[] (weak_type only"),
        ((state, strong_, Rules(2)), "argument tree structure changed: `rules` is new"),
        ((state, strong_, Rules(5)), "static argument `rules.factor` changed from 2 to 5"),
        ((State(state.grid, 9), strong_, Rules(5)), "static argument `state.size` changed from 1 to 9"),
        (({"g": state.grid}, strong_, Rules(5)), "argument `state` changed from State to dict"),
    ]
    with CompileWatch() as watch:
        for args, _ in calls:
            step(*args)
    expected = [text for _, text in calls if text is not None]
    assert len(watch["step"].reasons) == len(expected)
    for reason, text in zip(watch["step"].reasons, expected, strict=True):
        assert text in reason


def test_watch_tells_static_values_from_traced_numbers():
    @functools.partial(jax.jit, static_argnames="n")
    def repeat(x, lr, n):
        return jnp.tile(x * lr, n)

    x = jnp.asarray(np.ones(2, np.float32))
    filtered = eqx.filter_jit(lambda x, lr: x * lr)
    with CompileWatch() as watch:
        repeat(x, 1.0, 2)
        repeat(x, 2.0, 3)
        repeat(x, 2.0, n=3)
        filtered(x, 1.0)
        filtered(x, 2.0)
    assert watch["repeat"].reasons == [
        "static argument `n` changed from 2 to 3",
        "arguments given by keyword changed from none to n",
    ]
    assert watch["<lambda>"].reasons == ["static argument `lr` changed from 1.0 to 2.0"]


def test_watch_says_when_the_function_is_jitted_again_and_again():
    x = jnp.asarray(np.ones(2, np.float32))
    with CompileWatch() as watch:
        for _ in range(2):
            make_step()(x, 1.0)
    assert watch["step"].traces == 2
    assert "new function object of the same code" in watch["step"].reasons[0]


def test_watch_explains_functions_traced_before_it_opened_and_changed_settings():
    step = make_step()
    x, longer = jnp.asarray(np.ones(2, np.float32)), jnp.asarray(np.ones(5, np.float32))
    step(x, 1.0)
    with CompileWatch() as watch:
        step(longer, 1.0)
        with jax.default_matmul_precision("highest"):
            step(longer, 1.0)
    assert "argument `state` changed from f32[2] to f32[5]" in watch["step"].reasons[0]
    assert "jax_default_matmul_precision` changed from None to highest" in watch["step"].reasons[1]


def test_watch_explains_a_new_placement_without_a_trace():
    step = make_step()
    x = jnp.asarray(np.ones(4, np.float32))
    placed = jax.device_put(x, jax.devices()[0])
    with CompileWatch() as watch:
        step(x, 1.0)
        step(placed, 1.0)
    assert watch["step"].traces == 1
    if watch["step"].compiles == 2:
        assert "argument `state` (float32[4]) moved from the default device" in watch["step"].reasons[0]
    mesh = jax.sharding.Mesh(np.array(jax.devices()), "worlds")
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("worlds"))
    sharded = jax.device_put(jnp.asarray(np.ones(8, np.float32)), sharding)
    plain = jnp.asarray(np.ones(8, np.float32))
    with CompileWatch() as watch:
        step(plain, 1.0)
        step(sharded, 1.0)
    assert watch["step"].compiles == 2
    assert "NamedSharding" in watch["step"].reasons[-1]


def test_watch_separates_the_operations_of_jax():
    with CompileWatch() as watch:
        jnp.cos(jnp.ones((3, 17))) @ jnp.ones((17, 2))
    assert all(seen.jax_own for seen in watch.functions.values())
    assert "JAX's own operations outside jit" in watch.report()
    assert watch.reasons == []


def test_wrapped_functions_are_explained_without_the_frames_of_jax(monkeypatch):
    monkeypatch.setattr(_calls, "call_on_the_stack", lambda: None)
    with CompileWatch() as watch:
        step = watch.wrap(make_step(eqx.filter_jit))
        step(grids(2, 2), 1.0)
        step(grids(3, 2), 1.0)
    assert "argument `state.grid` changed from float32[2,2] to float32[3,2]" in watch["step"].reasons
    assert step.__name__ == "step"


def test_watches_nest_overlap_and_leave_nothing_behind(caplog):
    step = make_step()
    states = [grids(n, 2) for n in (1, 2, 3, 4)]
    outer, inner = CompileWatch().start(), CompileWatch().start()
    step(states[0], 1.0)
    outer.stop()
    step(states[1], 1.0)
    inner.stop()
    inner.stop()
    step(states[2], 1.0)
    assert (outer["step"].compiles, inner["step"].compiles) == (1, 2)
    assert jax.config.jax_explain_cache_misses is False  # pyright: ignore
    assert not logging.getLogger("jax._src.interpreters.partial_eval").filters
    assert "CACHE MISS" not in caplog.text
    with jax.explain_cache_misses(True), CompileWatch():
        step(states[3], 1.0)
    assert "CACHE MISS" in caplog.text
    assert jax.config.jax_explain_cache_misses is False  # pyright: ignore


def test_watch_sees_other_threads():
    step = make_step()
    states = [grids(n, 5) for n in (1, 2, 3, 4)]
    with CompileWatch() as watch:
        threads = [threading.Thread(target=step, args=(state, 1.0)) for state in states]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert watch["step"].traces == 4


def test_watch_counts_the_disk_cache():
    def compile_once():
        # The same program under a new function: the disk cache answers the second time.
        return jax.jit(lambda x: jnp.sin(x) * 41.25).lower(Shape((3, 9), jnp.float32)).compile()

    compile_once()
    with CompileWatch() as watch:
        compile_once()
    assert watch["<lambda>"].compiles == 1
    assert watch.disk_hits == 1
    assert "1 from the disk cache" in watch.report()


def test_a_bad_repr_does_not_break_the_computation():
    class Rude:
        def __repr__(self):
            raise RuntimeError("no")

    filtered = eqx.filter_jit(lambda x, rude: x)
    with CompileWatch() as watch:
        assert filtered(jnp.ones(()), Rude()) == 1
    assert "could not be described (RuntimeError: no)" in watch["<lambda>"].reasons[0]


def test_one_trace_inside_scan_and_vmap():
    step = make_step()
    xs = jnp.asarray(np.ones((4, 3), np.float32))
    run = jax.jit(jax.vmap(lambda x: jax.lax.scan(lambda c, _: (step(c, 0.5), None), x, None, 3)[0]))
    with CompileWatch() as watch:
        for _ in range(2):
            run(xs)
    assert watch.compiles == 1


# ---- no_recompile --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("jit", [jax.jit, eqx.filter_jit])
def test_no_recompile_raises_at_the_moment_and_says_why(jit):
    step = make_step(jit)
    state, wider = grids(2, 7), grids(3, 7)
    after = []
    with CompileWatch() as watch:
        step(state, 1.0)
        with pytest.raises(RecompileError) as error, no_recompile():  # noqa: PT012
            step(state, 1.0)
            step(wider, 1.0)
            after.append("reached")
    assert "`step`" in str(error.value)
    assert "`state.grid` changed from float32[2,7] to float32[3,7]" in str(error.value)
    assert after == []
    assert watch["step"].compiles == 1  # stopped before XLA
    assert step(wider, 1.0).grid.shape == (3, 7)


def test_no_recompile_allows_what_it_is_told():
    step = make_step()
    state = grids(4, 7)
    with no_recompile(allow=("step",)) as watch:
        step(state, 1.0)
    assert watch["step"].compiles == 1
    with pytest.raises(RecompileError, match="JAX's own operation outside jit"), no_recompile():
        jnp.ones((3, 1, 4, 1, 5))
    with no_recompile(allow_eager=True):
        jnp.ones((3, 1, 4, 1, 6))
    with pytest.raises(RecompileError, match="warm it up"), no_recompile(allow_eager=True):
        eqx.filter_jit(lambda x: x + 1)(state.grid)


def test_no_recompile_permits_shape_evaluation_and_other_threads():
    step = make_step()
    state = grids(5, 7)
    with no_recompile():
        assert jax.eval_shape(step, state, 1.0).grid.shape == (5, 7)
        thread = threading.Thread(target=step, args=(state, 1.0))
        thread.start()
        thread.join()
    with no_recompile():
        step(state, 1.0)


# ---- fallback ------------------------------------------------------------------------------------------------


def clip(x, limit=1.0):
    return x * 0.5 if x > limit else x + 1.0


def test_fallback_is_silent_when_the_function_compiles():
    doubled = fallback(lambda x: x * 2, strict=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert doubled(jnp.ones(2)).tolist() == [2.0, 2.0]


@pytest.mark.parametrize("jit", [lambda fn: fn, jax.jit, eqx.filter_jit])
def test_fallback_warns_once_counts_and_gives_the_same_numbers(jit):
    reset_fallback_counts()
    step = fallback(jit(clip), name="clip")
    inputs = [jnp.float32(0), jnp.float32(3), jnp.float32(5), jnp.int32(5)]
    with pytest.warns(
        FallbackWarning, match=r"`clip`.*58–82 times slower.*TracerBoolConversionError"
    ) as seen:
        results = [step(x) for x in inputs]
    assert len(seen) == 1
    assert [float(r) for r in results] == [float(clip(x)) for x in inputs]
    assert fallback_counts() == {"clip": 4}


def test_fallback_tries_to_trace_a_failing_call_only_once():
    traces = []

    def counted(x):
        traces.append(isinstance(x, jax.core.Tracer))
        return float(x)

    step = fallback(counted)
    with pytest.warns(FallbackWarning, match="ConcretizationTypeError"):
        assert [step(jnp.float32(2)) for _ in range(3)] == [2.0, 2.0, 2.0]
    assert traces == [True, False, False, False]


def test_strict_refuses_by_argument_by_process_and_by_environment(monkeypatch):
    with pytest.raises(FallbackError, match=r"clip.*strict mode refuses.*TracerBoolConversionError"):
        fallback(clip, strict=True)(jnp.float32(1))
    set_strict(True)
    try:
        with pytest.raises(FallbackError):
            fallback(clip)(jnp.float32(1))
        with pytest.warns(FallbackWarning):
            fallback(clip, strict=False)(jnp.float32(1))
    finally:
        set_strict(None)
    step = fallback(clip)
    with pytest.warns(FallbackWarning):
        step(jnp.float32(1))
    monkeypatch.setenv("JAXWORLDS_STRICT", "1")
    with pytest.raises(FallbackError):
        step(jnp.float32(1))


def test_fallback_names_the_unhashable_argument_and_freeze_cures_it():
    def total(x, sizes):
        return x + sum(sizes)

    step = fallback(jax.jit(total, static_argnames="sizes"))
    with pytest.warns(
        FallbackWarning, match=r"Static argument `sizes` is not hashable; use `jaxworlds.static.freeze`"
    ):
        assert step(jnp.float32(1), sizes=[1, 2]) == 4
    with no_recompile(allow=("total",), allow_eager=True) as watch:
        assert step(jnp.float32(1), sizes=(1, 2)) == 4
    assert watch["total"].compiles == 1
    assert freeze([1, 2]) is not None


def test_fallback_passes_the_functions_own_errors_through():
    def refuse(x):
        raise ValueError("`x` must be positive")

    with pytest.raises(ValueError, match="`x` must be positive"):
        fallback(refuse)(jnp.ones(()))


def test_fallback_reaches_into_loops_that_cannot_be_traced():
    def run(x):
        return jax.lax.scan(
            lambda c, y: (c + (1.0 if y > 0 else -1.0), None), x, jnp.asarray([1.0, -2.0, 3.0])
        )[0]

    with pytest.warns(FallbackWarning):
        assert fallback(run)(jnp.float32(0)) == 1.0
