"""A tracker compiles once for one shape: over calls, over fields of one shape, over lengths, keys and batches."""

import jax
import numpy as np
import pytest

from jaxtrace.fields import TimeSeriesField, UniformGrid, constant_flow
from jaxtrace.tracking import checks, create_tracker
from jaxtrace.tracking.boundary import reflective_boundary
from jaxworlds.compiling import CompileWatch, no_recompile

pytestmark = pytest.mark.usefixtures("quick_compile")

BOX = [[0.0, 0.0], [1.0, 1.0]]
# The core's compiled chunk, which is all that runs in a tracker besides the start.
CHUNK, START = "advance", "_begin"


@pytest.fixture(autouse=True)
def _nothing_compiled_nor_said_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    jax.clear_caches()
    monkeypatch.setattr(checks, "_said", set())


def field(seed: int, slices: int = 3) -> TimeSeriesField:
    grid = UniformGrid([0.0, 0.0], [0.25, 0.25], (5, 5))
    data = 0.1 * np.random.default_rng(seed).standard_normal((slices, 25, 2))
    return TimeSeriesField(data.astype(np.float32), np.linspace(0, 2, slices), grid=grid)


def seeds(count: int = 20) -> np.ndarray:
    return np.random.default_rng(0).uniform(0.1, 0.9, (count, 2))


def test_other_fields_times_and_places_of_one_shape_need_no_other_program() -> None:
    with CompileWatch() as watch:
        tracker = create_tracker(field=field(0), boundary_condition=reflective_boundary(BOX))
        first = tracker.track_particles(seeds(), (0.0, 2.0), 9, 0.1)
    assert watch[CHUNK].compiles == 1
    with no_recompile(allow_eager=True):
        again = tracker.track_particles(seeds(), (0.0, 2.0), 9, 0.1)
        moved = reflective_boundary([[0.0, 0.0], [0.9, 0.95]])
        other = create_tracker(field=field(1), boundary_condition=moved, seed=7)
        elsewhere = other.track_particles(seeds() * 0.5, (0.5, 1.9), 9, 0.1)
        backward = other.track_particles(seeds() * 0.5, (1.9, 0.5), 9, 0.1)
        tracker.track_particles(seeds(), (0.0, 2.0), 9, 0.1, release_times=np.linspace(0, 1, 20))
    np.testing.assert_array_equal(again.positions, first.positions)
    assert np.abs(elsewhere.final - first.final).max() > 0.01
    assert np.abs(elsewhere.final - backward.final).max() > 0.01


def test_batches_of_one_run_share_a_program() -> None:
    with CompileWatch() as watch:
        tracker = create_tracker(field=constant_flow([0.1, 0.0]), batch_size=6)
        result = tracker.track_particles(seeds(), (0.0, 1.0), 5, 0.1)
    assert result.info["batches"] == 4
    assert (watch[CHUNK].compiles, watch[START].compiles) == (1, 1)


def test_similar_lengths_share_a_program_and_the_count_sees_another_shape() -> None:
    tracker = create_tracker(field=constant_flow([0.1, 0.0]))
    with CompileWatch() as watch:
        for times in (1500, 1490, 1480):
            tracker.track_particles(seeds(), (0.0, 1.0), times)
    assert watch[CHUNK].compiles == 1
    with CompileWatch() as watch:
        tracker.track_particles(seeds(21), (0.0, 1.0), 1500)
    assert watch[CHUNK].compiles == 1


def test_the_program_of_a_step_stays_lean() -> None:
    """No call of the host, and one loop over steps besides the scan over records."""
    tracker = create_tracker(field=field(0), boundary_condition=reflective_boundary(BOX), batch_size=64)
    with pytest.warns(UserWarning, match="unnecessary"):
        program = tracker._compiled_simulate
    text = program.executable.as_text()
    assert "callback" not in text
    assert text.count(" while(") == 1
    assert program.memory.temporaries / 64 < 2000
