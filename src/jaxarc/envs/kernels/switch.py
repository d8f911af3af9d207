"""Turning the kernels off: `JAXARC_KERNELS=off` leaves every step to XLA, which gives the same bits."""

from jaxworlds.kernels import native

SWITCH = "JAXARC_KERNELS"


def switched_on() -> bool:
    """Whether kernels may be used; asked whenever a step is traced."""
    return native.switched_on(SWITCH)
