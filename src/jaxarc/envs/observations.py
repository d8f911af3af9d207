"""Observations of an environment; the answer is never in one."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int8, Int32, UInt32

from ..tasks import planes
from ..tasks.bank import TRAIN, Grid, TaskBank
from .config import JaxArcConfig
from .state import ArcEnvState, has_pair

Cells = Int8[Array, "*b rows cols"] | UInt32[Array, "*b 4 rows"] | Bool[Array, "*b 10 rows cols"]
HeldCells = Int8[Array, "*b rows cols"] | UInt32[Array, "*b 5 rows"] | Bool[Array, "*b 10 rows cols"]
PairCells = (
    Int8[Array, "*b pairs rows cols"]
    | UInt32[Array, "*b pairs 4 rows"]
    | Bool[Array, "*b pairs 10 rows cols"]
)


class Demonstrations(eqx.Module):
    """All demonstration pairs of a task; slots that a task does not use are empty (size 0×0)."""

    inputs: PairCells
    input_sizes: Int32[Array, "*b pairs 2"]
    outputs: PairCells
    output_sizes: Int32[Array, "*b pairs 2"]


class ArcObservation(eqx.Module):
    """The working grid, and the other parts that `ObservationConfig` selects (None if it does not).

    Grids come in the format of the config: int8 colours with −1 outside of the active part, bit planes (uint32), or ten
    boolean planes. A clipboard shows the cells it holds, at the top-left corner; packed, its mask is the fifth plane.
    """

    grid: Cells
    size: Int32[Array, "*b 2"]
    input: Cells | None
    input_size: Int32[Array, "*b 2"] | None
    clipboard: HeldCells | None
    demonstrations: Demonstrations | None
    episode_mode: Int32[Array, "*b"]
    pair_index: Int32[Array, "*b"]
    step_count: Int32[Array, "*b"]
    attempts_left: Int32[Array, "*b"]


def observe(state: ArcEnvState, bank: TaskBank, config: JaxArcConfig) -> ArcObservation:
    """Observe one environment."""
    chosen, (rows, cols) = config.observation, config.canvas
    source = source_size = None
    if chosen.input:
        place = bank.place_of(state.task_index, state.episode_mode, state.pair_index)
        # Tasks that lack the state's pair show nothing, rather than another pair.
        there = has_pair(state, bank)
        source, source_size = _view(bank.input_at(place, rows), chosen.format, cols, there)
    grid, size = _view(state.workspace.grid, chosen.format, cols)
    return ArcObservation(
        grid=grid,
        size=size,
        input=source,
        input_size=source_size,
        clipboard=_clipboard(state, chosen.format, cols) if chosen.clipboard else None,
        demonstrations=_demonstrations(state, bank, config) if chosen.demonstrations else None,
        episode_mode=state.episode_mode,
        pair_index=state.pair_index,
        step_count=state.step_count,
        attempts_left=config.environment.max_attempts - state.attempts_used,
    )


def _view(grid: Grid, form: str, cols: int, shown: Array | None = None) -> tuple[Array, Array]:
    """A grid in a format, and its size; empty (0×0) unless it is `shown`."""
    if shown is not None:
        grid = jax.tree.map(lambda leaf: jnp.where(shown, leaf, jnp.zeros_like(leaf)), grid)
    size = jnp.stack([grid.height, grid.width])
    if form == "packed":
        return grid.planes, size
    cells = planes.show(grid.planes, grid.height, grid.width, cols)
    return cells if form == "grid" else one_hot(cells), size


def one_hot(cells: Int8[Array, "*b rows cols"]) -> Bool[Array, "*b 10 rows cols"]:
    """Colours as ten planes, one for each; cells of −1 are in no plane."""
    return cells[..., None, :, :] == jnp.arange(10, dtype=jnp.int8)[:, None, None]


def _clipboard(state: ArcEnvState, form: str, cols: int) -> Array:
    if form == "packed":
        return jnp.concatenate([state.clipboard, state.clipboard_mask[None]])
    held = planes.unpack_mask(state.clipboard_mask, cols)
    cells = jnp.where(held, planes.decode(state.clipboard, cols), jnp.int8(-1))
    return cells if form == "grid" else one_hot(cells)


def _demonstrations(state: ArcEnvState, bank: TaskBank, config: JaxArcConfig) -> Demonstrations:
    rows, cols = config.canvas
    slots = jnp.arange(bank.max_pairs, dtype=jnp.int32)
    train = jnp.int32(TRAIN)
    there = (slots < bank.pairs_of(state.task_index, train)) & has_pair(state, bank)
    worked_on = (slots == state.pair_index) & (state.episode_mode == TRAIN)

    def look(slot: Array, shown_input: Array, shown_output: Array) -> tuple[Array, ...]:
        place = bank.place_of(state.task_index, train, jnp.where(shown_input, slot, 0))
        form = config.observation.format
        source = _view(bank.input_at(place, rows), form, cols, shown_input)
        return *source, *_view(bank.output_at(place, rows), form, cols, shown_output)

    return Demonstrations(*jax.vmap(look)(slots, there, there & ~worked_on))
