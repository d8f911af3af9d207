"""The action history: every step of the episode in 4 bytes (point), 8 (box) or one word per row and one more (mask)."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int32, UInt32

from ..tasks import planes
from .config import JaxArcConfig
from .operations import bounding_box
from .structured_actions import FORMATS, AbstractAction

UNKNOWN_OPERATION = 63
"""The record of an operation that does not exist."""

# Layout of a record's first word, from bit 0: operation 6, valid 1, exact 1, episode mode 1; then for a point row 5,
# column 5 and pair 13; for the others pair 23. A box's corners are 5 bits each in the second word; a mask's rows follow.
_VALID, _EXACT, _MODE, _REST = 6, 7, 8, 9


class ActionHistory(eqx.Module):
    """The steps of the current episode, packed; `words` is None if the history is off.

    Rows from `length` on are left over from earlier episodes.

    A selection is kept exactly if it fits the format; of any other the box (or its top-left corner) is kept, and the
    record says that it is not exact. Coordinates outside of 0 to 31 are kept as the nearest of these.
    """

    words: UInt32[Array, "*b steps words"] | None
    length: Int32[Array, "*b"]
    format: str = eqx.field(static=True)

    @property
    def nbytes(self) -> int:
        """Bytes that the history takes."""
        return 0 if self.words is None else self.words.nbytes

    @property
    def capacity(self) -> int:
        """Steps that fit: the length of the longest episode, or 0 if the history is off."""
        return 0 if self.words is None else self.words.shape[-2]


def empty_history(config: JaxArcConfig) -> ActionHistory:
    """A history for one environment, without a step in it."""
    height, _ = config.canvas
    width = {"point": 1, "bbox": 2, "mask": 1 + height}[config.action.selection_format]
    steps = config.environment.max_episode_steps
    words = jnp.zeros((steps, width), jnp.uint32) if config.action.history else None
    return ActionHistory(words, jnp.zeros((), jnp.int32), config.action.selection_format)


def remember(
    history: ActionHistory,
    action: AbstractAction,
    selection: UInt32[Array, " rows"],
    valid: Bool[Array, ""],
    placed: Bool[Array, ""],
    mode: Int32[Array, ""],
    pair: Int32[Array, ""],
    counts: Bool[Array, ""],
) -> ActionHistory:
    """The history with one more step at its end, if the step `counts`; `placed` says that it was on the canvas."""
    length = history.length + counts
    if history.words is None:
        return ActionHistory(None, length, history.format)
    known = (action.operation >= 0) & (action.operation < UNKNOWN_OPERATION)
    operation = jnp.where(known, action.operation, UNKNOWN_OPERATION).astype(jnp.uint32)
    corners, exact = _corners(history.format, action, selection, placed)
    head = operation | _bit(valid, _VALID) | _bit(exact, _EXACT) | _bit(mode == 1, _MODE)
    pair_bits = pair.astype(jnp.uint32)
    if history.format == "point":
        word = head | (corners[0] << _REST) | (corners[1] << (_REST + 5)) | (pair_bits << (_REST + 10))
        record = word[None]
    elif history.format == "bbox":
        box = corners[0] | (corners[1] << 5) | (corners[2] << 10) | (corners[3] << 15)
        record = jnp.stack([head | (pair_bits << _REST), box])
    else:
        record = jnp.concatenate([(head | (pair_bits << _REST))[None], selection])
    place = jnp.where(counts, history.length, history.capacity)
    return ActionHistory(history.words.at[place].set(record, mode="drop"), length, history.format)


def _bit(flag: Array, place: int) -> Array:
    return flag.astype(jnp.uint32) << place


def _corners(form: str, action: AbstractAction, selection: Array, placed: Array) -> tuple[list[Array], Array]:
    """Coordinates to keep, as words, and whether they say exactly what was selected."""
    if form == "mask":
        return [], placed
    kind, names = FORMATS[form]
    if isinstance(action, kind):
        given = [getattr(action, name) for name in names]
        kept = [jnp.clip(value, 0, planes.MAX_SIDE - 1) for value in given]
        exact = jnp.stack([a == b for a, b in zip(given, kept, strict=True)]).all()
        return [value.astype(jnp.uint32) for value in kept], exact
    box = bounding_box(selection)
    sides = [box.top, box.left] if form == "point" else [box.top, box.left, box.bottom, box.right]
    some = jnp.any(selection != 0)
    area = 1 if form == "point" else box.height * box.width
    kept = [jnp.where(some, side, 0).astype(jnp.uint32) for side in sides]
    return kept, placed & some & (planes.count(selection) == area)


def records(history: ActionHistory, width: int) -> dict[str, np.ndarray]:
    """The steps of one environment as NumPy columns, oldest first.

    `operation`, the selection (`row`, `col`, or `r1`, `c1`, `r2`, `c2`, or `selection` of `width` columns), `timestamp`,
    `pair_index` and `valid`, as the guide names them, and `episode_mode` and `exact`.
    """
    if history.words is None:
        raise ValueError("`history` is off. Pass `UnifiedActionConfig(history=True)` to keep what was done.")
    words = np.asarray(history.words)
    if words.ndim != 2:
        raise ValueError(
            f"`history` must be that of one environment; got a batch of shape {words.shape[:-2]}. "
            "Take one: `jax.tree.map(lambda x: x[0], history)`."
        )
    words = words[: min(int(history.length), len(words))]
    head = words[:, 0]
    found: dict[str, np.ndarray] = {"operation": (head & 63).astype(np.int32)}
    pair = head >> (_REST + 10 if history.format == "point" else _REST)
    if history.format == "mask":
        found["selection"] = ((words[:, 1:, None] >> np.arange(width, dtype=np.uint32)) & 1).astype(bool)
    else:
        corners = head >> _REST if history.format == "point" else words[:, 1]
        for i, name in enumerate(FORMATS[history.format][1]):
            found[name] = ((corners >> (5 * i)) & 31).astype(np.int32)
    found["timestamp"] = np.arange(len(words), dtype=np.int32)
    found["pair_index"] = pair.astype(np.int32)
    for name, place in (("valid", _VALID), ("exact", _EXACT)):
        found[name] = ((head >> place) & 1).astype(bool)
    found["episode_mode"] = ((head >> _MODE) & 1).astype(np.int32)
    return found


def replayed_actions(history: ActionHistory, width: int) -> list[Any]:
    """The actions of the episode so far, ready to be taken again; refused if one was not kept exactly."""
    columns = records(history, width)
    if not columns["exact"].all():
        step = int(np.argmin(columns["exact"]))
        raise ValueError(
            f"step {step} of the history was an action of another format, kept only by its box, or one off the canvas. "
            "Choose the `selection_format` of your actions, or 'mask', and leave out what was invalid."
        )
    kind, names = FORMATS[history.format]
    return [kind(*row) for row in zip(*(columns[name] for name in ("operation", *names)), strict=True)]
