"""The ten colours of ARC: how the official viewer paints them, what people call them, and which ink reads on them."""

import numpy as np
from jaxtyping import UInt8

_COLORS = {
    "black": "#000000",
    "blue": "#0074D9",
    "red": "#FF4136",
    "green": "#2ECC40",
    "yellow": "#FFDC00",
    "grey": "#AAAAAA",
    "magenta": "#F012BE",
    "orange": "#FF851B",
    "cyan": "#7FDBFF",
    "maroon": "#870C25",
}
ARC_COLORS = tuple(_COLORS.values())
COLOR_NAMES = tuple(_COLORS)
_DARK = frozenset({0, 1, 6, 9})  # colours on which white reads better than black


def color_rgb(color: str) -> tuple[int, int, int]:
    """Red, green and blue, each 0 to 255, of a colour written `#RRGGBB`."""
    return int(color[1:3], 16), int(color[3:5], 16), int(color[5:7], 16)


def arc_palette() -> UInt8[np.ndarray, "10 3"]:
    """Red, green and blue of the ten colours: `arc_palette()[grid]` is a picture of one pixel a cell."""
    return np.array([color_rgb(color) for color in ARC_COLORS], np.uint8)


def readable_ink(color: int) -> str:
    """`"white"` or `"black"`, whichever reads better on a cell of this ARC colour."""
    return "white" if color in _DARK else "black"
