"""Fields of which a few slices are on the device: the plan, the ring, the sources, and runs through them."""

import gc
import threading
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from jaxtrace.fields import AbstractField, Sample, StreamedField, TimeSeriesField, UniformGrid
from jaxtrace.fields.streams.ring_field import plan
from jaxtrace.fields.streams.ring_keeper import RingKeeper
from jaxtrace.fields.streams.slices import AbstractSlices, FileSlices, SliceError, natural_key
from jaxworlds.batching import world_mesh
from jaxworlds.compiling import CompileWatch
from jaxworlds.rollout import Checkpoint, Rollout, resume, run

pytestmark = pytest.mark.usefixtures("quick_compile")

SLICES, STEPS = 11, 6
TIMES = np.array([0.0, 0.3, 0.7, 1.0, 1.2, 1.9, 2.2, 2.4, 2.9, 3.3, 3.5])
GRID = UniformGrid((0.0, 0.0), (0.2, 0.25), (6, 5))
DATA = np.random.default_rng(5).normal(size=(SLICES, GRID.size, 2)).astype(np.float32) * 0.1
EDGES = np.interp(np.arange((SLICES - 1) * STEPS + 1) / STEPS, np.arange(SLICES), TIMES)
SEEDS = np.random.default_rng(6).uniform(0.3, 0.7, (16, 2)).astype(np.float32)
SLICE_BYTES = GRID.size * 2 * 4


def streamed(source: Any = DATA, **options: Any) -> StreamedField:
    return StreamedField(source, TIMES, GRID, **{"layout": "rows", **options})


def advance(x: jax.Array, number: jax.Array, shared: Any) -> tuple[jax.Array, jax.Array]:
    """Heun's method: samples at both ends of a step, where rounding decides which slices count."""
    field, t, dt = shared
    now, then = field.at(t[number]), field.at(t[number] + dt[number])

    def one(x: jax.Array) -> jax.Array:
        k1 = now.sample(x, ()).velocity
        return x + dt[number] / 2 * (k1 + then.sample(x + dt[number] * k1, ()).velocity)

    x = jax.vmap(one)(x)
    return x, x


@eqx.filter_jit
def velocities(field: AbstractField, t: jax.Array) -> Sample:
    """Samples at the seeds, through the layout of the field."""
    moment = field.at(t)
    return jax.vmap(lambda x: moment.sample(x, ()))(jnp.asarray(SEEDS))


def tables(edges: np.ndarray) -> tuple[jax.Array, jax.Array]:
    """Padded, so that all tests share their programs."""
    t = np.pad(edges, (0, 80 - len(edges)), mode="edge")
    return jnp.asarray(t, jnp.float32), jnp.asarray(np.diff(t), jnp.float32)


def track(keeper: RingKeeper, edges: np.ndarray = EDGES, **options: Any) -> Rollout:
    t, dt = tables(edges)
    parts = lambda step, steps: (keeper.field_at(step, steps), t, dt)  # noqa: E731
    units = len(edges) - 1
    return run(
        advance, jnp.asarray(SEEDS), units, shared_at=parts, chunk=keeper.chunk, record_every=1, **options
    )


def track_resident(field: TimeSeriesField, edges: np.ndarray = EDGES, chunk: int = STEPS) -> Rollout:
    shared = (field, *tables(edges))
    return run(advance, jnp.asarray(SEEDS), len(edges) - 1, shared=shared, chunk=chunk, record_every=1)


class Watched(AbstractSlices):
    """A source that remembers what was read, and in which thread."""

    def __init__(self, data: np.ndarray = DATA) -> None:
        self.data, self.read_numbers, self.threads = data, [], set()

    def __len__(self) -> int:
        return len(self.data)

    def read(self, number: int) -> np.ndarray:
        self.read_numbers.append(number)
        self.threads.add(threading.current_thread())
        return self.data[number]


def reading_threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("jaxtrace-slices")]


# The numbers are those of a field with all slices on the device.


@pytest.mark.parametrize(
    ("time_interpolation", "layout", "backward"),
    [
        ("cubic", "rows", False),
        ("cubic", "rows", True),
        ("cubic", "direct", False),
        ("linear", "cells", True),
    ],
)
def test_the_bits_are_those_of_all_slices_at_once(
    time_interpolation: Any, layout: Any, backward: bool
) -> None:
    edges = EDGES[::-1] if backward else EDGES
    field = streamed(time_interpolation=time_interpolation, layout=layout)
    with field.open(edges) as keeper:
        assert keeper.plan.slots < SLICES
        result = track(keeper, edges)
    whole = track_resident(field.load(), edges, keeper.chunk)
    assert np.array_equal(result.records, whole.records)
    assert np.abs(result.records[-1] - SEEDS).max() > 0.05, "the particles moved"


def test_chunks_and_rings_of_any_size_give_the_same_numbers() -> None:
    found = {}
    for resident, longest in ((5, 1), (5, 2048), (9, 4)):
        with streamed(resident=resident).open(EDGES, longest=longest) as keeper:
            found[keeper.chunk, keeper.plan.slots] = track(keeper).records
    assert set(found) == {(1, 5), (6, 5), (4, 9)}
    first, *others = found.values()
    # Another length of the scan is another program, which may round the last bit otherwise.
    assert all(np.allclose(first, other, rtol=0, atol=1e-6) for other in others)


def test_sixteen_bit_cells_scale_by_a_power_of_two() -> None:
    with streamed(layout="cells16").open(EDGES) as keeper:
        field = keeper.field_at(0, STEPS)
        first, last = keeper.plan.window(0, STEPS)
        found = velocities(field, jnp.asarray(0.1)).velocity
    used = np.abs(DATA[first : last + 1]).max()
    assert used <= float(field.scale) < 2 * used
    assert np.log2(float(field.scale)) == int(np.log2(float(field.scale)))
    whole = streamed().load()(SEEDS, 0.1)
    assert 0 < np.abs(found - whole).max() <= 2**-11 * float(field.scale)


@pytest.mark.parametrize("extrapolation", ["clamp", "outside"])
def test_times_beyond_the_series_hold_the_end_slices(extrapolation: Any) -> None:
    edges = np.linspace(-1.0, 4.5, 23)
    field = streamed(extrapolation=extrapolation)
    with field.open(edges) as keeper:
        for step, t, number in ((0, -0.9, 0), (22 - keeper.chunk, 4.4, SLICES - 1)):
            found = velocities(keeper.field_at(step, keeper.chunk), jnp.asarray(t))
            steady = TimeSeriesField(DATA[number], grid=GRID)
            assert np.allclose(found.velocity, steady(SEEDS, 0.0), atol=1e-6)
            assert bool(found.inside.all()) == bool(found.inside.any()) == (extrapolation == "clamp")


def test_one_slice_is_a_steady_field() -> None:
    field = StreamedField(DATA[:1], [0.0], GRID)
    assert field.time_range == (-np.inf, np.inf)
    with field.open(EDGES) as keeper:
        assert keeper.plan.slots == 1
        for step in (0, 30):
            assert np.array_equal(keeper.field_at(step, 1)(SEEDS, EDGES[step]), field.load()(SEEDS, 0.0))
        assert keeper.slices_read == 1


# The ring.


@pytest.mark.parametrize("backward", [False, True])
def test_each_slice_is_read_once_in_order_by_a_thread_of_its_own(backward: bool) -> None:
    source = Watched()
    with streamed(source).open(EDGES[::-1] if backward else EDGES) as keeper:
        track(keeper, EDGES[::-1] if backward else EDGES)
        assert keeper.slices_read == SLICES
        assert keeper.seconds_waited >= 0
    expected = list(range(SLICES))
    assert source.read_numbers == (expected[::-1] if backward else expected)
    assert threading.current_thread() not in source.threads
    assert len(source.threads) == 1


def test_it_reads_ahead_but_not_without_bound() -> None:
    source = Watched()
    with streamed(source, read_ahead=2).open(EDGES) as keeper:
        keeper.field_at(0, STEPS)
        first, last = keeper.plan.window(0, STEPS)
        keeper._reader._expected[last + 2].result(timeout=10)
        assert source.read_numbers == list(range(first, last + 3))


def test_slots_are_overwritten_in_place() -> None:
    with streamed().open(EDGES) as keeper:
        before = keeper.field_at(0, STEPS).data
        where = before.unsafe_buffer_pointer()
        after = keeper.field_at(STEPS, STEPS).data
        assert before.is_deleted()
        assert after.unsafe_buffer_pointer() == where
        first, last = keeper.plan.window(STEPS, STEPS)
        for number in range(first, last + 1):
            assert np.array_equal(after[number % keeper.plan.slots], DATA[number])


def test_a_chunk_in_flight_still_sees_its_own_slices() -> None:
    """The slots are overwritten while a long program that reads them is under way."""
    rows = 200_000
    grid = UniformGrid((0.0, 0.0), (1.0, 1.0), (rows // 2, 2))
    data = np.broadcast_to(np.arange(8, dtype=np.float32)[:, None, None], (8, rows, 2))
    field = StreamedField(data, np.arange(8.0), grid, time_interpolation="linear", resident=3)

    @jax.jit
    def slow(ring: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(
            0, 60, lambda i, total: total + ring.sum(axis=(1, 2)) / (60 * 2 * rows), 0 * ring[:, 0, 0]
        )

    sums = []
    with field.open(np.arange(8.0)) as keeper:
        for step in range(6):
            sums.append((keeper.plan.window(step, 1), slow(keeper.field_at(step, 1).data)))
    for (first, last), found in sums:
        for number in range(first, last + 1):
            assert float(found[number % 3]) == pytest.approx(number, rel=1e-4)


def test_any_chunk_can_be_asked_for() -> None:
    field = streamed()
    whole = field.load()
    points = jnp.asarray(SEEDS)
    with field.open(EDGES) as keeper:
        for step in (0, 42, 6, 54, 0):
            here = keeper.field_at(step, STEPS)
            t = jnp.asarray(EDGES[step + 2], jnp.float32)
            assert np.array_equal(here(points, t), whole(points, t))


def test_a_time_beyond_the_chunk_carries_its_curve_on() -> None:
    """Should a time ever lie outside the plan, no slot is read for a slice that it does not hold."""
    field = streamed()
    whole = field.load()
    knots = np.linspace(TIMES[2], TIMES[3], 4)
    values = np.stack([np.asarray(whole(SEEDS, float(t))) for t in knots]).reshape(4, -1)
    t = float(TIMES[2]) - 0.2
    carried_on = [np.polyval(np.polyfit(knots - knots[0], column, 3), t - knots[0]) for column in values.T]
    with field.open(EDGES) as keeper:
        assert keeper.plan.intervals(2 * STEPS, STEPS) == (2, 3)
        found = keeper.field_at(2 * STEPS, STEPS)(SEEDS, t)
    assert np.allclose(np.asarray(found).reshape(-1), carried_on, atol=1e-4)


def test_all_chunks_and_the_next_run_share_one_program() -> None:
    field = streamed()
    with field.open(EDGES) as keeper:
        track(keeper)
    with CompileWatch() as watch, field.open(EDGES) as keeper:
        track(keeper)
        track(keeper)
    assert watch.compiles == 0


def test_a_ring_on_every_device_of_a_mesh(devices: list[jax.Device]) -> None:
    mesh = world_mesh()
    everywhere = NamedSharding(mesh, PartitionSpec())
    with streamed().open(EDGES, sharding=everywhere) as keeper:
        result = track(keeper, mesh=mesh)
        assert len(keeper.field_at(0, STEPS).data.sharding.device_set) == len(devices)
    with streamed().open(EDGES) as keeper:
        alone = track(keeper)
    assert np.allclose(result.records, alone.records, atol=1e-6)


@pytest.mark.parametrize("stop_at", [6, 30, 48])
def test_a_resumed_run_has_the_same_bits_and_reads_only_its_own_slices(tmp_path: Path, stop_at: int) -> None:
    field = streamed()
    with field.open(EDGES) as keeper:
        whole = track(keeper)
        saving = Checkpoint(tmp_path, every_seconds=0.0)
        broken = track(keeper, checkpoint=saving, on_chunk=lambda c: c.step >= stop_at)
    assert broken.step < len(EDGES) - 1
    source = Watched()
    with streamed(source).open(EDGES) as keeper:
        t, dt = tables(EDGES)
        parts = lambda step, steps: (keeper.field_at(step, steps), t, dt)  # noqa: E731
        result = resume(advance, jnp.asarray(SEEDS), tmp_path, shared_at=parts)
        first, _ = keeper.plan.window(broken.step, keeper.chunk)
    assert np.array_equal(result.records, whole.records)
    assert source.read_numbers == list(range(first, SLICES))


def test_a_chunk_that_needs_more_than_the_ring_is_refused() -> None:
    with (
        streamed().open(EDGES) as keeper,
        pytest.raises(ValueError, match=r"must hold the 11 slices that units 0 to 59 need; it has 5"),
    ):
        keeper.field_at(0, 60)


def test_into_makes_what_a_run_shares() -> None:
    with streamed().open(EDGES, into=lambda ring: {"field": ring, "one": jnp.ones(())}) as keeper:
        shapes = keeper.shared_at(0, 0)["field"]
        given = keeper.shared_at(0, STEPS)["field"]
    assert isinstance(shapes.data, jax.ShapeDtypeStruct)
    assert shapes.data.shape == given.data.shape
    assert isinstance(shapes.times, jax.Array), "what does not change is there, for a checkpoint to compare"


# The thread ends, and errors come out where a slice is needed.


def test_the_thread_ends_with_the_block_and_with_the_keeper() -> None:
    with streamed().open(EDGES) as keeper:
        keeper.field_at(0, STEPS)
        assert reading_threads()
    assert not reading_threads()
    with pytest.raises(ValueError, match="this one was closed"):
        keeper.field_at(STEPS, STEPS)
    keeper.close()
    forgotten = streamed().open(EDGES)
    forgotten.field_at(0, STEPS)
    del forgotten
    gc.collect()
    assert not reading_threads()


def with_wrong(number: int, wrong: Any) -> Any:
    return lambda k: wrong if k == number else DATA[k]


NAN = np.where(np.arange(GRID.size)[:, None] == 17, np.nan, DATA[7])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            NAN,
            r"slice 7 \(time 2\.4.*must be finite in float32; 1 of 30 rows are not, the first is row 17.*`mask`",
        ),
        (DATA[7][:-1], r"slice 7 \(time 2\.4.*must have shape \(30, 2\) or \(6, 5, 2\).*it has \(29, 2\)"),
    ],
)
def test_a_wrong_slice_is_named_when_its_chunk_comes(wrong: np.ndarray, message: str) -> None:
    done: list[int] = []
    with (
        streamed(with_wrong(7, wrong)).open(EDGES) as keeper,
        pytest.raises(SliceError, match=message),
    ):
        track(keeper, on_chunk=lambda c: done.append(c.step))
    assert done == [6, 12, 18], "chunks before the one that needs slice 7 came through"
    assert not reading_threads()


def test_an_error_of_the_source_keeps_its_cause() -> None:
    def broken(number: int) -> np.ndarray:
        raise OSError("the disk is gone")

    with (
        streamed(broken).open(EDGES) as keeper,
        pytest.raises(
            SliceError, match=r"slice 0 \(time 0, .*broken\) cannot be used: the disk is gone"
        ) as caught,
    ):
        keeper.field_at(0, 1)
    assert isinstance(caught.value.__cause__, OSError)


def test_half_precision_stores_half_and_says_what_it_cannot_hold() -> None:
    field = streamed(dtype="float16")
    assert field.slice_bytes == SLICE_BYTES // 2
    with field.open(EDGES) as keeper:
        assert keeper.field_at(0, STEPS).data.dtype == jnp.float16
        assert np.allclose(keeper.field_at(0, STEPS)(SEEDS, 0.1), streamed().load()(SEEDS, 0.1), atol=1e-3)
    with (
        streamed(DATA * 1e7, dtype="float16").open(EDGES) as keeper,
        pytest.raises(SliceError, match="finite in float16"),
    ):
        keeper.field_at(0, 1)


def test_land_may_hold_nothing() -> None:
    mask = np.zeros((6, 5), bool)
    mask[:2, :2] = True
    grid = UniformGrid((0.0, 0.0), (0.2, 0.25), (6, 5), mask=mask)
    land = np.asarray(grid.land_rows)
    data = np.where(land[:, None], np.nan, DATA).astype(np.float32)
    with StreamedField(data, TIMES, grid).open(EDGES) as keeper:
        ring = np.asarray(keeper.field_at(0, STEPS).data)
    assert np.array_equal(ring[0], np.where(land[:, None], 0, DATA[0]))


# Sources.


def test_every_kind_of_source_gives_the_same_slices(tmp_path: Path) -> None:
    folder = tmp_path / "slices"
    folder.mkdir()
    for number, values in enumerate(DATA):
        np.save(folder / f"u_{number}.npy", values.reshape(6, 5, 2))
    np.save(tmp_path / "whole.npy", DATA)
    files = sorted(folder.glob("*.npy"), key=lambda file: natural_key(file.name))
    assert [file.name for file in files[:3]] == ["u_0.npy", "u_1.npy", "u_2.npy"]

    class Reader:
        def __len__(self) -> int:
            return SLICES

        def read(self, number: int) -> np.ndarray:
            return DATA[number].astype(np.float64)

    sources = {
        "array": DATA,
        "axes of the grid": DATA.reshape(SLICES, 6, 5, 2),
        "JAX array": jnp.asarray(DATA),
        "memory map": np.load(tmp_path / "whole.npy", mmap_mode="r"),
        "list of arrays": list(DATA),
        "folder": folder,
        "list of files": [str(file) for file in files],
        "function": lambda number: DATA[number],
        "reader": Reader(),
    }
    for name, source in sources.items():
        field = streamed(source)
        assert field.dtype == np.float32, name
        assert np.array_equal(np.stack([field.read(k) for k in range(SLICES)]), DATA), name


def test_what_is_read_is_a_copy() -> None:
    shared = DATA[0].copy()
    field = streamed(lambda number: shared)
    first = field.read(0)
    shared[:] = 5.0
    assert np.array_equal(first, DATA[0])


def test_files_that_are_missing_or_broken_are_named(tmp_path: Path) -> None:
    for number in range(SLICES):
        np.save(tmp_path / f"u_{number}.npy", DATA[number])
    field = streamed(tmp_path)
    (tmp_path / "u_4.npy").unlink()
    whole = (tmp_path / "u_2.npy").read_bytes()
    (tmp_path / "u_2.npy").write_bytes(whole[:-40])
    for number in (2, 4):
        with pytest.raises(
            SliceError, match=rf"slice {number} \(time {TIMES[number]:g}, .*u_{number}\.npy\)"
        ):
            field.read(number)
    with pytest.raises(FileNotFoundError, match=r"1 of 2 do not, the first is slice 1, .*u_4\.npy"):
        FileSlices([tmp_path / "u_1.npy", tmp_path / "u_4.npy"])
    with pytest.raises(FileNotFoundError, match="is not a folder"):
        streamed(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="holds none"):
        streamed(tmp_path / "empty")


def test_what_cannot_be_a_series_is_refused() -> None:
    with pytest.raises(TypeError, match=r"`source` must be an array.*got int"):
        streamed(3)
    with pytest.raises(ValueError, match=r"time of each of the 10 slices; got 11"):
        streamed(DATA[:-1])
    with pytest.raises(ValueError, match=r"`times` must be finite and rise strictly"):
        StreamedField(DATA, TIMES[::-1], GRID)
    with pytest.raises(ValueError, match=r"`positions` or `grid`.*got neither"):
        StreamedField(DATA, TIMES)
    with pytest.raises(ValueError, match=r"`resident` must be at least 1 slice; got 0"):
        streamed(resident=0)


def test_bare_positions_are_recognised() -> None:
    field = StreamedField(DATA, TIMES, positions=np.asarray(GRID.positions))
    with field.open(EDGES) as keeper, streamed().open(EDGES) as other:
        points = jnp.asarray(SEEDS)
        assert np.allclose(keeper.field_at(0, 1)(points, 0.0), other.field_at(0, 1)(points, 0.0), atol=1e-6)


# The plan.


def needed(times: np.ndarray, t: np.ndarray, interpolation: str) -> np.ndarray:
    """The slices that count at times, found the slow way."""
    interval = np.clip(np.searchsorted(times, t, side="right") - 1, 0, len(times) - 2)
    around = range(-1, 3) if interpolation == "cubic" else range(2)
    return np.unique([np.clip(interval + k, 0, len(times) - 1) for k in around])


@pytest.mark.parametrize("seed", range(20))
def test_every_chunk_finds_its_slices_in_slots_of_their_own(seed: int) -> None:
    rng = np.random.default_rng(seed)
    slices, units = int(rng.integers(2, 40)), int(rng.integers(1, 300))
    times = np.cumsum(rng.uniform(0.1, 2.0, slices)).astype(np.float32)
    edges = np.sort(rng.uniform(times[0] - 1, times[-1] + 1, units + 1))
    inner = times[(times > edges[0]) & (times < edges[-1])]
    edges = np.unique(np.concatenate([edges, inner.astype(np.float64)]))[:: rng.choice([-1, 1])]
    interpolation = rng.choice(["nearest", "linear", "cubic"])
    multiple = int(rng.integers(1, 4))
    found = plan(times, edges, interpolation, 100, multiple=multiple)
    assert found.chunk % multiple == 0
    units, rounded = len(edges) - 1, edges.astype(np.float32)
    before: tuple[int, int] | None = None
    for step in range(0, units, found.chunk):
        steps = min(found.chunk, units - step)
        first, last = found.window(step, steps)
        assert last - first + 1 <= found.slots
        fractions = np.linspace(0, 1, 7)[:, None]
        inside = (
            rounded[step : step + steps] * (1 - fractions) + rounded[step + 1 : step + steps + 1] * fractions
        )
        counted = needed(times, inside.reshape(-1), interpolation)
        assert first <= counted.min()
        assert counted.max() <= last
        if before is not None:
            new = set(range(first, last + 1)) - set(range(before[0], before[1] + 1))
            assert len(new) <= found.staged
        before = (first, last)


def test_a_step_may_end_a_rounding_error_behind_a_slice() -> None:
    times = np.arange(10, dtype=np.float32)
    forward = plan(times, np.arange(10.0), "cubic", 1)
    assert forward.window(3, 1) == (2, 6), "3 to 4 and a hair: intervals 3 and 4"
    back = plan(times, np.arange(10.0)[::-1], "linear", 1)
    assert back.window(3, 1) == (4, 7), "from 6 (interval 6) down to 5 and a hair: interval 4"


def test_chunks_are_about_as_long_as_the_spacing_and_divide_the_run() -> None:
    times = np.linspace(0, 1, 41).astype(np.float32)
    found = plan(times, np.linspace(0, 1, 801), "cubic", 1)
    assert (found.chunk, found.slots, found.staged) == (20, 5, 1)
    assert plan(times, np.linspace(0, 1, 801), "cubic", 1, multiple=3).chunk == 18
    assert 840 % plan(times, np.linspace(0, 1, 841), "cubic", 1, longest=17).chunk == 0
    assert plan(times, np.linspace(0, 1, 11), "cubic", 1).chunk == 1, (
        "units longer than the spacing: one at a time"
    )


def test_a_memory_limit_is_kept_by_shorter_chunks() -> None:
    times = np.linspace(0, 1, 41).astype(np.float32)
    edges = np.linspace(0, 1, 298)  # 7.4 units for each slice: chunks end anywhere between slices
    free = plan(times, edges, "cubic", 1000)
    tight = plan(times, edges, "cubic", 1000, limit_bytes=6000)
    assert free.nbytes > 6000
    assert tight.nbytes == 6000
    assert 1 <= tight.chunk < free.chunk


def test_the_smallest_ring_that_does_not_fit_is_said_with_its_arithmetic() -> None:
    with pytest.raises(
        ValueError,
        match=r"cubic interpolation in time needs 5 slices in the ring and 1 on the way, "
        r"\(5 \+ 1\) × 240 bytes = 1,440 bytes; got 1,000",
    ):
        streamed().open(EDGES, 1000)
    with pytest.raises(ValueError, match=r"`resident` must be at least 5.*got 4"):
        streamed(resident=4).open(EDGES)
    assert streamed(resident=8, memory_limit_gb=1.0).open(EDGES).plan.slots == 8
    assert streamed(resident=100).open(EDGES).plan.slots == SLICES
    with pytest.raises(ValueError, match=r"1,440 bytes; got 1,200"):
        streamed(memory_limit_gb=1.2e-6).open(EDGES)


def test_units_that_turn_round_are_refused() -> None:
    with pytest.raises(ValueError, match=r"`unit_times` must hold.*all rising or all falling"):
        streamed().open([0.0, 1.0, 0.5])
    with pytest.raises(ValueError, match=r"`unit_times`"):
        streamed().open([1.0])


def test_empty_units_need_only_their_own_time() -> None:
    edges = np.concatenate([[0.0], EDGES, np.full(5, EDGES[-1])])
    with streamed().open(edges) as keeper:
        result = track(keeper, edges)
    assert np.array_equal(result.records[1 : len(EDGES)], track_resident(streamed().load()).records)


def test_the_plan_reads_as_a_sentence() -> None:
    with streamed().open(EDGES) as keeper:
        text = str(keeper.plan)
    assert text.startswith("chunks of 6 units; 5 of 11 slices on the device and 1 on their way")
