"""The three expensive parts of a step, by definition; `kernels` holds faster twins with the same signatures."""

from collections.abc import Callable
from typing import NamedTuple

from jaxtyping import Array, Bool, Int32, UInt32

from ..tasks.bank import Grid, TaskBank
from . import operations as ops
from .starts import Restart, restart


def apply_operation(
    space: ops.Workspace,
    operation: Int32[Array, ""],
    selection: UInt32[Array, " rows"],
    bank: TaskBank,
    place: Int32[Array, ""],
    rotation: str,
) -> tuple[ops.Workspace, Bool[Array, ""]]:
    """`operations.apply_operation`, where operation 32 copies the input of the pair at `place`."""
    source = bank.input_at(place, selection.shape[0])
    return ops.apply_operation(space, operation, selection, source, rotation)


def agreement(
    grid: Grid, bank: TaskBank, place: Int32[Array, ""]
) -> tuple[Int32[Array, ""], Int32[Array, ""]]:
    """`operations.agreement` with the output of the pair at `place`."""
    return ops.agreement(grid, bank.output_at(place, grid.planes.shape[-1]))


class Parts(NamedTuple):
    """What carries out a step's expensive parts for one environment: the definitions, or kernels in their place."""

    apply_operation: Callable[..., tuple[ops.Workspace, Bool[Array, ""]]]
    agreement: Callable[..., tuple[Int32[Array, ""], Int32[Array, ""]]]
    restart: Callable[..., Restart]


DEFINITION = Parts(apply_operation, agreement, restart)
"""The definitions in plain JAX, which every kernel equals bit for bit."""
