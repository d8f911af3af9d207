"""Loaders of jaxtrace: VTK in all its forms, collections, NetCDF, trajectories, tables of seeds, problems."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from fuzz_cases import Loader, demand, demand_arrays

MODES = ("ascii", "inline", "appended", "raw", "zlib", "lz4", "lzma", "wide")
"""How arrays stand in XML files: as text, in base64, appended, and with each way to pack them."""


def _attached(found: Any, cells: bool = False) -> Any:
    from vtkmodules.util.numpy_support import numpy_to_vtk

    count = found.GetNumberOfCells() if cells else found.GetNumberOfPoints()
    flow = np.random.default_rng(0).uniform(-1, 1, (count, 3))
    array = numpy_to_vtk(flow.astype("f4"), deep=1)
    array.SetName("velocity")
    (found.GetCellData() if cells else found.GetPointData()).AddArray(array)
    pressure = numpy_to_vtk(np.arange(found.GetNumberOfPoints(), dtype="f8"), deep=1)
    pressure.SetName("pressure")
    found.GetPointData().AddArray(pressure)
    clock = numpy_to_vtk(np.array([1.5]), deep=1)
    clock.SetName("TimeValue")
    found.GetFieldData().AddArray(clock)
    return found


def _points(places: Any) -> Any:
    from vtkmodules.util.numpy_support import numpy_to_vtk
    from vtkmodules.vtkCommonCore import vtkPoints

    found = vtkPoints()
    found.SetData(numpy_to_vtk(np.ascontiguousarray(places, "f8"), deep=1))
    return found


def _image(cells: bool = False) -> Any:
    from vtkmodules.vtkCommonDataModel import vtkImageData

    found = vtkImageData()
    found.SetDimensions(4, 3, 3)
    found.SetSpacing(0.5, 0.25, 0.75)
    return _attached(found, cells)


def _rectilinear() -> Any:
    from vtkmodules.util.numpy_support import numpy_to_vtk
    from vtkmodules.vtkCommonDataModel import vtkRectilinearGrid

    found = vtkRectilinearGrid()
    found.SetDimensions(4, 3, 3)
    for axis, count in zip("XYZ", (4, 3, 3), strict=True):
        getattr(found, f"Set{axis}Coordinates")(numpy_to_vtk(np.linspace(0.1, 1, count) ** 1.5, deep=1))
    return _attached(found)


def _curved() -> Any:
    from vtkmodules.vtkCommonDataModel import vtkStructuredGrid

    z, y, x = np.meshgrid(*(np.linspace(0, 1, n) for n in (3, 3, 4)), indexing="ij")
    found = vtkStructuredGrid()
    found.SetDimensions(4, 3, 3)
    found.SetPoints(_points(np.stack([x + 0.1 * y, y + 0.1 * x * x, z], -1).reshape(-1, 3)))
    return _attached(found)


def _cube() -> tuple[np.ndarray, np.ndarray]:
    number = np.arange(27).reshape(3, 3, 3)
    cut = (slice(None, -1), slice(1, None))
    square = ((0, 0), (1, 0), (1, 1), (0, 1))
    corners = [(*c, t) for t in (0, 1) for c in square]
    cells = np.stack([number[tuple(cut[c] for c in corner)].ravel() for corner in corners], -1)
    return np.stack(np.meshgrid(*[np.linspace(0, 1, 3)] * 3, indexing="ij"), -1).reshape(-1, 3), cells


def _mesh(tetra: bool = False, cells: bool = False) -> Any:
    from vtkmodules.util.numpy_support import numpy_to_vtk
    from vtkmodules.vtkCommonCore import VTK_UNSIGNED_CHAR
    from vtkmodules.vtkCommonDataModel import vtkCellArray, vtkUnstructuredGrid

    points, bricks = _cube()
    kuhn = [[0, 1, 2, 6], [0, 2, 3, 6], [0, 3, 7, 6], [0, 7, 4, 6], [0, 4, 5, 6], [0, 5, 1, 6]]
    rows = np.concatenate([bricks[:, t] for t in kuhn]) if tetra else bricks
    found, listed = vtkUnstructuredGrid(), vtkCellArray()
    found.SetPoints(_points(points))
    for row in rows:
        listed.InsertNextCell(len(row), [int(i) for i in row])
    kinds = np.full(len(rows), 10 if tetra else 12, "u1")
    found.SetCells(numpy_to_vtk(kinds, deep=1, array_type=VTK_UNSIGNED_CHAR), listed)
    return _attached(found, cells)


def _polygons() -> Any:
    from vtkmodules.vtkCommonDataModel import vtkCellArray, vtkPolyData

    found, listed = vtkPolyData(), vtkCellArray()
    y, x = np.meshgrid(np.arange(3.0), np.arange(3.0), indexing="ij")
    found.SetPoints(_points(np.stack([x, y, 0 * x], -1).reshape(-1, 3)))
    for k in (0, 1, 3, 4):
        listed.InsertNextCell(4, [k, k + 1, k + 4, k + 3])
    found.SetPolys(listed)
    made = _attached(found)
    flow = made.GetPointData().GetArray("velocity")
    for k in range(flow.GetNumberOfTuples()):
        flow.SetComponent(k, 2, 0.0)
    return made


def _xml(found: Any, mode: str, folder: Path) -> bytes:
    from vtkmodules import vtkIOXML

    writer = getattr(vtkIOXML, found.GetClassName().replace("vtk", "vtkXML", 1) + "Writer")()
    writer.SetDataMode({"ascii": 0, "inline": 1}.get(mode, 2))
    if mode == "raw":
        writer.EncodeAppendedDataOff()
    if mode in ("raw", "appended", "inline"):
        writer.SetCompressorTypeToNone()
    if mode in ("lz4", "lzma"):
        (writer.SetCompressorTypeToLZ4 if mode == "lz4" else writer.SetCompressorTypeToLZMA)()
        writer.EncodeAppendedDataOff()
    if mode == "wide":
        writer.SetHeaderTypeToUInt64()
        writer.SetByteOrderToBigEndian()
        writer.SetBlockSize(1024)
    writer.SetFileName(str(folder / "made"))
    writer.SetInputData(found)
    assert writer.Write() == 1
    return (folder / "made").read_bytes()


def _legacy(found: Any, binary: bool, old: bool, folder: Path) -> bytes:
    from vtkmodules.vtkIOLegacy import vtkDataSetWriter

    writer = vtkDataSetWriter()
    writer.SetFileTypeToBinary() if binary else writer.SetFileTypeToASCII()
    if old:
        writer.SetFileVersion(42)
    writer.SetFileName(str(folder / "made"))
    writer.SetInputData(found)
    assert writer.Write() == 1
    return (folder / "made").read_bytes()


def read_field(path: Path) -> None:
    """Open a data set, read its slices, and demand that they are well-formed."""
    from jaxtrace.io import open_dataset

    opened = open_dataset(path)
    demand(np.all(np.isfinite(opened.times)), "times are not finite")
    demand(0 < opened.grid.size < 10**7, f"the grid has {opened.grid.size} nodes")
    for k in range(len(opened)):
        values = np.asarray(opened.read(k))
        shape = (opened.grid.size, opened.grid.dim)
        demand(values.shape == shape, f"slice {k} has shape {values.shape}, not {shape}")
        demand_arrays([(f"slice {k}", values)], "f", finite=True)
    low, high = opened.grid.bounds
    demand_arrays([("bounds", low), ("bounds", high)], "f", finite=True)
    if any("(cell data" in note for note in opened.notes):
        values = np.asarray(open_dataset(path, cell_data="average").read(0))
        demand_arrays([("means of cells", values)], "f", finite=True)


def _vtk(name: str, makers: list[Callable[[], Any]], weight: float) -> Loader:
    def seeds(folder: Path) -> list[bytes]:
        return [_xml(make(), mode, folder) for make in makers for mode in MODES]

    return Loader(
        f"trace/{name}",
        f"flow.{name}",
        seeds,
        read_field,
        ("bytes", "xml", "xml", "text", "encoding"),
        weight=weight,
    )


def _legacy_seeds(folder: Path) -> list[bytes]:
    made = (
        _image(),
        _image(cells=True),
        _rectilinear(),
        _curved(),
        _mesh(),
        _mesh(tetra=True, cells=True),
        _polygons(),
    )
    return [
        _legacy(one, binary, old, folder) for one in made for binary in (False, True) for old in (False, True)
    ]


def _named(array: Any, name: str) -> Any:
    """A copy of an array under another name."""
    found = array.NewInstance()
    found.DeepCopy(array)
    found.SetName(name)
    return found


def _flags(count: int) -> Any:
    from vtkmodules.util.numpy_support import numpy_to_vtk
    from vtkmodules.vtkCommonCore import VTK_UNSIGNED_CHAR

    found = numpy_to_vtk(np.zeros(count, "u1"), deep=1, array_type=VTK_UNSIGNED_CHAR)
    found.SetName("vtkGhostType")
    return found


def _pieces(folder: Path, kind: str) -> list[bytes]:
    """Parallel files with the parts beside them."""
    if kind == "pvtu":
        for k in range(2):
            part = _mesh()
            part.SetPoints(_points(_cube()[0] + [2 * k, 0, 0]))
            part.GetPointData().AddArray(_named(part.GetPointData().GetArray("velocity"), "slip"))
            if k:  # flags that only one part has
                part.GetCellData().AddArray(_flags(part.GetNumberOfCells()))
            (folder / f"part_{k}.vtu").write_bytes(_xml(part, "zlib", folder))
        return [
            b"""<VTKFile type="PUnstructuredGrid" version="1.0" byte_order="LittleEndian" header_type="UInt32">
<PUnstructuredGrid GhostLevel="0"><PPointData><PDataArray type="Float32" Name="velocity" NumberOfComponents="3"/>
<PDataArray type="Float64" Name="pressure"/></PPointData><PCellData></PCellData>
<PPoints><PDataArray type="Float64" NumberOfComponents="3"/></PPoints>
<Piece Source="part_0.vtu"/><Piece Source="part_1.vtu"/></PUnstructuredGrid></VTKFile>""",
            b"""<VTKFile type="PUnstructuredGrid" version="1.0" byte_order="LittleEndian" header_type="UInt32">
<PUnstructuredGrid><PPointData/><PPoints><PDataArray type="Float64" NumberOfComponents="3"/></PPoints>
<Piece Source="part_1.vtu"/></PUnstructuredGrid></VTKFile>""",
        ]
    (folder / "part_0.vti").write_bytes(_xml(_image(), "raw", folder))
    return [
        b"""<VTKFile type="PImageData" version="1.0" byte_order="LittleEndian" header_type="UInt32">
<PImageData WholeExtent="0 3 0 2 0 2" GhostLevel="0" Origin="0 0 0" Spacing="0.5 0.25 0.75">
<PPointData><PDataArray type="Float32" Name="velocity" NumberOfComponents="3"/><PDataArray type="Float64" Name="pressure"/>
</PPointData><Piece Extent="0 3 0 2 0 2" Source="part_0.vti"/></PImageData></VTKFile>"""
    ]


def _collection(folder: Path) -> list[bytes]:
    for k in range(2):
        (folder / f"part_{k}.vti").write_bytes(_xml(_image(), "raw", folder))
    return [
        b"""<?xml version="1.0"?>
<VTKFile type="Collection" version="0.1" byte_order="LittleEndian"><Collection>
<DataSet timestep="0.5" group="" part="0" file="part_0.vti"/>
<DataSet timestep="1.25" group="" part="0" file="part_1.vti"/>
</Collection></VTKFile>"""
    ]


def _series(folder: Path) -> list[bytes]:
    _collection(folder)
    return [
        b'{"file-series-version": "1.0", "files": [{"name": "part_0.vti", "time": 0.5}, {"name": "part_1.vti", "time": 1}]}'
    ]


def _netcdf(folder: Path) -> list[bytes]:
    import xarray

    made = []
    rng = np.random.default_rng(0)
    axes = {"time": np.arange(2.0), "y": np.linspace(0, 1, 4), "x": np.linspace(0, 2, 5)}
    data: dict[str, Any] = {
        name: (("time", "y", "x"), rng.uniform(-1, 1, (2, 4, 5)).astype("f4"), {"units": "m s-1"})
        for name in "uv"
    }
    told = {
        "time": ("time", axes["time"], {"units": "seconds since 2000-01-01", "axis": "T"}),
        "y": ("y", axes["y"], {"units": "m", "axis": "Y"}),
        "x": ("x", axes["x"], {"units": "m", "axis": "X"}),
    }
    flat = xarray.Dataset(data, told)
    lon, lat = np.meshgrid(np.linspace(10, 12, 5), np.linspace(50, 51, 4))
    bent = xarray.Dataset(
        data,
        {
            "time": told["time"],
            "lat": (("y", "x"), lat, {"units": "degrees_north", "standard_name": "latitude"}),
            "lon": (("y", "x"), lon + 0.1 * lat, {"units": "degrees_east", "standard_name": "longitude"}),
        },
    )
    spelled = {"UNITS": "cm/s", "FillValue": -9999.0}
    odd = xarray.Dataset(
        {name: (dims, values, spelled) for name, (dims, values, _) in data.items()},
        {
            "time": ("time", axes["time"], {"Unit": "days since 2000-01-01", "Calendar": "NoLeap"}),
            "nav_lat": (("y", "x"), lat),
            "nav_lon": (("y", "x"), lon + 0.1 * lat),
        },
    )
    odd.u[:, 0, 0] = np.nan
    packed = {"dtype": "i2", "scale_factor": 0.001, "_FillValue": -32768}
    squeezed = {"zlib": True, "complevel": 4, "shuffle": True, "chunksizes": (1, 2, 5)}
    for dataset, engine, encoding in (
        (flat, "h5netcdf", {}),
        (flat, "h5netcdf", {name: {**packed, **squeezed} for name in "uv"}),
        (bent, "h5netcdf", dict.fromkeys("uv", squeezed)),
        (flat, "scipy", dict.fromkeys("uv", packed)),
        (bent, "scipy", {}),
        (odd, "h5netcdf", {}),
        (odd, "scipy", {}),
    ):
        options: dict[str, Any] = {"format": "NETCDF3_64BIT"} if engine == "scipy" else {}
        dataset.to_netcdf(folder / "made.nc", engine=engine, encoding=encoding, **options)
        made.append((folder / "made.nc").read_bytes())
    return made


def _attributes(folder: Path) -> list[bytes]:
    """Attributes of the variables of a small ocean, and the ends of its axes."""
    degrees = {"lon": {"units": "degrees_east"}, "lat": {"units": "degrees_north"}}
    made: list[dict[str, Any]] = [
        {
            "time": {"units": "hours since 2000-01-01", "calendar": "standard"},
            **degrees,
            "u": {"units": "m s-1"},
            "v": {},
        },
        {
            "time": {"Unit": "days since 1-1-1", "Calendar": "NoLeap"},
            "lon": {},
            "lat": {},
            "u": {"UNITS": "cm/s"},
            "v": {},
        },
        {
            "time": {"long_name": "minutes since 1970-01-01T00:00:00Z"},
            "lon": {"standard_name": "longitude", "axis": "X"},
            "lat": {"Standard_Name": "latitude", "unit": "degree"},
            "u": {
                "standard_name": "eastward_sea_water_velocity",
                "units": "m/s",
                "FillValue": -1,
                "coordinates": "lat lon",
            },
            "v": {
                "standard_name": "northward_sea_water_velocity",
                "velocity_units": "m/s",
                "missing_value": 9,
            },
        },
        {
            "time": {"units": "seconds", "_FillValue": -1},
            "lon": {"units": "m"},
            "lat": {"units": "km", "scale_factor": 2},
            "u": {"units": "m/s", "add_offset": 1, "_FillValue": 7},
            "v": {"units": "cm/s", "scale_factor": 2},
            "ends": {"lon": 99000, "lat": 40000, "whole": True},
        },
    ]
    return [json.dumps(one).encode() for one in made]


def read_attributes(path: Path) -> None:
    """Open a data set with the attributes in a file."""
    import xarray

    from jaxtrace.io import open_dataset

    try:
        told = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path.name}: no JSON") from error
    demand_object(told, path)
    ends = told.get("ends")
    demand_object(ends or {}, path)
    shape = {"time": 2, "lat": 3, "lon": 4}
    kind = "i4" if ends and ends.get("whole") else "f8"
    axes = {}
    for name, count in shape.items():
        end = (ends or {}).get(name, 5)
        if not isinstance(end, int | float) or not abs(end) < 1e9:
            raise ValueError(f"{path.name}: an end must be a number")
        axes[name] = ((name,), np.linspace(0, end, count).astype(kind), attributes(told, name, path))
    rows = {name: (tuple(shape), np.ones((2, 3, 4), kind), attributes(told, name, path)) for name in "uv"}
    opened = open_dataset(xarray.Dataset(rows, axes))
    demand(np.all(np.isfinite(opened.times)), "times are not finite")
    demand_arrays([("slice", opened.read(0)), ("slice", opened.read(len(opened) - 1))], "f", finite=True)
    demand_arrays([("bounds", opened.grid.bounds[0]), ("bounds", opened.grid.bounds[1])], "f", finite=True)


def demand_object(value: Any, path: Path) -> None:
    if not isinstance(value, dict):
        raise ValueError(f"{path.name}: must hold an object")


def attributes(told: dict[str, Any], name: str, path: Path) -> dict[str, Any]:
    """The attributes of one variable, lists of numbers as arrays as they come from files."""
    found = told.get(name, {})
    demand_object(found, path)
    return {key: np.array(value) if _plain(value) else value for key, value in found.items()}


def _plain(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, int | float | str) for one in value)


def _trajectory() -> Any:
    from jaxtrace.tracking.trajectory import Trajectory

    rng = np.random.default_rng(0)
    return Trajectory(
        positions=rng.uniform(0, 1, (4, 3, 2)).astype("f4"),
        times=np.arange(4.0),
        ids=np.arange(3),
        alive=np.ones((4, 3), bool),
        ages=rng.uniform(0, 1, (4, 3)).astype("f4"),
        release_times=np.zeros(3, "f4"),
        outcomes=np.zeros(3, "i1"),
        patches=np.full(3, -1, "i4"),
        velocities=rng.uniform(0, 1, (4, 3, 2)).astype("f4"),
        generation=None,
        patch_names=("left",),
        patch_counts={"left": 0},
        outcome="finished",
        outcome_names=("on its way", "left"),
        info={"steps": 3, "note": ["a", 1.5]},
        reduced={"mean": np.arange(3.0), "parts": (np.zeros(2), 1)},
    )


def _saved(suffix: str) -> Callable[[Path], list[bytes]]:
    def seeds(folder: Path) -> list[bytes]:
        from jaxtrace.io import save_trajectory

        made = []
        for options in ({}, {"compress": True, "units": "degrees"}) if suffix == ".nc" else ({},):
            save_trajectory(_trajectory(), folder / f"made{suffix}", **options)
            made.append((folder / f"made{suffix}").read_bytes())
        return made

    return seeds


def read_trajectory(path: Path) -> None:
    """Load a trajectory and demand that its arrays fit each other."""
    from jaxtrace.io import load_trajectory

    found = load_trajectory(path)
    times, particles = len(found.times), len(found.ids)
    demand(found.positions is None or found.positions.shape[:2] == (times, particles), "positions do not fit")
    for name in ("alive", "ages", "velocities", "generation"):
        values = getattr(found, name)
        demand(values is None or values.shape[:2] == (times, particles), f"{name} do not fit")
    for name in ("release_times", "outcomes", "patches"):
        values = getattr(found, name)
        demand(values is None or values.shape == (particles,), f"{name} do not fit")
    named = {name: getattr(found, name) for name in ("positions", "times", "alive", "ages", "velocities")}
    demand_arrays([(name, values) for name, values in named.items() if values is not None])
    demand(
        isinstance(found.outcome, str) and isinstance(found.info, dict), "outcome or info are something else"
    )


def _tables(folder: Path) -> list[bytes]:
    return [b"x,y,z,name\n0.1,0.2,0.3,a\n0.4,0.5,0.6,b\n1,2,3,c\n", b"x, y\n1,2\n3,4\n"]


def read_seeds(path: Path) -> None:
    """Load seeds from a table."""
    from jaxtrace.tracking.seeding import table_seeds

    found = np.asarray(table_seeds(path))
    demand(found.ndim == 2 and found.size, f"seeds have shape {found.shape}")
    demand_arrays([("seeds", found)], "f", finite=True)


def _slices(folder: Path) -> list[bytes]:
    import io

    made = []
    for kind in ("f4", "f8"):
        buffer = io.BytesIO()
        np.save(buffer, np.random.default_rng(0).uniform(-1, 1, (12, 2)).astype(kind))
        made.append(buffer.getvalue())
    (folder / "slice_1.npy").write_bytes(made[0])
    return made


def read_slices(path: Path) -> None:
    """Read slices of a streamed field from `.npy` files."""
    from jaxtrace.fields.streams import FileSlices

    source = FileSlices([path, path.with_name("slice_1.npy")])
    demand(source.dtype is None or source.dtype.kind in "fiub", f"slices have dtype {source.dtype}")
    for k in range(2):
        demand_arrays([("slice", source.read(k))])


def _problems(folder: Path) -> list[bytes]:
    (folder / "seeds.csv").write_text("x,y\n0.5,0.5\n1,0.25\n")
    return [
        b"""field = "double_gyre"
bounds = [0, 0, 2, 1]
integrator = "dopri5"
options = {rtol = 1e-6}
span = [0, 10]
times = 11
dt = 0.05
seed = 3
out = "paths.nc"
[seeds]
kind = "circle"
center = [1, 0.5]
radius = 0.1
n = 20
[[boundary]]
kind = "reflective"
""",
        b"""field = "double_gyre"
times = 5
checkpoint = "run"
[seeds]
kind = "table"
table = "seeds.csv"
[[boundary]]
kind = "periodic"
[[boundary]]
kind = "absorbing"
bounds = [0, 0, 2, 1]
""",
    ]


def read_trace_problem(path: Path) -> None:
    """Read a problem and make its field, seeds and walls."""
    from jaxtrace._commands.problem import read_problem, ready

    made = ready(read_problem(path))
    demand(
        np.isfinite(made.span).all() and np.asarray(made.seeds).ndim == 2, "span or seeds are not well-formed"
    )


LOADERS = [
    _vtk("vti", [_image, lambda: _image(cells=True)], 3),
    _vtk("vtr", [_rectilinear], 3),
    _vtk("vts", [_curved], 3),
    _vtk("vtu", [_mesh, lambda: _mesh(tetra=True, cells=True)], 3),
    _vtk("vtp", [_polygons], 2),
    Loader(
        "trace/vtk", "flow.vtk", _legacy_seeds, read_field, ("bytes", "text", "text", "encoding"), weight=4
    ),
    Loader(
        "trace/pvtu",
        "flow.pvtu",
        lambda folder: _pieces(folder, "pvtu"),
        read_field,
        ("bytes", "xml", "xml", "encoding"),
        ("part_",),
        1,
    ),
    Loader(
        "trace/pvti",
        "flow.pvti",
        lambda folder: _pieces(folder, "pvti"),
        read_field,
        ("bytes", "xml", "xml", "encoding"),
        ("part_",),
        1,
    ),
    Loader(
        "trace/pvd", "flow.pvd", _collection, read_field, ("bytes", "xml", "xml", "encoding"), ("part_",), 1.5
    ),
    Loader(
        "trace/series",
        "flow.vti.series",
        _series,
        read_field,
        ("bytes", "json", "json", "text", "encoding"),
        ("part_",),
        1.5,
    ),
    Loader("trace/netcdf", "flow.nc", _netcdf, read_field, ("bytes", "bytes", "hdf5"), weight=2),
    Loader(
        "trace/attributes",
        "attributes.json",
        _attributes,
        read_attributes,
        ("json", "json", "text"),
        ("the data set", "`"),
        weight=2,
    ),
    Loader("trace/trajectory.nc", "paths.nc", _saved(".nc"), read_trajectory, ("bytes", "hdf5"), weight=1),
    Loader(
        "trace/trajectory.npz",
        "paths.npz",
        _saved(".npz"),
        read_trajectory,
        ("bytes", "zip", "zip"),
        weight=3,
    ),
    Loader(
        "trace/slices.npy", "slice_0.npy", _slices, read_slices, ("bytes", "npy", "npy"), ("slice",), weight=3
    ),
    Loader(
        "trace/seeds.csv",
        "seeds.csv",
        _tables,
        read_seeds,
        ("bytes", "table", "table", "encoding", "text"),
        ("`table`", "`columns`"),
        4,
    ),
    Loader(
        "trace/problem.toml",
        "problem.toml",
        _problems,
        read_trace_problem,
        ("bytes", "toml", "toml", "text", "encoding"),
        ("`", "/etc/passwd"),
        1,
    ),
]
