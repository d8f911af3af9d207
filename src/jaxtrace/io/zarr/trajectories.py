"""Trajectories as Zarr stores: the content of the NetCDF files, in chunks along particles and times."""

import math
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Shaped

from jaxworlds.store import atomic_folder

from ...tracking.trajectory import Trajectory
from ..cf.trajectories import from_variables, trajectory_dataset
from ..files import naming_package
from .dataset import read_arrays

CHUNK = 1 << 22
"""Bytes of a chunk before it is packed, at most."""


def write_zarr(trajectory: Trajectory, path: Path, *, compress: bool = True, **options: Any) -> None:
    """Write a trajectory to a folder in Zarr format 2, in place of a store of that name.

    All chunks are written, also those of zeros, so that a lost one is found. `options` are those of `trajectory_dataset`.
    """
    refuse_other(path)
    dataset = trajectory_dataset(trajectory, **options)
    with naming_package("Zarr stores need the package zarr"):
        import zarr
        from numcodecs import Blosc
    packer = Blosc(cname="zstd", clevel=3, shuffle=Blosc.SHUFFLE) if compress else None
    with atomic_folder(path) as folder:
        group = zarr.open_group(folder, mode="w", zarr_format=2, attributes=_plain(dataset.attrs))
        for name, variable in dataset.variables.items():
            values = _storable(str(name), variable.values)
            around = variable.encoding.get("coordinates")
            group.create_array(
                str(name),
                data=values,
                chunks=chunk_shape(values.shape, values.dtype.itemsize),
                compressors=packer,
                filters=None,
                fill_value=None,
                attributes={
                    "_ARRAY_DIMENSIONS": list(variable.dims),
                    **_plain(variable.attrs),
                    **({"coordinates": around} if around else {}),
                },
                config={"write_empty_chunks": True},
            )
        zarr.consolidate_metadata(folder)


def read_zarr(path: Path) -> Trajectory:
    """Read a trajectory that `write_zarr` wrote, from its folder or a zip archive of it."""
    stored, attributes, clock = read_arrays(path)
    return from_variables(path, stored, attributes.get("jaxtrace"), clock)


def refuse_other(path: Path) -> None:
    """Refuse to replace what is no Zarr store: a folder may hold anything."""
    if path.is_dir() and any((path / name).is_file() for name in (".zgroup", "zarr.json")):
        return
    if path.exists() and not (path.is_dir() and not any(path.iterdir())):
        raise FileExistsError(
            f"{path}: only a Zarr store or an empty folder is replaced, and this is neither. Name another path."
        )


def chunk_shape(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Chunks of at most `CHUNK` bytes, about as many along each axis: one path and one moment are then read alike."""
    counts = [1] * len(shape)
    while True:
        found = tuple(max(-(-n // count), 1) for n, count in zip(shape, counts, strict=True))
        if math.prod(found) * itemsize <= CHUNK:
            return found
        axis = min((k for k, n in enumerate(found) if n > 1), key=lambda k: counts[k])
        counts[axis] *= 2


def _storable(name: str, values: Any) -> Shaped[np.ndarray, "..."]:
    """Values as an array of a type that the format knows; texts get a fixed length."""
    found = np.asarray(values)
    if found.dtype.kind in "OT":
        found = found.astype(str)
    if found.dtype.kind not in "biufcSUmM":
        raise ValueError(f"`{name}` of the trajectory holds {found.dtype}, which Zarr has not. Save to .npz.")
    return found


def _plain(attributes: dict[Any, Any]) -> dict[str, Any]:
    return {
        str(key): value.tolist() if isinstance(value, np.ndarray | np.generic) else value
        for key, value in attributes.items()
    }
