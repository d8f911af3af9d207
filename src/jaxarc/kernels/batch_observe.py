"""Observations of a whole batch on a GPU, with the kernel that shows grids."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, UInt32

from jaxworlds.static import replace

from ..envs.config import JaxArcConfig
from ..envs.observations import ArcObservation, observe
from ..envs.state import ArcEnvState
from ..tasks.bank import TaskBank
from ..tasks.planes import PLANES
from .show import can_show, show, show_one_hot, words_of
from .warp import COUNTED


def observe_batch(
    states: ArcEnvState, bank: TaskBank, config: JaxArcConfig, interpret: bool = False
) -> ArcObservation:
    """Observe each environment: packed first, then in the format of the config."""
    rows, cols = config.canvas
    form = config.observation.format
    bank = jax.lax.stop_gradient(bank)
    grids = states.height.shape[0] * (bank.max_pairs if config.observation.demonstrations else 1)
    can_count = 0 < grids * words_of(rows, cols) < COUNTED * jax.device_count()
    if form == "packed" or not (can_count and can_show(rows, cols)):
        return jax.vmap(lambda state: observe(state, bank, config))(states)
    packed = replace(config, observation=replace(config.observation, format="packed"))
    seen = jax.vmap(lambda state: observe(state, bank, packed))(states)

    def show_cells(planes: UInt32[Array, "*b levels rows"], sizes: Array | None) -> Array:
        """Grids with these sizes, or with a fifth plane that is their mask."""
        ahead = planes.shape[:-2]
        flat = planes.reshape(-1, *planes.shape[-2:])
        if sizes is None:
            active = flat[:, PLANES]
        else:
            active = tuple(jnp.moveaxis(sizes.reshape(-1, 2), 1, 0))
        view = show if form == "grid" else show_one_hot
        cells = view(flat[:, :PLANES], active, cols, interpret=interpret)
        return cells.reshape(*ahead, *cells.shape[1:])

    pairs = [(seen.grid, seen.size), (seen.input, seen.input_size), (seen.clipboard, None)]
    where = lambda o: [o.grid, o.input, o.clipboard]  # noqa: E731
    if seen.demonstrations is not None:
        demos = seen.demonstrations
        pairs += [(demos.inputs, demos.input_sizes), (demos.outputs, demos.output_sizes)]
        where = lambda o: [*(o.grid, o.input, o.clipboard), o.demonstrations.inputs, o.demonstrations.outputs]  # noqa: E731
    made = [None if planes is None else show_cells(planes, sizes) for planes, sizes in pairs]
    return eqx.tree_at(where, seen, made, is_leaf=lambda leaf: leaf is None)
