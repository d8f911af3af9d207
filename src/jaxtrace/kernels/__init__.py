"""Kernels: the step of `jaxtrace.motion` as one program for a CPU or a GPU; `tracking` asks here whether one takes it."""

from typing import Any

import jax

from .base import AbstractKernel as AbstractKernel
from .base import Causes as Causes
from .base import KernelState as KernelState
from .cpu import CPU as CPU
from .gpu import GPU as GPU

KERNELS: tuple[AbstractKernel, ...] = (CPU, GPU)


def default_kernel() -> AbstractKernel | None:
    """The kernel made for the default backend, if there is one."""
    return next((kernel for kernel in KERNELS if kernel.backend == jax.default_backend()), None)


def kernel_for_layout(layout: str) -> AbstractKernel:
    """The kernel that reads a layout; no two read the same."""
    return next(kernel for kernel in KERNELS if layout in kernel.reads)


def on_default_backend(mesh: Any) -> bool:
    """Whether the devices of a mesh belong to the default backend, which kernels are made for."""
    return mesh is None or mesh.devices.flat[0].platform == jax.default_backend()
