"""Integrators by name: what `create_tracker(integrator_name=...)` accepts."""

from typing import Any

from .base import AbstractIntegrator
from .diffusion import EulerMaruyama, Milstein
from .dopri5 import Dopri5
from .euler import Euler
from .inertial import Inertial
from .midpoint import Midpoint
from .rk4 import RK4

INTEGRATORS: dict[str, type[AbstractIntegrator]] = {
    "euler": Euler,
    "midpoint": Midpoint,
    "rk2": Midpoint,
    "rk4": RK4,
    "dopri5": Dopri5,
    "rk45": Dopri5,
    "euler_maruyama": EulerMaruyama,
    "milstein": Milstein,
    "inertial": Inertial,
}


def integrator_named(name: str | AbstractIntegrator, **options: Any) -> AbstractIntegrator:
    """The integrator called `name` with its options; an integrator is returned as it is.

    ```python
    integrator_named("dopri5", rtol=1e-6)
    integrator_named("milstein", diffusivity=0.1)
    ```
    """
    if isinstance(name, AbstractIntegrator):
        if options:
            raise ValueError(
                f"`{sorted(options)[0]}` cannot be changed on a finished integrator; got {type(name).__name__}. "
                "Set it where the integrator is made."
            )
        return name
    kind = INTEGRATORS.get(name.lower().replace("-", "_"))
    if kind is None:
        raise ValueError(
            f"`integrator_name` must be one of {', '.join(INTEGRATORS)}; got {name!r}. "
            "In Python an AbstractIntegrator of your own will do as well."
        )
    return kind(**options)
