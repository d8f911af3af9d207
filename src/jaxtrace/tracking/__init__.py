"""Tracking: seeds, boundaries and inlets, and the tracker that moves particles through a field."""

from ..boundaries.base import AbstractBoundary as AbstractBoundary
from ..boundaries.base import Bounced as Bounced
from ..boundaries.reinjection import InletBoundary as InletBoundary
from .particles import Outcome as Outcome
from .schedule import Schedule as Schedule
from .schedule import plan_schedule as plan_schedule
from .seeding import uniform_grid_seeds as uniform_grid_seeds
from .simulation import simulate as simulate
from .tracker import Tracker as Tracker
from .tracker import create_tracker as create_tracker
from .trajectory import Trajectory as Trajectory
