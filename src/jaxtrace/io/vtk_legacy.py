"""Legacy VTK files (`# vtk DataFile`) read with NumPy: VTK's own reader ends the process on damaged ones, or never ends.

A number that a file declares is compared with the bytes that are left before anything is made of it.
"""

import math
import urllib.parse
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .series import DatasetError
from .vtk_data import LARGEST, Unread, VtkData, checked_cells, checked_extent
from .vtk_xml import numbers_of

_TYPES = {
    "char": "i1", "signed_char": "i1", "unsigned_char": "u1", "short": "i2", "unsigned_short": "u2", "int": "i4",
    "unsigned_int": "u4", "long": "i8", "unsigned_long": "u8", "vtktypeint64": "i8", "vtktypeuint64": "u8",
    "long_long": "i8", "unsigned_long_long": "u8", "float": "f4", "double": "f8", "bit": "?",
    "vtkidtype": "i4",  # VTK writes its 64-bit numbers as 32 bits under this name
}  # fmt: skip
_KINDS = {
    "STRUCTURED_POINTS": "ImageData", "STRUCTURED_GRID": "StructuredGrid", "RECTILINEAR_GRID": "RectilinearGrid",
    "UNSTRUCTURED_GRID": "UnstructuredGrid", "POLYDATA": "PolyData",
}  # fmt: skip
_GROUPS = {"VERTICES": 1, "LINES": 3, "POLYGONS": 7, "TRIANGLE_STRIPS": 6}
"""Cells of polygonal data in the order in which VTK numbers them, with their type."""
_WIDTHS = {"VECTORS": 3, "NORMALS": 3, "TENSORS": 9, "TENSORS6": 6, "GLOBAL_IDS": 1, "PEDIGREE_IDS": 1}


def read_legacy(path: Path) -> VtkData:
    """The data set in a legacy file."""
    text = path.read_bytes()
    try:
        reader = _Reader(text)
        found = reader.whole()
    except (ValueError, OverflowError) as error:
        raise DatasetError(f"{path}: the file cannot be used: {error}. It is damaged or cut off.") from error
    if text[-1:].strip() and not reader.binary:
        warnings.warn(
            f"{path}: the text does not end with a line end; if it was cut off there, its last number is wrong.",
            UserWarning,
            stacklevel=2,
        )
    return found


class _Reader:
    """A file and the place that has been reached in it."""

    def __init__(self, text: bytes):
        self.text, self.at = text, 0
        self.made: dict[str, Any] = {"point_data": {}, "cell_data": {}, "field_data": {}}
        self.unread: Unread = {}
        self.groups: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        self.axes: dict[str, np.ndarray] = {}
        self.target: dict[str, np.ndarray] = self.made["field_data"]
        self.count: int | None = None

    def whole(self) -> VtkData:
        if not self.text.startswith(b"# vtk DataFile Version"):
            raise ValueError(
                f"it must begin with '# vtk DataFile Version'; it begins with {self.text[:20]!r}"
            )
        self.line()
        self.line()
        form = self.word().upper()
        if form not in ("ASCII", "BINARY"):
            raise ValueError(f"its third line must be ASCII or BINARY; it is {form[:40]!r}")
        self.binary = form == "BINARY"
        if self.word().upper() != "DATASET":
            raise ValueError("it holds no DATASET")
        kind = self.word().upper()
        if kind not in _KINDS:
            raise ValueError(f"it is no data set on a grid or mesh, but {kind[:40]!r}")
        self.kind: Any = _KINDS[kind]
        while (word := self.word(end=True).upper()) != "":
            self.section(word)
        return self.finished()

    def section(self, word: str) -> None:
        """One part of the file, by the word it begins with."""
        simple: dict[str, Callable[[], None]] = {
            "DIMENSIONS": self.dimensions,
            "EXTENT": self.extent,
            "SPACING": lambda: self.made.update(spacing=self.reals()),
            "ASPECT_RATIO": lambda: self.made.update(spacing=self.reals()),
            "ORIGIN": lambda: self.made.update(origin=self.reals()),
            "POINTS": self.points,
            "METADATA": self.metadata,
            "FIELD": self.field,
            "CELLS": lambda: self.cells("CELLS"),
            "CELL_TYPES": self.cell_types,
        }
        if word in simple:
            simple[word]()
        elif word in _GROUPS:
            self.cells(word)
        elif word in ("X_COORDINATES", "Y_COORDINATES", "Z_COORDINATES"):
            size = self.whole_number(word)
            self.axes[word[0]] = self.values(self.type_of(self.word()), size, word)
        elif word in ("POINT_DATA", "CELL_DATA"):
            self.count = self.whole_number(word)
            self.target = self.made[word.lower()]
        elif self.count is not None:
            self.attribute(word, self.count)
        else:
            raise ValueError(f"at byte {self.at} stands {word[:40]!r}, which no such file has")

    def attribute(self, word: str, count: int) -> None:
        """One array of the points or cells."""
        if word == "LOOKUP_TABLE":
            self.word()
            size = self.whole_number(word)
            self.values(np.dtype("u1" if self.binary else "f4"), 4 * size, word)
            return
        name = urllib.parse.unquote(self.word())
        if word == "COLOR_SCALARS":
            width = self.whole_number(word)
            self.keep(name, self.values(np.dtype("u1" if self.binary else "f4"), count * width, name), width)
        elif word == "SCALARS":
            kind = self.type_of(self.word())
            rest = self.line().split()
            width = _whole(rest[0], word) if rest else 1
            if self.word().upper() != "LOOKUP_TABLE":
                raise ValueError(f"array {name[:60]!r} names no LOOKUP_TABLE")
            self.word()
            self.keep(name, self.values(kind, count * width, name), width)
        elif word == "TEXTURE_COORDINATES":
            width = self.whole_number(word)
            self.keep(name, self.values(self.type_of(self.word()), count * width, name), width)
        elif word in _WIDTHS:
            width = _WIDTHS[word]
            self.keep(name, self.values(self.type_of(self.word()), count * width, name), width)
        else:
            raise ValueError(f"at byte {self.at} stands {word[:40]!r}, which no such file has")

    def field(self) -> None:
        """Arrays with a name, width and length of their own."""
        self.word()
        for _ in range(self.whole_number("FIELD")):
            name = urllib.parse.unquote(self.word())
            if name == "METADATA":  # of the array before
                self.metadata()
                name = urllib.parse.unquote(self.word())
            width, rows = self.whole_number(name), self.whole_number(name)
            said = self.word().lower()
            if said in ("string", "utf8_string"):
                self.strings(width * rows, name)
                continue
            values = self.values(self.type_of(said), width * rows, name)
            if self.count is not None and rows != self.count:
                raise ValueError(f"array {name[:60]!r} has {rows} values for {self.count} points or cells")
            self.keep(name, values, width)

    def strings(self, count: int, name: str) -> None:
        """Go over an array of texts: a line each, or each behind its length, of which two bits say how long it is."""
        if count > len(self.text) - self.at:
            raise ValueError(
                f"array {name[:60]!r} must hold {count} texts; {len(self.text) - self.at} bytes are left"
            )
        self.line()
        for _ in range(count):
            if not self.binary:
                self.line()
                continue
            first = self.text[self.at : self.at + 1]
            width = (8, 4, 2, 1)[first[0] >> 6] if first else 1
            length = int.from_bytes(self.text[self.at : self.at + width], "big") & (
                (1 << (8 * width - 2)) - 1
            )
            self.at += width + length
            if self.at > len(self.text):
                raise ValueError(f"array {name[:60]!r} ends behind the end of the file")

    def keep(self, name: str, values: np.ndarray, width: int) -> None:
        if self.target is not self.made["field_data"] and name in self.target:
            centring = "node" if self.target is self.made["point_data"] else "cell"
            self.unread[centring, name] = (width, "is there several times; leave one of them")
        self.target[name] = values if width == 1 else values.reshape(-1, width)

    def dimensions(self) -> None:
        counts = [self.whole_number("DIMENSIONS") for _ in range(3)]
        if min(counts) < 1:
            raise ValueError(f"DIMENSIONS must be at least 1; they are {counts}")
        self.made["extent"] = checked_extent([k for n in counts for k in (0, n - 1)], "DIMENSIONS")

    def extent(self) -> None:
        try:
            numbers = [int(self.word()) for _ in range(6)]
        except ValueError:
            raise ValueError("EXTENT must be six whole numbers") from None
        self.made["extent"] = checked_extent(numbers, "EXTENT")

    def reals(self) -> tuple[float, ...]:
        words = [self.word() for _ in range(3)]
        try:
            found = tuple(map(float, words))
        except ValueError:
            found = ()
        if len(found) != 3 or not all(map(math.isfinite, found)):
            raise ValueError(f"SPACING and ORIGIN must be three numbers; got {str(words)[:60]}")
        return found

    def points(self) -> None:
        size = self.whole_number("POINTS")
        self.made["points"] = self.values(self.type_of(self.word()), 3 * size, "POINTS").reshape(-1, 3)

    def cells(self, word: str) -> None:
        """Cells as bounds and corners (since version 5), or each with its number of corners in front."""
        first, second = self.whole_number(word), self.whole_number(word)
        mark = self.at
        if self.word(end=True).upper() == "OFFSETS":
            offsets = self.values(self.type_of(self.word()), first, word)
            if self.word().upper() != "CONNECTIVITY":
                raise ValueError(f"{word} have no CONNECTIVITY")
            corners = self.values(self.type_of(self.word()), second, word)
            if offsets.dtype.kind == "f" or corners.dtype.kind == "f":
                raise ValueError(f"{word} must be whole numbers")
            self.groups[word] = checked_cells(offsets, corners, max(first - 1, 0), word) if first else _NONE
            return
        self.at = mark
        listed = self.values(np.dtype("i4"), second, word).tolist()
        offsets, corners, at = [0], [], 0
        for _ in range(first):
            size = listed[at] if at < len(listed) else -1
            if size < 0 or at + 1 + size > len(listed):
                raise ValueError(f"{word} must list {first} cells in {second} numbers and do not")
            corners += listed[at + 1 : at + 1 + size]
            offsets.append(len(corners))
            at += 1 + size
        if at != len(listed):
            raise ValueError(f"{word} must list {first} cells in {second} numbers and do not")
        self.groups[word] = np.array(offsets), np.array(corners, np.int64)

    def cell_types(self) -> None:
        self.made["types"] = self.values(
            np.dtype("i4"), self.whole_number("CELL_TYPES"), "CELL_TYPES"
        ).astype(np.int64)

    def metadata(self) -> None:
        """Go over notes on an array, which end with an empty line."""
        self.line()
        while self.at < len(self.text) and self.line().strip():
            pass

    def finished(self) -> VtkData:
        made = self.made
        if self.kind in ("ImageData", "RectilinearGrid", "StructuredGrid") and "extent" not in made:
            raise ValueError("it says no DIMENSIONS")
        if self.kind in ("StructuredGrid", "UnstructuredGrid", "PolyData") and "points" not in made:
            raise ValueError("it holds no POINTS")
        if self.kind == "RectilinearGrid":
            if sorted(self.axes) != ["X", "Y", "Z"]:
                raise ValueError("it must hold X_COORDINATES, Y_COORDINATES and Z_COORDINATES")
            made["axes"] = tuple(self.axes[name] for name in "XYZ")
        if self.kind == "UnstructuredGrid":
            made["offsets"], made["corners"] = self.groups.get("CELLS", _NONE)
            made.setdefault("types", np.zeros(0, np.int64))
            if len(made["types"]) != len(made["offsets"]) - 1:
                raise ValueError(f"it names {len(made['types'])} types of {len(made['offsets']) - 1} cells")
        elif self.kind == "PolyData":
            made.pop("types", None)
            parts = [(kind, *self.groups[word]) for word, kind in _GROUPS.items() if word in self.groups]
            ends = np.cumsum([0, *(len(corners) for _, _, corners in parts)])
            bounds = [offsets[1:] + end for (_, offsets, _), end in zip(parts, ends, strict=False)]
            made["types"] = np.concatenate(
                [np.zeros(0, np.int64), *(np.full(len(o) - 1, k) for k, o, _ in parts)]
            )
            made["offsets"] = np.concatenate([np.zeros(1, np.int64), *bounds])
            made["corners"] = np.concatenate([np.zeros(0, np.int64), *(corners for *_, corners in parts)])
        else:
            made.pop("types", None)
        for centring, name in self.unread:
            made["point_data" if centring == "node" else "cell_data"].pop(name)
        return VtkData(self.kind, **made, unread=self.unread)

    def line(self) -> str:
        """The rest of this line, and on to the next."""
        end = self.text.find(b"\n", self.at)
        end = len(self.text) if end < 0 else end
        found = self.text[self.at : end]
        self.at = end + 1
        return found.decode("latin-1")

    def word(self, end: bool = False) -> str:
        """The next word; with `end` an empty one at the end of the file."""
        text, at = self.text, self.at
        while at < len(text) and text[at] in b" \t\r\n\v\f":
            at += 1
        start = at
        while at < len(text) and text[at] not in b" \t\r\n\v\f":
            at += 1
            if at - start > 4096:
                raise ValueError(f"at byte {start} stands a word of over 4096 letters")
        self.at = at
        if at == start and not end:
            raise ValueError("it ends in the middle")
        return text[start:at].decode("latin-1")

    def whole_number(self, what: str) -> int:
        return _whole(self.word(), what)

    def type_of(self, word: str) -> np.dtype:
        if word.lower() not in _TYPES:
            raise ValueError(f"numbers of the type {word[:40]!r} are not read; known are {', '.join(_TYPES)}")
        return np.dtype(_TYPES[word.lower()])

    def values(self, kind: np.dtype, size: int, what: str) -> np.ndarray:
        """The next numbers: big-endian bytes from the next line on, or words."""
        if kind.kind == "b":  # single bits, eight to a byte
            packed = self.values(np.dtype("u1"), -(-size // 8) if self.binary else size, what)
            return np.unpackbits(packed, count=size) if self.binary else packed
        what = f"array {what[:60]!r}"
        if self.binary:
            self.line()
            left = len(self.text) - self.at
            if size * kind.itemsize > left:
                raise ValueError(f"{what} needs {size * kind.itemsize} bytes; {max(left, 0)} are left")
            found = np.frombuffer(self.text, kind.newbyteorder(">"), size, self.at).astype(kind)
            self.at += size * kind.itemsize
            return found
        left = len(self.text) - self.at
        if size > left // 2 + 1:
            raise ValueError(f"{what} needs {size} numbers; {max(left, 0)} letters are left")
        if not size:
            return np.zeros(0, kind)
        reach = 16 * size + 64
        while True:  # as much text as the words need: more than 16 letters each are rare
            part = self.text[self.at : self.at + reach]
            words = part.split(None, size)
            if len(words) > size or self.at + reach >= len(self.text):
                break
            reach *= 2
        self.at += len(part) - (len(words[size]) if len(words) > size else 0)
        try:
            return numbers_of(words[:size], kind, size)
        except ValueError as error:
            raise ValueError(f"{what}: {error}") from error


_NONE = (np.zeros(1, np.int64), np.zeros(0, np.int64))


def _whole(word: str, what: str) -> int:
    try:
        found = int(word)
    except ValueError:
        found = -1
    if not 0 <= found <= max(LARGEST, 2**40):
        raise ValueError(f"{what[:60]!r} needs a whole number from 0; got {word[:40]!r}")
    return found
