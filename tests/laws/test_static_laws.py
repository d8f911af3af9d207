"""Laws of static values: freezing loses nothing, and equal values are equal keys."""

import pickle

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from acbo.guide.batches import prepare_static_args, restore_static_args
from jaxworlds.static import config, freeze, is_hashable_config, thaw

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=4)
    | st.binary(max_size=4)
)
arrays = hnp.arrays(
    st.sampled_from([np.int8, np.int32, np.float32, np.bool_]),
    hnp.array_shapes(min_dims=0, max_dims=3, max_side=3),
    elements={"allow_nan": False},
)


def containers(inner):
    return (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(scalars, inner, max_size=4)
        | st.sets(scalars, max_size=4)
        | st.frozensets(scalars, max_size=4)
    )


nested = st.recursive(scalars | arrays, containers, max_leaves=12)


def same(a, b):
    """Equal in value, type and order, at every depth."""
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return same(list(a), list(b)) and same(list(a.values()), list(b.values()))
    return a == b


@given(nested)
def test_thaw_undoes_freeze(value):
    assert same(thaw(freeze(value)), value)


@given(nested)
def test_frozen_values_are_hashable_and_equal_to_their_copies(value):
    frozen = freeze(value)
    assert is_hashable_config(frozen)
    again = freeze(pickle.loads(pickle.dumps(value)))
    assert frozen == again
    assert hash(frozen) == hash(again)


@given(nested, nested)
def test_equal_frozen_values_have_equal_hashes_and_thaw_alike(first, second):
    a, b = freeze([first]), freeze([second])
    assert (a == b) == (b == a)
    if a == b:
        assert hash(a) == hash(b)
        assert same(thaw(a), thaw(b))


@config
class Settings:
    value: object
    rate: float


@given(st.recursive(scalars, lambda inner: st.lists(inner, max_size=3)), st.floats())
def test_equal_settings_are_one_key(value, rate):
    a = Settings(value=value, rate=rate)
    b = pickle.loads(pickle.dumps(a))
    assert a == b
    assert len({a, b, a.replace()}) == 1  # pyright: ignore


names = st.text("ABCXYZ", min_size=1, max_size=3)


@given(
    st.lists(st.lists(st.frozensets(names, max_size=4), max_size=3), max_size=3),
    st.lists(st.lists(names, max_size=4), max_size=3),
    st.lists(names, max_size=3),
)
def test_static_args_come_back(parent_sets, orders, targets):
    hashable = prepare_static_args(parent_sets, orders, targets)
    hash(hashable)
    assert restore_static_args(hashable) == (parent_sets, orders, targets)
