"""jaxtrace's ledger, row by row: each promise of guide 004, its structure and at least one value.

`ROWS` names the tests of every row of `ledger/jaxtrace.md`, sections 1a and 1b, in the order of the ledger; a phrase
identifies the row. `DEFECTS` does the same for what the original got wrong. A test of another file is named with its
file; the rest is here, on one small stream through a box and on one series of files.
"""

import ast
import functools
import os
import subprocess
import sys
import textwrap
import time
import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import vtk_series

import jaxtrace as jt
from jaxtrace.fields import AnalyticField, StreamedField, TimeSeriesField, UniformGrid, constant_flow
from jaxtrace.io import load_optimized_dataset
from jaxtrace.tracking import results
from jaxtrace.tracking.boundary import (
    clamping_boundary,
    continuous_inlet_boundary_factory,
    inlet_outlet_boundary_factory,
    periodic_boundary,
    reflective_boundary,
)
from jaxtrace.utils import track_memory, track_operation_memory
from jaxworlds.compiling import CompileWatch

pytestmark = pytest.mark.usefixtures("quick_compile")

ROOT = Path(__file__).resolve().parents[3]
LEDGER = ROOT.parent / "shared" / "ledger" / "jaxtrace.md"

GUIDES = "docs/test_guides.py::"
BLOCKS = "docs/test_guides_jaxtrace.py::"
FIELDS = "unit/jaxtrace/fields/test_fields.py::"
BOXES = "unit/jaxtrace/boundaries/test_boundaries.py::"
VTK = "unit/jaxtrace/io/test_vtk.py::"
MESHES = "unit/jaxtrace/fields/test_meshes.py::"
ALONE = GUIDES + "test_the_variables_and_configure_of_the_tracking_guide"

# (section, phrase in the row, tests)
ROWS: list[tuple[str, str, tuple[str, ...]]] = [
    ("1a", "XLA_PYTHON_CLIENT_PREALLOCATE", (ALONE, "test_the_memory_limit_sizes_batches")),
    ("1a", "jt.configure(", (ALONE, "test_configure_decides_the_precision_and_starts_nothing")),
    (
        "1a",
        "load_optimized_dataset(pattern",
        ("test_a_series_of_files_becomes_a_field", "test_what_to_read_is_chosen_and_refused_by_name"),
    ),
    ("1a", "field attributes", ("test_the_fields_arrays_are_on_the_device_and_stay",)),
    (
        "1a",
        "`TimeSeriesField(data=",
        (
            "test_numpy_and_jax_arrays_make_the_same_field",
            FIELDS + "test_a_lattice_in_any_order_is_recognised_and_exact",
            FIELDS + "test_scattered_positions_are_triangulated_and_exact",
        ),
    ),
    (
        "1a",
        "reflective_boundary(bounds)",
        ("test_the_fast_three_hold_every_particle", BOXES + "test_the_guides_three"),
    ),
    (
        "1a",
        "continuous_inlet_boundary_factory(...)",
        (
            "test_inlets_refill_slots_in_the_same_program",
            BOXES + "test_uniform_inlet_fills_free_slots_only",
            BOXES + "test_flux_inlet_follows_the_flow",
        ),
    ),
    (
        "1a",
        "create_tracker(integrator_name=",
        ("test_every_argument_of_create_tracker_is_known", "test_progress_is_told_and_can_stop_a_run"),
    ),
    ("1a", "tracker._compiled_step", ("test_compiled_means_compiled",)),
    (
        "1a",
        "uniform_grid_seeds(",
        ("test_the_guides_seeds", "unit/jaxtrace/tracking/test_seeding.py::test_the_guides_grid"),
    ),
    ("1a", "tracker.track_particles(", ("test_the_span_rules",)),
    ("1a", "track_operation_memory", ("test_memory_tracking_counts_and_costs_nothing_when_off",)),
    (
        "1a",
        "example_workflow_fast.py",
        ("test_the_example_is_there", "docs/test_documents.py::test_examples_run"),
    ),
    (
        "1a",
        "Problem-solution promises",
        ("test_the_memory_limit_sizes_batches", "test_a_series_larger_than_the_limit_is_streamed"),
    ),
    ("1a", "Checklist prints", ("test_the_checklist_is_true", BLOCKS + "test_a_block_of_jaxtrace_runs")),
    ("1b", "first run 10-30 s", ("test_the_second_run_compiles_nothing",)),
    ("1b", '"After: 30-60 s', ("test_the_run_says_how_fast_it_was",)),
    ("1b", '"Before: 1300+ s', ("test_the_run_says_how_fast_it_was",)),
    ("1b", '"10-30x faster"', ("test_every_boundary_runs_compiled",)),
    ("1b", 'float32 "2x faster', ("test_configure_decides_the_precision_and_starts_nothing",)),
    ("1b", "n_timesteps=1500, dt=0.005`", ("test_the_span_rules", BLOCKS + "test_a_block_of_jaxtrace_runs")),
    ("1b", "allocates GPU memory at import", ("test_configure_decides_the_precision_and_starts_nothing",)),
    (
        "1b",
        "JIT fails unless",
        (
            "test_the_fields_arrays_are_on_the_device_and_stay",
            BLOCKS + "test_nothing_of_the_recipe_is_needed",
        ),
    ),
    ("1b", "verifies JIT", ("test_compiled_means_compiled", GUIDES + "test_a_block_of_the_core_runs")),
    ("1b", "non-JIT boundary", ("test_every_boundary_runs_compiled",)),
]
# (number in the ledger, tests); 8 (densities) belongs to a later part of the project.
DEFECTS: dict[int, tuple[str, ...]] = {
    1: ("test_two_dimensions_and_flat_boxes_work",),
    2: ("test_a_series_of_files_becomes_a_field",),
    3: ("test_the_fast_three_hold_every_particle",),
    4: ("test_the_second_run_compiles_nothing",),
    5: (
        MESHES + "test_no_interior_point_is_lost",
        MESHES + "test_linear_fields_are_exact_on_every_kind_of_cell_and_scale",
    ),
    6: (
        "test_a_stretched_grid_is_not_taken_for_an_even_one",
        FIELDS + "test_scipy_agrees_on_a_stretched_grid",
    ),
    7: ("test_a_cylinder_holds", BOXES + "test_cylinders_along_any_axis"),
    9: ("test_every_kth_step_is_recorded_without_gaps", "test_every_boundary_runs_compiled"),
    10: ("test_the_samples_of_the_readme_run",),
    11: ("test_the_derivative_of_the_end_is_that_of_the_flow",),
    12: ("test_files_are_sorted_by_number_and_their_axes_are_kept",),
}


@functools.cache
def named_in(file: str) -> set[str]:
    """The names of a file's tests."""
    tree = ast.parse((ROOT / "tests" / file).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_row_has_tests_that_exist() -> None:
    named = [test for _, _, tests in ROWS for test in tests] + [
        t for tests in DEFECTS.values() for t in tests
    ]
    for test in named:
        file, _, name = test.rpartition("::")
        assert name in named_in(file or __file__), test
    here = {name for name in globals() if name.startswith("test_")}
    assert here - set(named) == {
        "test_every_row_has_tests_that_exist",
        "test_the_rate_counts_the_call_from_its_beginning_to_its_results",
        "test_the_tables_name_every_row_of_the_ledger",
    }


@pytest.mark.skipif(not LEDGER.is_file(), reason="the ledger is not here (../shared/ledger)")
def test_the_tables_name_every_row_of_the_ledger() -> None:
    text = LEDGER.read_text(encoding="utf-8")
    promises, rest = text.split("### 1a.")[1].split("### 1b.")
    numbers, defects = rest.split("### Defects reproduced")
    rows = [("1a", line) for line in promises.splitlines() if line.startswith("- [")]
    rows += [
        ("1b", line) for line in numbers.splitlines() if line.startswith("| ") and "| check |" not in line
    ]
    assert len(rows) == len(ROWS)
    for (section, line), (expected, phrase, _) in zip(rows, ROWS, strict=True):
        assert (section, phrase in line) == (expected, True), f"{phrase!r} is not in {line!r}"
    found = defects.split("### Actual cost")[0].splitlines()
    counted = [int(line.split(".")[0]) for line in found if line[:1].isdigit()]
    assert [number for number in counted if number != 8] == list(DEFECTS)


# --- one stream through a box, and one series of files ---

LOW, HIGH = (0.0, 0.0, 0.0), (2.0, 1.0, 0.5)
BOUNDS = [LOW, HIGH]
SPEED = 0.1


@functools.cache
def stream() -> TimeSeriesField:
    """0.1 along x, on the eight corners of the box, every second."""
    nodes = np.stack(np.meshgrid(*zip(LOW, HIGH, strict=True), indexing="ij"), -1).reshape(-1, 3)
    return TimeSeriesField(np.tile([SPEED, 0.0, 0.0], (5, 8, 1)), np.arange(5.0), nodes)


@functools.cache
def flow() -> AnalyticField:
    """The same as a formula, where what matters is not the field: programs are smaller."""
    return constant_flow([SPEED, 0.0, 0.0])


def seeds(counts: tuple[int, ...] = (4, 3, 2)) -> np.ndarray:
    return np.asarray(jt.uniform_grid_seeds(counts, BOUNDS, include_boundaries=False))


@pytest.fixture
def pattern(tmp_path: Path) -> str:
    pytest.importorskip("vtkmodules", reason="vtk is not installed")
    return vtk_series.write_series(tmp_path, [0.0, 0.5, 1.0, 2.0, 4.0])


def run_alone(code: str) -> None:
    """Run code in a fresh interpreter without settings of ours."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("JAX", "XLA", "EQX"))}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**clean, "JAX_PLATFORMS": "cpu", "JAXWORLDS_CACHE_DIR": "off"},
    )
    assert done.returncode == 0, done.stderr


# --- 1a: settings and memory ---


@pytest.mark.own_process
def test_configure_decides_the_precision_and_starts_nothing() -> None:
    """Importing and configuring takes no device and no memory; JAX starts at the first array."""
    run_alone("""
        import numpy as np
        import jaxtrace as jt
        from jaxworlds.runtime import backend_started
        found = jt.configure(dtype="float64", device="cpu", memory_limit_gb=3.0)
        jt.create_tracker, jt.uniform_grid_seeds, jt.load_optimized_dataset
        assert not backend_started()
        assert (found.dtype, found.device, found.memory_limit_gb) == ("float64", "cpu", 3.0)
        from jaxtrace.fields import constant_flow
        flow = constant_flow([0.1, 0.0])
        assert backend_started()
        run = jt.create_tracker("rk4", flow).track_particles([[0.0, 0.5]], (0.0, 4.0), 1500, 0.005)
        assert run.positions.dtype == np.float64
        assert abs(run.final[0, 0] - 0.4) < 1e-13  # 1e-5 in float32
        assert run.info["dtype"] == "float64"
    """)


def test_the_memory_limit_sizes_batches() -> None:
    """Out of memory: the guide's 2,000 instead of all comes by itself, and any batch gives the same bits."""
    start = np.random.default_rng(0).uniform(LOW, HIGH, (3000, 3))
    whole = jt.create_tracker("rk4", flow()).track_particles(start, (0.0, 1.0), 2, dt=0.5)
    given = jt.create_tracker("rk4", flow(), batch_size=2000).track_particles(start, (0.0, 1.0), 2, dt=0.5)
    assert (whole.info["batches"], given.info["batches"], given.info["batch_size"]) == (1, 2, 2000)
    np.testing.assert_array_equal(given.positions, whole.positions)
    narrow = jt.create_tracker("rk4", flow(), memory_limit_gb=1.0).explain(10_000_000, 2, (0.0, 1.0), 0.5)
    assert 1 < narrow.batches < 1000
    assert narrow.batch_size * narrow.batches >= 10_000_000
    assert narrow.batch_size * 3 * 4 < narrow.particle_bytes <= narrow.limit_bytes == 2**30


def test_a_series_larger_than_the_limit_is_streamed(tmp_path: Path) -> None:
    """Fewer slices (`max_time_steps=20`) are no longer a way out that anybody needs."""
    pytest.importorskip("vtkmodules", reason="vtk is not installed")
    pattern = vtk_series.write_series(tmp_path, [0.25 * k for k in range(13)])
    streamed = load_optimized_dataset(pattern, memory_limit_gb=9e-6, verbose=False)  # 13 slices are 14 kB
    assert isinstance(streamed, StreamedField)
    assert streamed.slice_bytes == 90 * 3 * 4
    start = jt.uniform_grid_seeds((2, 3, 2), [vtk_series.LOW, [0.4, 0.4, 0.2]], include_boundaries=False)
    found = jt.create_tracker("rk4", streamed).track_particles(start, (0.0, 2.0), 9, dt=0.25)
    # u grows with 1 + t: in two seconds 4 times the first speed, linear between two rows of nodes.
    rows = np.array([0.0, 0.1, 0.2, 0.3, 0.4])
    known = np.interp(
        np.asarray(start)[:, 1],
        rows,
        vtk_series.velocity(np.stack([0 * rows, rows, 0 * rows], -1), 0.0)[:, 0],
    )
    np.testing.assert_allclose(found.final[:, 0], np.asarray(start)[:, 0] + 4 * known, atol=1e-5)
    assert (found.outcomes == jt.Outcome.MOVING).all()


def test_memory_tracking_counts_and_costs_nothing_when_off() -> None:
    with track_operation_memory("a field") as use:
        field = TimeSeriesField(np.zeros((2, 8, 3), np.float32), [0.0, 1.0], np.asarray(stream().positions))
    assert use.live_change >= field.data.nbytes == 2 * 8 * 3 * 4

    def plain() -> int:
        return 1

    assert track_memory(plain, enabled=False) is plain
    assert track_memory(plain)() == 1


# --- 1a: fields ---


def test_a_series_of_files_becomes_a_field(pattern: str, capsys: pytest.CaptureFixture[str]) -> None:
    field = load_optimized_dataset(pattern, max_time_steps=40, dtype="float32")
    assert isinstance(field, TimeSeriesField)
    assert (field.data.shape, field.data.dtype) == ((5, 90, 3), jnp.float32)
    np.testing.assert_allclose(field.times, [0.0, 0.5, 1.0, 2.0, 4.0])  # seconds, not file numbers
    at_rest = np.isclose(vtk_series.nodes()[:, 1] % 0.4, 0)
    assert at_rest.sum() == 36  # 15 + 15 and rounding aside: the walls the original could not read
    point = np.array([[0.3, 0.1, 0.05]])
    np.testing.assert_allclose(field(point, 3.0), vtk_series.velocity(point, 3.0), rtol=1e-4)
    assert "'Velocity' (node data, the only vector named like a velocity)" in capsys.readouterr().out


def test_what_to_read_is_chosen_and_refused_by_name(pattern: str) -> None:
    with pytest.warns(UserWarning, match="keeps 3 of 5 slices"):
        thinned = load_optimized_dataset(pattern, max_time_steps=3, verbose=False)
    np.testing.assert_allclose(thinned.times, [0.0, 1.0, 4.0])
    part = load_optimized_dataset(pattern, time_range=(0.6, 0.9), verbose=False)
    np.testing.assert_allclose(part.times, [0.5, 1.0])
    with pytest.raises(ValueError, match=r"`max_memory_per_timestep_mb` allows 0\.001 MB.* = 0\.00108 MB"):
        load_optimized_dataset(pattern, max_memory_per_timestep_mb=0.001, verbose=False)
    with pytest.raises(ValueError, match=r"array 'pressure' has 1 components; a velocity has 2 or 3"):
        load_optimized_dataset(pattern, velocity="pressure", verbose=False)
    half = load_optimized_dataset(pattern, dtype="float16", verbose=False)
    assert half.data.nbytes == 5 * 90 * 3 * 2


def test_the_fields_arrays_are_on_the_device_and_stay() -> None:
    field = stream()
    assert (field.data.shape, field.positions.shape, field.times.shape) == ((5, 8, 3), (8, 3), (5,))
    for array in (field.data, field.positions, field.times):
        assert isinstance(array, jax.Array)
        assert array.devices() == {jax.devices()[0]}
    assert field._data_dev is field.data
    np.testing.assert_array_equal(field._pos_dev, field.positions)
    np.testing.assert_array_equal(field._times_dev, np.arange(5.0))
    assert all(leaf is other for leaf, other in zip(*map(jax.tree.leaves, (field, field)), strict=True))
    with pytest.raises(AttributeError, match=r"`field = field\.replace\(data=\.\.\.\)`"):
        field._data_dev = 2 * field.data
    faster = field.replace(data=2 * field.data)
    assert float(faster(np.array([1.0, 0.5, 0.2]), 1.0)[0]) == pytest.approx(2 * SPEED)


def test_numpy_and_jax_arrays_make_the_same_field() -> None:
    data = np.random.default_rng(0).normal(size=(3, 8, 3))
    nodes, times = np.asarray(stream().positions), [0.0, 1.0, 3.0]
    ours = TimeSeriesField(data=data, times=times, positions=nodes)
    theirs = TimeSeriesField(data=jnp.array(data), times=jnp.array(times), positions=jnp.array(nodes))
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_array_equal(one, other)
    assert isinstance(ours.grid, UniformGrid)
    middle = np.array([1.0, 0.5, 0.25])
    np.testing.assert_allclose(ours(middle, 1.0), data[1].mean(0), atol=1e-6)


# --- 1a: boundaries ---


def test_the_fast_three_hold_every_particle() -> None:
    """Six seconds in a stream of 0.1: the last plane of seeds, at 1.75, would be at 2.35."""
    expected = {reflective_boundary: None, periodic_boundary: 0.35, clamping_boundary: 2.0}
    last = seeds()[:, 0] == seeds()[:, 0].max()
    for make, place in expected.items():
        run = jt.create_tracker("rk4", flow(), make(BOUNDS)).track_particles(seeds(), (0.0, 6.0), 2, 0.1)
        assert run.alive.all(), make.__name__
        assert ((run.final >= LOW) & (run.final <= HIGH)).all()
        np.testing.assert_allclose(run.final[~last, 0], seeds()[~last, 0] + 0.6, atol=1e-5)
        assert run.patch_counts["x_max"] >= 6
        if place is not None:
            np.testing.assert_allclose(run.final[last, 0], place, atol=1e-5)
        else:  # the stream pushes a mirrored particle on at every step: it stays within a step of the wall
            assert (run.final[last, 0] >= 2 - SPEED * 0.1 - 1e-5).all()


def test_inlets_refill_slots_in_the_same_program() -> None:
    """Who reaches x = 2 enters at x = 0 in the same step, or with a rate; nothing falls back to Python."""
    inlet = continuous_inlet_boundary_factory(
        bounds=BOUNDS,
        flow_axis="x",
        flow_direction="positive",
        inlet_distribution="grid",
        concentrations={"y": 3, "z": 2},
    )
    with CompileWatch() as watch:
        run = jt.create_tracker("rk4", flow(), inlet).track_particles(seeds(), (0.0, 4.0), 5, 0.1)
    assert watch.compiles > 0
    born = run.generation[-1] == 1
    assert (born == (seeds()[:, 0] + 0.4 > 2)).all()
    assert run.alive.all()
    assert run.patch_counts == {"x_min": 0, "x_max": 6, "y_min": 0, "y_max": 0, "z_min": 0, "z_max": 0}
    np.testing.assert_allclose(run.ages[-1][~born], 4.0, atol=1e-5)
    np.testing.assert_allclose(run.final[born, 0], SPEED * run.ages[-1][born], atol=1e-5)
    closed = inlet_outlet_boundary_factory(BOUNDS, "x", "min", "max", rate=0.0)
    left = jt.create_tracker("rk4", flow(), closed).track_particles(seeds(), (0.0, 4.0), 5, 0.1)
    assert left.alive[-1].sum() == 18
    assert [left.patch_names[patch] for patch in left.patches[born]] == ["x_max"] * 6
    np.testing.assert_allclose(left.final[born, 0], 2.0)


def test_every_boundary_runs_compiled() -> None:
    """The same few programs for the "slow" inlet as for the "fast" mirror, and none at the second run."""
    counts = {}
    for name, boundary in {
        "reflective": reflective_boundary(BOUNDS),
        "continuous_inlet": continuous_inlet_boundary_factory(BOUNDS),
        "inlet_outlet": inlet_outlet_boundary_factory(BOUNDS),
    }.items():
        tracker = jt.create_tracker("rk4", flow(), boundary)
        tracker.track_particles(seeds(), (0.0, 2.0), 3, 0.1)
        with CompileWatch() as watch:
            again = tracker.track_particles(seeds() + np.float32(0.01), (0.0, 2.0), 3, 0.1)
        counts[name] = watch.compiles
        assert again.alive.all()
    assert counts == {"reflective": 0, "continuous_inlet": 0, "inlet_outlet": 0}


# --- 1a: tracker ---


def test_every_argument_of_create_tracker_is_known() -> None:
    start = seeds()
    tracker = jt.create_tracker(
        integrator_name="rk4",
        field=flow(),
        boundary_condition=reflective_boundary(BOUNDS),
        batch_size=len(start),
        record_velocities=True,
        use_jax_jit=True,
        static_compilation=True,
        use_scan_jit=True,
        device_put_inputs=True,
        progress_callback=None,
    )
    assert isinstance(tracker, jt.Tracker)
    run = tracker.track_particles(initial_positions=start, time_span=(0.0, 1.0), n_timesteps=3, dt=0.25)
    assert run.velocities.shape == (3, 24, 3)
    np.testing.assert_allclose(run.velocities, np.broadcast_to([SPEED, 0, 0], (3, 24, 3)), atol=1e-7)
    np.testing.assert_allclose(run.final, start + np.array([SPEED, 0, 0]), atol=1e-6)
    with pytest.warns(UserWarning, match="`use_jax_jit=False` has no effect"):
        jt.create_tracker("rk4", flow(), use_jax_jit=False)
    with pytest.raises(ValueError, match="`integrator_name` must be one of euler"):
        jt.create_tracker("rk5", flow())


def test_progress_is_told_and_can_stop_a_run() -> None:
    told: list[tuple[int, int]] = []
    tracker = jt.create_tracker(
        "rk4", flow(), progress_callback=lambda done, total: told.append((done, total))
    )
    run = tracker.track_particles(seeds(), (0.0, 2.0), 3, 0.1)
    assert run.outcome == "finished"
    assert told[-1] == (20, 20)
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    stopped = jt.create_tracker("rk4", flow(), progress_callback=lambda done, total: True)
    part = stopped.track_particles(
        seeds(), (0.0, 2.0), 9000
    )  # several chunks, so that it can stop after the first
    assert part.outcome == "stopped"
    assert 0 < len(part) < 9000
    np.testing.assert_allclose(part.final[:, 0], seeds()[:, 0] + SPEED * part.times[-1], atol=1e-5)


def test_compiled_means_compiled() -> None:
    """The guide's assertion held for anything; here there is an executable behind it, and one more way to ask."""
    tracker = jt.create_tracker("rk4", flow(), reflective_boundary(BOUNDS), batch_size=24)
    assert not tracker.compiled
    with warnings.catch_warnings(record=True) as said:  # once in a process, so perhaps before
        warnings.simplefilter("always")
        step, simulate = tracker._compiled_step, tracker._compiled_simulate
    assert all("unnecessary" in str(one.message) for one in said)
    for program in (step, simulate):
        assert program is not None
        assert "HloModule" in program.executable.as_text()
        assert program.memory.peak > 24 * 3 * 4
    report = tracker.compile(24, 3, (0.0, 2.0), 0.1)
    assert tracker.compiled
    assert report.compiled
    start = seeds()
    with CompileWatch() as watch:
        tracker.track_particles(start, (0.0, 2.0), 3, 0.1)
    assert watch.compiles == 0


def test_the_guides_seeds() -> None:
    found = jt.uniform_grid_seeds(resolution=(30, 25, 10), bounds=BOUNDS, include_boundaries=True)
    assert found.shape == (7500, 3)
    np.testing.assert_allclose([found.min(0), found.max(0)], BOUNDS)
    assert jt.uniform_grid_seeds((20, 15, 8), BOUNDS).shape == (2400, 3)  # the guide's way out of memory


def test_the_span_rules() -> None:
    """Span 4, 1,500 recorded times, dt 0.005: 0.1 moves 0.4 and not 0.75, with both ends recorded."""
    run = jt.create_tracker("rk4", stream()).track_particles(
        initial_positions=seeds(), time_span=(0.0, 4.0), n_timesteps=1500, dt=0.005
    )
    assert run.positions.shape == (1500, 24, 3)
    assert (run.times[0], run.times[-1], len(run)) == (0.0, 4.0, 1500)
    np.testing.assert_array_equal(run.positions[0], seeds())
    near = seeds()[:, 0] < 1.5
    np.testing.assert_allclose(run.final[near], seeds()[near] + [0.4, 0, 0], atol=1e-5)
    assert (run.outcomes[~near] == jt.Outcome.OUTSIDE).all()  # no boundary here: the field ends at 2
    assert run.info["steps"] >= 1499
    assert (run.ids.tolist(), run.release_times.tolist()) == (list(range(24)), [0.0] * 24)
    with pytest.raises(ValueError, match=r"`dt` must not exceed the length of `time_span`, 4; got 7\.5"):
        jt.create_tracker("rk4", stream()).track_particles(seeds(), (0.0, 4.0), 1500, dt=7.5)
    with pytest.raises(ValueError, match="`n_timesteps` must be a whole number, at least 2"):
        jt.create_tracker("rk4", stream()).track_particles(seeds(), (0.0, 4.0), 1)


def test_the_example_is_there() -> None:
    text = (ROOT / "examples" / "example_workflow_fast.py").read_text(encoding="utf-8")
    assert "continuous_inlet_boundary_factory(" in text
    for unnecessary in ("_data_dev", "_compiled", "os.environ", "use_jax_jit"):
        assert unnecessary not in text


def test_the_checklist_is_true() -> None:
    field = stream()
    tracker = jt.create_tracker("rk4", field, batch_size=24)
    tracker.track_particles(seeds(), (0.0, 1.0), 2, 0.5)
    assert jax.devices()[0] in field.data.devices()
    assert type(field.data).__name__ == "ArrayImpl"
    report = tracker.explain()
    assert report.compiled
    assert report.field_bytes >= field.data.nbytes
    assert str(jax.devices()[0].platform) in report.device
    assert "compiled" in str(report)


# --- 1b: numbers ---


def test_the_second_run_compiles_nothing() -> None:
    """And a run is one run: the original went through every simulation twice."""
    tracker = jt.create_tracker("rk4", flow(), reflective_boundary(BOUNDS))
    first = tracker.track_particles(seeds(), (0.0, 2.0), 3, 0.1)
    with CompileWatch() as watch:
        second = tracker.track_particles(seeds(), (0.0, 2.0), 3, 0.1)
    assert watch.compiles == 0
    assert second.info["particle_steps"] == first.info["particle_steps"] == 24 * 20
    np.testing.assert_array_equal(first.positions, second.positions)


def test_the_run_says_how_fast_it_was() -> None:
    """Steps, seconds and rate fit each other, which those of the guide do not."""
    info = jt.create_tracker("rk4", flow()).track_particles(seeds(), (0.0, 2.0), 3, 0.1).info
    assert info["particle_steps"] == 24 * 20
    assert 0 <= info["compile_seconds"] <= info["seconds"]
    assert info["particle_steps_per_second"] >= info["particle_steps"] / info["seconds"]


def test_the_rate_counts_the_call_from_its_beginning_to_its_results(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planning before the compiled loop and collecting behind it, as a stopwatch around the call does."""
    tracker = jt.create_tracker("rk4", flow(), batch_size=10)
    tracker.track_particles(seeds(), (0.0, 2.0), 3, 0.1)

    def slow(*arguments: Any) -> Any:
        time.sleep(0.4)
        return outcomes(*arguments)

    outcomes = results._outcomes
    monkeypatch.setattr(results, "_outcomes", slow)
    begin = time.perf_counter()
    info = tracker.track_particles(seeds(), (0.0, 2.0), 3, 0.1).info
    passed = time.perf_counter() - begin
    assert 0.4 <= info["seconds"] <= passed
    assert info["particle_steps_per_second"] == info["particle_steps"] / (
        info["seconds"] - info["compile_seconds"]
    )
    assert info["loop_seconds"] <= info["seconds"] - 0.4
    assert info["loop_particle_steps_per_second"] == info["particle_steps"] / info["loop_seconds"]


# --- what the original got wrong ---


def test_two_dimensions_and_flat_boxes_work() -> None:
    flat = jt.uniform_grid_seeds((3, 2, 1), [[0, 0, 0], [2, 1, 0]])
    assert np.asarray(flat)[:, 2].tolist() == [0.0] * 6
    box = reflective_boundary([[0, 0, 0], [2, 1, 0]])
    done = box(jnp.array([1.9, 0.5, 0.0]), jnp.array([2.1, 0.5, 0.3]))
    np.testing.assert_allclose(done.position, [1.9, 0.5, 0.0], atol=1e-6)
    plane = jt.create_tracker("rk4", constant_flow([SPEED, 0.0]), periodic_boundary([[0, 0], [2, 1]]))
    run = plane.track_particles([[1.9, 0.5]], (0.0, 2.0), 2, 0.1)
    np.testing.assert_allclose(run.final, [[0.1, 0.5]], atol=1e-5)


def test_a_stretched_grid_is_not_taken_for_an_even_one() -> None:
    """u(x) = x at x = 1 was 2."""
    axes = np.array([0.0, 1.0, 4.0, 9.0]), np.array([0.0, 1.0])
    nodes = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 2)
    field = TimeSeriesField(np.stack([nodes[:, 0], 0 * nodes[:, 0]], -1), positions=nodes)
    np.testing.assert_allclose(
        field(np.array([[1.0, 0.5], [2.5, 0.5], [9.0, 1.0]]), 0.0)[:, 0], [1.0, 2.5, 9.0]
    )


def test_a_cylinder_holds() -> None:
    """r = 5 stayed 5."""
    from jaxtrace.tracking.boundary import cylindrical_boundary

    pipe = cylindrical_boundary("z", (0.0, 0.0), radius=1.0, condition="clamping")
    done = pipe(jnp.array([0.5, 0.0, 2.0]), jnp.array([5.0, 0.0, 2.0]))
    np.testing.assert_allclose(done.position, [1.0, 0.0, 2.0], atol=1e-5)


def test_every_kth_step_is_recorded_without_gaps() -> None:
    run = jt.create_tracker("rk4", flow()).track_particles(seeds(), (0.0, 2.0), dt=0.1, record_every=10)
    assert run.positions.shape == (3, 24, 3)
    for row, t in zip(run.positions, (0.0, 1.0, 2.0), strict=True):
        np.testing.assert_allclose(row, seeds() + np.array([SPEED * t, 0, 0]), atol=1e-5)


def test_the_samples_of_the_readme_run() -> None:
    """`continuous_inlet_boundary_factory` without an inlet's position, and `dt` without a number of times."""
    run = jt.create_tracker("rk4", flow(), continuous_inlet_boundary_factory(BOUNDS)).track_particles(
        seeds(), (0.0, 1.0), dt=0.1
    )
    assert run.positions.shape == (11, 24, 3)
    np.testing.assert_allclose(run.positions[:, 0, 0], seeds()[0, 0] + SPEED * run.times, atol=1e-6)


def test_the_derivative_of_the_end_is_that_of_the_flow() -> None:
    """d x(1) / d x(0) in u = 0.1 x on a grid is exp(0.1); the nearest neighbour said 1."""
    from jaxtrace.integrators import RK4
    from jaxtrace.tracking import plan_schedule, simulate

    nodes = np.linspace(0.0, 2.0, 5)[:, None] * [1.0, 0.0] + np.array([[0.0, 0.0], [0.0, 1.0]])[:, None]
    nodes = nodes.reshape(-1, 2)
    field = TimeSeriesField(np.stack([0.1 * nodes[:, 0], 0 * nodes[:, 0]], -1), positions=nodes)
    plan = plan_schedule((0.0, 1.0), 2, 0.05)

    def end(x: Any) -> Any:
        return simulate(field, RK4(), None, jnp.stack([x, 0.5])[None], plan)[0][-1, 0, 0]

    assert float(jax.jit(jax.grad(end))(jnp.float32(1.0))) == pytest.approx(np.exp(0.1), rel=1e-5)


def test_files_are_sorted_by_number_and_their_axes_are_kept(tmp_path: Path) -> None:
    """2 comes before 10, and x-fastest data are not read as z-fastest."""
    pytest.importorskip("vtkmodules", reason="vtk is not installed")
    times = [0.1 * k for k in range(12)]
    field = load_optimized_dataset(vtk_series.write_series(tmp_path, times), verbose=False)
    np.testing.assert_allclose(field.times, times, atol=1e-6)
    for k in (1, 2, 10):
        np.testing.assert_allclose(
            field.data[k], vtk_series.velocity(vtk_series.nodes(), times[k]), atol=1e-6
        )
    np.testing.assert_allclose(field.positions, vtk_series.nodes(), atol=1e-6)
