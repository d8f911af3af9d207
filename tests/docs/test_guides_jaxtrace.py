"""The guides' blocks that belong to jaxtrace, one by one, each after its stated preamble.

The files that `pattern` names are a duct (`support/vtk_series.py`), some moments with walls at rest, on which the older
loader failed. Where a block needs only some field, the preamble makes one from bare arrays: a stream of 0.1 along x, on
a lattice of eight nodes, so that a particle must move 0.4 in the guide's four seconds. The recipe lines of the guide
that are unnecessary here run, and say so once; nothing else may be said.
"""

import functools
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import vtk_series
from guide_blocks import (
    Allowed,
    Case,
    Key,
    Namespace,
    allowed_lines,
    blocks,
    name_of,
    needs_guides,
    owned_by,
    play,
)

import jaxtrace as jt
from jaxtrace.fields import TimeSeriesField, UniformGrid, constant_flow
from jaxtrace.io import load_optimized_dataset
from jaxtrace.tracking.boundary import continuous_inlet_boundary_factory

pytest.importorskip("vtkmodules", reason="vtk is not installed")
pytestmark = pytest.mark.usefixtures("quick_compile")

TIMES = [0.0, 0.5, 1.0, 2.0, 4.0]
SPEED = 0.1


@pytest.fixture(autouse=True)
def _as_a_user_would(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A temporary folder with a series of files; warnings are shown, and only those about unnecessary lines may come."""
    monkeypatch.chdir(tmp_path)
    vtk_series.write_series(tmp_path, TIMES)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        yield
    messages = [str(one.message) for one in said]
    assert len(messages) == len(set(messages)), "each is said once"
    assert [message for message in messages if "unnecessary" not in message] == []


# --- preambles ---

IMPORTS = """
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jaxtrace import TimeSeriesField, create_tracker, load_optimized_dataset, uniform_grid_seeds
    from jaxtrace.tracking.boundary import (
        clamping_boundary,
        continuous_inlet_boundary_factory,
        periodic_boundary,
        reflective_boundary,
    )
"""
FILES = '    pattern = "flow_*.vti"\n'
ARRAYS = """
    bounds_min, bounds_max = np.zeros(3), np.array([2.0, 1.0, 0.5])
    bounds = [bounds_min, bounds_max]
    corners = np.meshgrid(*zip(bounds_min, bounds_max), indexing="ij")
    numpy_positions = np.stack([axis.ravel() for axis in corners], axis=-1)
    numpy_times = np.array([0.0, 4.0])
    numpy_data = np.tile([0.1, 0.0, 0.0], (2, 8, 1))
"""
FIELD = "    field = TimeSeriesField(data=numpy_data, times=numpy_times, positions=numpy_positions)\n"
SEEDS = """
    seeds = uniform_grid_seeds((30, 25, 10), [bounds_min, [1.5, 1.0, 0.5]], include_boundaries=True)
"""
TRACKER = """
    boundary = reflective_boundary(bounds)
    tracker = create_tracker("rk4", field, boundary, batch_size=len(seeds))
"""
# In two dimensions and without time, where only the tracker matters: its programs compile in a third of the time.
PLANE = """
    bounds = [np.zeros(2), np.array([2.0, 1.0])]
    corners = np.stack([axis.ravel() for axis in np.meshgrid(*zip(*bounds), indexing="ij")], axis=-1)
    field = TimeSeriesField(data=np.tile([0.1, 0.0], (1, 4, 1)), times=[0.0], positions=corners)
    boundary = reflective_boundary(bounds)
    seeds = uniform_grid_seeds((4, 3), bounds, include_boundaries=True)
"""


# --- outcomes ---


def the_series_is_on_the_device(found: Namespace, printed: str) -> None:
    field = found["field"]
    assert isinstance(field, TimeSeriesField)
    assert (field.data.shape, field.positions.shape, field.times.shape) == ((5, 90, 3), (90, 3), (5,))
    assert field.data.dtype == jnp.float32
    assert field._data_dev is field.data
    assert field.data.devices() == {jax.devices()[0]}
    # Times are those in the files, not their numbers; zero velocities at the walls are values like others.
    np.testing.assert_allclose(field.times, TIMES)
    np.testing.assert_allclose(field.positions, vtk_series.nodes(), atol=1e-6)
    for k, t in enumerate(TIMES):
        np.testing.assert_allclose(field.data[k], vtk_series.velocity(vtk_series.nodes(), t), atol=1e-6)
    assert "'Velocity'" in printed  # which array was taken, and why
    middle = np.array([[0.5, 0.2, 0.1]])
    np.testing.assert_allclose(field(middle, 3.0), vtk_series.velocity(middle, 3.0), rtol=1e-5)


def the_arrays_are_the_fields(found: Namespace, _: str) -> None:
    field = found["field"]
    assert isinstance(field.data, jax.Array)
    np.testing.assert_array_equal(field.data, found["numpy_data"].astype(np.float32))
    np.testing.assert_array_equal(field._data_dev, field.data)
    np.testing.assert_allclose(field.positions, found["numpy_positions"])
    np.testing.assert_allclose(field.times, found["numpy_times"])
    with pytest.raises(AttributeError, match=r"field = field\.replace\(data=\.\.\.\)"):
        field.data = 2 * field.data  # only equal values pass


def the_last_of_the_three_clamps(found: Namespace, _: str) -> None:
    """Each of the guide's three takes a step beyond the box back into it."""
    low, high = found["bounds"]
    old, new = jnp.asarray(high * 0.9), jnp.asarray(high * 1.2)
    done = found["boundary"](old, new)
    np.testing.assert_allclose(done.position, high, rtol=1e-6)  # clamping, the last one
    mirrored = found["reflective_boundary"](found["bounds"])(old, new).position
    np.testing.assert_allclose(mirrored, high * 0.8, rtol=1e-6)
    wrapped = found["periodic_boundary"](found["bounds"])(old, new).position
    np.testing.assert_allclose(wrapped, low + high * 0.2, rtol=1e-5)


def the_box_mirrors(found: Namespace, _: str) -> None:
    high = found["bounds_max"]
    done = found["boundary"](jnp.asarray(high * 0.9), jnp.asarray(high * 1.2))
    np.testing.assert_allclose(done.position, high * 0.8, rtol=1e-6)
    assert done.hits.tolist() == [0, 1, 0, 1, 0, 1]
    assert bool(done.alive)


def the_inlet_is_compiled_like_every_boundary(found: Namespace, _: str) -> None:
    """ "Slow!" says the guide; here it is part of the same program, and holds every particle."""
    field = TimeSeriesField(found["numpy_data"], found["numpy_times"], found["numpy_positions"])
    tracker = jt.create_tracker("rk4", field, found["boundary"])
    seeds = jt.uniform_grid_seeds((4, 3, 2), found["bounds"], include_boundaries=False)
    done = tracker.track_particles(seeds, time_span=(0.0, 4.0), n_timesteps=5, dt=0.1)
    assert done.alive.all()
    left = np.asarray(seeds)[:, 0] + 4 * SPEED > 2  # one plane of seeds, 0.25 before the outlet
    np.testing.assert_array_equal(done.generation[-1], left)
    assert left.sum() == 6
    np.testing.assert_allclose(done.final[~left, 0], np.asarray(seeds)[~left, 0] + 4 * SPEED, atol=1e-5)


def the_tracker_is_really_compiled(found: Namespace, _: str) -> None:
    tracker = found["tracker"]
    for program in (tracker._compiled_step, tracker._compiled_simulate):
        assert program is not None
        assert (
            "HloModule" in program.executable.as_text()
        )  # an executable, not a function that may compile one day
    # One step of the executable itself, as a check for those who do not trust it.
    report = tracker.explain(n_particles=len(found["seeds"]))
    assert report.batch_size == len(found["seeds"])


def seven_thousand_five_hundred_seeds(found: Namespace, _: str) -> None:
    seeds = np.asarray(found["seeds"])
    assert (seeds.shape, seeds.dtype) == ((7500, 3), np.float32)
    np.testing.assert_allclose([seeds.min(0), seeds.max(0)], found["bounds"])
    assert len(np.unique(seeds, axis=0)) == 7500
    np.testing.assert_allclose(
        seeds[1] - seeds[0], [0, 0, 0.5 / 9], atol=1e-6
    )  # the last axis is the fastest


def everybody_moves_by_four_tenths(found: Namespace, _: str) -> None:
    """1,500 steps of 0.005 would be 7.5 s; the older code moved by 0.75. Here the span rules."""
    trajectory, seeds = found["trajectory"], np.asarray(found["seeds"])
    assert trajectory.positions.shape == (1500, len(seeds), 3)
    assert (trajectory.times[0], trajectory.times[-1], len(trajectory.times)) == (0.0, 4.0, 1500)
    np.testing.assert_array_equal(trajectory.positions[0], seeds)
    np.testing.assert_allclose(trajectory.positions[-1], seeds + np.array([4 * SPEED, 0, 0]), atol=1e-5)
    np.testing.assert_allclose(
        trajectory.positions[750, :, 0] - seeds[:, 0], SPEED * trajectory.times[750], atol=1e-5
    )
    assert trajectory.info["steps"] == 1499  # 4 / 1499 is shorter than `dt`


def both_flags_are_true_and_mean_it(found: Namespace, printed: str) -> None:
    lines = printed.splitlines()
    assert [line.split(": ")[1] for line in lines if line.startswith("JIT")] == ["True", "True"]
    assert f"Field devices: {{{jax.devices()[0]!r}}}" in lines
    assert any(line.startswith("Field data type:") and "ArrayImpl" in line for line in lines)
    the_tracker_is_really_compiled(found, printed)


@functools.cache
def drift(batch_size: int | None) -> np.ndarray:
    """How far 1,200 particles of a walk come from where the stream alone would bring them, moved in batches."""
    flow = constant_flow([SPEED, 0.0])
    tracker = jt.create_tracker("euler_maruyama", flow, diffusivity=1e-3, batch_size=batch_size, seed=3)
    seeds = jt.uniform_grid_seeds((40, 30), [[0.5, 0.3], [1.5, 0.7]])
    run = tracker.track_particles(seeds, time_span=(0.0, 1.0), n_timesteps=2, dt=0.25)
    return run.final - np.asarray(seeds) - np.float32([SPEED, 0])


def any_batch_gives_the_same_bits(found: Namespace, _: str) -> None:
    batch = found["batch_size"]
    assert isinstance(batch, int)
    smaller = min(batch, 700)  # of 1,200 particles, so that there are two batches or more
    np.testing.assert_array_equal(drift(smaller), drift(None))
    # 2 K t along each axis: every particle walks by itself.
    assert np.var(drift(None), axis=0).tolist() == pytest.approx([2 * 1e-3] * 2, rel=0.15)


def twenty_slices_are_enough(found: Namespace, _: str) -> None:
    """Fewer slices are read evenly over the whole time, and it is said."""
    assert found["max_time_steps"] == 20
    vtk_series.write_series(Path(), [0.1 * k for k in range(41)])
    with pytest.warns(UserWarning, match="keeps 20 of 41 slices"):
        field = load_optimized_dataset("flow_*.vti", max_time_steps=found["max_time_steps"], verbose=False)
    assert field.data.shape == (20, 90, 3)
    assert float(field.times[0]) == 0.0
    assert float(field.times[-1]) == pytest.approx(4.0)


def two_thousand_four_hundred_seeds(found: Namespace, _: str) -> None:
    seeds = jt.uniform_grid_seeds(found["resolution"], [[0, 0, 0], [1, 1, 1]])
    assert seeds.shape == (2400, 3)
    assert np.unique(np.asarray(seeds)[:, 1]).tolist() == pytest.approx(np.linspace(0, 1, 15).tolist())


INSTEAD = "field = TimeSeriesField(data=numpy_data, times=numpy_times, positions=numpy_positions)"
ELLIPSIS = "`...` stands for arguments that the guide leaves out, and Python takes no positional one there"
CASES: dict[Key, Case] = {
    ("004", 2): Case(the_series_is_on_the_device, IMPORTS + FILES),
    ("004", 3): Case(the_last_of_the_three_clamps, IMPORTS + ARRAYS),
    ("004", 4): Case(the_tracker_is_really_compiled, IMPORTS + PLANE),
    ("004", 5): Case(seven_thousand_five_hundred_seeds, IMPORTS + ARRAYS),
    ("004", 6): Case(everybody_moves_by_four_tenths, IMPORTS + ARRAYS + FIELD + SEEDS + TRACKER),
    ("004", 8): Case(any_batch_gives_the_same_bits),
    ("004", 9): Case(twenty_slices_are_enough),
    ("004", 10): Case(two_thousand_four_hundred_seeds),
    ("004", 11): Case(
        the_series_is_on_the_device,
        IMPORTS + FILES + "    field = load_optimized_dataset(pattern)\n",
    ),
    ("004", 14): Case(
        the_arrays_are_the_fields,
        IMPORTS + ARRAYS,
        allowed=(
            Allowed(
                "field = TimeSeriesField(data=numpy_data, ...)  # NumPy arrays",
                SyntaxError,
                ELLIPSIS,
                INSTEAD,
            ),
        ),
    ),
    ("004", 15): Case(
        the_arrays_are_the_fields,
        IMPORTS + ARRAYS,
        allowed=(Allowed("field = TimeSeriesField(data=numpy_data, ...)", SyntaxError, ELLIPSIS, INSTEAD),),
    ),
    ("004", 16): Case(
        the_inlet_is_compiled_like_every_boundary,
        IMPORTS + ARRAYS,
        allowed=(
            Allowed(
                "boundary = continuous_inlet_boundary_factory(...)  # Slow!",
                TypeError,
                "`...` is passed as the bounds, which are two corners; the type check of the tests sees it first",
                'boundary = continuous_inlet_boundary_factory(bounds, flow_axis="x")',
            ),
        ),
    ),
    ("004", 17): Case(the_box_mirrors, IMPORTS + ARRAYS),
    ("004", 18): Case(any_batch_gives_the_same_bits),
    ("004", 19): Case(any_batch_gives_the_same_bits, IMPORTS + ARRAYS + SEEDS),
    ("004", 20): Case(the_arrays_are_the_fields, IMPORTS + ARRAYS + FIELD),
    ("004", 21): Case(the_box_mirrors, IMPORTS + ARRAYS),
    ("004", 22): Case(the_tracker_is_really_compiled, IMPORTS + PLANE + TRACKER),
}
# The core runs these too, to show that "is not None" proves nothing by itself; here with a real tracker.
SHARED: dict[Key, Case] = {
    ("004", 7): Case(both_flags_are_true_and_mean_it, IMPORTS + PLANE + TRACKER),
    ("004", 13): Case(both_flags_are_true_and_mean_it, IMPORTS + PLANE + TRACKER),
}


def test_every_block_of_jaxtrace_is_run() -> None:
    assert owned_by("jaxtrace") == set(CASES)


@needs_guides
@pytest.mark.parametrize("key", CASES | SHARED, ids=name_of)
def test_a_block_of_jaxtrace_runs(key: Key, capsys: pytest.CaptureFixture[str]) -> None:
    play((CASES | SHARED)[key], key, capsys)


@needs_guides
@pytest.mark.parametrize(("key", "bad"), allowed_lines(CASES), ids=name_of)
def test_a_line_that_is_allowed_to_fail_does_fail(
    key: Key, bad: Allowed, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(bad.error):
        play(CASES[key], key, capsys, keep=bad.line)


@needs_guides
def test_the_whole_recipe_runs_in_one_piece(tmp_path: Path) -> None:
    """The blocks from loading to tracking, after each other, on the files; a reader makes seeds before the tracker."""
    for file in tmp_path.glob("flow_*.vti"):
        file.unlink()
    vtk_series.write_series(tmp_path, [0.0, 4.0])  # the flow is linear in time: two slices are enough
    namespace: Namespace = {
        "pattern": "flow_*.vti",
        "bounds_min": vtk_series.LOW,
        "bounds_max": vtk_series.HIGH,
    }
    namespace["bounds"] = [vtk_series.LOW, vtk_series.HIGH]
    exec("from jaxtrace import create_tracker, load_optimized_dataset, uniform_grid_seeds", namespace)
    exec("from jaxtrace.tracking.boundary import clamping_boundary, periodic_boundary", namespace)
    for index in (2, 3, 5, 4, 6):
        code = blocks("004")[index]
        if index == 5:
            code = code.replace("(30, 25, 10)", "(3, 5, 2)")  # a moment instead of some seconds
        if index == 3:
            code += (
                "\nboundary = reflective_boundary(bounds)"  # the guide's own choice, of the three it lists
            )
        exec(compile(code, f"guide 004[{index}]", "exec"), namespace)
    trajectory, seeds = namespace["trajectory"], np.asarray(namespace["seeds"], np.float64)
    assert trajectory.positions.shape == (1500, 30, 3)
    assert trajectory.alive.all()  # also those that began on the walls, as `include_boundaries=True` has it
    # The seeds lie on rows of nodes. u grows with 1 + t, so in four seconds each is carried 12 times its first speed.
    way = 12 * vtk_series.velocity(seeds, 0.0)[:, 0]
    free = seeds[:, 0] + way < 1
    assert free.sum() == 14
    np.testing.assert_allclose(trajectory.final[free], seeds[free] + way[free, None] * [1, 0, 0], atol=1e-5)
    assert (trajectory.final[~free, 0] > 0.98).all()  # pushed against the mirror at the end of the duct
    assert trajectory.patch_counts["x_max"] > 0


def test_nothing_of_the_recipe_is_needed() -> None:
    """Without any of its lines the result is the same, bit for bit."""
    field = load_optimized_dataset("flow_*.vti", verbose=False)
    bounds = [vtk_series.LOW, vtk_series.HIGH]
    seeds = jt.uniform_grid_seeds((3, 3, 2), bounds, include_boundaries=False)
    inlet = continuous_inlet_boundary_factory(bounds)
    plain = jt.create_tracker("rk4", field, inlet).track_particles(seeds, (0.0, 4.0), 9, dt=0.1)
    switches: dict[str, Any] = dict.fromkeys(
        ("use_jax_jit", "static_compilation", "use_scan_jit", "device_put_inputs"), True
    )
    field.data = jnp.array(field.data)
    field._data_dev = jax.device_put(field.data)
    tracker = jt.create_tracker("rk4", field, inlet, batch_size=len(seeds), **switches)
    again = tracker.track_particles(jnp.array(seeds, jnp.float32), (0.0, 4.0), 9, dt=0.1)
    np.testing.assert_array_equal(again.positions, plain.positions)
    assert isinstance(field.grid, UniformGrid)
    assert again.alive.all()
