"""Turning the kernels off: `JAXARC_KERNELS=off` leaves every step to XLA, which gives the same bits."""

import os

SWITCH = "JAXARC_KERNELS"


def switched_on() -> bool:
    """Whether kernels may be used; asked whenever a step is traced."""
    switch = os.environ.get(SWITCH, "auto")
    if switch not in ("auto", "off"):
        raise ValueError(f"`{SWITCH}` must be 'auto' or 'off'; got {switch!r}. Unset it for 'auto'.")
    return switch == "auto"
