"""Pictures: the files are read back by an independent decoder written here, chunk by chunk."""

import struct
import zlib

import numpy as np
import pytest

from jaxworlds import pictures


def chunks(file: bytes) -> list[tuple[bytes, bytes]]:
    """The chunks of a PNG file, with every checksum verified."""
    assert file[:8] == bytes([137, 80, 78, 71, 13, 10, 26, 10])
    at, found = 8, []
    while at < len(file):
        (length,) = struct.unpack(">I", file[at : at + 4])
        kind, data = file[at + 4 : at + 8], file[at + 8 : at + 8 + length]
        assert struct.unpack(">I", file[at + 8 + length : at + 12 + length])[0] == zlib.crc32(kind + data)
        found.append((kind, data))
        at += 12 + length
    return found


def pixels(data: bytes, shape: tuple[int, int]) -> np.ndarray:
    rows = np.frombuffer(zlib.decompress(data), np.uint8).reshape(shape[0], shape[1] + 1)
    assert (rows[:, 0] == 0).all(), "no row filter"
    return rows[:, 1:]


def test_png_holds_the_picture() -> None:
    picture = np.arange(35, dtype=np.uint8).reshape(5, 7)
    found = dict(chunks(pictures.png(picture)))
    assert struct.unpack(">IIBB", found[b"IHDR"][:10]) == (7, 5, 8, 3)
    assert np.array_equal(pixels(found[b"IDAT"], (5, 7)), picture)
    assert found[b"PLTE"] == pictures.palette().tobytes()


def test_animated_png_holds_every_frame_in_order() -> None:
    frames = [np.full((4, 6), k, np.uint8) for k in range(3)]
    found = chunks(pictures.animated_png(frames, delay_ms=80))
    kinds = [kind for kind, _ in found]
    assert kinds == [b"IHDR", b"acTL", b"PLTE", b"fcTL", b"IDAT", b"fcTL", b"fdAT", b"fcTL", b"fdAT", b"IEND"]
    numbers = [struct.unpack(">I", data[:4])[0] for kind, data in found if kind in (b"fcTL", b"fdAT")]
    assert numbers == list(range(5)), "one running number over controls and frames"
    assert [pixels(data[4:], (4, 6))[0, 0] for kind, data in found if kind == b"fdAT"] == [1, 2]
    with pytest.raises(ValueError, match="at least one picture"):
        pictures.animated_png([])


def test_levels_span_the_palette() -> None:
    assert pictures.levels(np.array([-1.0, 0.0, 0.5, 1.0, 9.0]), 0.0, 1.0).tolist() == [0, 0, 128, 255, 255]
    lightness = pictures.palette().astype(float) @ (0.2126, 0.7152, 0.0722)
    assert (np.diff(lightness) > -0.6).all(), "lighter means more, also without colour vision"
    assert lightness[-1] - lightness[0] > 180


def test_mosaic_puts_tiles_where_they_belong() -> None:
    tiles = np.arange(4.0).reshape(2, 2, 1, 1) * np.ones((2, 2, 3, 3))
    whole = pictures.mosaic(tiles, gap=1, fill=-1.0)
    assert whole.shape == (7, 7)
    assert (whole[3] == -1).all()
    assert (whole[:, 3] == -1).all()
    assert whole[0, 0] == 0
    assert whole[0, 4] == 1
    assert whole[4, 0] == 2


def test_terminal_picture_has_two_pixels_to_a_character() -> None:
    picture = np.repeat(np.array([[0], [255]], np.uint8), 8, axis=1).repeat(4, axis=0)
    text = pictures.terminal(picture, width=8)
    lines = text.plain.splitlines()
    assert len(lines) == 4
    assert all(len(line) == 8 for line in lines)


def test_data_uri() -> None:
    assert pictures.data_uri(b"abc") == "data:image/png;base64,YWJj"
