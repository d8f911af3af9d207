"""What every part of the kernel of `fused` knows of the block of particles it works on."""

from typing import Any, NamedTuple

from jaxtyping import Array, Bool, Int32


class Block(NamedTuple):
    """The particles of one program of the kernel, and how it reads memory."""

    lanes: Int32[Array, " block"]
    here: Bool[Array, " block"]
    """Which of them exist; the last block is not full."""
    load: Any
    """`jax.experimental.pallas.triton.load`, which is imported where a kernel is built."""
