"""What all worlds share, handed over chunk by chunk: `shared_at` of the driver."""

import functools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from jaxworlds.batching import world_mesh
from jaxworlds.compiling import CompileWatch
from jaxworlds.rollout import Checkpoint, Chunk, resume, run
from jaxworlds.store import StoreError

pytestmark = pytest.mark.devices

WORLDS, LENGTH, CHUNK = 8, 65, 20
BANK = np.random.default_rng(3).integers(-9, 9, LENGTH).astype(np.int32)


def step(carry: jax.Array, t: jax.Array, shared: Any) -> tuple[jax.Array, jax.Array]:
    carry = carry * 3 + shared["rows"][t - shared["first"]]
    return carry, carry.sum()


class Window:
    """The part of the bank that a chunk reads; remembers what it was asked for."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, int]] = []

    def __call__(self, at: int, steps: int) -> Any:
        self.calls.append((at, steps))
        rows = np.zeros(CHUNK, np.int32)
        rows[:steps] = BANK[at : at + steps]
        return {"rows": rows, "first": jnp.asarray(at, jnp.int32)}


def worlds() -> jax.Array:
    return jnp.arange(WORLDS, dtype=jnp.int32)


def whole() -> tuple[np.ndarray, np.ndarray]:
    """The same run with the whole bank at once."""
    shared = {"rows": jnp.asarray(BANK), "first": jnp.int32(0)}
    result = run(step, worlds(), LENGTH, shared=shared, chunk=CHUNK, record_every=1)
    return np.asarray(result.carry), result.records


def test_each_chunk_gets_its_own_part() -> None:
    window = Window()
    result = run(step, worlds(), LENGTH, shared_at=window, chunk=CHUNK, record_every=1)
    assert window.calls == [(0, 0), (0, 20), (20, 20), (40, 20), (60, 5)]
    carry, records = whole()
    assert np.array_equal(result.carry, carry)
    assert np.array_equal(result.records, records)


def test_the_next_part_is_asked_for_before_the_chunk_before_is_waited_for() -> None:
    events: list[tuple[str, int]] = []
    window = Window()

    def ask(at: int, steps: int) -> Any:
        events.append(("asked", at))
        return window(at, steps)

    run(
        step,
        worlds(),
        60,
        shared_at=ask,
        chunk=CHUNK,
        on_chunk=lambda c: events.append(("done", c.step)),
    )
    expected = [("asked", 0), ("asked", 0), ("asked", 20), ("done", 20), ("asked", 40), ("done", 40)]
    assert events == [*expected, ("done", 60)]


def test_all_chunks_share_one_program() -> None:
    traces: list[int] = []

    def counted(carry: Any, t: Any, shared: Any) -> Any:
        traces.append(1)
        return step(carry, t, shared)

    run(counted, worlds(), 60, shared_at=Window(), chunk=CHUNK)
    assert len(traces) == 1
    with CompileWatch() as watch:
        run(counted, worlds(), 60, shared_at=Window(), chunk=CHUNK)
    assert watch.compiles == 0


@functools.partial(jax.jit, donate_argnums=0)
def overwrite(ring: jax.Array, number: jax.Array) -> jax.Array:
    return ring.at[number % 2].set(number)


@pytest.mark.parametrize("with_mesh", [False, True])
def test_a_part_may_take_the_memory_of_the_one_before(with_mesh: bool) -> None:
    mesh = world_mesh() if with_mesh else None
    where = NamedSharding(mesh, PartitionSpec()) if mesh is not None else None
    held = [jax.device_put(jnp.full((2, 1000), -1, jnp.int32), where)]
    given: list[jax.Array] = []

    def turn(at: int, steps: int) -> jax.Array:
        if steps:
            held[0] = overwrite(held[0], np.int32(at // CHUNK))
        given.append(held[0])
        return held[0]

    def read(carry: jax.Array, t: jax.Array, ring: jax.Array) -> tuple[jax.Array, None]:
        return carry + ring[(t // CHUNK) % 2, 999], None

    result = run(read, worlds(), 100, shared_at=turn, chunk=CHUNK, mesh=mesh)
    assert np.array_equal(result.carry, np.arange(WORLDS) + CHUNK * (0 + 1 + 2 + 3 + 4))
    assert all(ring.is_deleted() for ring in given[:-1]), "in place: the driver holds no second handle"


def test_the_driver_keeps_no_part_longer_than_its_chunk() -> None:
    size = 400_000

    def large(at: int, steps: int) -> jax.Array:
        return jnp.full((size,), at, jnp.float32)

    alive: list[int] = []
    run(
        lambda c, t, s: (c + s[t], None),
        jnp.zeros(4),
        100,
        shared_at=large,
        chunk=10,
        on_chunk=lambda c: alive.append(sum(a.size == size for a in jax.live_arrays())),
    )
    assert max(alive) == 0, "the running program alone holds its part"


def test_resume_begins_with_the_part_of_its_own_chunk(tmp_path: Path) -> None:
    saving = Checkpoint(tmp_path, every_seconds=0.0)
    stop = lambda c: c.step >= CHUNK  # noqa: E731
    broken = run(
        step,
        worlds(),
        LENGTH,
        shared_at=Window(),
        chunk=CHUNK,
        record_every=1,
        checkpoint=saving,
        on_chunk=stop,
    )
    assert broken.outcome == "stopped"
    window = Window()
    result = resume(step, worlds(), saving, shared_at=window)
    assert window.calls == [
        (0, 0),
        *((at, min(CHUNK, LENGTH - at)) for at in range(broken.step, LENGTH, CHUNK)),
    ]
    carry, records = whole()
    assert np.array_equal(result.carry, carry)
    assert np.array_equal(result.records, records)
    again = Window()
    assert np.array_equal(resume(step, worlds(), saving, shared_at=again).records, records)
    assert again.calls == [(0, 0)], "a finished run needs no part, only the shapes"


def test_a_part_of_another_shape_is_named() -> None:
    def shrinking(at: int, steps: int) -> Any:
        return {"rows": np.zeros(steps or 20, np.int32), "first": np.int32(at)}

    with pytest.raises(
        ValueError, match=r"at step 60: value `shared\['rows'\]` changed from int32\[20\] to int32\[5\]"
    ):
        run(step, worlds(), LENGTH, shared_at=shrinking, chunk=CHUNK)


def test_a_plain_number_that_changes_is_named() -> None:
    with pytest.raises(
        ValueError, match=r"same structure.*step 20.*`shared` changed.*numbers that vary as arrays"
    ):
        run(lambda c, t, s: (c + s, None), worlds(), 40, shared_at=lambda at, steps: at // 20, chunk=20)


def test_constants_and_parts_exclude_each_other() -> None:
    with pytest.raises(
        ValueError, match=r"`shared` and `shared_at` must not both be given.*return the constants too"
    ):
        run(step, worlds(), 10, shared=jnp.zeros(1), shared_at=Window())


def test_an_error_of_the_source_reaches_the_caller() -> None:
    def failing(at: int, steps: int) -> Any:
        if at >= 40:
            raise OSError("slice 40 is missing")
        return Window()(at, steps)

    done: list[Chunk] = []
    with pytest.raises(OSError, match="slice 40 is missing"):
        run(step, worlds(), LENGTH, shared_at=failing, chunk=CHUNK, on_chunk=done.append)
    assert [c.step for c in done] == [20]


def test_a_checkpoint_compares_what_the_first_call_returns(tmp_path: Path) -> None:
    def parts(factor: int) -> Any:
        def shared_at(at: int, steps: int) -> Any:
            rows = jnp.full(3, at, jnp.int32) if steps else jax.ShapeDtypeStruct((3,), jnp.int32)
            return {"rows": rows, "factor": jnp.full(2, factor, jnp.int32)}

        return shared_at

    def scaled(carry: jax.Array, t: jax.Array, shared: Any) -> tuple[jax.Array, None]:
        return carry + shared["rows"][0] * shared["factor"][1], None

    stop = lambda c: c.step >= 20  # noqa: E731
    run(scaled, worlds(), 80, shared_at=parts(2), chunk=20, checkpoint=tmp_path, on_chunk=stop)
    with pytest.raises(StoreError, match=r"`shared` must be what the checkpointed run had"):
        resume(scaled, worlds(), tmp_path, shared_at=parts(3))
    result = resume(scaled, worlds(), tmp_path, shared_at=parts(2))
    assert np.array_equal(result.carry, np.arange(WORLDS) + 2 * 20 * (0 + 20 + 40 + 60))
