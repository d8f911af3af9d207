"""Moving particles as one HTML page with a player: no network, a few hundred kilobytes."""

import base64
import html
import json
import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped, UInt8

from ..boundaries.base import AbstractBoundary
from ..boundaries.box import AXES
from ..fields.base import AbstractField
from ..tracking.trajectory import Trajectory
from .colors import KIND_COLORS, KINDS, Look, kind_numbers, limits, scale_colors, scale_numbers, with_unit
from .fields import speed_raster
from .figure_parts import kinds, whole_extent
from .outlines import outlines, periods_of
from .shown import Dims, Shown, select

MOST_DOTS, MOST_FRAMES = 1500, 160
STEPS = 8191
"""Steps along the longest axis: several to a pixel, and few enough that most differences fit into a byte."""
ALIVE, ENDED, JOINED = 1, 2, 4
"""Bits of the state of a particle in a frame."""


def player_html(
    trajectory: Trajectory,
    dims: Dims = None,
    color: str = "speed",
    field: AbstractField | None = None,
    every: int | None = None,
    *,
    boundary: AbstractBoundary | None = None,
    frames: int = MOST_FRAMES,
    seconds: float = 8.0,
    length_unit: str = "",
    time_unit: str = "",
    title: str = "",
) -> str:
    """A page that plays `trajectory` in about `seconds`, with buttons, keys, a slider, speed and trails.

    At most `frames` of the recorded times are kept, and the page moves particles smoothly between them. Drag to turn a
    picture of three axes. The other arguments are those of `plot_paths`.
    """
    shown = select(trajectory, color, dims, every, most=MOST_DOTS, times=frames, periods=periods_of(boundary))
    look = Look(color, length_unit, time_unit, epoch=trajectory.epoch)
    extent = whole_extent(shown, field, boundary)
    facts = {
        "note": shown.note,
        "seconds": seconds,
        "times": [float(f"{time:.6g}") for time in shown.times],
        "timeUnit": time_unit,
        "axes": [with_unit(AXES[axis], length_unit) for axis in shown.dims],
        "extent": extent.tolist(),
        "count": len(shown.numbers),
        "steps": STEPS,
        "outlines": [[line.kind, line.points.tolist()] for line in outlines(boundary, shown.dims)],
        **_color_facts(trajectory, shown, look),
    }
    if trajectory.epoch is not None:
        facts["dates"] = look.frames(shown.times)
    planes = [_places(shown, extent), _states(shown), _levels(shown, color)]
    if field is not None:
        raster = speed_raster(field, shown.times, extent, shown.dims, shown.middle)
        facts["raster"] = list(raster.shape[1:])
        # In 255 levels; 255 where there is no field. Steps of four pack better and are not seen.
        top = float(np.nanmax(raster, initial=0.0)) or 1.0
        level = np.rint(np.nan_to_num(raster) / top * 63) * 4
        planes.append(_changes(np.where(np.isnan(raster), 255, level).astype(np.uint8)))
    payload = base64.b64encode(zlib.compress(b"".join(plane.tobytes() for plane in planes), 6)).decode()
    page = Path(__file__).with_name("player_page.html").read_text(encoding="utf-8")
    # "<" would let a title end the script; JSON may spell it differently.
    data = json.dumps(facts, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    parts = {"TITLE": html.escape(title or "Particles"), "DATA": data, "PAYLOAD": payload}
    return re.sub("@(TITLE|DATA|PAYLOAD)@", lambda mark: parts[mark[1]], page)


def _color_facts(trajectory: Trajectory, shown: Shown, look: Look) -> dict[str, Any]:
    """The colours by number, and their explanation: the ends of a scale, or names with counts."""
    if look.color in KINDS:
        # On the page's dark ground, black would be invisible and blue hard to see.
        lighter = {"#000000": "#FFFFFF", "#0072B2": "#56B4E9", "#56B4E9": "#0072B2"}
        palette = [lighter.get(c, c) for c in KIND_COLORS]
        found = kinds(trajectory, look.color)
        rows = [[int(kind_numbers(number)), f"{name}: {count:,}"] for number, name, count in found]
        return {"palette": palette, "kinds": rows}
    palette = ["#{:02x}{:02x}{:02x}".format(*rgb) for rgb in scale_colors(dark=True)[::8]]
    ends = limits(look.color, shown.values[shown.alive])
    label, marks = look.scale(*ends)
    facts = {"palette": palette, "label": label, "limits": list(ends)}
    return facts if marks is None else {**facts, "marks": marks}


def _places(shown: Shown, extent: Float[np.ndarray, "2 axes"]) -> UInt8[np.ndarray, " bytes"]:
    """Positions in steps along the longest axis, each as the difference to the frame before.

    Low bytes come first, then high bytes; the sign is the lowest bit. Most high bytes are zero and compress to nothing.
    """
    step = max(float((extent[1] - extent[0]).max()), 1e-30) / STEPS
    places = (
        np.rint(np.nan_to_num((shown.positions - extent[0]) / step)).clip(-STEPS, 2 * STEPS).astype(np.int32)
    )
    way = np.diff(places, axis=0, prepend=np.zeros_like(places[:1]))
    folded = np.where(way < 0, -2 * way - 1, 2 * way).astype(np.uint16).ravel()
    return np.concatenate([folded & 255, folded >> 8]).astype(np.uint8)


def _states(shown: Shown) -> UInt8[np.ndarray, " bytes"]:
    """Alive, ended, and whether the path goes on to the next frame, as bits."""
    on = np.concatenate([shown.joined, np.zeros((1, len(shown.numbers)), bool)])
    return _changes((ALIVE * shown.alive + ENDED * shown.ended + JOINED * on).astype(np.uint8))


def _levels(shown: Shown, color: str) -> UInt8[np.ndarray, " bytes"]:
    """The number of each particle's colour in the palette."""
    if color in KINDS:
        return _changes(kind_numbers(shown.values.astype(int)).astype(np.uint8))
    count = len(scale_colors(dark=True)[::8])
    numbers = scale_numbers(shown.values, limits(color, shown.values[shown.alive]), count)
    return _changes(numbers.astype(np.uint8))


def _changes(rows: Shaped[np.ndarray, "times ..."]) -> UInt8[np.ndarray, " bytes"]:
    """Bytes as the difference to those of the frame before, which are mostly zero."""
    return np.diff(rows, axis=0, prepend=np.zeros_like(rows[:1])).astype(np.uint8).ravel()
