"""Settings of beliefs: number of causal models and kind of mechanism."""

from typing import Literal

from jaxworlds.static import config


@config
class BeliefSettings:
    """Settings of `draw_models`.

    - `models`: number of models drawn.
    - `mechanism`: `"linear"`, or `"smooth"` for a linear part and random cosines of the parents.
    - `units`: cosines for each variable, where mechanisms are smooth.
    - `lengths`: length scales of smooth mechanisms, in standard deviations; each model draws one for each variable, by
      how well it explains the data.
    - `slack`: prior variance of a coefficient, in units of the noise's.
    - `max_parents`: largest parent set; by default that of the score.
    """

    models: int = 64
    mechanism: Literal["linear", "smooth"] = "linear"
    units: int = 24
    lengths: tuple[float, ...] = (0.7, 1.5, 3.0)
    slack: float = 10.0
    max_parents: int | None = None

    def __post_init__(self) -> None:
        if self.mechanism not in ("linear", "smooth"):
            raise ValueError(f'`mechanism` must be "linear" or "smooth"; got {self.mechanism!r}.')
        if self.models < 1:
            raise ValueError(f"`models` must be at least 1; got {self.models}.")
        if self.mechanism == "smooth" and self.units < 1:
            raise ValueError(f"`units` must be at least 1 for smooth mechanisms; got {self.units}.")
        if not self.lengths or min(self.lengths) <= 0:
            raise ValueError(f"`lengths` must be numbers above 0, at least one; got {self.lengths}.")
        if not self.slack > 0:
            raise ValueError(f"`slack` must be above 0; got {self.slack}.")
