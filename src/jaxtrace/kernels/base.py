"""The interface of a kernel: which steps it takes, in which layouts of the field, why not, and the step itself."""

import abc
from typing import Any, ClassVar, NamedTuple

from jaxtyping import Array, Float, Int32, PyTree

from ..boundaries import AbstractBoundary
from ..boundaries.reinjection import Ranks, ranks_in_place
from ..fields.grid_series import AbstractSeries
from ..fields.moments import Layout
from ..integrators import AbstractIntegrator
from ..motion import Motion


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


class AbstractKernel(abc.ABC):
    """A twin of the step in `jaxtrace.motion`: faster, and the same to rounding."""

    name: ClassVar[str]
    backend: ClassVar[str]
    """The JAX backend that it is made for."""
    reads: ClassVar[tuple[Layout, ...]]
    """The layouts that it has a step for."""

    @abc.abstractmethod
    def refusal(self, integrator: AbstractIntegrator, field: Any, boundary: AbstractBoundary) -> str | None:
        """Why it does not take such steps in any layout, as the end of a sentence; None where it does."""

    @abc.abstractmethod
    def layouts(self, field: AbstractSeries) -> tuple[Layout, ...]:
        """The layouts that it reads of this field."""

    def best_layout(self, field: AbstractSeries, particles: int) -> tuple[Layout, str] | None:
        """The best layout for this number of particles, and the reason; None where the rule for XLA serves."""
        return None

    @abc.abstractmethod
    def step(
        self,
        motion: Motion,
        before: KernelState,
        number: Int32[Array, ""],
        t: Float[Array, ""],
        dt: Float[Array, ""],
        causes: Causes,
    ) -> tuple[KernelState, Int32[Array, " patches"]]:
        """Step `number` of all particles that move, and how often each patch was met."""

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
