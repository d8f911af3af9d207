"""Velocity fields: analytic, on structured and curvilinear grids and on meshes, steady or in time slices."""

from .analytic import AnalyticField as AnalyticField
from .analytic import abc_flow as abc_flow
from .analytic import constant_flow as constant_flow
from .analytic import double_gyre as double_gyre
from .analytic import linear_flow as linear_flow
from .analytic import peninsula as peninsula
from .analytic import peninsula_stream as peninsula_stream
from .analytic import solid_rotation as solid_rotation
from .base import AbstractField as AbstractField
from .base import AbstractGrid as AbstractGrid
from .base import AbstractMoment as AbstractMoment
from .base import Interpolation as Interpolation
from .base import Sample as Sample
from .base import Stencil as Stencil
from .curvilinear import CurvilinearGrid as CurvilinearGrid
from .epoch import Epoch as Epoch
from .lattice import find_lattice as find_lattice
from .mesh_averaging import nodal_averages as nodal_averages
from .mesh_building import Mesh as Mesh
from .moments import Layout as Layout
from .structured import RectilinearGrid as RectilinearGrid
from .structured import UniformGrid as UniformGrid
from .time_series import TimeSeriesField as TimeSeriesField
from .time_series import grid_through as grid_through
from .unstructured import UnstructuredGrid as UnstructuredGrid
from .unstructured import delaunay_grid as delaunay_grid
