"""Settings of the surrogate network: sizes and precision."""

from typing import Any

import jax.numpy as jnp

from jaxworlds.static import config


@config
class NetworkConfig:
    """Sizes of a surrogate. Equal settings share every compiled program.

    - `encoder`: `"axial"` attends over rows and variables; `"statistics"` sees only pairwise statistics, so its cost
      does not grow with the number of rows.
    - `width`, `heads`, `widening`: of the tokens (row, variable) and their perceptrons.
    - `pair_width`: of the tokens (variable, variable), which both encoders have.
    - `rank`: of the pairwise correction to independent parents, in parent-set logits.
    - `precision`: of the arithmetic; parameters are float32 always.
    - `remat`: what the backward pass computes again instead of keeping it: `"none"`; `"dots"`, all but the products
      with weights, which an accelerator does faster than it fetches them; or `"all"`, whole layers.
    """

    encoder: str = "axial"
    width: int = 64
    pair_width: int = 64
    layers: int = 4
    heads: int = 4
    widening: int = 4
    rank: int = 8
    dropout: float = 0.0
    precision: str = "float32"
    remat: str = "none"

    def __post_init__(self) -> None:
        if self.encoder not in ("axial", "statistics"):
            raise ValueError(f'`encoder` must be "axial" or "statistics"; got {self.encoder!r}.')
        if self.precision not in ("float32", "bfloat16"):
            raise ValueError(
                f'`precision` must be "float32" or "bfloat16"; got {self.precision!r}. float16 overflows in attention.'
            )
        if self.remat not in ("none", "dots", "all"):
            raise ValueError(f'`remat` must be "none", "dots" or "all"; got {self.remat!r}.')
        for name in ("width", "pair_width", "layers", "heads", "widening", "rank"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be at least 1; got {getattr(self, name)}.")
        if self.width % self.heads:
            raise ValueError(
                f"`width` must be a multiple of `heads`; got {self.width} and {self.heads}. "
                f"Try `heads={_divisor(self.width, self.heads)}`."
            )
        if self.pair_width % 4:
            raise ValueError(
                f"`pair_width` must be a multiple of 4; got {self.pair_width}. Its quarters follow different paths."
            )
        if self.rank % 2:
            raise ValueError(
                f"`rank` must be even; got {self.rank}. Half of it draws parents together, half apart."
            )
        if not 0 <= self.dropout < 1:
            raise ValueError(f"`dropout` must be at least 0 and below 1; got {self.dropout}.")

    @property
    def dtype(self) -> Any:
        """The type of the arithmetic."""
        return jnp.bfloat16 if self.precision == "bfloat16" else jnp.float32


def _divisor(width: int, heads: int) -> int:
    """The largest number of heads, at most `heads`, that divides the width."""
    return next(count for count in range(min(heads, width), 0, -1) if width % count == 0)
