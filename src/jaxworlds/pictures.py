"""Pictures without a plotting library: colours, PNG and animated PNG, and half-block pictures for the terminal."""

import base64
import struct
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Shaped, UInt8

if TYPE_CHECKING:
    from rich.text import Text

# Nine anchors of matplotlib's viridis: monotone in lightness, readable with any colour vision.
_COLOURS = bytes.fromhex("440154 472d7b 3b528b 2c728e 21918c 28ae80 5ec962 addc30 fde725")
_VIRIDIS = np.frombuffer(_COLOURS, np.uint8).reshape(-1, 3).astype(np.float64)


def palette() -> UInt8[np.ndarray, "256 3"]:
    """The 256 colours of `levels`, from dark violet to yellow."""
    at = np.linspace(0, len(_VIRIDIS) - 1, 256)
    anchors = np.arange(len(_VIRIDIS))
    return np.stack([np.rint(np.interp(at, anchors, c)) for c in _VIRIDIS.T], axis=-1).astype(np.uint8)


def levels(values: Shaped[np.ndarray, "*shape"], low: float, high: float) -> UInt8[np.ndarray, "*shape"]:
    """Numbers as indices of the palette, from `low` to `high`, clipped at both ends."""
    part = (np.asarray(values, np.float64) - low) / max(high - low, 1e-12)
    return np.rint(255 * np.clip(part, 0.0, 1.0)).astype(np.uint8)


def mosaic(
    tiles: Float[np.ndarray, "rows cols height width"], gap: int = 2, fill: float = 0.0
) -> Float[np.ndarray, "h w"]:
    """Lay tiles out as one picture with a gap between them."""
    padded = np.pad(tiles, ((0, 0), (0, 0), (0, gap), (0, gap)), constant_values=fill)
    rows, cols, height, width = padded.shape
    return padded.transpose(0, 2, 1, 3).reshape(rows * height, cols * width)[: -gap or None, : -gap or None]


Picture = UInt8[np.ndarray, "height width"]


def animated_png(
    frames: Sequence[Picture], delay_ms: int = 100, colors: UInt8[np.ndarray, "n 3"] | None = None
) -> bytes:
    """Pictures as an animated PNG that repeats for ever; one frame makes a plain PNG.

    A picture holds numbers of `colors`, by default those of `palette`. Of each frame after the first only the rectangle
    that changed is stored.
    """
    if not frames:
        raise ValueError("`frames` must hold at least one picture; got none.")
    height, width = frames[0].shape
    several = len(frames) > 1
    out = [b"\x89PNG\r\n\x1a\n", _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0))]
    if several:
        out.append(_chunk(b"acTL", struct.pack(">II", len(frames), 0)))
    out.append(_chunk(b"PLTE", (palette() if colors is None else colors).tobytes()))
    sequence, shown = 0, None
    for frame in frames:
        top, left, bottom, right = _changed_box(shown, frame)
        if several:
            place = (right - left, bottom - top, left, top)
            out.append(_chunk(b"fcTL", struct.pack(">IIIIIHHBB", sequence, *place, delay_ms, 1000, 0, 0)))
        kind, head = (b"IDAT", b"") if shown is None else (b"fdAT", struct.pack(">I", sequence + 1))
        rows = np.pad(frame[top:bottom, left:right], ((0, 0), (1, 0)))  # each row after its filter, 0: none
        out.append(_chunk(kind, head + zlib.compress(rows.tobytes(), 6)))
        sequence, shown = sequence + (1 if shown is None else 2), frame
    return b"".join([*out, _chunk(b"IEND", b"")])


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _changed_box(shown: Picture | None, frame: Picture) -> tuple[int, int, int, int]:
    """Top, left, bottom and right of what differs between two frames; one pixel where nothing does."""
    if shown is None:
        return 0, 0, *frame.shape
    rows, cols = np.nonzero(shown != frame)
    if not rows.size:
        return 0, 0, 1, 1
    return int(rows.min()), int(cols.min()), int(rows.max()) + 1, int(cols.max()) + 1


def png(picture: UInt8[np.ndarray, "height width"]) -> bytes:
    """A picture of palette levels as a PNG file."""
    return animated_png([picture])


def data_uri(picture: bytes) -> str:
    """A picture as a `data:` address for HTML."""
    return "data:image/png;base64," + base64.b64encode(picture).decode()


def terminal(picture: UInt8[np.ndarray, "height width"], width: int = 64) -> "Text":
    """A picture of palette levels for the terminal: two pixels to a character."""
    from rich.style import Style
    from rich.text import Text

    height = max(2, round(width * picture.shape[0] / picture.shape[1] / 2) * 2)
    rows = np.linspace(0, picture.shape[0] - 1, height).round().astype(int)
    cols = np.linspace(0, picture.shape[1] - 1, width).round().astype(int)
    small = palette()[picture[rows][:, cols]]
    text = Text(no_wrap=True)
    for upper, lower in zip(small[::2], small[1::2], strict=True):
        for top, bottom in zip(upper, lower, strict=True):
            style = Style(color="rgb({},{},{})".format(*top), bgcolor="rgb({},{},{})".format(*bottom))
            text.append("▀", style)
        text.append("\n")
    return text
