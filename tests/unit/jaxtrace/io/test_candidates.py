"""Arrays that are declared and not used: every array of header and pieces, points and cells, is a candidate."""

import numpy as np
import pytest

from jaxtrace.io import DatasetError, open_dataset

pytestmark = pytest.mark.usefixtures("quick_compile")
HEAD = '<VTKFile type="{kind}" version="1.0" byte_order="LittleEndian">'


def array(name, value, count, width=3, kind="Float32"):
    named = f'Name="{name}" ' if name else ""
    return (
        f'<DataArray type="{kind}" {named}NumberOfComponents="{width}" format="ascii">'
        f"{' '.join([str(value)] * (width * count))}</DataArray>"
    )


def piece(path, points=(), cells=(), shift=0):
    """Two tetrahedra, or two cells of an image, with arrays given as (name, value) or (name, value, width, type)."""
    held = [
        f"<{tag}>{''.join(array(n, v, count, *more) for n, v, *more in arrays)}</{tag}>"
        for tag, arrays, count in (
            ("PointData", points, 5 if path.suffix == ".vtu" else 12),
            ("CellData", cells, 2),
        )
    ]
    if path.suffix == ".vti":
        extent = f"{2 * shift} {2 * shift + 2} 0 1 0 1"
        path.write_text(
            f'{HEAD.format(kind="ImageData")}<ImageData WholeExtent="{extent}" Origin="0 0 0" Spacing="1 1 1">'
            f'<Piece Extent="{extent}">{"".join(held)}</Piece></ImageData></VTKFile>'
        )
        return path
    corners = " ".join(str(x) for x in (np.eye(5, 3) + [shift, 0, 0] + np.eye(5)[:, 4:]).ravel())
    path.write_text(
        f'{HEAD.format(kind="UnstructuredGrid")}<UnstructuredGrid><Piece NumberOfPoints="5" NumberOfCells="2">{"".join(held)}'
        f'<Points><DataArray type="Float32" NumberOfComponents="3" format="ascii">{corners}</DataArray></Points><Cells>'
        '<DataArray type="Int32" Name="connectivity" format="ascii">0 1 2 3 0 1 2 4</DataArray>'
        '<DataArray type="Int32" Name="offsets" format="ascii">4 8</DataArray>'
        '<DataArray type="UInt8" Name="types" format="ascii">10 10</DataArray></Cells></Piece></UnstructuredGrid></VTKFile>'
    )
    return path


def parallel(path, sources, points=(), cells=()):
    """The header of pieces, declaring arrays given as (name, components)."""
    told = ""
    for tag, arrays in (("PPointData", points), ("PCellData", cells)):
        rows = [f'<PDataArray type="Float32" Name="{n}" NumberOfComponents="{w}"/>' for n, w in arrays]
        told += f"<{tag}>{''.join(rows)}</{tag}>"
    if path.suffix == ".pvti":
        whole = f"0 {2 * len(sources)} 0 1 0 1"
        listed = "".join(
            f'<Piece Extent="{2 * k} {2 * k + 2} 0 1 0 1" Source="{s}"/>' for k, s in enumerate(sources)
        )
        tag, rest = "PImageData", f' WholeExtent="{whole}" Origin="0 0 0" Spacing="1 1 1"'
    else:
        listed = "".join(f'<Piece Source="{source}"/>' for source in sources)
        tag, rest = "PUnstructuredGrid", ""
    path.write_text(f"{HEAD.format(kind=tag)}<{tag}{rest}>{told}{listed}</{tag}></VTKFile>")
    return path


@pytest.mark.parametrize("kind", ["vtu", "vti"])
@pytest.mark.parametrize("where", ["points", "cells", "both"])
def test_two_vectors_in_the_pieces_are_an_error_that_lists_both(tmp_path, kind, where):
    """The header of a parallel file may name one of them only: that was taken as "the only vector"."""
    held = {
        "points": {"points": [("flux", 1), ("slip", 2)]},
        "cells": {"cells": [("flux", 1), ("slip", 2)]},
        "both": {"points": [("flux", 1)], "cells": [("slip", 2)]},
    }[where]
    sources = [piece(tmp_path / f"part_{k}.{kind}", shift=k, **held).name for k in range(2)]
    said = rf"flow\.p{kind}: several arrays may be the velocity: flux, slip\. Pass `velocity='flux'`"
    for declared in ("flux",), ("slip",), ("flux", "slip"), ():
        told = {
            field: [(name, 3) for name, _ in arrays if name in declared] for field, arrays in held.items()
        }
        path = parallel(tmp_path / f"flow.p{kind}", sources, **told)
        with pytest.raises(DatasetError, match=said):
            open_dataset(path)
    for name, value in (("flux", 1), ("slip", 2)):
        np.testing.assert_allclose(open_dataset(path, velocity=name).read(0), value)


def test_a_vector_that_only_the_header_names_is_a_candidate(tmp_path):
    source = piece(tmp_path / "part_0.vtu", [("flux", 1)]).name
    path = parallel(tmp_path / "flow.pvtu", [source], [("flux", 3), ("slip", 3)])
    with pytest.raises(DatasetError, match=r"several arrays may be the velocity: flux, slip"):
        open_dataset(path)
    with pytest.raises(
        DatasetError, match=r"node array 'slip' is declared in flow\.pvtu, but not in part_0\.vtu"
    ):
        open_dataset(path, velocity="slip")
    np.testing.assert_allclose(open_dataset(path, velocity="flux").read(0), 1)
    parallel(path, [source], [("flux", 2)])
    with pytest.raises(DatasetError, match=r"'flux' has 2 components in flow\.pvtu, but 3 in part_0\.vtu"):
        open_dataset(path)


def test_an_array_that_some_pieces_lack_is_refused_where_it_is_the_velocity(tmp_path):
    sources = [
        piece(tmp_path / "part_0.vtu", [("velocity", 1), ("slip", 2)]).name,
        piece(tmp_path / "part_1.vtu", [("velocity", 1)], shift=1).name,
    ]
    path = parallel(tmp_path / "flow.pvtu", sources, [("velocity", 3)])
    np.testing.assert_allclose(open_dataset(path).read(0), 1)
    with pytest.raises(DatasetError, match=r"node array 'slip' is not in part_1\.vtu, a part of the same"):
        open_dataset(path, velocity="slip")


def test_what_a_file_declares_but_does_not_give_is_a_candidate(tmp_path):
    """Types that are not read, names used twice and arrays without a name."""
    path = piece(tmp_path / "a.vtu", [("flux", 1), ("slip", 2, 3, "Float16")])
    with pytest.raises(DatasetError, match=r"several arrays may be the velocity: flux, slip"):
        open_dataset(path)
    with pytest.raises(DatasetError, match=r"node array 'slip' has the type 'Float16', which is not read"):
        open_dataset(path, velocity="slip")
    path = piece(tmp_path / "b.vtu", [("velocity", 1), ("velocity", 2)])
    with pytest.raises(DatasetError, match=r"node array 'velocity' is there 2 times; leave one of them"):
        open_dataset(path)
    path = piece(tmp_path / "c.vtu", [("flux", 1), ("", 2)])
    with pytest.raises(DatasetError, match=r"several arrays .*: flux, \(without a name\)"):
        open_dataset(path)
    legacy = tmp_path / "d.vtk"
    rows = " ".join(["1 0 0"] * 8)
    legacy.write_text(
        "# vtk DataFile Version 3.0\nflow\nASCII\nDATASET STRUCTURED_POINTS\nDIMENSIONS 2 2 2\nORIGIN 0 0 0\nSPACING 1 1 1\n"
        f"POINT_DATA 8\nVECTORS velocity float\n{rows}\nVECTORS velocity float\n{rows}\n"
    )
    with pytest.raises(DatasetError, match=r"node array 'velocity' is there several times"):
        open_dataset(legacy)


def test_scalars_named_like_components_are_candidates_beside_a_vector(tmp_path):
    path = piece(tmp_path / "a.vtu", [("flux", 1), *((name, 2, 1) for name in "uvw")])
    with pytest.raises(
        DatasetError, match=r"several arrays may be the velocity: flux; u, v, w\. Pass `velocity='flux'`"
    ):
        open_dataset(path)
    np.testing.assert_allclose(open_dataset(path, velocity=("u", "v", "w")).read(0), 2)
    twice = piece(tmp_path / "b.vtu", [(name, k, 1) for k, name in enumerate(("u", "U", "v", "w"))])
    with pytest.raises(DatasetError, match=r"several arrays may be the velocity: u, v, w; U, v, w"):
        open_dataset(twice)


def test_cell_data_of_the_same_name_are_told(tmp_path):
    path = piece(tmp_path / "a.vtu", [("velocity", 1)], [("velocity", 2)])
    assert "(node data, the only vector named like a velocity; cell data of that name are not used)" in str(
        open_dataset(path)
    )
    path = piece(tmp_path / "b.vtu", [("velocity", 1, 1)], [("velocity", 2)])  # its size at the points
    opened = open_dataset(path)
    assert "cell data" in str(opened)
    np.testing.assert_allclose(opened.read(0), 2)


@pytest.mark.parametrize("collection", [True, False])
def test_a_candidate_in_a_later_file_of_a_series(tmp_path, collection):
    """The rule must give one answer for the whole series, not for its first file."""
    piece(tmp_path / "flow_1.vtu", [("flux", 1)])
    piece(tmp_path / "flow_2.vtu", [("flux", 1), ("slip", 2)])
    piece(tmp_path / "flow_3.vtu", [("flux", 1), ("velocity", 2)])
    given = tmp_path / "flow_*.vtu"
    if collection:
        listed = "".join(f'<DataSet timestep="{k}" file="flow_{k}.vtu"/>' for k in (1, 2, 3))
        given = tmp_path / "flow.pvd"
        given.write_text(f'<VTKFile type="Collection"><Collection>{listed}</Collection></VTKFile>')
    opened = open_dataset(given, **({} if collection else {"times": [1.0, 2.0, 3.0]}))
    np.testing.assert_allclose(opened.read(0), 1)
    with pytest.raises(DatasetError, match=r"flow_2\.vtu: several arrays .*: flux, slip.* In .*flow_1\.vtu"):
        opened.read(1)
    with pytest.raises(
        DatasetError, match=r"flow_3\.vtu: the velocity would be 'velocity' .*`velocity='flux'`"
    ):
        opened.read(2)
    chosen = open_dataset(given, velocity="flux", **({} if collection else {"times": [1.0, 2.0, 3.0]}))
    for k in range(3):
        np.testing.assert_allclose(chosen.read(k), 1)


def test_pieces_without_ghost_flags_have_no_ghosts(tmp_path):
    """Flags that the header does not declare were dropped, so that cells of two pieces counted twice."""
    flags = [("velocity", 1)], [("vtkGhostType", 1, 1, "UInt8")]
    sources = [
        piece(tmp_path / "part_0.vtu", [("velocity", 1)]).name,
        piece(tmp_path / "part_1.vtu", *flags).name,
    ]
    opened = open_dataset(parallel(tmp_path / "flow.pvtu", sources, [("velocity", 3)]))
    assert "(2 tetra)" in str(opened)


def test_pieces_that_differ_where_they_meet_are_refused(tmp_path):
    """Structured pieces share the nodes between them: the last one's values were taken."""
    for name, values in (("flux", (1, 1)), ("slip", (1, 2))):
        for k, value in enumerate(values):
            piece(tmp_path / f"{name}_{k}.vti", [(name, value)], shift=k)
        path = parallel(tmp_path / f"{name}.pvti", [f"{name}_0.vti", f"{name}_1.vti"], [(name, 3)])
        if name == "flux":
            assert open_dataset(path).grid.size == 20
        else:
            with pytest.raises(
                DatasetError, match=r"node array 'slip' has other values in slip_1\.vti than in the"
            ):
                open_dataset(path)


def test_two_times_that_differ_are_refused(tmp_path):
    for k in range(2):
        path = piece(tmp_path / f"flow_{k}.vtu", [("velocity", 1)])
        clocks = "".join(
            f'<DataArray type="Float64" Name="{name}" NumberOfTuples="1" format="ascii">{time}</DataArray>'
            for name, time in (("TimeValue", k), ("TIME", 10 * k))
        )
        path.write_text(path.read_text().replace("<Piece", f"<FieldData>{clocks}</FieldData><Piece"))
    given = tmp_path / "flow_*.vtu"
    with pytest.raises(
        DatasetError, match=r"flow_1\.vtu: field data TimeValue = 1 and TIME = 10 are different"
    ):
        open_dataset(given)
    assert open_dataset(given, times=[0.0, 3.0]).times.tolist() == [0.0, 3.0]


def test_variables_of_one_standard_name_are_several_candidates():
    xarray = pytest.importorskip("xarray", reason="xarray is not installed")
    told = {"units": "m/s"}
    data = xarray.Dataset(
        {
            name: (("y", "x"), np.full((3, 4), float(k)), dict(told))
            for k, name in enumerate(("a", "b", "c", "d"))
        },
        {"x": (("x",), np.arange(4.0), {"units": "m"}), "y": (("y",), np.arange(3.0), {"units": "m"})},
    )
    for name, way in (("a", "eastward"), ("b", "northward"), ("c", "eastward"), ("d", "northward")):
        data[name].attrs["standard_name"] = f"{way}_sea_water_velocity"
    with pytest.raises(
        DatasetError, match=r"several sets of variables may be the velocity: a, b; a, d; c, b; c, d"
    ):
        open_dataset(data)
    np.testing.assert_allclose(open_dataset(data, velocity=("c", "d")).read(0), [[2.0, 3.0]] * 12)
    same = data.drop_attrs().rename(a="u", b="v", c="U", d="V")
    for name in same.data_vars:
        same[name].attrs = dict(told)
    same = same.assign_coords(x=data.x, y=data.y)
    with pytest.raises(DatasetError, match=r"several sets of variables .*: u, v; u, V; U, v; U, V"):
        open_dataset(same)
