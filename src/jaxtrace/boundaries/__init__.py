"""Boundaries: pure maps that return one particle's step to its domain, also found in `jaxtrace.tracking.boundary`."""

from .base import AbstractBoundary as AbstractBoundary
from .base import Bounced as Bounced
from .base import Composed as Composed
from .base import Unbounded as Unbounded
from .box import Box as Box
from .box import Face as Face
from .box import box_boundary as box_boundary
from .coast import MaskedWalls as MaskedWalls
from .coast import masked_walls as masked_walls
from .inlets import AbstractInlet as AbstractInlet
from .mesh import MeshWalls as MeshWalls
from .mesh import mesh_walls as mesh_walls
from .named import absorbing_boundary as absorbing_boundary
from .named import clamping_boundary as clamping_boundary
from .named import composed_boundary as composed_boundary
from .named import cylindrical_boundary as cylindrical_boundary
from .named import no_boundary as no_boundary
from .named import periodic_boundary as periodic_boundary
from .named import reflective_boundary as reflective_boundary
from .named import spherical_boundary as spherical_boundary
from .reinjection import InletBoundary as InletBoundary
from .reinjection import continuous_inlet_boundary_factory as continuous_inlet_boundary_factory
from .reinjection import inlet_outlet_boundary_factory as inlet_outlet_boundary_factory
from .round import Round as Round
