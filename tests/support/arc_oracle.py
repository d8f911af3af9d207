"""The ARC environment once more in plain NumPy, cell by cell: the word against which the compiled one is tested.

A grid is an (h, w) int8 array without padding, a clipboard is a patch with its mask or None, and an action is a tuple:
`("point", row, col)`, `("bbox", r1, c1, r2, c2)` or `("mask", selection)`. Everything is written for reading: loops over
cells, a queue for the flood, no bit tricks and nothing shared with `src/jaxarc`.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Pair = tuple[np.ndarray, np.ndarray]
Cell = tuple[int, int]

FLOOD, MOVE, ROTATE, FLIP = range(10, 20), range(20, 24), (24, 25), (26, 27)
COPY, PASTE, CUT, CLEAR, COPY_INPUT, RESIZE, SUBMIT = range(28, 35)
NEXT_TRAIN, PREVIOUS_TRAIN, NEXT_TEST, PREVIOUS_TEST, RESET_PAIR, UNSOLVED_TRAIN, UNSOLVED_TEST = range(
    35, 42
)
TRAIN, TEST = 0, 1
UP, DOWN, LEFT, RIGHT = (-1, 0), (1, 0), (0, -1), (0, 1)


@dataclass(frozen=True, eq=False)
class Clipboard:
    """A bounding-box patch (bh, bw) of colours and the mask of the cells that belong to it; colour 0 is a colour.

    Cells of the patch outside the mask hold 0 and mean nothing.
    """

    patch: np.ndarray
    mask: np.ndarray


def select(action: tuple, canvas: tuple[int, int]) -> np.ndarray | None:
    """The selected cells of the canvas, or None when a coordinate lies outside it."""
    height, width = canvas
    kind, *values = action
    if kind == "mask":
        (mask,) = values
        if mask.shape != canvas:
            raise ValueError(f"a mask must have the canvas' shape {canvas}; got {mask.shape}")
        return mask.astype(bool).copy()
    if kind == "point":
        values = [*values, *values]
    r1, c1, r2, c2 = (int(value) for value in values)
    if not all(0 <= r < height for r in (r1, r2)) or not all(0 <= c < width for c in (c1, c2)):
        return None
    selection = np.zeros(canvas, bool)
    for r in range(min(r1, r2), max(r1, r2) + 1):
        for c in range(min(c1, c2), max(c1, c2) + 1):
            selection[r, c] = True
    return selection


def cells_of(mask: np.ndarray) -> list[Cell]:
    """The (row, col) of every selected cell."""
    return [(int(r), int(c)) for r, c in zip(*np.nonzero(mask), strict=True)]


def bounding_box(cells: Sequence[Cell]) -> tuple[int, int, int, int]:
    """Top row, left column, height and width of the smallest rectangle around the cells."""
    rows, cols = [r for r, _ in cells], [c for _, c in cells]
    return min(rows), min(cols), max(rows) - min(rows) + 1, max(cols) - min(cols) + 1


def component(grid: np.ndarray, start: Cell) -> set[Cell]:
    """The cells that reach `start` through sides of equally coloured cells."""
    height, width = grid.shape
    found, queue = {start}, deque([start])
    while queue:
        r, c = queue.popleft()
        for dr, dc in (UP, DOWN, LEFT, RIGHT):
            near = (r + dr, c + dc)
            inside = 0 <= near[0] < height and 0 <= near[1] < width
            if inside and near not in found and grid[near] == grid[start]:
                found.add(near)
                queue.append(near)
    return found


def carry(grid: np.ndarray, cells: Sequence[Cell], landing: Callable[[int, int], Cell]) -> np.ndarray:
    """Lift the cells, leaving 0, and put each down at its landing; what lands outside the grid is lost."""
    height, width = grid.shape
    out = grid.copy()
    for cell in cells:
        out[cell] = 0
    for cell in cells:
        r, c = landing(*cell)
        if 0 <= r < height and 0 <= c < width:
            out[r, c] = grid[cell]
    return out


def turn(operation: int, cells: Sequence[Cell], rotation: str = "corner") -> Callable[[int, int], Cell]:
    """Where rotation 24 / 25 or flip 26 / 27 of the cells' bounding box sends each cell.

    A rotation keeps the box's top-left corner, or with `rotation` "center" its middle: that of each side, where half a
    cell would be left over, as near to the old top-left corner as it gets.
    """
    top, left, bh, bw = bounding_box(cells)
    to_top, to_left = top, left
    if rotation == "center" and operation in ROTATE:
        down = int((bh - bw) / 2)  # int() rounds towards 0
        to_top, to_left = top + down, left - down

    def landing(r: int, c: int) -> Cell:
        i, j = r - top, c - left
        if operation == 24:  # clockwise: the first row becomes the last column
            i, j = j, bh - 1 - i
        elif operation == 25:  # counter-clockwise: the first row becomes the first column, upside down
            i, j = bw - 1 - j, i
        elif operation == 26:
            j = bw - 1 - j
        else:
            i = bh - 1 - i
        return to_top + i, to_left + j

    return landing


def copied(grid: np.ndarray, cells: Sequence[Cell]) -> Clipboard:
    """The clipboard that holds these cells."""
    top, left, bh, bw = bounding_box(cells)
    patch, mask = np.zeros((bh, bw), np.int8), np.zeros((bh, bw), bool)
    for r, c in cells:
        patch[r - top, c - left] = grid[r, c]
        mask[r - top, c - left] = True
    return Clipboard(patch, mask)


def pasted(grid: np.ndarray, clipboard: Clipboard, top: int, left: int) -> np.ndarray:
    """The grid with the clipboard's own cells written, its top-left at (top, left), clipped to the grid."""
    out = grid.copy()
    for i, j in cells_of(clipboard.mask):
        if top + i < grid.shape[0] and left + j < grid.shape[1]:
            out[top + i, left + j] = clipboard.patch[i, j]
    return out


def resized(grid: np.ndarray, selection: np.ndarray) -> np.ndarray:
    """The grid cut or grown (with 0) so that it ends at the last selected row and the last selected column."""
    top, left, bh, bw = bounding_box(cells_of(selection))
    out = np.zeros((top + bh, left + bw), np.int8)
    h, w = min(out.shape[0], grid.shape[0]), min(out.shape[1], grid.shape[1])
    out[:h, :w] = grid[:h, :w]
    return out


def apply(
    grid: np.ndarray,
    clipboard: Clipboard | None,
    source: np.ndarray,
    operation: int,
    selection: np.ndarray,
    canvas: tuple[int, int],
    rotation: str = "corner",
) -> tuple[np.ndarray, Clipboard | None, bool]:
    """Grid, clipboard and validity after one of the operations 0–33; the arguments are left as they are.

    `source` is the input of the current pair, `selection` a bool array of the canvas' shape, `rotation` "corner" or
    "center".
    """
    if selection.shape != canvas:
        raise ValueError(f"a selection must have the canvas' shape {canvas}; got {selection.shape}")
    if not 0 <= operation <= RESIZE:
        raise ValueError(f"apply knows the operations 0..33; got {operation}; Episode.step knows the others")
    height, width = grid.shape
    cells = cells_of(selection[:height, :width])
    everything = [(r, c) for r in range(height) for c in range(width)]
    same = (grid.copy(), clipboard, True)
    invalid = (grid.copy(), clipboard, False)
    out = grid.copy()

    if operation <= CLEAR and selection.any() and not cells:
        return invalid  # cells were selected, and none of them is there; only an empty selection may mean everything

    if operation <= 9:
        for cell in cells:
            out[cell] = operation
        return out, clipboard, True

    if operation in FLOOD:
        if len(cells) != 1:
            return invalid
        for cell in component(grid, cells[0]):
            out[cell] = operation - 10
        return out, clipboard, True

    if operation in MOVE:
        dr, dc = (UP, DOWN, LEFT, RIGHT)[operation - 20]
        return carry(grid, cells or everything, lambda r, c: (r + dr, c + dc)), clipboard, True

    if operation in ROTATE or operation in FLIP:
        chosen = cells or everything
        landing = turn(operation, chosen, rotation)
        if operation in ROTATE and rotation == "center":
            for r, c in (landing(*cell) for cell in chosen):
                if not (0 <= r < height and 0 <= c < width):
                    return invalid
        return carry(grid, chosen, landing), clipboard, True

    if operation in (COPY, CUT):
        if not cells:
            return invalid
        if operation == CUT:
            for cell in cells:
                out[cell] = 0
        return out, copied(grid, cells), True

    if operation == PASTE:
        if clipboard is None or not cells:
            return same
        top, left, _, _ = bounding_box(cells)
        return pasted(grid, clipboard, top, left), clipboard, True

    if operation == CLEAR:
        for cell in cells or everything:
            out[cell] = 0
        return out, clipboard, True

    if operation == COPY_INPUT:
        return source.astype(np.int8).copy(), clipboard, True

    if not selection.any():
        return invalid
    return resized(grid, selection), clipboard, True


def similarity(grid: np.ndarray, target: np.ndarray) -> np.float32:
    """Share of the union of both rectangles' cells that lie in both and agree."""
    h, w = min(grid.shape[0], target.shape[0]), min(grid.shape[1], target.shape[1])
    agree = int((grid[:h, :w] == target[:h, :w]).sum())
    union = grid.size + target.size - h * w
    return np.float32(agree) / np.float32(union)


def solved(grid: np.ndarray, target: np.ndarray) -> bool:
    """Equal size and equal content."""
    return grid.shape == target.shape and bool((grid == target).all())


@dataclass(frozen=True)
class Rules:
    """What the environment's configuration says."""

    canvas: tuple[int, int] = (30, 30)
    max_episode_steps: int = 100
    max_attempts: int = 1
    allowed_operations: tuple[int, ...] | None = None
    control_operations: bool = False
    solve: str = "pair"
    similarity_weight: float = 1.0
    success_bonus: float = 10.0
    step_penalty: float = 0.01
    submission_penalty: float = 1.0
    rotation: str = "corner"

    def __post_init__(self) -> None:
        if self.solve not in ("pair", "all"):
            raise ValueError(f'`solve` must be "pair" or "all"; got {self.solve!r}')
        if self.solve == "all" and not self.control_operations:
            raise ValueError(
                '`solve="all"` needs `control_operations=True`: without them no other pair is reached'
            )

    def permits(self, operation: int) -> bool:
        """Whether the id exists under these rules and is allowed."""
        last = UNSOLVED_TEST if self.control_operations else SUBMIT
        allowed = self.allowed_operations is None or operation in self.allowed_operations
        return 0 <= operation <= last and allowed


class Episode:
    """One episode on one task, from the input of the chosen pair to success, failure or the step limit; no autoreset."""

    def __init__(
        self, train: Sequence[Pair], test: Sequence[Pair], rules: Rules, mode: int = TRAIN, pair: int = 0
    ) -> None:
        self.pairs = {TRAIN: list(train), TEST: list(test)}
        self.rules = rules
        if not 0 <= pair < len(self.pairs[mode]):
            raise ValueError(f"`pair` must be one of the {len(self.pairs[mode])} of mode {mode}; got {pair}")
        self.clipboard: Clipboard | None = None
        self.step_count = 0
        self.terminated = self.truncated = self.success = False
        self.wrong: dict[tuple[int, int], int] = {}
        self.solved: set[tuple[int, int]] = set()
        self.history: list[dict[str, Any]] = []
        self.scored_mode = mode
        self.load(mode, pair)

    def load(self, mode: int, pair: int) -> None:
        """Make a pair the current one and start from its input."""
        self.mode, self.pair = mode, pair
        self.grid = self.source.astype(np.int8).copy()

    @property
    def source(self) -> np.ndarray:
        """The current pair's input."""
        return self.pairs[self.mode][self.pair][0]

    @property
    def target(self) -> np.ndarray:
        """The current pair's output."""
        return self.pairs[self.mode][self.pair][1]

    @property
    def similarity(self) -> np.float32:
        """Similarity of the grid and the current pair's output, in either mode."""
        return similarity(self.grid, self.target)

    @property
    def potential(self) -> float:
        """What was gained so far: similarity above that of the input, on the current pair and on those that are solved.

        Only demonstration pairs count, in an episode that began on one: rewards for test pairs would tell the answer.
        """
        if self.scored_mode == TEST:
            return 0.0
        gains = [
            1.0 - float(similarity(*self.pairs[mode][pair])) for mode, pair in self.solved if mode == TRAIN
        ]
        if self.mode == TRAIN and (self.mode, self.pair) not in self.solved:
            gains.append(float(self.similarity) - float(similarity(self.source, self.target)))
        return sum(gains)

    @property
    def attempts(self) -> int:
        """Wrong submissions of the current pair so far."""
        return self.wrong.get((self.mode, self.pair), 0)

    @property
    def done(self) -> bool:
        """Whether the episode is over."""
        return self.terminated or self.truncated

    def step(self, operation: int, action: tuple) -> dict[str, Any]:
        """Take one action and say what came of it.

        A finished episode stays as it is: reward 0, and `valid` is False because nothing was carried out.
        """
        if self.done:
            return self.report(np.float32(0), valid=False)
        mode, pair, before, wrong = self.mode, self.pair, self.potential, sum(self.wrong.values())
        valid = self.act(operation, select(action, self.rules.canvas))
        self.history.append(
            {
                "operation": operation,
                "action": action,
                "time": self.step_count,
                "mode": mode,
                "pair": pair,
                "valid": valid,
            }
        )
        self.step_count += 1
        self.truncated = not self.terminated and self.step_count >= self.rules.max_episode_steps

        reward = np.float32(self.rules.similarity_weight * (self.potential - before))
        if self.success:
            reward += np.float32(self.rules.success_bonus)
        reward -= np.float32(self.rules.step_penalty)
        if sum(self.wrong.values()) > wrong:
            reward -= np.float32(self.rules.submission_penalty)
        return self.report(np.float32(reward), valid)

    def report(self, reward: np.float32, valid: bool) -> dict[str, Any]:
        """What `step` returns."""
        return {
            "reward": reward,
            "done": self.done,
            "valid": valid,
            "terminated": self.terminated,
            "truncated": self.truncated,
            "success": self.success,
            "similarity": self.similarity,
            "step_count": self.step_count,
            "mode": self.mode,
            "pair": self.pair,
        }

    def act(self, operation: int, selection: np.ndarray | None) -> bool:
        """Carry the action out, or change nothing and return False."""
        if selection is None or not self.rules.permits(operation):
            return False
        if operation == SUBMIT:
            return self.submit()
        if operation == RESET_PAIR:
            self.load(self.mode, self.pair)
            self.clipboard = None
            return True
        if operation > SUBMIT:
            destination = self.destination(operation)
            if destination is None:
                return False
            self.load(*destination)
            return True
        self.grid, self.clipboard, valid = apply(
            self.grid,
            self.clipboard,
            self.source,
            operation,
            selection,
            self.rules.canvas,
            self.rules.rotation,
        )
        return valid

    def submit(self) -> bool:
        """Compare the grid with the target and mark the pair.

        A solved pair cannot be submitted again, and one of the other mode, where the agent is a guest, not at all.
        """
        here = (self.mode, self.pair)
        if here in self.solved or self.mode != self.scored_mode:
            return False
        if solved(self.grid, self.target):
            self.solved.add(here)
            every = all((self.mode, pair) in self.solved for pair in range(len(self.pairs[self.mode])))
            self.success = self.terminated = self.rules.solve == "pair" or every
        else:
            self.wrong[here] = self.attempts + 1
            self.terminated = self.attempts >= self.rules.max_attempts
        return True

    def destination(self, operation: int) -> tuple[int, int] | None:
        """Mode and pair to which a switching operation leads, or None when there is no such pair."""
        mode = TRAIN if operation in (NEXT_TRAIN, PREVIOUS_TRAIN, UNSOLVED_TRAIN) else TEST
        count = len(self.pairs[mode])
        if operation in (UNSOLVED_TRAIN, UNSOLVED_TEST):
            unsolved = [pair for pair in range(count) if (mode, pair) not in self.solved]
            return (mode, unsolved[0]) if unsolved else None
        if count == 0:
            return None
        forward = operation in (NEXT_TRAIN, NEXT_TEST)
        if mode != self.mode:
            return mode, 0 if forward else count - 1
        return mode, (self.pair + (1 if forward else -1)) % count


FORMATS = ("point", "bbox", "mask")
# Values an int8, an unsigned byte or a "+ 1" may turn into something that looks right.
FAR = (-(2**31), -1000, -256, -128, 127, 128, 255, 256, 257, 1000, 2**31 - 1)


def random_action(
    rng: np.random.Generator,
    canvas: tuple[int, int],
    fmt: str,
    operations: Sequence[int],
    grid_size: tuple[int, int],
) -> tuple[int, tuple]:
    """An operation (uniform over `operations`, 4 % out of range) and an action that is mostly, but not always, sensible.

    `fmt` is "point", "bbox" or "mask"; `grid_size` is the (h, w) of the active grid, where most selections lie.
    """
    operation = int(operations[int(rng.integers(len(operations)))])
    if rng.random() < 0.04:
        operation = int(rng.choice([-1, max(operations) + 1, 42, 43, 99, *FAR]))
    if fmt == "mask":
        return operation, ("mask", random_mask(rng, canvas, grid_size))
    if fmt not in FORMATS:
        raise ValueError(f"`fmt` must be one of {FORMATS}; got {fmt!r}")
    corners = [*random_cell(rng, canvas, grid_size), *random_cell(rng, canvas, grid_size)]
    if fmt == "point":
        corners = corners[:2]
    else:
        draw = rng.random()
        if draw < 0.12:  # the whole active grid, or the whole canvas
            h, w = grid_size if draw < 0.09 else canvas
            corners = [0, 0, h - 1, w - 1]
        elif draw < 0.24:  # one cell
            corners = corners[:2] * 2
        elif draw < 0.44:  # a small box
            corners[2:] = [min(corners[i] + int(rng.integers(4)), canvas[i] - 1) for i in (0, 1)]
        if rng.random() < 0.3:
            corners = corners[2:] + corners[:2]
        if rng.random() < 0.3:
            corners = [corners[2], corners[1], corners[0], corners[3]]
    if rng.random() < 0.05:
        axis = int(rng.integers(len(corners)))
        limit = canvas[axis % 2]
        corners[axis] = int(rng.choice([-1, -2, limit, limit + 1, limit + 7, corners[axis] + 256, *FAR]))
    return operation, (fmt, *corners)


def random_cell(rng: np.random.Generator, canvas: tuple[int, int], grid_size: tuple[int, int]) -> Cell:
    """A cell of the active grid, sometimes on its border, or (one in five) of the whole canvas."""
    height, width = canvas if rng.random() < 0.2 else grid_size
    r, c = int(rng.integers(height)), int(rng.integers(width))
    if rng.random() < 0.15:
        r = int(rng.choice([0, height - 1]))
    if rng.random() < 0.15:
        c = int(rng.choice([0, width - 1]))
    return r, c


def random_mask(rng: np.random.Generator, canvas: tuple[int, int], grid_size: tuple[int, int]) -> np.ndarray:
    """Nothing, one cell, boxes, scattered cells, a connected blob, the whole grid, or only cells outside it."""
    mask = np.zeros(canvas, bool)
    kind = rng.choice(
        ["empty", "cell", "box", "grid", "canvas", "scattered", "speckled", "blob", "outside"],
        p=[0.08, 0.22, 0.16, 0.06, 0.04, 0.14, 0.14, 0.1, 0.06],
    )
    (r1, c1), (r2, c2) = random_cell(rng, canvas, grid_size), random_cell(rng, canvas, grid_size)
    top, left, bottom, right = min(r1, r2), min(c1, c2), max(r1, r2) + 1, max(c1, c2) + 1
    if kind == "cell":
        mask[r1, c1] = True
    elif kind == "box":
        mask[top:bottom, left:right] = True
    elif kind == "grid":
        mask[: grid_size[0], : grid_size[1]] = True
    elif kind == "canvas":
        mask[:] = True
    elif kind == "scattered":
        mask[:] = rng.random(canvas) < rng.choice([0.02, 0.2, 0.5, 0.9])
    elif kind == "speckled":  # scattered inside a box
        mask[top:bottom, left:right] = rng.random((bottom - top, right - left)) < 0.5
    elif kind == "blob":
        for r, c in random_walk(rng, (r1, c1), canvas):
            mask[r, c] = True
    elif kind == "outside":
        mask[:] = rng.random(canvas) < rng.choice([0.02, 0.5, 1.0])
        mask[: grid_size[0], : grid_size[1]] = False
    return mask


def random_walk(rng: np.random.Generator, start: Cell, canvas: tuple[int, int]) -> Iterator[Cell]:
    """The cells of a short walk that stays on the canvas."""
    r, c = start
    for _ in range(int(rng.integers(2, 13))):
        yield r, c
        dr, dc = (UP, DOWN, LEFT, RIGHT)[int(rng.integers(4))]
        r, c = min(max(r + dr, 0), canvas[0] - 1), min(max(c + dc, 0), canvas[1] - 1)
