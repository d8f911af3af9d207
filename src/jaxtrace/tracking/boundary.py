"""The boundaries under the name that guides teach; their home is `jaxtrace.boundaries`."""

from ..boundaries import AbstractBoundary as AbstractBoundary
from ..boundaries import AbstractInlet as AbstractInlet
from ..boundaries import Bounced as Bounced
from ..boundaries import Box as Box
from ..boundaries import Composed as Composed
from ..boundaries import Face as Face
from ..boundaries import InletBoundary as InletBoundary
from ..boundaries import MaskedWalls as MaskedWalls
from ..boundaries import MeshWalls as MeshWalls
from ..boundaries import Round as Round
from ..boundaries import Unbounded as Unbounded
from ..boundaries import absorbing_boundary as absorbing_boundary
from ..boundaries import box_boundary as box_boundary
from ..boundaries import clamping_boundary as clamping_boundary
from ..boundaries import composed_boundary as composed_boundary
from ..boundaries import continuous_inlet_boundary_factory as continuous_inlet_boundary_factory
from ..boundaries import cylindrical_boundary as cylindrical_boundary
from ..boundaries import inlet_outlet_boundary_factory as inlet_outlet_boundary_factory
from ..boundaries import masked_walls as masked_walls
from ..boundaries import mesh_walls as mesh_walls
from ..boundaries import no_boundary as no_boundary
from ..boundaries import periodic_boundary as periodic_boundary
from ..boundaries import reflective_boundary as reflective_boundary
from ..boundaries import spherical_boundary as spherical_boundary
