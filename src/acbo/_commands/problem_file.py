"""A problem in a TOML file, for the command line: variables, target, graph, and the source of rows.

    target = "pain"
    objective = "min"                   # or "max"
    experiments = 10                    # and or: budget = 25.0
    graph = "dose -> pain"              # the whole graph; or a table: [graph] required = [["dose", "pain"]]
    data = "rows.csv"                   # rows from before; intervened = "was_set" names the column of what was set
    simulator = "plant:simulate"        # module and function; or model = "..." in the text language; or benchmark = "toy"
    observations = 50                   # rows to take from the simulator at first

    [variables]
    dose = [0, 10]                      # a range
    coating = {levels = [0, 1, 2], cost = 2.0}
    age = false                         # only measured
    pain = false

Without a simulator the values are asked for in the terminal. A model or a benchmark brings its variables, ranges, costs and
target along; `graph = "known"` then tells its graph.
"""

import contextlib
import dataclasses
import importlib
import re
import sys
import tomllib
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from acbo.names import place, short
from acbo.optimizer.optimizer import Optimizer, Simulator
from acbo.optimizer.simulators import ModelSimulator, one_row
from acbo.optimizer.state import Settings
from acbo.optimizer.variables import Variable
from acbo.optional import optional_package
from acbo.scms.causal_model import CausalModel
from acbo.scms.dsl import parse_model
from acbo.scms.literature import Benchmark, complete_graph, health_graph, toy_graph

PLAIN = ("target", "objective", "strategy", "budget", "experiments", "max_simultaneous", "mechanism", "seed")
SOURCES = ("simulator", "model", "benchmark")
WORDS = (*PLAIN, *SOURCES, "graph", "data", "intervened", "observations", "variables")
BENCHMARKS = {"toy": toy_graph, "complete": complete_graph, "health": health_graph}


@dataclasses.dataclass(frozen=True)
class ProblemFile:
    """The contents of a problem file, ready for an `Optimizer`."""

    path: Path
    options: dict[str, Any]
    observations: int
    simulator: Simulator | None
    optimum: float | None = None
    """The best expected target, where a benchmark says so."""

    def start(self, state: Path | None = None) -> Optimizer:
        """A new optimization; its initial rows are read or simulated."""
        pandas = optional_package("pandas", "a problem file")
        frames = [self._data()] if "data" in self.options else []
        if self.simulator is not None and self.observations:
            frames.append(pandas.DataFrame([one_row(self.simulator({})) for _ in range(self.observations)]))
        more: dict[str, Any] = {"simulator": self.simulator, "path": state}
        if frames:
            more["data"] = pandas.concat(frames, ignore_index=True)
            more["intervened"] = self.options.get("intervened")
        with words_of_file(self.path, graph="text", data="data"):
            return Optimizer(**self._optimizer_options(), **more)

    def settings(self) -> Settings:
        """The problem without its rows."""
        with words_of_file(self.path, graph="text"):
            return Optimizer(**self._optimizer_options()).state.settings

    def resume(self, state: Path) -> Optimizer:
        """Go on with a saved optimization of this problem; budget and number of experiments are those of the file."""
        limits = {name: self.options[name] for name in ("budget", "experiments") if name in self.options}
        found = Optimizer.load(state, self.simulator, **limits)
        fields = ("variables", "target", "objective", "graph", "max_simultaneous", "mechanism")
        mine, saved = self.settings(), found.state.settings
        for field in fields:
            if getattr(mine, field) != getattr(saved, field):
                raise ValueError(
                    f"`--state` must be of the same problem; `{field}` in {state} differs from {self.path}. Name another "
                    "state file, or restore the problem."
                )
        if isinstance(self.simulator, ModelSimulator):
            self.simulator.calls = self.observations + len(found.state.made)
        return found

    def _optimizer_options(self) -> dict[str, Any]:
        return {key: value for key, value in self.options.items() if key not in ("data", "intervened")}

    def _data(self) -> Any:
        """The table that the file names."""
        source = self.path.parent / self.options["data"]
        if "\0" in str(source) or len(source.name) > 200 or not source.is_file():
            raise ValueError(f"`data` must be a file beside {self.path.name}; {source} is not there.")
        pandas = optional_package("pandas", "`data`")
        try:
            found = pandas.read_csv(source)
            for mark, word in ((";", "semicolons"), ("\t", "tabs"), ("|", "bars")):
                if len(found.columns) == 1 and mark in str(found.columns[0]):
                    raise ValueError(f"its cells are separated by {word}")
        except (ValueError, OverflowError) as error:  # of pandas: of the parser, no columns, no text
            raise ValueError(
                f"`data` must be a table of text in UTF-8, a row for each line and commas between cells; {source}: "
                f"{str(error).strip()[:200]}."
            ) from error
        described = self.options["variables"]
        names = described if isinstance(described, Mapping) else [variable.name for variable in described]
        for name in found.columns.intersection(list(names)):
            _demand_numbers(found[name], name, source)
        return found


def _demand_numbers(column: Any, name: str, source: Path) -> None:
    """Raise for a column that contains a word, and name the word: pandas reads the whole column as text."""
    if column.dtype.kind in "biufc":
        return
    for row, cell in enumerate(column, start=1):
        try:
            float(cell)
        except OverflowError:
            raise ValueError(
                f"`data` must hold numbers below 1e308; column {name!r} has {short(cell)} in row {row} of {source}. "
                "Correct that cell, or give the column another unit."
            ) from None
        except (TypeError, ValueError):
            raise ValueError(
                f"`data` must hold numbers; column {name!r} has {short(cell)} in row {row} of {source}.{_as_number(cell)}"
            ) from None


def _as_number(cell: Any) -> str:
    """The remedy for a number with a decimal comma, or for a word."""
    try:
        return f" Write {float(str(cell).replace(',', '.')):g} with a point."
    except ValueError:
        return " Write a number, or take the column out; a column that says what was set is named by `intervened`."


@contextlib.contextmanager
def words_of_file(path: Path, **words: str) -> Iterator[None]:
    """While active, errors and warnings name the words of the problem file instead of Python arguments."""
    try:
        with warnings.catch_warnings(record=True) as warned:
            yield
        for one in warned:
            text = re.sub(
                r"Write \{'(.*?)': None\}", r'Write "\1" = false under [variables]', str(one.message)
            )
            text = re.sub(r"write \{'(.*?)': \((.*?)\)\}", r'write "\1" = [\2] under [variables]', text)
            warnings.warn(text, one.category, stacklevel=3)
    except ValueError as error:
        said = str(error).replace("Pass `", "Write `")
        said = said.replace(
            "by a tuple (low, high), a list of levels, None or a Variable",
            "by [low, high], {levels = [...]} or false",
        )
        for word, argument in words.items():
            said = said.replace(f"`{argument}`", f"`{word}` in {path}")
        said = re.sub(
            r"Drop it, as in frame(?:\.rename\(columns=str\))?\.drop\(columns=.*?\]\), "
            r"or describe it in `variables`: \{'(.*?)': None\} for",
            r'Take it out of the table, or write "\1" = false under [variables] for',
            said,
        )
        if "data" in words:
            said = re.sub(
                r"`data\[(\d+)\]`", lambda found: f"row {int(found[1]) + 1} of the data of {path}", said
            )
        if said == str(error):
            raise
        raise ValueError(said) from error


def read_problem(path: Path) -> ProblemFile:
    """Read a problem file; unknown words and contradictions raise."""
    try:
        said = tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} must be TOML; {str(error)[:200]}.") from error
    _check_words(path, said)
    for word in said:
        place(word, WORDS, f"a key of {path}")
    sources = [word for word in SOURCES if word in said]
    if len(sources) > 1:
        raise ValueError(f"{path} must name one of {', '.join(SOURCES)}; got {' and '.join(sources)}.")
    options = {word: said[word] for word in (*PLAIN, "graph", "data", "intervened") if word in said}
    simulator, optimum = _source(path, said, options)
    if "variables" in said:
        options["variables"] = _variables(said["variables"])
    for needed in ("variables", "target"):
        if needed not in options:
            raise ValueError(f"{path} must say `{needed}`; it does not. See `acbo optimize --help`.")
    if options.get("graph") == "known" and simulator is None:
        raise ValueError(
            f"`graph` in {path} must be its edges; 'known' stands for those of a `model` or a `benchmark`, and it names none. "
            'Write them, as in graph = "dose -> pain", or leave `graph` out.'
        )
    observations = int(said.get("observations", 0))
    if observations and simulator is None:
        raise ValueError(
            f"`observations` must come from a simulator; {path} has none. Name one, or give rows by `data`."
        )
    if observations and "intervened" in said:
        raise ValueError("`observations` and `intervened` must not both be given. Put all rows into `data`.")
    return ProblemFile(path, options, observations, simulator, optimum)


def _check_words(path: Path, said: Mapping[str, Any]) -> None:
    """Raise for a value of the wrong type."""
    for word, kind in _KINDS.items():
        if word in said and (not isinstance(said[word], kind) or isinstance(said[word], bool)):
            demand = {str: "text", int: "a whole number", dict: "a table"}.get(kind, "a number")
            quoted = kind is str and isinstance(said[word], int | float)
            remedy = f' Write {word} = "{said[word]}".' if quoted and not isinstance(said[word], bool) else ""
            raise ValueError(f"`{word}` in {path} must be {demand}; got {short(said[word])}.{remedy}")
    for word in ("observations", "seed"):
        if not 0 <= said.get(word, 0) < 1 << 31:
            raise ValueError(f"`{word}` in {path} must be from 0 to 2147483647; got {said[word]}.")


_KINDS: dict[str, Any] = {
    **dict.fromkeys(("target", "objective", "strategy", "mechanism", "data", "intervened", *SOURCES), str),
    **dict.fromkeys(("experiments", "max_simultaneous", "seed", "observations"), int),
    "budget": (int, float),
    "variables": dict,
}


def _source(
    path: Path, said: Mapping[str, Any], options: dict[str, Any]
) -> tuple[Simulator | None, float | None]:
    """The simulator and the optimum; variables, target and graph of a model are added to the options."""
    seed, optimum = int(said.get("seed", 0)), None
    if "simulator" in said:
        return _import_simulator(path, str(said["simulator"])), None
    if "model" in said:
        with words_of_file(path, model="text"):
            known: CausalModel | Benchmark = _model(said["model"], said.get("target"))
        model = known
    elif "benchmark" in said:
        known = BENCHMARKS[list(BENCHMARKS)[place(str(said["benchmark"]), tuple(BENCHMARKS), "benchmark")]]()
        model, optimum = known.model, known.optimum
        options.setdefault("objective", "min" if known.minimize else "max")
    else:
        return None, None
    options.setdefault("target", model.target)
    options.setdefault(
        "variables",
        [
            # A model may have a range of its target, which experiments never set.
            Variable(name) if name == options["target"] else _variable(model, name)
            for name in model.names
            if name not in model.hidden
        ],
    )
    if options.get("graph") == "known":
        options["graph"] = [edge for edge in model.edges if not set(edge) & set(model.hidden)]
    return ModelSimulator(known, seed), optimum


def _model(text: str, target: str | None) -> CausalModel:
    """The model in a text; the problem's target is used if the text names none."""
    try:
        return parse_model(text)
    except ValueError as error:
        if target is None or not str(error).startswith("`target` must be given"):
            raise
        return parse_model(text, target=target)


def _variable(model: CausalModel, name: str) -> Variable:
    if name not in model.ranges:
        return Variable(name)
    at = model.index(name)
    low, high = model.ranges[name]
    fixed, unit = (float(np.asarray(price)[at]) for price in (model.scm.cost_fixed, model.scm.cost_unit))
    return Variable(name, low=low, high=high, cost=fixed, cost_per_unit=unit)


def _variables(given: Mapping[str, Any]) -> dict[str, Any]:
    """Read `variables`: a list of two numbers is a range, because TOML has no tuples."""
    found = {}
    for name, what in given.items():
        if isinstance(what, list):
            if len(what) != 2:
                raise ValueError(
                    f"`variables` must give a range of {name!r} as [low, high]; got {short(what)}. Write "
                    f"{name} = {{levels = {short(what)}}} for levels."
                )
            what = (what[0], what[1])
        found[name] = what
    return found


def _import_simulator(path: Path, name: str) -> Simulator:
    """The function `module:function`; modules beside the problem are found."""
    module, _, function = name.partition(":")
    if not function or not all(part.isidentifier() for part in (*module.split("."), function)):
        raise ValueError(f"`simulator` must be 'module:function'; got {short(name)}.")
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise ValueError(
            f"`simulator` must be a function that can be imported; {name!r}: {error}."
        ) from error
    return found
