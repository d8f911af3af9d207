"""A small VTK series for tests that only need some files: a duct as images, written as text, so that no writer is needed."""

from pathlib import Path

import numpy as np

LOW, HIGH = np.zeros(3), np.array([1.0, 0.4, 0.2])
SHAPE = (6, 5, 3)
"""Nodes along each axis."""

_IMAGE = """<VTKFile type="ImageData" version="0.1" byte_order="LittleEndian">
<ImageData WholeExtent="{extent}" Origin="0 0 0" Spacing="{spacing}">
<FieldData><DataArray type="Float64" Name="TimeValue" NumberOfTuples="1" format="ascii">{time}</DataArray></FieldData>
<Piece Extent="{extent}"><PointData>
<DataArray type="Float32" Name="pressure" format="ascii">{pressure}</DataArray>
<DataArray type="Float32" Name="Velocity" NumberOfComponents="3" format="ascii">{velocity}</DataArray>
</PointData></Piece></ImageData></VTKFile>
"""


def nodes() -> np.ndarray:
    """Where the nodes lie, x fastest as VTK has it."""
    axes = [np.linspace(a, b, n) for a, b, n in zip(LOW, HIGH, SHAPE, strict=True)]
    z, y, x = np.meshgrid(*axes[::-1], indexing="ij")
    return np.stack([x, y, z], -1).reshape(-1, 3)


def velocity(points: np.ndarray, t: float) -> np.ndarray:
    """A stream along x that rests at the walls y = 0 and y = 0.4 and grows with time."""
    share = points[:, 1] / HIGH[1]
    along = 0.1 * 4 * share * (1 - share) * (1 + t)
    return np.stack([along, 0 * along, 0 * along], -1)


def write_series(folder: Path, times: list[float]) -> str:
    """Write `flow_<k>.vti` for each time, numbered without leading zeros, and return the pattern that finds them."""
    spacing = " ".join(f"{size:.9g}" for size in (HIGH - LOW) / (np.array(SHAPE) - 1))
    extent = " ".join(f"0 {count - 1}" for count in SHAPE)
    for k, t in enumerate(times):
        arrays = {"pressure": np.zeros(len(nodes())), "velocity": velocity(nodes(), t)}
        texts = {name: " ".join(f"{v:.9g}" for v in values.reshape(-1)) for name, values in arrays.items()}
        (folder / f"flow_{k}.vti").write_text(_IMAGE.format(extent=extent, spacing=spacing, time=t, **texts))
    return str(folder / "flow_*.vti")
