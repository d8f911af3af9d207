"""Settings of an environment: hashable, and checked when they are made."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from jaxworlds.static import config, replace

from .. import _version  # noqa: F401 - an error with a remedy where another distribution changed this package
from ..tasks.planes import MAX_SIDE
from .operations import CONTROL_NUMBERS, CONTROL_OPERATIONS, FIRST_EXTRA, LAST_EXTRA, OPERATIONS, Operation

DEBUG_LEVELS = ("off", "minimal", "standard", "verbose", "research")


def debug_level_number(level: int | str) -> int:
    """A debug level as a number from 0 ("off") to 4 ("research"); both ways to write it are accepted."""
    if isinstance(level, str) and level in DEBUG_LEVELS:
        return DEBUG_LEVELS.index(level)
    if isinstance(level, int) and not isinstance(level, bool) and 0 <= level < len(DEBUG_LEVELS):
        return level
    names = ", ".join(map(repr, DEBUG_LEVELS))
    raise ValueError(f"`debug_level` must be one of {names}, or 0 to {len(DEBUG_LEVELS) - 1}; got {level!r}.")


def _at_least(least: int, config: Any, *names: str) -> None:
    """Demand whole numbers; those of NumPy become Python's, so that equal settings stay one program."""
    for name in names:
        value = getattr(config, name)
        if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
            raise ValueError(f"`{name}` must be an integer of at least {least}; got {value!r}.")
        object.__setattr__(config, name, int(value))


def _booleans(config: Any, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        if not isinstance(value, bool | np.bool_):
            raise ValueError(f"`{name}` must be True or False; got {value!r}.")
        object.__setattr__(config, name, bool(value))


def _finite(name: str, value: Any) -> float:
    number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not number or not math.isfinite(value):
        raise ValueError(f"`{name}` must be a finite number; got {value!r}.")
    return float(value)


def _one_of(name: str, value: Any, choices: tuple[Any, ...]) -> None:
    if value not in choices:
        raise ValueError(f"`{name}` must be one of {', '.join(map(repr, choices))}; got {value!r}.")


@config
class EnvironmentConfig:
    """How an episode runs.

    `debug_level` 0 ("off") compiles no check at all; from 1 ("minimal") invalid actions raise; from 2 ("standard") the
    consistency of the state is checked too. `episode_mode` says which pairs a reset takes: "train" the demonstrations,
    "test" the test pairs, whose answers no observation shows. An episode that is over starts again by itself on the
    same pair, another pair of the task, or another task of the bank, if `autoreset` says so. `solve="all"` makes the
    episode last until every pair of its mode is solved (needs `control_operations`).
    """

    max_episode_steps: int = 100
    debug_level: int | str = 0
    max_attempts: int = 1
    autoreset: Literal["same", "pair", "task"] | None = None
    episode_mode: Literal["train", "test"] = "train"
    solve: Literal["pair", "all"] = "pair"

    def __post_init__(self) -> None:
        debug_level_number(self.debug_level)
        _at_least(1, self, "max_episode_steps", "max_attempts")
        if self.max_attempts > 255:
            raise ValueError(f"`max_attempts` must be at most 255; got {self.max_attempts}.")
        _one_of("autoreset", self.autoreset, (None, "same", "pair", "task"))
        _one_of("episode_mode", self.episode_mode, ("train", "test"))
        _one_of("solve", self.solve, ("pair", "all"))


@config
class UnifiedDatasetConfig:
    """The canvas: the largest grid that an environment can hold, up to 32×32."""

    max_grid_height: int = 30
    max_grid_width: int = 30

    def __post_init__(self) -> None:
        _at_least(1, self, "max_grid_height", "max_grid_width")
        for name, side in vars(self).items():
            if side > MAX_SIDE:
                raise ValueError(f"`{name}` must be at most {MAX_SIDE}; got {side}. ARC's grids have 30.")


@config
class UnifiedActionConfig:
    """Which actions there are, and whether they are remembered.

    `selection_format` is the format that the action history is sized for; actions of the other formats work too.
    `allowed_operations` leaves out all others: they are invalid. `control_operations` adds 35 to 41, which go to another
    pair. `history=False` leaves the action history out of the state.

    `extra_operations` are functions of your own, numbered from 42 on whether or not there are control operations. Each
    takes one grid (int8, -1 outside of the active part) and the selected cells (bool), and gives the new grid: colours
    0 to 9 in the active part, whose size stays; what it says elsewhere does not count. Name your functions once: a new
    lambda is a new program. A batch with such operations is stepped by XLA, on a GPU without the kernel.

    `rotation` is the point about which operations 24 and 25 turn the box of the selection: "corner" keeps its top-left
    corner where it is, and loses what leaves the grid; "center" keeps its middle (halves rounded towards the corner), so
    that the opposite rotation brings the cells back, and is invalid where it would carry cells off the grid.
    """

    selection_format: Literal["point", "bbox", "mask"] = "point"
    allowed_operations: tuple[int, ...] | None = None
    control_operations: bool = False
    history: bool = True
    extra_operations: tuple[Callable[..., Any], ...] = ()
    rotation: Literal["corner", "center"] = "corner"

    def __post_init__(self) -> None:
        _one_of("selection_format", self.selection_format, ("point", "bbox", "mask"))
        _booleans(self, "control_operations", "history")
        _one_of("rotation", self.rotation, ("corner", "center"))
        room = LAST_EXTRA - FIRST_EXTRA + 1
        extra = self.extra_operations
        if not (isinstance(extra, tuple) and all(map(callable, extra)) and len(extra) <= room):
            raise ValueError(
                f"`extra_operations` must be a tuple of at most {room} functions; got {extra!r}."
            )
        if self.allowed_operations is None:
            return
        if not self.allowed_operations:
            raise ValueError("`allowed_operations` must name at least one; got none. Pass None for all.")
        for operation in self.allowed_operations:
            whole = isinstance(operation, int | np.integer) and not isinstance(operation, bool)
            if not (whole and operation in self.existing_operations):
                control = f" {CONTROL_NUMBERS} need `control_operations=True`."
                hint = "" if self.control_operations else control
                own = f", or from {FIRST_EXTRA} to {FIRST_EXTRA + len(extra) - 1}" if extra else ""
                raise ValueError(
                    f"`allowed_operations` must hold integers from 0 to {self.num_operations - 1}{own}; "
                    f"got {operation!r}.{hint}"
                )
        object.__setattr__(self, "allowed_operations", tuple(sorted(set(map(int, self.allowed_operations)))))

    @property
    def num_operations(self) -> int:
        """Operations 0 up to this number exist; those of your own come after 41."""
        return CONTROL_OPERATIONS if self.control_operations else OPERATIONS

    @property
    def existing_operations(self) -> tuple[int, ...]:
        """The numbers of all operations, allowed or not, those of your own last."""
        return (*range(self.num_operations), *range(FIRST_EXTRA, FIRST_EXTRA + len(self.extra_operations)))


@config
class RewardConfig:
    """Weights of the reward's terms, and terms of your own.

    `extra` holds pairs of a function and its weight; a function takes a `jaxarc.envs.rewards.Transition` and gives one
    number. Name your functions once: a new lambda is a new program.
    """

    similarity: float = 1.0
    success: float = 10.0
    step_penalty: float = 0.01
    submission_penalty: float = 1.0
    extra: tuple[tuple[Callable[..., Any], float], ...] = ()

    def __post_init__(self) -> None:
        for name in ("similarity", "success", "step_penalty", "submission_penalty"):
            object.__setattr__(self, name, _finite(name, getattr(self, name)))
        terms = self.extra if isinstance(self.extra, tuple) else (self.extra,)
        for term in terms:
            if not (isinstance(term, tuple) and len(term) == 2 and callable(term[0])):
                raise ValueError(
                    f"`extra` must hold pairs (function, weight); got {term!r}. Write `extra=((function, 0.5),)`."
                )
        object.__setattr__(self, "extra", tuple((term, _finite("extra", weight)) for term, weight in terms))


@config
class ObservationConfig:
    """Contents of an observation: the format of grids, and which parts besides the working grid.

    Formats: "grid" is int8 with −1 outside of the active part, "packed" the bit planes as the state holds them (uint32),
    "onehot" ten boolean planes, one for each colour. Parts that are left out cost nothing. `demonstrations` adds all
    demonstration pairs of the task; the output of the pair that is being worked on is blank.
    """

    format: Literal["grid", "packed", "onehot"] = "grid"
    input: bool = True
    clipboard: bool = True
    demonstrations: bool = False

    def __post_init__(self) -> None:
        _one_of("format", self.format, ("grid", "packed", "onehot"))
        _booleans(self, "input", "clipboard", "demonstrations")


@config
class MemoryManagementConfig:
    """Memory that looking at episodes may take."""

    max_cache_mb: float = 100.0
    max_total_mb: float = 500.0
    lazy_loading: bool = True
    compression: bool = True

    def __post_init__(self) -> None:
        _booleans(self, "lazy_loading", "compression")
        for name in ("max_cache_mb", "max_total_mb"):
            value = _finite(name, getattr(self, name))
            if value <= 0:
                raise ValueError(f"`{name}` must be above 0; got {value!r}.")
            object.__setattr__(self, name, value)


@config
class DebugConfig:
    """How much of an episode is shown and kept, from "off" to "research"."""

    level: int | str = "standard"
    async_logging: bool = True
    performance_monitoring: bool = True
    memory_management: MemoryManagementConfig = MemoryManagementConfig()

    def __post_init__(self) -> None:
        _booleans(self, "async_logging", "performance_monitoring")
        object.__setattr__(self, "level", DEBUG_LEVELS[debug_level_number(self.level)])


@config
class VisualizationConfig:
    """Whether episodes are shown, and how (see `jaxarc.utils.visualization.VisualizationSession`)."""

    enabled: bool = False
    debug: DebugConfig = DebugConfig()

    def __post_init__(self) -> None:
        _booleans(self, "enabled")


@config
class JaxArcConfig:
    """All settings of an environment: hashable, static for JAX, every part optional.

    >>> config = JaxArcConfig(environment=EnvironmentConfig(max_episode_steps=50))
    >>> config.canvas
    (30, 30)
    """

    environment: EnvironmentConfig = EnvironmentConfig()
    dataset: UnifiedDatasetConfig = UnifiedDatasetConfig()
    action: UnifiedActionConfig = UnifiedActionConfig()
    visualization: VisualizationConfig = VisualizationConfig()
    reward: RewardConfig = RewardConfig()
    observation: ObservationConfig = ObservationConfig()

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            name, kind, part = field.name, type(field.default), getattr(self, field.name)
            if not isinstance(part, kind):
                raise TypeError(
                    f"`{name}` must be of the class {kind.__name__}; got {type(part).__name__}. "
                    f"Write `{name}={kind.__name__}(...)`."
                )
        if self.environment.solve == "all" and not self.action.control_operations:
            raise ValueError(
                "`solve='all'` needs operations that change the pair. "
                "Pass `action=UnifiedActionConfig(control_operations=True)`."
            )

    @property
    def canvas(self) -> tuple[int, int]:
        """Height and width of the canvas."""
        return self.dataset.max_grid_height, self.dataset.max_grid_width


def official(base: JaxArcConfig | None = None) -> JaxArcConfig:
    """`base` by the rules of the competition: test pairs, two attempts for each, reward 1 for success and nothing else.

    An episode stays on its pair: control operations are off, and `solve` is "pair".
    """
    base = base or JaxArcConfig()
    allowed = base.action.allowed_operations
    if allowed is not None:
        allowed = tuple(one for one in allowed if not OPERATIONS <= one < CONTROL_OPERATIONS)
        if not allowed:
            raise ValueError(
                f"`base.action.allowed_operations` must name an operation besides {CONTROL_NUMBERS}, which the official "
                f"rules switch off; got {base.action.allowed_operations}. Add {int(Operation.SUBMIT)}, which submits."
            )
    return replace(
        base,
        environment=replace(base.environment, episode_mode="test", max_attempts=2, solve="pair"),
        action=replace(base.action, control_operations=False, allowed_operations=allowed),
        reward=RewardConfig(similarity=0.0, success=1.0, step_penalty=0.0, submission_penalty=0.0),
    )
