"""What is fuzzed: a loader with valid inputs, and how the outcome of one input is judged."""

import random
import traceback
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fuzz_mutants import MUTANTS

SOURCE = Path(__file__).resolve().parents[2] / "src"
LONGEST = 2500
"""A message with more characters than this is no message."""


class Garbage(Exception):
    """A damaged input was loaded without a word, and what came out is not well-formed."""


@dataclass(frozen=True)
class Loader:
    """One loader: how its valid inputs are made, how one is read and checked, and how inputs are spoiled.

    `seeds` writes what lies beside the input into a folder and returns valid inputs for the file `target` there.
    `load` reads that file and raises `Garbage` where the result is not well-formed.
    """

    name: str
    target: str
    seeds: Callable[[Path], list[bytes]]
    load: Callable[[Path], Any]
    mutants: tuple[str, ...]
    names: tuple[str, ...] = ()
    """Words that a message may name instead of the file, such as an argument."""
    weight: float = 1.0
    """Share of the inputs: cheap loaders take more."""
    also: tuple[type[Exception], ...] = ()
    """Errors that are clear here beside `ValueError` and `OSError`, such as `TypeError` for objects of Python."""


@dataclass(frozen=True)
class Outcome:
    """What became of one input: "loaded", "refused", or what is wrong."""

    kind: str
    detail: str = ""

    @property
    def fine(self) -> bool:
        return self.kind in ("loaded", "refused")


def make_input(loader: Loader, seeds: list[bytes], seed: int, index: int) -> bytes:
    """The input of this number: the same bytes in every process."""
    rng = random.Random(f"{loader.name} {seed} {index}")
    data = rng.choice(seeds)
    kind = rng.choice(loader.mutants)
    for _ in range(5):
        try:
            made = MUTANTS[kind](rng, data)
        except (
            ValueError,
            KeyError,
            IndexError,
            TypeError,
            OSError,
            RuntimeError,
            OverflowError,
            AttributeError,
        ):
            continue  # a mutant of a mutant that its own tools refuse
        if made != data:
            return made
    return MUTANTS["bytes"](rng, data)


def try_one(loader: Loader, path: Path) -> Outcome:
    """Load what lies at `path` and judge what happens."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            loader.load(path)
        except Garbage as error:
            return Outcome("garbage", str(error))
        except Exception as error:  # noqa: BLE001 (whatever comes is judged)
            why = unclear(error, path, loader)
            return Outcome("refused") if why is None else Outcome(why, traceback.format_exc(limit=-12))
    return Outcome("loaded")


def unclear(error: Exception, path: Path, loader: Loader) -> str | None:
    """Why an error does not tell a reader what is wrong with which file or argument; None where it does."""
    import json
    import tomllib

    kind, message = type(error), str(error)
    if (kind.__module__, kind.__name__) == ("jaxtyping", "TypeCheckError"):
        return (
            None  # of the test suite's own checks, which refuse a wrong type a step before the function would
        )
    ours = kind.__module__.partition(".")[0] in ("jaxworlds", "jaxarc", "jaxtrace", "acbo")
    raw = (UnicodeError, json.JSONDecodeError, tomllib.TOMLDecodeError)
    if not isinstance(error, (ValueError, OSError, *loader.also)) or (isinstance(error, raw) and not ours):
        return f"unclear {kind.__name__}"
    if not ours and kind.__module__ not in ("builtins",):
        return f"foreign {kind.__module__}.{kind.__name__}"
    if not any(word in message for word in (path.name, path.stem, str(path.parent), *loader.names)):
        return f"nameless {kind.__name__}"
    if not 15 <= len(message) <= LONGEST:
        return f"message of {len(message)} characters"
    return None


def demand(true: Any, what: str) -> None:
    """Raise `Garbage` unless `true`."""
    if not true:
        raise Garbage(what)


def demand_arrays(arrays: Iterable[tuple[str, Any]], kinds: str = "fiub", finite: bool = False) -> None:
    """Raise `Garbage` unless all are arrays of a plain kind; with `finite` without NaN or infinities."""
    import numpy as np

    for name, values in arrays:
        found = np.asarray(values)
        demand(found.dtype.kind in kinds, f"{name} has dtype {found.dtype}")
        if finite and found.dtype.kind == "f":
            demand(np.isfinite(found).all(), f"{name} is not finite")
