"""Integrators: one particle, one interval of time, forward or backward."""

from .base import AbstractIntegrator as AbstractIntegrator
from .base import ParticleState as ParticleState
from .base import Progress as Progress
from .base import particle_key as particle_key
from .diffusion import EulerMaruyama as EulerMaruyama
from .diffusion import Milstein as Milstein
from .dopri5 import Dopri5 as Dopri5
from .dopri5 import StepControl as StepControl
from .euler import Euler as Euler
from .inertial import Inertial as Inertial
from .inertial import stokes_relaxation_time as stokes_relaxation_time
from .midpoint import Midpoint as Midpoint
from .names import INTEGRATORS as INTEGRATORS
from .names import integrator_named as integrator_named
from .rk4 import RK4 as RK4
