"""Whether the kernels of `native.cc` are to be used, and the names under which XLA knows them."""

from pathlib import Path

import jax

from jaxworlds.kernels import NoCompilerError as NoCompilerError
from jaxworlds.kernels import kernel_targets

from .switch import switched_on

FUNCTIONS = ("jaxarc_work", "jaxarc_compare", "jaxarc_restart")
_SOURCE = Path(__file__).with_name("native.cc")


def wanted() -> bool:
    """Whether kernels may be used: not switched off by `JAXARC_KERNELS=off`, and the CPU is what programs run on."""
    return switched_on() and jax.default_backend() == "cpu"


def names() -> dict[str, str] | None:
    """The names under which XLA knows the kernels, or None where they cannot be compiled; tried once per process."""
    return kernel_targets(_SOURCE, FUNCTIONS, "jaxarc")
