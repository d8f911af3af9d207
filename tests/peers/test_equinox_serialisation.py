"""Saved states beside equinox, whose `tree_serialise_leaves` stores leaves by their order and nothing else.

What equinox does was seen on 0.13.8 with jax 0.10 and 0.12, and is asserted here so that a change shows.
"""

import io
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxworlds.store import StoreError, load_state, save_state


class Cursor(eqx.Module):
    row: jax.Array
    column: jax.Array


class CursorReordered(eqx.Module):
    """The same state after somebody sorted the fields."""

    column: jax.Array
    row: jax.Array


class CursorRenamed(eqx.Module):
    row: jax.Array
    col: jax.Array


def cursor() -> Cursor:
    return Cursor(row=jnp.array([3, 4]), column=jnp.array([7, 8]))


def by_order(tree: Any, like: Any) -> Any:
    """Through equinox and back."""
    file = io.BytesIO()
    eqx.tree_serialise_leaves(file, tree)
    file.seek(0)
    return eqx.tree_deserialise_leaves(file, like)


def by_path(tree: Any, like: Any, folder: Path) -> Any:
    """Through our file and back."""
    save_state(folder / "state.jxw", tree)
    return load_state(folder / "state.jxw", like)


def test_swapped_fields_load_right_here_and_silently_wrong_there(tmp_path: Path) -> None:
    like = CursorReordered(column=jnp.zeros(2, jnp.int32), row=jnp.zeros(2, jnp.int32))
    theirs = by_order(cursor(), like)
    assert (theirs.row.tolist(), theirs.column.tolist()) == ([7, 8], [3, 4])
    ours = by_path(cursor(), like, tmp_path)
    assert (ours.row.tolist(), ours.column.tolist()) == ([3, 4], [7, 8])


def test_a_renamed_field_is_refused_here_and_accepted_there(tmp_path: Path) -> None:
    like = CursorRenamed(row=jnp.zeros(2, jnp.int32), col=jnp.zeros(2, jnp.int32))
    assert by_order(cursor(), like).col.tolist() == [7, 8]
    with pytest.raises(StoreError, match=r"\.col(?s:.*)\.column|\.column(?s:.*)\.col"):
        by_path(cursor(), like, tmp_path)


def test_a_leaf_too_many_in_the_file_is_refused_here_and_ignored_there(tmp_path: Path) -> None:
    both, one = (jnp.arange(3), jnp.ones(2)), (jnp.zeros(3, jnp.int32),)
    assert [leaf.tolist() for leaf in by_order(both, one)] == [[0, 1, 2]]
    with pytest.raises(StoreError, match=r"\[1\]"):
        by_path(both, one, tmp_path)


def test_another_shape_is_refused_by_both(tmp_path: Path) -> None:
    like = Cursor(row=jnp.zeros(3, jnp.int32), column=jnp.zeros(2, jnp.int32))
    with pytest.raises(RuntimeError, match=r"row"):
        by_order(cursor(), like)
    with pytest.raises(StoreError, match=r"\.row"):
        by_path(cursor(), like, tmp_path)


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
def test_typed_keys_are_stored_here_and_refused_there(impl: str, tmp_path: Path) -> None:
    state = {"key": jax.random.key(7, impl=impl), "x": jnp.float32(1.0)}
    like = {"key": jax.random.key(0, impl=impl), "x": jnp.float32(0.0)}
    with pytest.raises(RuntimeError, match="key") as refused:
        by_order(state, like)
    assert "PRNGKey dtype cannot be converted" in causes(refused.value)
    ours = by_path(state, like, tmp_path)
    assert ours["key"].dtype == state["key"].dtype
    assert jax.random.uniform(ours["key"]) == jax.random.uniform(state["key"])


def test_a_key_of_another_generator_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="key"):
        by_path({"key": jax.random.key(7)}, {"key": jax.random.key(7, impl="rbg")}, tmp_path)


def test_bfloat16_comes_back_from_both(tmp_path: Path) -> None:
    weights = jnp.linspace(-1, 1, 7).astype(jnp.bfloat16)
    like = jnp.zeros_like(weights)
    for again in (by_order(weights, like), by_path(weights, like, tmp_path)):
        assert again.dtype == jnp.bfloat16
        np.testing.assert_array_equal(again.view(jnp.uint16), weights.view(jnp.uint16))


def test_bfloat16_is_not_taken_for_another_type_of_its_size_by_either(tmp_path: Path) -> None:
    weights = jnp.linspace(-1, 1, 7).astype(jnp.bfloat16)
    like = jnp.zeros(7, jnp.float16)
    with pytest.raises(RuntimeError, match="from float16 in `like` to bfloat16 on disk"):
        by_order(weights, like)
    with pytest.raises(StoreError, match="bfloat16"):
        by_path(weights, like, tmp_path)


def test_float8_comes_back_here_and_is_refused_there(tmp_path: Path) -> None:
    weights = jnp.linspace(-1, 1, 7).astype(jnp.float8_e4m3fn)
    like = jnp.zeros_like(weights)
    with pytest.raises(RuntimeError, match="has changed type"):
        by_order(weights, like)
    again = by_path(weights, like, tmp_path)
    assert again.dtype == jnp.float8_e4m3fn
    np.testing.assert_array_equal(again.view(jnp.uint8), weights.view(jnp.uint8))


def test_a_flipped_bit_is_refused_here_and_loaded_there(tmp_path: Path) -> None:
    ones = np.ones(64, np.float32)
    file = io.BytesIO()
    eqx.tree_serialise_leaves(file, ones)
    theirs = bytearray(file.getvalue())
    theirs[-1] ^= 0x40
    assert eqx.tree_deserialise_leaves(io.BytesIO(bytes(theirs)), ones)[-1] != 1.0

    save_state(tmp_path / "state.jxw", ones, codec="raw")
    ours = bytearray((tmp_path / "state.jxw").read_bytes())
    ours[ours.index(ones.tobytes()) + 255] ^= 0x40
    (tmp_path / "state.jxw").write_bytes(bytes(ours))
    with pytest.raises(StoreError, match="does not match its checksum"):
        load_state(tmp_path / "state.jxw", ones)


def causes(error: BaseException | None) -> str:
    """The messages of an error and of all that caused it."""
    return "" if error is None else f"{error}\n{causes(error.__cause__)}"
