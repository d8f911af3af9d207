"""The tracking benchmark compares like with like: its job, its exact answer, its errors, its bars, its other processes."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

FOLDER = Path(__file__).resolve().parents[3] / "benchmarks" / "trace_peers"
sys.path.insert(0, str(FOLDER.parent))  # as for the benchmarks, which lie there


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"trace_peers_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


job, bars, environments, picture = map(load, ("job", "bars", "environments", "picture"))


def test_nothing_flows_through_the_walls():
    rng = np.random.default_rng(0)
    inside = job.LOW + rng.random((100, 3)) * (job.HIGH - job.LOW)
    for axis in range(3):
        for wall in (job.LOW, job.HIGH):
            points = inside.copy()
            points[:, axis] = wall[axis]
            for t in (0.0, 1.7, 9.3):
                velocity = job.velocity(t, *points.T)
                assert np.abs(velocity[axis]).max() < 1e-12
                assert np.abs(velocity[(axis + 1) % 3]).max() > 0.01


def test_the_plane_does_not_feel_the_height():
    x, y = np.random.default_rng(1).random((2, 50))
    low, high = job.velocity(3.0, 2 * x, y, 0.1), job.velocity(3.0, 2 * x, y, 0.9)
    assert np.array_equal(low[0], high[0])
    assert np.array_equal(low[1], high[1])
    assert not np.allclose(low[2], high[2])


def test_the_series_samples_the_field_at_its_nodes():
    field = job.series(5, 4)
    assert field.velocities.shape == (4, 5, 5, 5, 3)
    assert field.velocities.dtype == np.float32
    exact = job.velocity(field.times[2], field.axes[0][3], field.axes[1][1], field.axes[2][2])
    assert np.allclose(field.velocities[2, 3, 1, 2], exact, atol=1e-7)
    assert job.SPAN[1] - job.SPAN[0] == job.STEPS * job.DT


def test_more_seeds_begin_with_the_same():
    few, many = job.seeds(100), job.seeds(1000)
    assert np.array_equal(few, many[:100])
    assert (many > job.LOW).all()
    assert (many < job.HIGH).all()
    assert len(np.unique(many, axis=0)) == 1000


def test_the_reference_is_the_path_of_each_seed_alone():
    from scipy.integrate import solve_ivp

    exact = job.reference(25)
    for number in (0, 7, 24):
        start = job.seeds(25)[number].astype(np.float64)
        alone = solve_ivp(
            lambda t, q: job.velocity(t, *q), job.SPAN, start, method="DOP853", rtol=1e-12, atol=1e-14
        )
        assert np.abs(alone.y[:, -1] - exact[number]).max() < 1e-8
        assert np.linalg.norm(exact[number] - start) > 0.05


def test_errors_are_of_those_still_there_and_lost_ones_are_counted():
    exact = np.zeros((100, 3)) + 0.5
    found = exact + np.array([0.0, 0.0, 0.001])
    found[0] += np.array([0.3, 0.4, 0.0])
    figures = job.errors(found, exact)
    assert figures["median"] == pytest.approx(0.001)
    assert figures["max"] == pytest.approx(0.5, rel=1e-4)
    assert 0.001 < figures["p99"] < 0.5
    found[0] = np.nan
    assert job.errors(found, exact)["max"] == pytest.approx(0.001)
    assert job.lost(found) == 1
    alive = np.ones(100, bool)
    alive[[0, 5]] = False
    assert job.lost(found, alive) == 2
    found[7, 0] = job.HIGH[0] + 0.01
    assert job.lost(found, alive) == 3
    with pytest.raises(ValueError, match="at least one finite row"):
        job.errors(np.full((3, 3), np.nan), exact)


def test_a_tracer_of_the_plane_is_measured_in_the_plane():
    exact = np.zeros((10, 3))
    assert job.errors(np.full((10, 2), 0.3), exact)["max"] == pytest.approx(0.3 * np.sqrt(2))


def unmatched_faces(mesh) -> np.ndarray:
    """Middles of the faces that belong to one tetrahedron alone."""
    faces = np.sort(np.concatenate([np.delete(mesh.tets, k, 1) for k in range(4)]), 1)
    kept, counts = np.unique(faces, axis=0, return_counts=True)
    assert counts.max() <= 2
    return mesh.points[kept[counts == 1]].mean(1)


@pytest.mark.parametrize("hanging", [False, True])
def test_meshes_fill_the_box_and_only_the_second_has_hanging_faces(hanging):
    mesh = job.hanging_mesh(2, 3) if hanging else job.kuhn_mesh((3, 2, 4))
    corners = mesh.points[mesh.tets]
    volumes = np.abs(np.linalg.det(corners[:, 1:] - corners[:, :1])) / 6
    assert volumes.min() > 0
    assert volumes.sum() == pytest.approx(2.0)
    middles = unmatched_faces(mesh)
    outer = (np.isclose(middles, job.LOW) | np.isclose(middles, job.HIGH)).any(1)
    assert (~outer).sum() == (2 * (2 * 2 + 3 * 3) if hanging else 0)
    assert np.allclose(middles[~outer][:, 0], 1.0)


def results(**changes):
    """Figures as one run leaves them."""
    rows = {
        "ours, linear in time, 100": {"psteps/s": 2e7, "p99": 0.137},
        "ours, default (cubic in time), 100": {"psteps/s": 1e7, "p99": 0.02},
        "Parcels 4, RK4, 100": {"psteps/s": 1e5, "p99": 0.137},
        "NumbaCS, 2-D spline, adaptive, 100": {"paths/s": 1e5, "p99": 0.005},
    }
    walls = {"none": {"ratio": 1.0}, "slip": {"ratio": 1.1}, "stick": {"ratio": 1.4}}
    parts = {"common job": rows, "mesh patches, hardly met": walls, **changes}
    return {name: {"figures": figures} for name, figures in parts.items()}


def test_bars_compare_what_was_measured():
    found = bars.compare_with_bars(results(), 100, on_cpu=True)
    assert found["linear, psteps/s"]["met"] == "yes"
    assert found["linear over Parcels 4"]["value"] == 200
    # Splines are not linear in time: they do not count among those to be beaten.
    assert found["p99 of those linear in time over ours"]["value"] == pytest.approx(6.85)
    assert found["mesh patches, hardly met: stick"] == {"value": 1.4, "": "at most", "bar": 1.3, "met": "NO"}
    assert not any("tetrahedra" in name for name in found)


def test_bars_of_an_accelerator_allow_half_precision():
    fast = {"ours, linear, float16 storage, 100": {"psteps/s": 1.2e10}}
    found = bars.compare_with_bars(results(**{"common job": fast}), 100, on_cpu=False)
    assert found["linear, psteps/s"] == {"value": 1.2e10, "": "at least", "bar": 1e10, "met": "yes"}


def test_the_picture_shows_each_tracer_once_with_the_most_particles(tmp_path: Path):
    rows = {
        "ours, linear, 1,000": {"paths/s": 10.0, "p99": 0.1},
        "ours, linear, 10,000": {"paths/s": 20.0, "p99": 0.1},
        "VTK, its 40 steps, 1,000": {"paths/s": 5.0, "p99": 0.2},
        "none": {"ratio": 1.0},
    }
    shown = picture.most_particles(rows)
    assert shown == {"ours, linear, 10,000": (20.0, 0.1), "VTK, its 40 steps, 1,000": (5.0, 0.2)}
    assert "no picture" in picture.draw({"bars": {"figures": {"a": {"value": 1.0}}}}, tmp_path / "none.png")


TRACER = """
import sys
sys.path.insert(0, {folder!r})
import numpy as np
import worker

class Drift:
    def __init__(self, folder, speed):
        self.seeds, self.speed = np.load(folder / "seeds.npy"), speed
    def versions(self):
        return {{"drift": "1"}}
    def run(self, n, steps):
        print("noise on the standard output")
        if steps < 0:
            raise RuntimeError("cannot go back")
        return self.seeds[:n] + self.speed * steps
    def finish(self, positions, steps):
        return {{"lost": 0}}

worker.serve(Drift)
"""


@pytest.fixture
def drift(tmp_path: Path):
    script = tmp_path / "drift.py"
    script.write_text(TRACER.format(folder=str(FOLDER)))
    np.save(tmp_path / "seeds.npy", job.seeds(10))
    process = environments.Process(sys.executable, str(script), tmp_path, {"speed": 0.5})
    yield process
    process.close()


@pytest.mark.own_process
def test_a_tracer_in_another_process_answers_and_its_prints_do_not_disturb(drift):
    assert drift.about["versions"] == {"drift": "1"}
    positions, reply = drift.run(4, 2)
    assert np.allclose(positions, job.seeds(4) + 1.0)
    assert reply["steps_taken"] == 2
    assert reply["lost"] == 0
    assert 0 <= reply["cpu_s"] < 5
    assert reply["process_bytes"] > 1e6
    assert len(drift.run(10, 1, keep=3)[0]) == 3


@pytest.mark.own_process
def test_a_tracer_that_fails_says_why(drift):
    with pytest.raises(environments.Missing, match="cannot go back"):
        drift.run(4, -1)


def test_a_peer_that_is_not_installed_says_why(tmp_path: Path):
    with pytest.raises(environments.Missing, match="--setup-peers"):
        environments.python_of(None, "vtk")
    with pytest.raises(environments.Missing, match="run with --setup-peers"):
        environments.python_of(tmp_path, "vtk")
    (tmp_path / "vtk.reason").write_text("no wheel for this Python")
    with pytest.raises(environments.Missing, match="no wheel"):
        environments.python_of(tmp_path, "vtk")
    (tmp_path / "vtk").mkdir()
    (tmp_path / "vtk" / "ready").write_text("vtk")
    assert environments.python_of(tmp_path, "vtk").name == "python"
