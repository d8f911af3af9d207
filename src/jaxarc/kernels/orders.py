"""The operations that one warp carries out, one environment in each lane."""

from typing import Any, NamedTuple

from jaxtyping import Array

from .warp import Counts


class Orders(NamedTuple):
    """The environments `start` to `start + many`; other lanes have none."""

    start: Any
    many: Any
    here: Array
    operation: Counts
    """−1 where nothing is to be done."""
    sides: tuple[Counts, ...]
    """Top, left, bottom and right of the selected boxes; none for masks."""
    place: Counts
    """Where the pair stands in the bank."""
    height: Counts
    width: Counts
    target_high: Counts
    target_wide: Counts


def packed_result(agree: Counts, valid: Counts, height: Counts, width: Counts) -> Counts:
    """The result of an operation in one word: cells that agree with the target, validity (0 or 1), the grid's size."""
    return agree | (valid << 11) | ((height - 1) << 12) | ((width - 1) << 17)
