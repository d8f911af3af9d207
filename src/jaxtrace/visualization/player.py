"""Moving particles as one HTML page that plays by itself: no network, a canvas, a few hundred kilobytes."""

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
from .colors import (
    KINDS,
    NONE,
    OUTCOME_COLORS,
    limits,
    scale_colors,
    scale_label,
    scale_ticks,
    with_unit,
)
from .drawing import Look, kinds, whole_extent
from .fields import speed_raster
from .outlines import outlines, periods_of
from .shown import Dims, Shown, select

MOST_DOTS, MOST_FRAMES = 1500, 160
STEPS = 8191
"""Places along the longest axis: several to a pixel, and few enough that differences fit into a byte or so."""
ALIVE, ENDED, JOINED = 1, 2, 4
"""What a particle's byte for a frame says."""


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
    """A page that plays `trajectory` in about `seconds`: play and pause, a slider, speed, trails; keys work too.

    At most `frames` of the recorded times are kept, and the page moves particles smoothly between them. Three axes
    can be turned by dragging. The other arguments are those of `plot_paths`.
    """
    shown = select(trajectory, color, dims, every, most=MOST_DOTS, times=frames, periods=periods_of(boundary))
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
        **_color_facts(trajectory, shown, color, (length_unit, time_unit)),
    }
    if trajectory.epoch is not None:
        facts["dates"] = Look(color, epoch=trajectory.epoch).frames(shown.times)
    planes = [_places(shown, extent), _states(shown), _levels(shown, color)]
    if field is not None:
        raster = speed_raster(field, shown.times, extent, shown.dims, shown.middle)
        facts["raster"] = list(raster.shape[1:])
        planes.append(_raster_levels(raster))
    payload = base64.b64encode(zlib.compress(b"".join(plane.tobytes() for plane in planes), 6)).decode()
    page = Path(__file__).with_name("player_page.html").read_text(encoding="utf-8")
    # "<" would let a title end the script; JSON may spell it differently.
    data = json.dumps(facts, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    parts = {"TITLE": html.escape(title or "Particles"), "DATA": data, "PAYLOAD": payload}
    return re.sub("@(TITLE|DATA|PAYLOAD)@", lambda mark: parts[mark[1]], page)


def _color_facts(trajectory: Trajectory, shown: Shown, color: str, units: tuple[str, str]) -> dict[str, Any]:
    """The colours by number, and what explains them: the ends of a scale, or names with counts."""
    if color in KINDS:
        # On the page's dark ground, black would be invisible and blue hard to see.
        lighter = {"#000000": "#FFFFFF", "#0072B2": "#56B4E9", "#56B4E9": "#0072B2"}
        palette = [lighter.get(c, c) for c in (*OUTCOME_COLORS, NONE)]
        rows = [
            [_kind_level(number), f"{name}: {count:,}"] for number, name, count in kinds(trajectory, color)
        ]
        return {"palette": palette, "kinds": rows}
    low, high = limits(color, shown.values[shown.alive])
    palette = ["#{:02x}{:02x}{:02x}".format(*rgb) for rgb in scale_colors(dark=True)[::8]]
    look = Look(color, *units, epoch=trajectory.epoch)
    facts = {
        "palette": palette,
        "label": scale_label(color, look.length_unit, look.speed_unit),
        "limits": [low, high],
    }
    marked = scale_ticks(color, low, high, look.epoch, look.time_unit)
    return facts if marked is None else {**facts, "label": marked[0], "marks": marked[1]}


def _kind_level(number: int) -> int:
    return len(OUTCOME_COLORS) if number < 0 else number % len(OUTCOME_COLORS)


def _places(shown: Shown, extent: Float[np.ndarray, "2 axes"]) -> UInt8[np.ndarray, " bytes"]:
    """Positions as whole steps of the longest axis, each as the difference to the frame before.

    Low bytes first, then high bytes; the sign is the lowest bit. So most high bytes are zero and pack to nothing.
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
        return _changes(np.vectorize(_kind_level, otypes=[np.uint8])(shown.values.astype(int)))
    low, high = limits(color, shown.values[shown.alive])
    last = len(scale_colors(dark=True)[::8]) - 1
    share = np.nan_to_num((shown.values - low) / (high - low)).clip(0, 1)
    return _changes(np.rint(share * last).astype(np.uint8))


def _raster_levels(raster: Float[np.ndarray, "times height width"]) -> UInt8[np.ndarray, " bytes"]:
    """The field's speed in 255 levels; 255 where there is no field. Steps of four pack better and are not seen."""
    top = float(np.nanmax(raster, initial=0.0)) or 1.0
    level = np.rint(np.nan_to_num(raster) / top * 63) * 4
    return _changes(np.where(np.isnan(raster), 255, level).astype(np.uint8))


def _changes(rows: Shaped[np.ndarray, "times ..."]) -> UInt8[np.ndarray, " bytes"]:
    """Bytes as the difference to those of the frame before, which are mostly zero."""
    return np.diff(rows, axis=0, prepend=np.zeros_like(rows[:1])).astype(np.uint8).ravel()
