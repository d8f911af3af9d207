"""Settings of the policy network: sizes and precision."""

from typing import Any, Literal

from acbo.surrogate.network_config import NetworkConfig
from jaxworlds.static import config


@config
class PolicyConfig:
    """Sizes of a policy. Equal settings share every compiled program.

    - `width`: of the tokens (variable, variable); `layers`: how often they look at each other.
    - `places`: cells of a variable's range: its two ends, which are values of their own, and the slices between them.
    - `surrogate_layers`: layers of the surrogate that comes with the policy and reads the same statistics.
    - `precision`: of the arithmetic; parameters are float32 always.
    """

    width: int = 32
    layers: int = 2
    places: int = 7
    surrogate_layers: int = 2
    precision: Literal["float32", "bfloat16"] = "float32"

    def __post_init__(self) -> None:
        if self.width < 4 or self.width % 4:
            raise ValueError(f"`width` must be a multiple of 4; got {self.width}.")
        if self.places < 2:
            raise ValueError(f"`places` must be at least 2, the two ends of a range; got {self.places}.")
        for name in ("layers", "surrogate_layers"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be at least 1; got {getattr(self, name)}.")

    def network(self, layers: int) -> Any:
        """The settings of layers on pairs, and of the surrogate."""
        return NetworkConfig(
            encoder="statistics",
            width=self.width,
            pair_width=self.width,
            layers=layers,
            heads=1,
            widening=2,
            rank=2,
            precision=self.precision,
        )
