"""Particles in the terminal: every character is two by four dots of Braille."""

from typing import Any

import numpy as np

from ..tracking.trajectory import Trajectory
from .shown import Dims, select

# The bit of each dot of a Braille character, by row and column (Unicode block U+2800).
DOTS = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]])


def terminal_picture(trajectory: Trajectory, at: Any = None, width: int = 72, dims: Dims = None) -> str:
    """Particles at the recorded time nearest to the time or date `at` (default: the last), as lines of text.

    The frame is the box around all positions at all times. Lengths along both axes are to scale where characters are
    twice as high as wide.
    """
    if width < 1:
        raise ValueError(f"`width` must be at least 1 character; got {width}.")
    dims = "xy" if dims is None else dims
    shown = select(trajectory, "id", dims, most=100_000)
    row = len(shown.times) - 1 if at is None else trajectory.row_of(at)
    low, high = shown.extent
    size = np.maximum(high - low, 1e-30)
    lines = int(np.clip(round(width * size[1] / size[0] / 2), 1, 200))
    grid = np.zeros((lines, width), int)
    inside = shown.positions[row][shown.alive[row] | shown.ended[row]][:, :2]
    counts = np.array([2 * width, 4 * lines])
    place = np.clip(((inside - low) / size * counts).astype(int), 0, counts - 1)
    across, down = place[:, 0], counts[1] - 1 - place[:, 1]
    np.bitwise_or.at(grid, (down // 4, across // 2), DOTS[down % 4, across % 2])
    return "\n".join("".join(chr(0x2800 + bits) for bits in line) for line in grid)
