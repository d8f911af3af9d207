"""XML files of VTK read with NumPy: every declared size is compared with what the file holds before anything is made.

VTK's own readers trust these sizes: a damaged file ends the process, or takes all memory (VTK 9.7).
"""

import base64
import binascii
import dataclasses
import lzma
import math
import mmap
import os
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.parsers import expat

import numpy as np

from ..files import inside, named_errors
from ..geometry import Centring
from .data import (
    GHOSTS,
    POLYGONAL,
    STRUCTURED,
    Key,
    Unread,
    VtkData,
    checked_cells,
    checked_extent,
    joined_cells,
    joined_extents,
    stack_cells,
)
from .window import complaints, vtk

SUFFIXES = {
    ".vti": "ImageData",
    ".vtr": "RectilinearGrid",
    ".vts": "StructuredGrid",
    ".vtu": "UnstructuredGrid",
    ".vtp": "PolyData",
}
_TYPES = {f"{sign}Int{8 * n}": f"{kind}{n}" for sign, kind in (("", "i"), ("U", "u")) for n in (1, 2, 4, 8)}
_TYPES |= {"Float32": "f4", "Float64": "f8"}
_DEEPEST = 24
_DATA: dict[Centring, str] = {"node": "PointData", "cell": "CellData"}


@dataclasses.dataclass
class Element:
    """One element with its attributes, the elements in it, and its text."""

    tag: str
    attributes: dict[str, str] = dataclasses.field(default_factory=dict)
    children: list["Element"] = dataclasses.field(default_factory=list)
    text: list[bytes] = dataclasses.field(default_factory=list)

    @property
    def name(self) -> str:
        """Its attribute `Name`."""
        return self.attributes.get("Name", "")

    @property
    def components(self) -> int:
        """Numbers of one node or cell."""
        return self.whole("NumberOfComponents", 1) or 1

    def all(self, tag: str) -> list["Element"]:
        return [child for child in self.children if child.tag == tag]

    def first(self, tag: str) -> "Element":
        """The element of this tag, or an empty one."""
        return next(iter(self.all(tag)), Element(tag))

    def whole(self, name: str, default: int | None = None) -> int:
        """An attribute that is a whole number, not negative."""
        said = self.attributes.get(name)
        if said is None and default is not None:
            return default
        try:
            number = int(said or "")
        except ValueError:
            number = -1
        if not 0 <= number < 2**62:
            raise ValueError(f"`{name}` of <{self.tag}> must be a whole number from 0; got {_short(said)}")
        return number

    def numbers(self, name: str, kind: type, count: int, default: str = "") -> tuple[Any, ...]:
        """An attribute of several numbers."""
        said = self.attributes.get(name, default)
        try:
            found = tuple(map(kind, said.split()))
        except ValueError:
            found = ()
        if len(found) != count or not all(abs(n) < float("inf") for n in found):
            raise ValueError(f"`{name}` of <{self.tag}> must be {count} numbers; got {_short(said)}")
        return found


def read_xml(path: Path, wanted: frozenset[str] | None) -> VtkData:
    """The data set in a file, of the arrays of points and cells only those `wanted`."""
    return _read(path, lambda file: file.whole(wanted))


def read_xml_head(path: Path) -> tuple[dict[str, np.ndarray], tuple[float, ...]]:
    """The field data of a file and the times that it declares, its other arrays unread."""
    return _read(path, lambda file: (file.field_data(), file.times()))


def _read(path: Path, use: Callable[["XmlFile"], Any]) -> Any:
    kinds = (ValueError, expat.ExpatError, OverflowError)
    with (
        named_errors(f"{path}: the file cannot be used", kinds, " It is damaged or cut off."),
        open(path, "rb") as file,
    ):
        if not os.fstat(file.fileno()).st_size:
            raise ValueError("it is empty")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return use(XmlFile(path, data))


class XmlFile:
    """A file whose elements are known and whose arrays are read on request."""

    def __init__(self, path: Path, data: mmap.mmap):
        self.path, self.data = path, data
        at = data.find(b"<AppendedData")
        self.root = _parse_elements(data, len(data) if at < 0 else at, closed=at < 0)
        said = self.root.attributes
        kind, suffix = said.get("type", ""), path.suffix.lower()
        self.parallel = suffix not in SUFFIXES
        self.kind: Any = SUFFIXES[suffix.replace(".p", ".", 1) if self.parallel else suffix]
        demanded = "P" * self.parallel + self.kind
        if self.root.tag != "VTKFile" or kind != demanded:
            raise ValueError(
                f"it must hold <VTKFile type='{demanded}'>; it holds <{self.root.tag[:40]} type={_short(kind)}>"
            )
        order = {"LittleEndian": "<", "BigEndian": ">"}.get(said.get("byte_order", "LittleEndian"))
        headers = {"UInt32": "u4", "UInt64": "u8", "Int32": "u4", "Int64": "u8"}
        header = headers.get(said.get("header_type", "UInt32"))
        if order is None or header is None:
            raise ValueError(f"its byte_order or header_type is unknown: {_short(said)}")
        self.order, self.header = order, np.dtype(order + header)
        self.compressor = said.get("compressor", "")
        if self.compressor not in ("", *_UNPACK):
            raise ValueError(
                f"its arrays are packed with {_short(self.compressor)}; known are {', '.join(_UNPACK)}"
            )
        self.grid = self.root.first(kind)
        self.raw, self.start, self.end = False, 0, 0
        if at >= 0:
            self._find_appended(at)

    def _find_appended(self, at: int) -> None:
        """Where the appended bytes lie."""
        mark = re.match(rb"<AppendedData([^>]{0,400})>\s*_", self.data[at : at + 600])
        if mark is None:
            raise ValueError("its <AppendedData> does not begin with the mark _")
        encoding = re.search(rb'encoding\s*=\s*["\'](\w+)["\']', mark[1])
        if encoding is None or encoding[1] not in (b"raw", b"base64"):
            raise ValueError(f"its <AppendedData> must be raw or base64; it says {_short(mark[1])}")
        self.raw, self.start = encoding[1] == b"raw", at + mark.end()
        # A file that is cut off behind an array still holds it; one that is cut in it is refused when it is read.
        end = self.data.rfind(b"</AppendedData>")
        self.end = len(self.data) if end < self.start else end

    def times(self) -> tuple[float, ...]:
        """The times of its steps, where it says so."""
        said = self.grid.attributes.get("TimeValues", "").split()
        return self.grid.numbers("TimeValues", float, len(said)) if said else ()

    def field_data(self) -> dict[str, np.ndarray]:
        """The arrays that belong to no point and no cell."""
        return {
            element.name: self.array(element, element.whole("NumberOfTuples", 1))
            for holder in (self.root, self.grid)
            for element in holder.first("FieldData").all("DataArray")
            if element.attributes.get("type") in _TYPES and element.name
        }

    def whole(self, wanted: frozenset[str] | None) -> VtkData:
        """All pieces as one."""
        elements = self.grid.all("Piece")
        if not elements:
            raise ValueError(f"it holds no <Piece> in its <{self.grid.tag}>")
        if any(
            "TimeStep" in array.attributes
            for piece in elements
            for part in piece.children
            for array in part.children
        ):
            raise ValueError("it holds several time steps; write one file for each of them")
        pieces = [self._part(e, wanted) if self.parallel else self.piece(e, wanted) for e in elements]
        names = [element.attributes.get("Source", f"piece {k}") for k, element in enumerate(elements)]
        fields = self.field_data() or pieces[0].field_data
        if self.kind in STRUCTURED:
            extent = checked_extent(self.grid.numbers("WholeExtent", int, 6), "the whole extent")
            return dataclasses.replace(joined_extents(pieces, names, extent), field_data=fields)
        # A piece may be empty, as where a process had no part of the mesh; it then lacks the arrays too.
        filled = [pair for pair in zip(pieces, names, strict=True) if len(pair[0].points)]
        pieces, names = (list(each) for each in zip(*(filled or [(pieces[0], names[0])]), strict=True))
        made = pieces[0] if len(pieces) == 1 else joined_cells(pieces, names)
        return dataclasses.replace(made, field_data=fields)

    def _part(self, element: Element, wanted: frozenset[str] | None) -> VtkData:
        """A piece in a file of its own, which must lie in the folder of this one or below."""
        name = element.attributes.get("Source", "")
        path = inside(self.path, name)
        suffix = next(s for s, kind in SUFFIXES.items() if kind == self.kind)
        if path.suffix.lower() != suffix:
            raise ValueError(f"its piece {_short(name)} must be a {suffix} file")
        if not path.is_file():
            raise FileNotFoundError(f"{self.path}: its piece {_short(name)} is missing.")
        found = read_xml(path, wanted)
        if self.kind in STRUCTURED:
            said = checked_extent(element.numbers("Extent", int, 6), "the extent of a piece")
            if found.extent != said:
                raise ValueError(f"its piece {name} has the extent {found.extent}, not {said}")
        arrays, unread = dict(found.arrays), dict(found.unread)
        for centring, tag in _DATA.items():
            for array in self.grid.first(f"P{tag}").children:
                key: Key = (centring, array.name)
                width = array.components
                if key in arrays:
                    own = math.prod(arrays[key].shape[1:])
                    if own != width:
                        said = f"has {width} components in {self.path.name}, but {own} in {name}"
                        unread[key] = (width, said)
                        del arrays[key]
                elif array.name and key not in unread:
                    unread[key] = (width, f"is declared in {self.path.name}, but not in {name}")
        return dataclasses.replace(found, arrays=arrays, unread=unread)

    def piece(self, element: Element, wanted: frozenset[str] | None) -> VtkData:
        """One piece of this file."""
        made: dict[str, Any] = {}
        if self.kind in STRUCTURED:
            made["extent"] = checked_extent(element.numbers("Extent", int, 6), "the extent of a piece")
        if self.kind == "ImageData":
            made["origin"] = self.grid.numbers("Origin", float, 3, "0 0 0")
            made["spacing"] = self.grid.numbers("Spacing", float, 3, "1 1 1")
            made["direction"] = self.grid.numbers("Direction", float, 9, "1 0 0 0 1 0 0 0 1")
        if self.kind in STRUCTURED:
            grid = VtkData(self.kind, **made)
            points, cells = grid.count("node"), grid.count("cell")
            if self.kind == "RectilinearGrid":
                axes = element.first("Coordinates").all("DataArray")
                if len(axes) != 3:
                    raise ValueError(f"its <Coordinates> must hold three arrays; they hold {len(axes)}")
                made["axes"] = tuple(
                    self.array(axis, n).reshape(-1) for axis, n in zip(axes, grid.shape, strict=True)
                )
        else:
            points, cells = element.whole("NumberOfPoints"), element.whole("NumberOfCells", 0)
        if self.kind not in ("ImageData", "RectilinearGrid") and points:
            places = element.first("Points").all("DataArray")
            if not places:
                raise ValueError("its piece has no places: <Points> is missing")
            made["points"] = self.array(places[0], points, width=3)
        if self.kind == "UnstructuredGrid":
            made |= self._cells(element.first("Cells"), cells, None)
        if self.kind == "PolyData":
            made |= stack_cells(
                self._cells(element.first(tag), element.whole(f"NumberOf{tag}", 0), kind)
                for tag, kind in POLYGONAL.items()
            )
            cells = len(made["types"])
        arrays, unread = self._choose_arrays(element, {"node": points, "cell": cells}, wanted)
        return VtkData(self.kind, arrays, unread=unread, **made)

    def _choose_arrays(
        self, piece: Element, counts: dict[Centring, int], wanted: frozenset[str] | None
    ) -> tuple[dict[Key, np.ndarray], Unread]:
        """The values of the arrays that are `wanted`, and all others that are declared."""
        found: dict[Key, np.ndarray] = {}
        unread: Unread = {}
        for centring, tag in _DATA.items():
            elements = piece.first(tag).all("DataArray")
            names = [element.name for element in elements]
            for name, element in zip(names, elements, strict=True):
                key: Key = (centring, name)
                width, said = element.components, element.attributes.get("type")
                if not name:
                    unread[centring, "(without a name)"] = (width, "cannot be asked for; give it a name")
                elif names.count(name) > 1:
                    unread[key] = (width, f"is there {names.count(name)} times; leave one of them")
                elif said not in _TYPES:
                    unread[key] = (width, f"has the type {_short(said)}, which is not read")
                elif wanted is not None and name not in {*wanted, GHOSTS}:
                    unread[key] = (width, "")
                else:
                    found[key] = self.array(element, counts[centring])
        return found, unread

    def _cells(self, holder: Element, count: int, kind: int | None) -> dict[str, Any]:
        """The cells of a group, all of one `kind` or of those that it lists."""
        if not count:
            return stack_cells([])
        arrays = {a.name: a for a in holder.all("DataArray")}
        for name in ("connectivity", "offsets", *(("types",) if kind is None else ())):
            if name not in arrays:
                raise ValueError(f"its <{holder.tag}> have no array {name!r}")
        ends = self.array(arrays["offsets"], count).reshape(-1)
        corners = self.array(arrays["connectivity"], None).reshape(-1)
        for name, values in (("offsets", ends), ("connectivity", corners)):
            if values.dtype.kind not in "iu":
                raise ValueError(
                    f"{name!r} of its <{holder.tag}> must be whole numbers; it holds {values.dtype}"
                )
        types = self.array(arrays["types"], count).reshape(-1) if kind is None else np.full(count, kind)
        return checked_cells(types, ends, corners, f"<{holder.tag}>")

    def array(self, element: Element, count: int | None, width: int | None = None) -> np.ndarray:
        """The values of an array of `count` rows; (rows,) of one component, else (rows, components)."""
        name, said = element.name, element.attributes.get("type", "")
        if said not in _TYPES:
            raise ValueError(f"array {name[:60]!r} has the type {_short(said)}, which is not read")
        kind = np.dtype(_TYPES[said])
        components = element.components
        if width is not None and components != width:
            raise ValueError(f"array {name[:60]!r} must have {width} components; it has {components}")
        size = None if count is None else count * components
        try:
            values = self._values(element, kind, size)
        except (ValueError, zlib.error, lzma.LZMAError, EOFError) as error:
            raise ValueError(f"array {name[:60]!r}: {error}") from error
        return values if components == 1 and width is None else values.reshape(-1, components)

    def _values(self, element: Element, kind: np.dtype, size: int | None) -> np.ndarray:
        form = element.attributes.get("format", "ascii")
        if form == "ascii":
            return from_text(b"".join(element.text), kind, size)
        due = None if size is None else size * kind.itemsize
        if form == "binary":
            text = b"".join(b"".join(element.text).split())
            source = ArraySource(text, 0, len(text), raw=False)
        elif form == "appended":
            offset = element.whole("offset")
            if offset >= self.end - self.start:
                raise ValueError(
                    f"its offset {offset} lies behind the {self.end - self.start} bytes that are appended"
                )
            source = ArraySource(self.data, self.start + offset, self.end, self.raw)
        else:
            raise ValueError(f"its format must be ascii, binary or appended; it is {_short(form)}")
        data = self._unpack(source, due)
        if len(data) % kind.itemsize:
            raise ValueError(f"{len(data)} bytes are no whole number of {kind} values")
        return np.frombuffer(data, np.dtype(f"{self.order}{kind.str[1:]}")).astype(kind)

    def _head(self, source: "ArraySource", count: int) -> list[int]:
        """Numbers before the values: how many bytes they have."""
        return np.frombuffer(source.take(count * self.header.itemsize), self.header).tolist()

    def _unpack(self, source: "ArraySource", due: int | None) -> bytes:
        """The bytes of the values, which must be as many as are `due`."""
        if self.compressor:
            count, block, last = self._head(source, 3)
            sizes, lengths = self._head(source, count), [block] * count
            if last and count:
                lengths[-1] = last
        else:
            sizes = lengths = self._head(source, 1)
        if due is not None and sum(lengths) != due:
            raise ValueError(f"it must take {due} bytes; the file says {sum(lengths)}")
        stored = source.take(sum(sizes))
        if not self.compressor:
            return stored
        parts, at = [], 0
        for size, length in zip(sizes, lengths, strict=True):
            parts.append(_UNPACK[self.compressor](stored[at : at + size], length))
            if len(parts[-1]) != length:
                raise ValueError(f"a block must unpack to {length} bytes and does not")
            at += size
        return b"".join(parts)


class ArraySource:
    """Bytes, as they are or in base64, that are taken one part after the other, never more than there are."""

    def __init__(self, data: Any, start: int, end: int, raw: bool):
        self.data, self.at, self.end, self.raw = data, start, end, raw
        self.rest = b""  # decoded and not taken: two parts may share a group of letters

    def take(self, length: int) -> bytes:
        """The next bytes."""
        count = length if self.raw else -(-(length - len(self.rest)) // 3) * 4
        if count > self.end - self.at:
            what = "bytes" if self.raw else "letters of base64"
            raise ValueError(f"it needs {count} {what}; {self.end - self.at} are left")
        found = self.data[self.at : self.at + count]
        self.at += count
        if self.raw:
            return found
        try:
            decoded = base64.b64decode(found, validate=True)
        except binascii.Error as error:
            raise ValueError(f"its base64 is broken ({error})") from error
        found = self.rest + decoded if self.rest else decoded
        if len(found) < length:
            raise ValueError(f"its base64 holds {len(found)} of {length} bytes")
        self.rest = found[length:]
        return found[:length]


def from_text(text: bytes, kind: np.dtype, size: int | None) -> np.ndarray:
    """Numbers that are written out, as a type that can hold them."""
    if size is not None and size > len(text) // 2 + 1:
        raise ValueError(f"it must hold {size} numbers; its text has {len(text)} letters")
    words = text.split()
    if size is not None and len(words) != size:
        raise ValueError(f"it must hold {size} numbers; it holds {len(words)}")
    if not words:
        return np.zeros(0, kind)
    if max(map(len, words)) > 60:
        raise ValueError(f"{_short(max(words, key=len))} is no number")
    try:
        if kind.kind == "f":
            with np.errstate(over="ignore"):
                return np.array(words).astype(np.float64).astype(kind)
        found = np.array([int(word) for word in words], object)
        limits = np.iinfo(kind)
        if min(found) < limits.min or max(found) > limits.max:
            raise ValueError(f"a number is beyond {kind}")
        return found.astype(kind)
    except ValueError as error:
        raise ValueError(f"it must hold numbers; {_short(str(error))}") from error


def _parse_elements(data: Any, end: int, closed: bool) -> Element:
    """The elements of the first `end` bytes; with `closed` they are the whole document."""
    top = Element("")
    stack = [top]
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.buffer_size = 1 << 20

    def refuse(*_: Any) -> None:
        raise ValueError("it declares a document type, which no VTK file has")

    def begin(tag: str, attributes: dict[str, str]) -> None:
        if len(stack) > _DEEPEST:
            raise ValueError(f"its elements are nested over {_DEEPEST} deep")
        element = Element(tag, attributes)
        stack[-1].children.append(element)
        stack.append(element)

    def text(said: str) -> None:
        if stack[-1].tag == "DataArray":
            stack[-1].text.append(said.encode())

    parser.StartDoctypeDeclHandler = refuse
    parser.StartElementHandler, parser.CharacterDataHandler = begin, text
    parser.EndElementHandler = lambda tag: stack.pop()
    step = 1 << 22
    for start in range(0, end, step):
        parser.Parse(data[start : min(start + step, end)], False)
    if closed:
        parser.Parse(b"", True)
    elif [element.tag for element in stack] != ["", "VTKFile"]:
        raise ValueError("its <AppendedData> stands inside of another element")
    if not top.children:
        raise ValueError("it holds no element")
    return top.children[0]


def _inflate(stream: Any, stored: bytes, length: int) -> bytes:
    """What a stream of the standard library makes of a block; nothing where it does not end."""
    found = stream.decompress(stored, length + 1)
    return found if stream.eof else b""


def _unlz4(stored: bytes, length: int) -> bytes:
    # LZ4 makes at most 255 bytes of one; VTK has the only LZ4 here, and takes the sizes that are checked.
    if length > 255 * len(stored) + 64:
        raise ValueError(f"a block of {len(stored)} bytes cannot unpack to {length}")
    with complaints("a block"):
        found = vtk().io.vtkLZ4DataCompressor().Uncompress(stored, len(stored), length)
    return b"" if found is None else vtk().numpy.vtk_to_numpy(found).tobytes()


_UNPACK: dict[str, Callable[[bytes, int], bytes]] = {
    "vtkZLibDataCompressor": lambda stored, length: _inflate(zlib.decompressobj(), stored, length),
    "vtkLZMADataCompressor": lambda stored, length: _inflate(
        lzma.LZMADecompressor(memlimit=1 << 28), stored, length
    ),
    "vtkLZ4DataCompressor": _unlz4,
}


def _short(said: Any) -> str:
    text = repr(said)
    return text if len(text) <= 60 else f"{text[:57]}..."
