"""What a GPU and this jax need for the kernels."""

import functools
import re

import jax

COUNTED = 2**31
"""Kernels count the words of grids with 32 bits: a call takes fewer of them than this."""


@functools.cache
def why_no_gpu_kernels() -> str | None:
    """Why kernels cannot be built by this jax for all GPUs of all hosts; None if they can.

    jax 0.11 announces that the part that builds them may go, and older GPUs lack some instructions.
    """
    if jax.default_backend() != "gpu":
        return "there is no GPU"
    for version in {str(getattr(device, "compute_capability", "")) for device in jax.devices()}:
        if not re.fullmatch(r"\d+\.\d+", version) or float(version) < 8.0:  # AMD's have names
            return f"kernels need NVIDIA GPUs of compute capability 8.0 or newer; this one has {version or 'none'}"
    try:
        from jax.experimental.pallas import triton
    except ImportError:
        return "this version of jax has no Pallas for Triton"
    if not (hasattr(triton, "load") and hasattr(triton, "elementwise_inline_asm")):
        return "Pallas for Triton in this version of jax lacks inline assembly"
    return None
