"""Ways to spoil a valid input: bytes, text, JSON, TOML, XML, tables, zip archives, `.npy` headers and HDF5 files."""

import io
import json
import random
import re
import struct
import tomllib
import zipfile
from collections.abc import Callable
from typing import Any

Mutant = Callable[[random.Random, bytes], bytes]
NUMBERS = (
    "0", "-1", "1", "2", "-0.0", "1e999", "-1e999", "nan", "inf", "1e308", "1e-320", "0.5", "9", "10", "255",
    "32768", "2147483647", "2147483648", "-2147483648", "4294967295", "4294967296", "1099511627776",
    "9223372036854775807", "-9223372036854775808", "18446744073709551616", "1" * 40, "9" * 5000, "1_0", "0x10",
    "1e", "١", "", "true", "x",
)  # fmt: skip
WHOLE = (0, 1, 2, 3, 7, 8, 127, 128, 255, 256, 32767, 65535, 10**6, 2**24, 2**31 - 1, 2**31, 2**32 - 1)
WHOLE += (2**32, 2**40, 2**48, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
ODD: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 3, 2**31, 2**63, -(2**63) - 1, 10**30, 10**400, 0.5, -0.0, 1e308, 1e-320, float("nan"),
    float("inf"), "", "x", "a" * 300, "é\u2028\U0001f600", "\x00", "../../etc/passwd", "/etc/passwd", "1", "nan", "é" * 90, [],
    {}, [[]], [None], [1, 2], {"x": 1}, [[1, 2], [3]], {"": {}}, ["a", "b"], [0.5] * 50,
)  # fmt: skip


def spoil_bytes(rng: random.Random, data: bytes) -> bytes:
    """One to four changes anywhere: flipped bits, cuts, blocks lost, doubled or moved, and numbers written over."""
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4))):
        at, size = rng.randrange(len(found) + 1), rng.choice((1, 2, 4, 8, 16, 64, 512))
        match rng.randrange(11):
            case 0 | 1:
                for _ in range(rng.choice((1, 1, 2, 8))):
                    if found:
                        found[rng.randrange(len(found))] ^= 1 << rng.randrange(8)
            case 2:
                del found[at:]
            case 3:
                del found[at : at + size]
            case 4:
                found[at:at] = found[at : at + size] * rng.choice((1, 1, 3))
            case 5:
                found[at:at] = rng.randbytes(size)
            case 6:
                found[at : at + size] = bytes([rng.choice((0, 255, 32, 65))]) * min(size, len(found) - at)
            case 7 | 8:  # a number of a header, most often near the beginning
                at = min(at, rng.choice((len(found), len(found) // 4, 64)))
                kind = rng.choice("BHIQ")
                number = rng.choice(WHOLE) & ((1 << 8 * struct.calcsize(kind)) - 1)
                packed = struct.pack(rng.choice("<>") + kind, number)
                found[at : at + len(packed)] = packed
            case 9:
                block = bytes(found[at : at + size])
                del found[at : at + size]
                to = rng.randrange(len(found) + 1)
                found[to:to] = block
            case 10:
                found[at : at + size] = rng.randbytes(min(size, max(len(found) - at, 0)))
    return bytes(found)


def spoil_encoding(rng: random.Random, data: bytes) -> bytes:
    """Text as no reader expects it: other encodings, marks, zeros, nothing at all, or something else altogether."""
    text = data.decode("utf-8", "replace")
    return rng.choice(
        (
            b"",
            b"\n",
            b"\x00" * 64,
            b"\xff\xfe" + text.encode("utf-16-le", "replace"),
            text.encode("utf-16", "replace"),
            text.encode("utf-32", "replace"),
            b"\xef\xbb\xbf" + data,
            data.replace(b"e", b"\xe9", 3),
            data.replace(b"\n", b"\r\n"),
            data.replace(b"\n", b"\r"),
            data.replace(b" ", b"\x00", 2),
            data + b"\x1a" + data,
            data + data,
            b"\x80\x04\x95" + data[:20],
            b"PK\x03\x04" + data[:60],
            rng.randbytes(200),
            b"[" * 100_000,
            b'{"a":' * 100_000,
            b"(" * 20_000,
            data.swapcase(),
        )
    )


def spoil_text(rng: random.Random, data: bytes) -> bytes:
    """Words and lines: numbers that are none or too large, tokens lost or swapped, lines doubled, words of others."""
    text = data.decode("utf-8", "replace")
    for _ in range(rng.choice((1, 1, 2, 3))):
        tokens = list(re.finditer(r"[A-Za-z_]\w*|[-+.\d]+(?:[eE][-+]?\d+)?|[^\s\w]", text))
        if not tokens:
            break
        one, other = rng.choice(tokens), rng.choice(tokens)
        numbers = [token for token in tokens if token[0][:1] in "-+.0123456789"]
        lines = text.split("\n")
        row, second = rng.randrange(len(lines)), rng.randrange(len(lines))
        match rng.randrange(10):
            case 0 | 1 | 2 if numbers:
                one = rng.choice(numbers)
                text = text[: one.start()] + rng.choice(NUMBERS) + text[one.end() :]
            case 3:
                text = text[: one.start()] + text[one.end() :]
            case 4:
                text = text[: one.start()] + other[0] + text[one.end() :]
            case 5:
                del lines[row]
                text = "\n".join(lines)
            case 6:
                lines.insert(second, lines[row])
                text = "\n".join(lines)
            case 7:
                lines[row], lines[second] = lines[second], lines[row]
                text = "\n".join(lines)
            case 8:
                odd = rng.choice(
                    ("(", ")", "[", "]", "{", '"', "'", "=", "->", ";", ",", "#", "\\", "\x00", "é", "`", "<")
                )
                text = text[: one.start()] + odd * rng.choice((1, 1, 1, 300)) + text[one.start() :]
            case 9:
                text = text[: one.start()] + one[0] * rng.choice((2, 3, 400)) + text[one.end() :]
    return text.encode("utf-8", "replace")


def spoil_tree(rng: random.Random, tree: Any) -> Any:
    """A tree of dicts and lists with one to three of its parts lost, renamed, swapped or replaced by something odd."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        places: list[tuple[Any, Any]] = []

        def walk(node: Any, places: list[tuple[Any, Any]] = places) -> None:
            items = (
                node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
            )
            for key, child in list(items):
                places.append((node, key))
                walk(child)

        walk(tree)
        if not places or rng.random() < 0.02:
            return rng.choice(ODD)
        holder, key = rng.choice(places)
        _, other = other_holder, other_key = rng.choice(places)
        match rng.randrange(9):
            case 0 | 1 | 2 | 3:
                holder[key] = rng.choice(ODD)
            case 4:
                del holder[key]
            case 5:
                holder[key] = [holder[key]]
            case 6:
                holder[key] = json.loads(_dumped(other_holder[other_key]))
            case 7:
                if isinstance(holder, dict):
                    holder[rng.choice(("", "x", str(other), "../x", "é"))] = holder.pop(key)
                else:
                    holder.insert(0, rng.choice(ODD))
            case 8:
                deep: Any = rng.choice(ODD)
                for _ in range(rng.choice((3, 50, 300))):
                    deep = [deep] if rng.random() < 0.5 else {"a": deep}
                holder[key] = deep
        tree = json.loads(_dumped(tree))
    return tree


def _dumped(tree: Any) -> str:
    return json.dumps(tree, default=str)


def spoil_json(rng: random.Random, data: bytes) -> bytes:
    """JSON with a spoiled tree; at times a key comes twice."""
    text = _dumped(spoil_tree(rng, json.loads(data)))
    if rng.random() < 0.1:
        keys = list(re.finditer(r'"\w+": ', text))
        if keys:
            one = rng.choice(keys)
            text = (
                text[: one.start()]
                + one[0]
                + rng.choice(("1, ", "null, ", "[], ", "{}, "))
                + text[one.start() :]
            )
    return text.encode()


def spoil_toml(rng: random.Random, data: bytes) -> bytes:
    """TOML with a spoiled tree."""
    tree = spoil_tree(rng, json.loads(_dumped(tomllib.loads(data.decode()))))
    if not isinstance(tree, dict):
        return _toml(tree).encode()
    return "".join(f"{json.dumps(key)} = {_toml(value)}\n" for key, value in tree.items()).encode(
        "utf-8", "replace"
    )


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {_toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, float):
        return repr(value)
    return "2024-02-30T10:00:00" if value is None else json.dumps(value, ensure_ascii=True)


_BOMB = b'<!DOCTYPE b [<!ENTITY a "aaaaaaaaaa">' + b"".join(
    f'<!ENTITY {new} "{f"&{old};" * 12}">'.encode() for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


def spoil_xml(rng: random.Random, data: bytes) -> bytes:
    """XML with attributes and elements changed; bytes that are appended stay as they are."""
    head, mark, tail = data.partition(b"<AppendedData")
    for _ in range(rng.choice((1, 1, 2, 3))):
        found = list(re.finditer(rb'([\w:]+)="([^"]*)"', head))
        tags = list(re.finditer(rb"<[^>]*>", head))
        if not found or not tags:
            break
        one, other, tag = rng.choice(found), rng.choice(found), rng.choice(tags)
        match rng.randrange(12):
            case 0 | 1 | 2:
                value = rng.choice(NUMBERS).encode() * rng.choice((1, 1, 1, 40))
                head = head[: one.start(2)] + value + head[one.end(2) :]
            case 3 | 4:  # one number of several, such as in an extent
                parts = one[2].split(b" ")
                parts[rng.randrange(len(parts))] = rng.choice(NUMBERS).encode()
                head = head[: one.start(2)] + b" ".join(parts) + head[one.end(2) :]
            case 5:
                head = head[: one.start(2)] + other[2] + head[one.end(2) :]
            case 6:
                head = head[: one.start()] + head[one.end() :]
            case 7:
                head = head[: tag.start()] + head[tag.end() :]
            case 8:
                to = rng.choice(tags).start()
                head = head[:to] + tag[0] + head[to:]
            case 9:
                types = (
                    b"Float32",
                    b"Float64",
                    b"Int8",
                    b"UInt8",
                    b"Int64",
                    b"String",
                    b"ascii",
                    b"binary",
                    b"appended",
                    b"raw",
                )
                types += (
                    b"base64",
                    b"BigEndian",
                    b"UInt64",
                    b"vtkZLibDataCompressor",
                    b"vtkLZ4DataCompressor",
                    b"/dev/zero",
                )
                head = head[: one.start(2)] + rng.choice(types) + head[one.end(2) :]
            case 10:
                number = list(re.finditer(rb">([^<>]*\d[^<>]*)<", head))
                if number:
                    part = rng.choice(number)
                    head = head[: part.start(1)] + spoil_text(rng, part[1]) + head[part.end(1) :]
            case 11:
                odd = rng.choice(
                    (
                        b"&i;",
                        b"<x>" * 50_000,
                        b"<x>" * 300 + b"</x>" * 300,
                        b"]]>",
                        b"\x00",
                        b"&#0;",
                        b"<!--",
                        b"\xff",
                    )
                )
                head = head[: tag.end()] + odd + head[tag.end() :]
                if odd == b"&i;":
                    start = head.find(b"<VTKFile")
                    head = head[:start] + _BOMB + b"]>" + head[start:]
    return head + mark + tail


def spoil_table(rng: random.Random, data: bytes) -> bytes:
    """A table with cells, rows and columns lost, doubled or filled with odd things."""
    rows = [line.split(",") for line in data.decode().split("\n")]
    for _ in range(rng.choice((1, 1, 2, 3))):
        row = rng.choice(rows) if rows else []
        at = rng.randrange(len(row)) if row else 0
        match rng.randrange(7):
            case 0 | 1 | 2 if row:
                odd = (
                    *NUMBERS,
                    '"',
                    '"a\nb"',
                    "a;b",
                    " ",
                    "é",
                    "\x00",
                    "NA",
                    "a" * 200_000,
                    "-> x",
                    "Infinity",
                    "TRUE",
                )
                row[at] = rng.choice(odd)
            case 3 if row:
                del row[at]
            case 4:
                row.insert(at, rng.choice(NUMBERS))
            case 5 if len(rows) > 1:
                rows.remove(row)
            case 6:
                rows.insert(rng.randrange(len(rows) + 1), list(row) * rng.choice((1, 1, 2)))
    return "\n".join(map(",".join, rows)).encode("utf-8", "replace")


def spoil_npy(rng: random.Random, data: bytes) -> bytes:
    """A `.npy` whose header says another shape, type or length."""
    if data[:6] != b"\x93NUMPY":
        return spoil_bytes(rng, data)
    size = struct.unpack("<H", data[8:10])[0]
    head, body = data[10 : 10 + size].decode("latin-1"), data[10 + size :]
    shape = rng.choice(
        (
            "()",
            "(0,)",
            "(1,)",
            "(-1,)",
            "(99999999999,)",
            "(4294967296, 4294967296)",
            "(2,)*3",
            "(1.0,)",
            "(True,)",
            "3",
            "[2]",
            "(1," + "1," * 40 + ")",
            "(9223372036854775807,)",
            "(2, 3)",
            "(0, 99999999999999)",
            "(" * 300,
            "('a',)",
        )
    )
    kind = rng.choice(
        (
            "|O",
            "<f8",
            "<f4",
            "|b1",
            "<U9",
            "<U99999999",
            "|S5",
            "|V8",
            "<M8[s]",
            ">i4",
            "<c16",
            "x",
            "<f16",
            "[('a','<f4')]",
        )
    )
    match rng.randrange(5):
        case 0 | 1:
            head = re.sub(r"'shape': \([^)]*\)", lambda _: f"'shape': {shape}", head)
        case 2:
            head = re.sub(r"'descr': '[^']*'", lambda _: f"'descr': {kind!r}", head)
        case 3:
            head = rng.choice(
                (
                    head.replace("False", "True"),
                    head[: size // 2],
                    "{}",
                    "(" * 3000,
                    head.replace("{", "{'x': 1, "),
                )
            )
        case 4:
            body = spoil_bytes(rng, body)
    text = head.rstrip().encode("latin-1")
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    length = len(text) if rng.random() < 0.9 else rng.choice((0, 1, 65535))
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", length) + text + body


def spoil_zip(rng: random.Random, data: bytes) -> bytes:
    """An archive with members spoiled, lost, doubled, renamed, or of a declared size that they have not."""
    with zipfile.ZipFile(io.BytesIO(data)) as stored:
        members = [(name, stored.read(name)) for name in stored.namelist()]
    for _ in range(rng.choice((1, 1, 2))):
        at = rng.randrange(len(members)) if members else 0
        match rng.randrange(7):
            case 0 | 1 | 2 if members:
                members[at] = (members[at][0], spoil_npy(rng, members[at][1]))
            case 3 if members:
                del members[at]
            case 4 if members:
                odd = (
                    "../../escape.npy",
                    "/escape.npy",
                    "x.npy",
                    "",
                    "header",
                    "header.npy",
                    "a\x00b.npy",
                    "é.npy",
                )
                members[at] = (rng.choice((*odd, members[0][0])), members[at][1])
            case 5 if members:
                members.append(members[at])
            case 6 if members:
                members[at] = (members[at][0], members[rng.randrange(len(members))][1])
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as out:
        for name, content in members:
            import warnings

            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a name that comes twice
                out.writestr(name, content)
        if rng.random() < 0.03:
            out.writestr("bomb.npy", bytes(20_000_000), zipfile.ZIP_DEFLATED)
    found = bytearray(made.getvalue())
    if rng.random() < 0.3:  # sizes in local headers (at 18) and in the directory (at 20)
        marks = [m.start() + 18 for m in re.finditer(b"PK\x03\x04", found)]
        marks += [m.start() + 20 for m in re.finditer(b"PK\x01\x02", found)]
        if marks:
            at = rng.choice(marks) + rng.choice((0, 4, -10, -8))
            found[at : at + 4] = struct.pack("<I", rng.choice((0, 1, 2**31, 2**32 - 1, 10**6)))
    return bytes(found)


def spoil_hdf5(rng: random.Random, data: bytes) -> bytes:
    """A valid HDF5 file whose content is wrong: other types and shapes, lost parts, links, absurd sizes, odd attributes."""
    import h5py
    import numpy as np

    made = io.BytesIO(data)
    with h5py.File(made, "r+") as file:
        for _ in range(rng.choice((1, 1, 2))):
            names = [name for name in file if isinstance(file.get(name), h5py.Dataset)]
            if not names:
                break
            name = rng.choice(names)
            values = file[name]
            odd: Any = rng.choice(
                (
                    0,
                    -1,
                    "x",
                    "",
                    np.nan,
                    np.inf,
                    np.zeros(0),
                    np.arange(3),
                    np.float32(1e30),
                    "é",
                    b"\xff\xfe",
                    np.int64(2**62),
                )
            )
            match rng.randrange(12):
                case 0:
                    del file[name]
                case 1 | 2:
                    keys = [
                        *values.attrs,
                        "_FillValue",
                        "scale_factor",
                        "add_offset",
                        "units",
                        "axis",
                        "coordinates",
                    ]
                    values.attrs[rng.choice(keys)] = odd
                case 3:
                    keys = [*file.attrs, "jaxtrace", "Conventions"]
                    file.attrs[rng.choice(keys)] = odd
                case 4 if values.attrs.keys():
                    key = rng.choice(list(values.attrs))
                    del values.attrs[key]
                case 5:
                    other = values[...] if values.size < 10_000 else np.zeros(3)
                    del file[name]
                    kind = rng.choice(("f2", "f8", "i1", "u8", "S4", "c8", "?"))
                    with np.errstate(all="ignore"):
                        file[name] = (
                            other.astype(kind) if other.dtype.kind in "fiub" else np.zeros(other.shape, kind)
                        )
                case 6:
                    shape = values.shape
                    del file[name]
                    file[name] = np.zeros(
                        rng.choice((shape[::-1], shape[1:], (*shape, 2), (0,), (), (7,))), "f4"
                    )
                case 7 | 8:  # chunks that are not there: nothing in the file, terabytes in memory
                    rank = len(values.shape)
                    del file[name]
                    huge = rng.choice((10**5, 10**7, 2**31, 2**40))
                    shape = tuple(huge for _ in range(max(rank, 1))) if rng.random() < 0.5 else (huge,)
                    extra = {"compression": "gzip"} if rng.random() < 0.5 else {}
                    try:
                        file.create_dataset(
                            name, shape, "f4", chunks=tuple(min(n, 100) for n in shape), **extra
                        )
                    except (ValueError, OSError):
                        file[name] = np.zeros(1)
                case 9:
                    del file[name]
                    file[name] = rng.choice(
                        (
                            h5py.SoftLink("/nowhere"),
                            h5py.SoftLink(f"/{name}"),
                            h5py.ExternalLink("/etc/passwd", "/x"),
                        )
                    )
                case 10:
                    del file[name]
                    file.create_group(name)
                case 11:
                    other = values[...] if values.size < 10_000 else np.zeros(3)
                    if other.dtype.kind == "f" and other.size:
                        other = other.copy()
                        other.reshape(-1)[rng.randrange(other.size)] = rng.choice(
                            (np.nan, np.inf, -np.inf, 1e30)
                        )
                        values[...] = other
                    else:
                        del file[name]
                        file[name] = np.array(["a", "bc"], dtype=h5py.string_dtype())
    return made.getvalue()


def spoil_safetensors(rng: random.Random, data: bytes) -> bytes:
    """Weights whose header says something else, with its length made to fit (mostly)."""
    size = int.from_bytes(data[:8], "little")
    tree = json.loads(data[8 : 8 + size])
    told = tree.get("__metadata__", {})
    if rng.random() < 0.5 and "config" in told:  # the settings are JSON within JSON
        inner = rng.choice([key for key in told if key != "format"] or ["config"])
        told[inner] = spoil_json(rng, told[inner].encode()).decode("utf-8", "replace")
    else:
        tree = spoil_tree(rng, tree)
    text = _dumped(tree).encode()
    length = len(text) if rng.random() < 0.9 else rng.choice(WHOLE)
    return length.to_bytes(8, "little") + text + data[8 + size :]


def spoil_container(rng: random.Random, data: bytes) -> bytes:
    """A file of our store with a spoiled header or blobs, all checksums made to fit: what only the sizes can betray."""
    from jaxworlds.store import _container as c

    def sealed(text: bytes, frames: list[tuple[int, bytes, int | None]], claimed_head: int) -> bytes:
        digest = c.digest16(text)
        digests, body = [], b""
        for index, (codec, stored, claimed) in enumerate(frames):
            digests.append(c._frame_digest(digest, index, codec, stored))
            body += c._FRAME.pack(codec, len(stored) if claimed is None else claimed, digests[-1]) + stored
        total = c._PREFIX.size + len(text) + len(body)
        fields = (c.MAGIC, c.FORMAT_VERSION, claimed_head, total, digest, c.digest16(*digests))
        return c._PREFIX.pack(*fields, c.digest16(c._PREFIX.pack(*fields, bytes(16)))) + text + body

    _, _, length, *_ = c._PREFIX.unpack(data[: c._PREFIX.size])
    at = c._PREFIX.size + length
    text, frames = data[c._PREFIX.size : at], []
    while at < len(data):
        codec, size, _ = c._FRAME.unpack(data[at : at + c._FRAME.size])
        at += c._FRAME.size
        frames.append((codec, data[at : at + size], None))
        at += size
    where = rng.randrange(9)
    if where < 5 or not frames:
        text = (spoil_text if where == 4 else spoil_json)(rng, text)
    elif where == 5:
        k = rng.randrange(len(frames))
        frames[k] = (rng.choice((0, 1, 2, 3, 255)), frames[k][1], None)
    elif where == 6:
        k = rng.randrange(len(frames))
        frames[k] = (frames[k][0], spoil_bytes(rng, frames[k][1]), rng.choice((None, None, *WHOLE)))
    elif where == 7:
        rng.shuffle(frames)
        frames = frames[: rng.randrange(len(frames) + 1)]
    return sealed(text, frames, rng.choice(WHOLE) % 2**64 if where == 8 else len(text))


MUTANTS: dict[str, Mutant] = {
    "bytes": spoil_bytes,
    "encoding": spoil_encoding,
    "text": spoil_text,
    "json": spoil_json,
    "toml": spoil_toml,
    "xml": spoil_xml,
    "table": spoil_table,
    "npy": spoil_npy,
    "zip": spoil_zip,
    "hdf5": spoil_hdf5,
    "safetensors": spoil_safetensors,
    "container": spoil_container,
}
