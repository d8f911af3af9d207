"""The interface of a kernel: which steps it takes, in which layouts of the field, why not, and the step itself."""

import abc
from typing import Any, ClassVar, NamedTuple

from jaxtyping import Array, Bool, Float, Int32, PyTree

from ..boundaries import AbstractBoundary
from ..boundaries.reinjection import Ranks, ranks_in_place
from ..fields.base import Index, Scalar
from ..fields.grid_series import AbstractSeries
from ..fields.moments import Layout
from ..integrators import RK4, AbstractIntegrator
from ..motion import Motion

KNOWN_GRIDS = (
    "it reads uniform grids of nodes without land, linear in space, and meshes of triangles or tetrahedra"
)
"""Why a kernel refuses other grids."""


class KernelState(NamedTuple):
    """What a kernel reads of the particles, and all but `begun` changes."""

    position: Float[Array, "n dim"]
    residual: Float[Array, "n dim"]
    """What rounding has kept from the positions so far."""
    hint: PyTree
    begun: Int32[Array, " n"]
    """The step from which each particle moves."""
    ended: Int32[Array, " n"]
    """The step at which it no longer moves."""
    cause: Int32[Array, " n"]
    """Why it ended."""
    share: Float[Array, " n"] | None
    """The part of its last step before it ended; None where no particle ends within a step."""


class Causes(NamedTuple):
    """The numbers that `KernelState.cause` has for ends that no wall causes."""

    outside: int
    not_finite: int


class Block(NamedTuple):
    """The particles of one program of a GPU kernel, and how it reads memory."""

    lanes: Int32[Array, " block"]
    here: Bool[Array, " block"]
    """Which of them exist; the last block is not full."""
    load: Any
    """`jax.experimental.pallas.triton.load`, which is imported where a kernel is built."""


class AbstractKernel(abc.ABC):
    """A twin of the step in `jaxtrace.motion`: faster, and the same to rounding."""

    name: ClassVar[str]
    backend: ClassVar[str]
    """The JAX backend that it is made for."""
    reads: ClassVar[tuple[Layout, ...]]
    """The layouts that it has a step for."""

    def refusal(self, integrator: AbstractIntegrator, field: Any, boundary: AbstractBoundary) -> str | None:
        """Why it does not take such steps in any layout, as the end of a sentence; None where it does."""
        if type(integrator) is not RK4:
            return f"it takes steps of RK4, not of {type(integrator).__name__}"
        if not isinstance(field, AbstractSeries):
            return f"it reads values on grids, not {type(field).__name__}"
        return self._refusal(field, boundary)

    @abc.abstractmethod
    def _refusal(self, field: AbstractSeries, boundary: AbstractBoundary) -> str | None:
        """Why it does not take steps of RK4 through such a series."""

    def layouts(self, field: AbstractSeries) -> tuple[Layout, ...]:
        """The layouts that it reads of this field."""
        return self.reads

    def best_layout(self, field: AbstractSeries, particles: int) -> tuple[Layout, str] | None:
        """The best layout for this number of particles, and the reason; None where the rule for XLA serves."""
        return None

    @abc.abstractmethod
    def step(
        self, motion: Motion, before: KernelState, number: Index, t: Scalar, dt: Scalar, causes: Causes
    ) -> tuple[KernelState, Int32[Array, " patches"]]:
        """Step `number` of all particles that move, and how often each patch was met."""

    def words(self, field: Any) -> str:
        """What it is, where it takes the steps through `field`."""
        return self.name

    def ranks(self) -> Ranks:
        """How the free slots of an inlet are numbered."""
        return ranks_in_place

    def why_not(self, motion: Motion) -> str | None:
        """Why it does not take the steps of `motion`; None where it does."""
        field = motion.field
        reason = self.refusal(motion.integrator, field, motion.boundary)
        if reason is None and isinstance(field, AbstractSeries) and field.layout not in self.layouts(field):
            reason = f"it does not read layout {field.layout!r} of {field.data.dtype} values"
        return reason
