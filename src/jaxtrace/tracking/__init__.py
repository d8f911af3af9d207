"""Tracking: seeds, boundaries and inlets, and the tracker that moves particles through a field."""

from .bouncing import AbstractBoundary as AbstractBoundary
from .bouncing import Bounced as Bounced
from .particles import Outcome as Outcome
from .refilling import InletBoundary as InletBoundary
from .schedule import Schedule as Schedule
from .schedule import plan_schedule as plan_schedule
from .seeding import uniform_grid_seeds as uniform_grid_seeds
from .simulating import simulate as simulate
from .tracker import Tracker as Tracker
from .tracker import create_tracker as create_tracker
from .trajectory import Trajectory as Trajectory
