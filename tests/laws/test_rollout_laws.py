"""Laws of the driver: cutting, recording, stopping and spreading never change what the worlds do."""

import tempfile

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxworlds.batching import world_mesh
from jaxworlds.rollout import Checkpoint, resume, run


def step(carry: jax.Array, t: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Integers that mix and wrap: one lost or doubled step changes everything after it."""
    carry = carry * 1664525 + 1013904223 + t
    return carry, carry ^ (carry >> 7)


def oracle(start: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
    """The same in plain NumPy."""
    carry, outs = start.astype(np.int64), []
    wrap = lambda a: ((a + 2**31) % 2**32 - 2**31).astype(np.int64)  # noqa: E731
    for t in range(length):
        carry = wrap(carry * 1664525 + 1013904223 + t)
        outs.append(carry ^ (carry >> 7))
    shape = (length, *start.shape)
    return carry.astype(np.int32), np.array(outs, np.int64).reshape(shape).astype(np.int32)


lengths = st.integers(0, 60)
strides = st.integers(1, 7)
blocks = st.integers(1, 6)


@settings(max_examples=25, deadline=None)
@given(length=lengths, stride=strides, blocks=blocks)
def test_cutting_and_recording_change_nothing(length: int, stride: int, blocks: int) -> None:
    start = np.arange(8, dtype=np.int32)
    carry, outs = oracle(start, length)
    result = run(step, jnp.asarray(start), length, chunk=stride * blocks, record_every=stride)
    assert np.array_equal(result.carry, carry)
    if length >= stride:
        assert np.array_equal(result.records, outs[stride - 1 :: stride])
    assert len(result.recorded_steps) == length // stride


@settings(max_examples=15, deadline=None)
@given(length=st.integers(1, 60), stride=strides, blocks=blocks, stop=st.integers(0, 60))
def test_stopping_anywhere_and_resuming_changes_nothing(
    length: int, stride: int, blocks: int, stop: int
) -> None:
    start = np.arange(8, dtype=np.int32)
    carry, outs = oracle(start, length)
    with tempfile.TemporaryDirectory() as folder:
        saving = Checkpoint(folder, every_seconds=0.0)
        halt = lambda c: c.step >= stop  # noqa: E731
        run(step, start, length, chunk=stride * blocks, record_every=stride, checkpoint=saving, on_chunk=halt)
        result = resume(step, start, folder)
    assert result.finished
    assert np.array_equal(result.carry, carry)
    if length >= stride:
        assert np.array_equal(result.records, outs[stride - 1 :: stride])


@settings(max_examples=8, deadline=None)
@given(length=lengths, per_device=st.integers(1, 3))
def test_spreading_over_devices_changes_nothing(length: int, per_device: int) -> None:
    start = np.arange(per_device * jax.device_count(), dtype=np.int32)
    result = run(step, start, length, mesh=world_mesh(), record_every=1)
    carry, outs = oracle(start, length)
    assert np.array_equal(result.carry, carry)
    if length:
        assert np.array_equal(result.records, outs)
