"""The guide's static arguments for the surrogate: nested tuples and back."""

import functools

import jax
import jax.numpy as jnp

from acbo.guide.batches import prepare_static_args, restore_static_args

PARENTS = [[frozenset(), frozenset({"X", "Z"})], [frozenset({"Z"})]]


def test_prepared_arguments_are_sorted_tuples_as_in_the_guide():
    prepared = prepare_static_args(PARENTS, [["X", "Z", "Y"], ["Z", "Y"]], ["Y", "Y"])
    assert prepared == ((((), ("X", "Z")), (("Z",),)), (("X", "Z", "Y"), ("Z", "Y")), ("Y", "Y"))
    assert restore_static_args(prepared) == (PARENTS, [["X", "Z", "Y"], ["Z", "Y"]], ["Y", "Y"])


def test_equal_sets_share_one_trace():
    traces = []

    @functools.partial(jax.jit, static_argnums=1)
    def count(x, static):
        traces.append(1)
        parent_sets, _, _ = restore_static_args(static)
        return x + sum(len(parents) for candidates in parent_sets for parents in candidates)

    other_order = [[frozenset(), frozenset(["Z", "X"])], [{"Z"}]]
    for parents in (PARENTS, other_order):
        assert count(jnp.zeros(()), prepare_static_args(parents, [["X"]], ["Y"])) == 3
    assert len(traces) == 1


def test_mixed_names_and_numbers_sort():
    assert prepare_static_args([[{1, "A"}]], [], []) == ((((1, "A"),),), (), ())
