"""The common job of all tracers: a 3-D double gyre that varies in time, its seeds, its exact answer; NumPy alone.

On [0, 2] × [0, 1]², with s = ε sin ωt and f = s x² + (1 − 2s) x:

    u = −π A sin(πf) cos(πy)
    v = π A cos(πf) sin(πy) ∂f/∂x
    w = z (1 − z) (z − ε sin 2ωt − ½)

A = 0.1, ε = 0.25, ω = 2π/10. The velocity across every wall is zero, so nobody leaves. u and v do not depend on z:
a tracer for two dimensions can do that part of the job. Known on 64³ nodes at 21 times from 0 to 10, in float32; 200
Runge–Kutta steps of 0.05. The error of a result is the distance at the end to the exact path in the analytic field.
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

AMPLITUDE, EPSILON, OMEGA = 0.1, 0.25, 2 * np.pi / 10
SPAN = (0.0, 10.0)
STEPS = 200
DT = (SPAN[1] - SPAN[0]) / STEPS
LOW, HIGH = np.zeros(3), np.array([2.0, 1.0, 1.0])
NODES = 64
SLICES = 21
REFERENCES = 1000


class Series(NamedTuple):
    """Velocities (times, x, y, z, 3) on the nodes of a regular grid."""

    times: np.ndarray
    axes: tuple[np.ndarray, np.ndarray, np.ndarray]
    velocities: np.ndarray


class TetMesh(NamedTuple):
    """Points (n, 3) and tetrahedra (m, 4) as node numbers."""

    points: np.ndarray
    tets: np.ndarray


def velocity(t: Any, x: Any, y: Any, z: Any) -> tuple[Any, Any, Any]:
    """The analytic field."""
    s = EPSILON * np.sin(OMEGA * t)
    f = s * x * x + (1 - 2 * s) * x
    slope = 2 * s * x + (1 - 2 * s)
    u = -np.pi * AMPLITUDE * np.sin(np.pi * f) * np.cos(np.pi * y)
    v = np.pi * AMPLITUDE * np.cos(np.pi * f) * np.sin(np.pi * y) * slope
    w = z * (1 - z) * (z - EPSILON * np.sin(2 * OMEGA * t) - 0.5)
    return u, v, w


def slice_times(slices: int = SLICES) -> np.ndarray:
    """When the field is known."""
    return np.linspace(*SPAN, slices)


def at_points(points: np.ndarray, times: np.ndarray, drift: Any = 0.0) -> np.ndarray:
    """Velocities (times, points, 3) in float32; `drift` is added, to drive particles against walls."""
    x, y, z = np.asarray(points, np.float64).T
    return np.stack([np.stack(velocity(t, x, y, z), -1) + drift for t in times]).astype(np.float32)


def series(nodes: int = NODES, slices: int = SLICES) -> Series:
    """The field as every tracer gets it."""
    axes = tuple(np.linspace(a, b, nodes) for a, b in zip(LOW, HIGH, strict=True))
    points = np.stack(np.meshgrid(*axes, indexing="ij"), -1)
    times = slice_times(slices)
    values = at_points(points.reshape(-1, 3), times)
    return Series(times, axes, values.reshape(slices, *points.shape))


def seeds(n: int) -> np.ndarray:
    """`n` low-discrepancy points (Roberts' R3 sequence) in the inner 96 % of the box; the first are always the same."""
    golden = 1.2207440846057596
    share = np.mod(0.5 + np.arange(1, n + 1)[:, None] * golden ** -np.arange(1.0, 4.0), 1.0)
    return (LOW + (0.02 + 0.96 * share) * (HIGH - LOW)).astype(np.float32)


def reference(n: int = REFERENCES, rtol: float = 1e-11) -> np.ndarray:
    """Where the first `n` seeds are at the end: DOP853 in the analytic field, a few seeds at a time."""
    from scipy.integrate import solve_ivp

    start = seeds(n).astype(np.float64)
    parts = []
    for first in range(0, n, 20):  # step control is shared by a group: small groups keep every member exact
        group = start[first : first + 20]

        def slope(t: float, flat: np.ndarray) -> np.ndarray:
            return np.stack(velocity(t, *flat.reshape(3, -1))).ravel()

        done = solve_ivp(slope, SPAN, group.T.ravel(), method="DOP853", rtol=rtol, atol=1e-13)
        parts.append(done.y[:, -1].reshape(3, -1).T)
    return np.concatenate(parts)


def errors(positions: np.ndarray, exact: np.ndarray) -> dict[str, float]:
    """Distance to the exact places: median, 99th percentile, maximum; of those that a tracer has not lost."""
    count, dim = min(len(positions), len(exact)), np.shape(positions)[1]
    away = np.asarray(positions[:count], np.float64) - exact[:count, :dim]
    distance = np.linalg.norm(away[np.isfinite(away).all(1)], axis=1)
    if not distance.size:
        raise ValueError(f"`positions` must hold at least one finite row; none of the first {count} is.")
    low, high = np.percentile(distance, (50, 99))
    return {"median": float(low), "p99": float(high), "max": float(distance.max())}


def lost(positions: np.ndarray, alive: np.ndarray | None = None) -> int:
    """Particles that a tracer gave up, or that left the box, although nobody can leave it."""
    inside = (np.isfinite(positions) & (positions >= LOW - 1e-5) & (positions <= HIGH + 1e-5)).all(1)
    return int((~inside if alive is None else ~(inside & alive)).sum())


def kuhn_mesh(cells: tuple[int, int, int], low: Any = LOW, high: Any = HIGH) -> TetMesh:
    """A box of bricks, each cut into six tetrahedra around its diagonal: faces of neighbours match."""
    axes = [np.linspace(a, b, n + 1) for a, b, n in zip(low, high, cells, strict=True)]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 3)
    number = np.arange(len(points)).reshape([n + 1 for n in cells])
    corner = np.stack(np.meshgrid(*map(np.arange, cells), indexing="ij"), -1).reshape(-1, 3)
    parts = []
    for order in ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)):
        at, path = corner, [number[tuple(corner.T)]]
        for axis in order:
            at = at + np.eye(3, dtype=int)[axis]
            path.append(number[tuple(at.T)])
        parts.append(np.stack(path, -1))
    return TetMesh(points, np.concatenate(parts))


def hanging_mesh(coarse: int, fine: int) -> TetMesh:
    """Two boxes that meet at x = 1 with different cells: no node or face of one side fits the other."""
    left = kuhn_mesh((coarse, coarse, coarse), LOW, np.array([1.0, 1.0, 1.0]))
    right = kuhn_mesh((fine, fine, fine), np.array([1.0, 0.0, 0.0]), HIGH)
    return TetMesh(
        np.concatenate([left.points, right.points]),
        np.concatenate([left.tets, right.tets + len(left.points)]),
    )


def save(folder: Path, values: dict[str, np.ndarray]) -> None:
    """Arrays for the other processes."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in values.items():
        np.save(folder / f"{name}.npy", array)
