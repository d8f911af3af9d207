"""ARC JSON as host arrays: one file per task, one merged file, or Kaggle's challenges with solutions."""

import contextlib
import gc
import itertools
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jaxworlds.special_files import demand_file

from .planes import MAX_SIDE

COLOURS = 10
"""Colours of ARC: 0 to 9."""
_VALID = bytes(range(COLOURS))

PathLike = str | os.PathLike[str]
Grid = np.ndarray[tuple[int, int], np.dtype[np.int8]]


class TaskError(ValueError):
    """Task data that cannot be used; the message names file, task, pair and cell, all counted from 0."""


@dataclass(frozen=True, eq=False)
class RawTask:
    """One task on the host: pairs of int8 grids; the output of a test pair is None where it is not known."""

    id: str
    train: tuple[tuple[Grid, Grid], ...]
    test: tuple[tuple[Grid, Grid | None], ...]
    source: str = ""


def parse_file(
    path: PathLike,
    *,
    solutions: PathLike | None = None,
    null_as: int | None = None,
    flat_rows: bool = False,
    faults: dict[str, str] | None = None,
) -> list[RawTask]:
    """The tasks of a JSON file, in its order.

    The first task that cannot be used raises `TaskError`. With a dictionary as `faults` it is left out instead, and what
    is wrong is noted there, under the file or, of many tasks in one file, under `FILE: ID`.

    The file holds one task (its id is then the file's name without `.json`), or many by id. Beside
    `NAME_challenges.json` the file `NAME_solutions.json` is read for the test outputs; `solutions` names another
    file. `null_as` and `flat_rows` as in `parse_task`.
    """
    try:
        return _parse_file(Path(path), solutions, {"null_as": null_as, "flat_rows": flat_rows}, faults)
    except (TaskError, OSError) as error:
        if faults is None:
            raise
        faults[str(path)] = str(error)
        return []


def _parse_file(
    path: Path, solutions: PathLike | None, options: dict[str, Any], faults: dict[str, str] | None
) -> list[RawTask]:
    content = read_json(path)
    if not isinstance(content, dict):
        raise TaskError(f"{path}: must hold a task or many tasks by id; got {_name_of(content)}.")
    beside = path.with_name(path.name.replace("_challenges", "_solutions"))
    answers = Path(solutions) if solutions is not None else beside if beside != path else None
    known = read_json(answers) if answers is not None and (solutions or answers.exists()) else None
    if known is not None and not isinstance(known, dict):
        raise TaskError(f"{answers}: must hold test outputs by task id; got {_name_of(known)}.")
    options |= {"source": str(path), "solutions_source": None if known is None else str(answers)}
    if isinstance(content.get("train"), list) or "test" in content:
        own = known.get(path.stem) if known is not None else None
        return [parse_task(content, task_id=path.stem, solutions=own, **options)]
    if content and all(isinstance(value, list) for value in content.values()):
        raise TaskError(
            f"{path}: must hold tasks; got lists by id, as in a solutions file. Pass the challenges file, "
            "and this one as `solutions`."
        )
    if not content:
        raise TaskError(f"{path}: must hold at least one task; it is empty.")
    found = []
    with collector_paused():
        for key, task in content.items():
            own = None if known is None else known.get(key, ())
            try:
                found.append(parse_task(task, task_id=key, solutions=own, **options))
            except TaskError as error:
                if faults is None:
                    raise
                faults[f"{path}: {key}"] = str(error)
    return found


def parse_task(
    data: Any,
    *,
    task_id: str,
    source: str = "",
    solutions: Any = None,
    solutions_source: str | None = None,
    null_as: int | None = None,
    flat_rows: bool = False,
) -> RawTask:
    """One task from `{"train": [{"input": grid, "output": grid}, …], "test": […]}`.

    A test output may be missing or null; `solutions` gives the outputs of all test pairs instead, and
    `solutions_source` says in messages where these come from. `null_as` is the
    colour of null cells (by default an error); `flat_rows` takes a flat list of cells as a grid of one row.
    """
    place = f"{source}: task '{task_id}'" if source else f"task '{task_id}'"
    answered = place if solutions_source is None else f"{solutions_source}: task '{task_id}'"
    if not isinstance(data, Mapping):
        raise TaskError(f"{place}: must be an object with 'train' and 'test'; got {_name_of(data)}.")
    if null_as is not None and null_as not in range(COLOURS):
        raise ValueError(f"`null_as` must be a colour 0 to 9 or None; got {null_as!r}.")

    options = (null_as, flat_rows)
    train = tuple(
        (
            _grid(pair["input"], f"{place}, train pair {at} input", *options),
            _grid(pair["output"], f"{place}, train pair {at} output", *options),
        )
        for at, pair in _pairs(data, "train", ("input", "output"), place)
    )
    if not train:
        raise TaskError(f"{place}: must have at least one train pair; got none.")
    tests = list(_pairs(data, "test", ("input",), place))
    if solutions is None:
        solutions = [pair.get("output") for _, pair in tests]
    if not isinstance(solutions, list | tuple) or len(solutions) != len(tests):
        got = len(solutions) if isinstance(solutions, list | tuple) else _name_of(solutions)
        raise TaskError(f"{answered}: the solutions must hold {len(tests)} test outputs; got {got}.")
    test = tuple(
        (
            _grid(pair["input"], f"{place}, test pair {at} input", *options),
            None if answer is None else _grid(answer, f"{answered}, test pair {at} output", *options),
        )
        for (at, pair), answer in zip(tests, solutions, strict=True)
    )
    return RawTask(str(task_id), train, test, source)


def read_json(path: PathLike) -> Any:
    """The content of a JSON file; a syntax error or a key that comes twice is a `TaskError`."""
    demand_file(path)
    try:
        with collector_paused():
            return json.loads(Path(path).read_bytes(), object_pairs_hook=_unique_keys)
    except json.JSONDecodeError as error:
        raise TaskError(
            f"{path}, line {error.lineno}, column {error.colno}: must be JSON; {error.msg}."
        ) from None
    except UnicodeDecodeError as error:
        raise TaskError(f"{path}: must be JSON in UTF-8; byte {error.start} is not.") from None
    except RecursionError:
        raise TaskError(f"{path}: must hold tasks; its lists are nested too deeply for that.") from None
    except ValueError as error:  # a number of thousands of digits
        raise TaskError(f"{path}: must be JSON; {str(error)[:120]}.") from None
    except _TwiceError as error:
        raise TaskError(f"{path}: every id and key must come once; {error} comes twice.") from None


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """No cyclic garbage collection meanwhile: the many small lists of JSON set it off so often that it doubles the time."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


class _TwiceError(Exception):
    pass


def _unique_keys(items: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(items)
    if len(found) != len(items):
        seen: set[str] = set()
        raise _TwiceError(repr(next(key for key, _ in items if key in seen or seen.add(key))))
    return found


def _pairs(
    data: Mapping[str, Any], part: str, keys: tuple[str, ...], place: str
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    if part not in data:
        raise TaskError(f"{place}: must have '{part}'; got the keys {str(sorted(map(str, data)))[:200]}.")
    pairs = data[part]
    if not isinstance(pairs, list | tuple):
        raise TaskError(f"{place}: '{part}' must be a list of pairs; got {_name_of(pairs)}.")
    for at, pair in enumerate(pairs):
        if not isinstance(pair, Mapping):
            raise TaskError(f"{place}, {part} pair {at}: must be an object; got {_name_of(pair)}.")
        for key in keys:
            if key not in pair:
                raise TaskError(
                    f"{place}, {part} pair {at}: must have '{key}'; got {str(sorted(map(str, pair)))[:200]}."
                )
        yield at, pair


def _grid(value: Any, place: str, null_as: int | None, flat_rows: bool) -> Grid:
    """A grid as an array: whole rows at C speed, cell by cell only to say what is wrong."""
    if hasattr(value, "__array__"):  # NumPy's and JAX's
        value = np.asarray(value).tolist()
    if flat_rows and isinstance(value, list) and value and not isinstance(value[0], list | tuple):
        value = [value]
    grid = _quick(value)
    if grid is None and isinstance(value, list | tuple):
        value = [_plain(row) for row in value]
        grid = _quick(value)
    if grid is not None:
        return grid
    if null_as is not None and _has_null(value):
        filled = [[null_as if cell is None else cell for cell in row] for row in value]
        return _grid(filled, place, None, False)
    raise TaskError(_fault(value, place))


def _quick(value: Any) -> Grid | None:
    """A grid of lists at C speed, or None where something is not as it should be."""
    try:
        height, widths = len(value), set(map(len, value))
        flat = list(itertools.chain.from_iterable(value))
        # bool is an int to `bytes`, so the types are compared; every other test is one call in C.
        if len(widths) == 1 and height <= MAX_SIDE and set(map(type, flat)) == {int}:
            width, cells = widths.pop(), bytes(flat)
            if width <= MAX_SIDE and not cells.strip(_VALID):  # all bytes valid: stripping leaves nothing
                return np.frombuffer(cells, np.int8).reshape(height, width)
    except (TypeError, ValueError):
        pass
    return None


def _plain(row: Any) -> Any:
    """A row with Python's numbers in place of NumPy's."""
    if isinstance(row, np.ndarray):
        return row.tolist()
    if not isinstance(row, list | tuple):
        return row
    return [cell.item() if isinstance(cell, np.generic) else cell for cell in row]


def _has_null(value: Any) -> bool:
    rows = isinstance(value, list | tuple) and all(isinstance(row, list | tuple) for row in value)
    return rows and any(cell is None for row in value for cell in row)


def _fault(value: Any, place: str) -> str:
    """The first thing that is wrong with a grid."""
    if not isinstance(value, list | tuple):
        return f"{place}: must be a list of rows; got {_name_of(value)}."
    if not value:
        return f"{place}: must have at least one row; it is empty."
    if len(value) > MAX_SIDE:
        return f"{place}: must be at most {MAX_SIDE} cells high (ARC: 30); got {len(value)}."
    for r, row in enumerate(value):
        if not isinstance(row, list | tuple):
            remedy = " Pass `flat_rows=True` for grids of one row." if r == 0 and len(value) > 1 else ""
            return f"{place}, row {r}: must be a list of cells; got {_name_of(row)}.{remedy}"
        if not row:
            return f"{place}, row {r}: must have at least one cell; it is empty."
        if len(row) > MAX_SIDE:
            return f"{place}, row {r}: must be at most {MAX_SIDE} cells wide (ARC: 30); got {len(row)}."
        if len(row) != len(value[0]):
            return f"{place}, row {r}: must have {len(value[0])} cells like row 0; got {len(row)}."
        for c, cell in enumerate(row):
            if type(cell) is not int or not 0 <= cell < COLOURS:
                remedy = " Pass `null_as=0` if null means colour 0." if cell is None else ""
                return (
                    f"{place}, row {r}, column {c}: must be a colour, an integer 0 to 9; "
                    f"got {_name_of(cell)}.{remedy}"
                )
    return f"{place}: must be a list of rows of colours 0 to 9; got {_name_of(value)}."


def _name_of(value: Any) -> str:
    """A value for a message: JSON's names for constants, short for the rest."""
    if value is None or isinstance(value, bool | float | int | str):
        text = json.dumps(value)
        return text if len(text) <= 40 else f"{text[:40]}…"
    return f"a {'list' if isinstance(value, list | tuple) else type(value).__name__}"
