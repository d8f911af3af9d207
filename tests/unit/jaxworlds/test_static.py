"""Static values: configs, freezing, strong types and aval differences."""

import copy
import dataclasses
import functools
import math
import pickle
from collections import namedtuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from jaxworlds.static import (
    Frozen,
    aval_differences,
    config,
    freeze,
    is_hashable_config,
    replace,
    strong,
    thaw,
    unhashable_path,
)


@config
class Action:
    table: tuple = (1, 2)


@config
class World:
    max_steps: int = 100
    rate: float = 0.5
    action: Action = Action()
    note: str = dataclasses.field(default="", compare=False)

    def __post_init__(self):
        if self.max_steps < 1:
            raise ValueError(f"`max_steps` must be at least 1; got {self.max_steps}.")


Pair = namedtuple("Pair", "left right")


def count_traces(fn, **options):
    """A jitted `fn` and the list that grows with each trace."""
    traces = []

    @functools.partial(jax.jit, **options)
    def counted(*args, **kwargs):
        traces.append(1)
        return fn(*args, **kwargs)

    return counted, traces


def test_equal_configs_share_one_trace_as_pytree_and_as_static_argument():
    for options in ({}, {"static_argnums": 1}):
        scaled, traces = count_traces(lambda x, world: x * world.max_steps, **options)
        assert scaled(jnp.ones(2), World(max_steps=3))[0] == 3
        assert scaled(jnp.ones(2), World(max_steps=3))[0] == 3
        assert len(traces) == 1
        assert scaled(jnp.ones(2), World(max_steps=4))[0] == 4
        assert len(traces) == 2


def test_config_passes_through_filter_jit_vmap_and_scan():
    @eqx.filter_jit
    @functools.partial(eqx.debug.assert_max_traces, max_traces=1)
    def run(world, xs):
        def step(carry, x):
            return carry + x * world.max_steps, world

        return jax.vmap(lambda x: jax.lax.scan(step, x, jnp.ones(3))[0])(xs)

    for _ in range(2):
        assert run(World(max_steps=2), jnp.arange(4.0)).tolist() == [6.0, 7.0, 8.0, 9.0]
    assert jax.tree.leaves(World()) == []


def test_config_equality_is_exact_so_no_program_answers_for_another_value():
    assert World(rate=1.0) != World(rate=1)
    assert World(max_steps=True) != World(max_steps=1)
    assert World(rate=0.0) != World(rate=-0.0)
    assert hash(World(rate=2.0)) == hash(World(rate=2.0))
    assert World(note="a") == World(note="b")
    typed, _ = count_traces(lambda world: jnp.asarray(world.rate).dtype.type(0))
    assert typed(World(rate=1)).dtype == jnp.int32
    assert typed(World(rate=1.0)).dtype == jnp.float32


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, np.complex64, jnp.bfloat16])
def test_numbers_of_numpy_are_compared_as_exactly(kind: type):
    kind = np.dtype(kind).type
    assert World(rate=kind(0.0)) != World(rate=kind(-0.0))
    assert World(rate=kind("nan")) == World(rate=kind("nan"))
    assert World(rate=kind(1)) == World(rate=kind(1)) != World(rate=kind(2))


def test_nan_config_does_not_retrace():
    scaled, traces = count_traces(lambda x, world: x * world.rate)
    for _ in range(3):
        assert math.isnan(float(scaled(jnp.ones(()), World(rate=float("nan")))))
    assert len(traces) == 1


def test_config_is_frozen_validated_readable_and_replaceable():
    world = World(max_steps=5)
    with pytest.raises(dataclasses.FrozenInstanceError):
        world.max_steps = 6  # pyright: ignore
    with pytest.raises(ValueError, match="`max_steps` must be at least 1; got 0"):
        World(max_steps=0)
    assert repr(world) == "World(max_steps=5, rate=0.5, action=Action(table=(1, 2)), note='')"
    assert world.replace(rate=1.5) == replace(world, rate=1.5) == World(max_steps=5, rate=1.5)
    with pytest.raises(ValueError, match="at least 1"):
        replace(world, max_steps=-1)
    with pytest.raises(TypeError, match=r"`max_step` is no field of World.*Did you mean `max_steps`"):
        replace(world, max_step=3)


def test_config_freezes_lists_and_sets_and_refuses_the_rest_by_path():
    assert Action(table=[1, [2, {3}]]).table == (1, (2, frozenset({3})))
    with pytest.raises(TypeError, match=r"`Action.table\[2\]` must be hashable.*jax array of shape \(3,\)"):
        Action(table=[1, 2, jnp.ones(3)])
    with pytest.raises(TypeError, match=r"`Action.table\[0\]`.*a dict.*nested `@config`"):
        Action(table=({"a": 1},))
    with pytest.raises(TypeError, match=r"`Action.table\[0\]`.*NumPy array of shape \(2,\).*freeze"):
        Action(table=(np.ones(2),))
    with pytest.raises(TypeError, match=r"traced value .*float32\[\].*outside the jitted function"):
        jax.jit(lambda x: Action(table=(x,)).table[0])(1.0)
    assert thaw(Action(table=(freeze({"a": [1]}),)).table[0]) == {"a": [1]}


def test_config_survives_pickle_copy_and_keyword_only_inheritance():
    world = World(max_steps=7)
    hash(world)
    assert "_cached_key" not in world.__getstate__()  # pyright: ignore - hashes differ between processes
    assert pickle.loads(pickle.dumps(world)) == world == copy.deepcopy(world)

    @config(kw_only=True)
    class Wider(World):
        width: int

        def __post_init__(self):
            super().__post_init__()

    assert Wider(width=3).max_steps == 100
    with pytest.raises(TypeError):
        Wider(3)  # pyright: ignore
    with pytest.raises(ValueError, match="at least 1"):
        Wider(width=3, max_steps=0)


def test_freeze_makes_static_arguments_that_share_a_trace():
    total, traces = count_traces(lambda x, frozen: x + sum(thaw(frozen)["sizes"]), static_argnums=1)
    for _ in range(2):
        assert total(jnp.zeros(()), freeze({"sizes": [3, 4]})) == 7
    assert len(traces) == 1
    assert jax.jit(lambda f: thaw(f)[0] + jnp.zeros(()))(freeze([5])) == 5


@pytest.mark.parametrize(
    "value",
    [
        [1, (2, [3]), {"b": 1, "a": {4, 5}}],
        {"z": None, "a": frozenset({1})},
        Pair([1], {2: "x"}),
        [],
        {},
        set(),
    ],
)
def test_thaw_restores_values_types_and_order(value):
    restored = thaw(freeze(value))
    assert restored == value
    assert repr(restored) == repr(value)


def test_freeze_arrays_and_nan():
    array = np.arange(6, dtype=np.int16).reshape(2, 3)
    restored = thaw(freeze([array]))[0]
    np.testing.assert_array_equal(restored, array)
    assert restored.dtype == array.dtype
    assert freeze(array) == freeze(array.copy()) != freeze(array.astype(np.int32))
    assert freeze([math.nan]) == freeze([float("nan")])
    assert math.isnan(thaw(freeze(math.nan)))
    assert freeze([1]) != freeze([1.0])
    assert freeze({"a": 1, "b": 2}) != freeze({"b": 2, "a": 1})
    assert pickle.loads(pickle.dumps(freeze([array, {1}]))) == freeze([array, {1}])
    assert isinstance(freeze([1]), Frozen)
    assert repr(freeze([1, {"a": 2}])) == "freeze([1, {'a': 2}])"


def test_freeze_names_the_path_of_what_it_cannot_freeze():
    with pytest.raises(
        TypeError, match=r"`config\['action'\]\['table'\]\[2\]`.*jax array of shape \(3,\)"
    ) as error:
        freeze({"action": {"table": [1, 2, jnp.ones(3)]}}, name="config")
    assert "traced argument" in str(error.value)
    with pytest.raises(TypeError, match=r"`value\[0\]`.*bytearray"):
        freeze([bytearray(b"x")])


def test_unhashable_path_walks_dataclasses():
    @dataclasses.dataclass(frozen=True)
    class Inner:
        table: object

    @dataclasses.dataclass(frozen=True)
    class Outer:
        action: Inner

    assert unhashable_path(Outer(Inner((1, 2, jnp.ones(3))))) == "config.action.table[2]"
    assert unhashable_path(Outer(Inner([1])), "cfg") == "cfg.action.table"
    assert unhashable_path(Outer(Inner((1,)))) is None
    assert is_hashable_config(World())
    assert not is_hashable_config({"a": 1})


def test_strong_removes_weak_types_eagerly_and_under_transforms():
    tree = {"a": 1, "b": 2.0, "c": True, "d": jnp.asarray(0), "e": np.float32(1), "k": jr.key(0)}
    done = strong(tree)
    assert {k: str(v.dtype) for k, v in done.items()} == {
        "a": "int32",
        "b": "float32",
        "c": "bool",
        "d": "int32",
        "e": "float32",
        "k": "key<fry>",
    }
    assert not any(jax.typeof(leaf).weak_type for leaf in jax.tree.leaves(done))
    assert jax.jit(lambda x: strong(x * 1.0))(2.0).weak_type is False
    assert jax.vmap(lambda x: strong(jnp.where(x > 0, 0, 1)))(jnp.arange(3)).weak_type is False
    assert jax.grad(lambda x: strong(x) ** 2)(3.0) == 6.0


def test_strong_reset_makes_step_compile_once():
    step, traces = count_traces(lambda state: state + jnp.int32(1))
    assert step(step(strong(0))) == 2
    assert len(traces) == 1
    assert step(step(jnp.asarray(0))) == 2
    assert len(traces) == 2


def test_aval_differences_name_paths_and_both_sides():
    class State(eqx.Module):
        grid: jax.Array
        count: jax.Array
        key: jax.Array
        size: int = eqx.field(static=True)

    base = State(jnp.zeros((2, 3), jnp.int32), jnp.int32(0), jr.key(0), 3)
    assert aval_differences(base, base) == []
    assert aval_differences(base, jax.eval_shape(lambda: base)) == []
    assert aval_differences(base, jax.jit(lambda s: s)(base)) == []
    other = State(jnp.zeros((2, 4), jnp.int32), jnp.asarray(0), jr.key(0, impl="rbg"), 4)
    found = "\n".join(aval_differences(base, other))
    assert "`tree.grid` changed from int32[2,3] to int32[2,4]" in found
    assert "`tree.count` changed from int32[] to weakly typed int32[] (weak_type only" in found
    assert "`tree.key` changed from key<fry>[] to key<rbg>[]" in found
    assert "static leaf `tree.size` changed from 3 to 4" in found
    assert "`tree['b']` is new" in aval_differences({"a": 1}, {"a": 1, "b": 2})[0]
    assert "changed from list to tuple" in aval_differences([1], (1,))[0]
    assert aval_differences({"a": 1}, {"a": 2}) == []
    many = aval_differences([1] * 20, [1.0] * 20)
    assert many[-1] == "… and 14 more"
