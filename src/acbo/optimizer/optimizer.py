"""The optimizer with names and units: ask for experiments, tell their results, get a recommendation."""

import dataclasses
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from acbo.beliefs import BeliefSettings
from acbo.data import bucket
from acbo.optional import optional_package
from acbo.strategies import AbstractStrategy, Random, strategy_named
from jaxworlds.store import StoreError

from .advice import Advice, Explanation, GraphBelief, bounds, check_advice, explain, graph_belief
from .arrays import affordable, data_of, levels_of, scaled_problem
from .current_belief import CurrentBelief, key_for
from .graph_knowledge import Graph, graph_of
from .notices import notices
from .programs import final_choice, next_choice, unchecked_proposal
from .report import plot_effects, plot_graph, plot_regret, write_report
from .rows import Marks, Table, initial_rows, parse_rows
from .simulators import run
from .state import Levels, Pending, Settings, State, read_state, write_state
from .variables import Variable, Variables, variables_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

PathLike = str | os.PathLike[str]
Simulator = Callable[[Levels], Any]
"""Takes the values that are set, by name, and returns one row of all variables: a mapping, Series or one-row frame."""
USUAL_EXPERIMENTS = 10
"""Number of experiments a strategy plans for if there is no limit."""


class Optimizer:
    """Chooses experiments on variables with an unknown, a partly known or a known causal graph.

    - `variables`: `{"dose": (0, 10), "sex": [0, 1], "age": None}` for a range, levels, only measured; or `Variable`s.
    - `target`, `objective`: the variable to make small (`"min"`) or large (`"max"`).
    - `graph`: prior knowledge. Edges, text such as `"dose -> pain"` or a networkx graph are the whole graph; a
      mapping of `required`, `forbidden`, `tiers`, `probabilities` is a part; None is nothing.
    - `data`: a data frame of rows from before; `intervened` marks what was set in them, as for `acbo.from_frame`.
    - `simulator`: a function from what is set to one row of all variables, for `run`.
    - `strategy`: a name, or an `AbstractStrategy`.
    - `budget`: most that all experiments may cost; `experiments`: most that may be made. Those told without having
      been asked for count; rows in `data` do not.
    - `max_simultaneous`: most variables that one experiment sets.
    - `mechanism`: `"linear"`, or `"smooth"` where effects bend.
    - `path`: a file that is written before every `ask` and `tell` returns; `Optimizer.load` goes on from it.

        opt = Optimizer({"dose": (0, 10), "pain": None}, target="pain")
        todo = opt.ask()
        opt.tell(todo.assign(pain=[3.5]))
        opt.recommend()
    """

    def __init__(
        self,
        variables: Variables,
        *,
        target: str | int,
        objective: str = "min",
        graph: Graph = None,
        data: "pd.DataFrame | None" = None,
        intervened: Marks = None,
        simulator: Simulator | None = None,
        strategy: str | AbstractStrategy = "policy",
        budget: float | None = None,
        experiments: int | None = None,
        max_simultaneous: int = 1,
        mechanism: str = "linear",
        seed: int = 0,
        path: PathLike | None = None,
    ) -> None:
        # Columns of a table without names are whole numbers; inside, every name is text.
        target = target if isinstance(target, str) else str(target)
        given = variables_of(variables)
        described = tuple(Variable(v.name, manipulable=False) if v.name == target else v for v in given)
        bucket(len(described))  # refuses more than programs are made for
        settings = Settings(
            variables=described,
            target=target,
            objective=objective,
            graph=graph_of(graph, [v.name for v in described]),
            strategy=strategy if isinstance(strategy, str) else None,
            budget=budget,
            experiments=experiments,
            max_simultaneous=max_simultaneous,
            mechanism=mechanism,
            seed=seed,
        )
        _warn_of_range(given[settings.goal])
        if path is not None and Path(path).exists():
            raise ValueError(
                f"`path` must not be a file that is there; {os.fspath(path)} is. Go on with it by `Optimizer.load(path)`, "
                "or remove it."
            )
        self._start(State(settings, initial_rows(settings, data, intervened)), strategy, simulator, path)
        self._keep(self._state)

    def _start(
        self,
        state: State,
        strategy: str | AbstractStrategy,
        simulator: Simulator | None,
        path: PathLike | None,
    ) -> None:
        self._strategy = _strategy_for(strategy, state.settings)
        self._state, self._current_belief = state, CurrentBelief(state, self._strategy)
        self._path = None if path is None else Path(path)
        self.simulator = simulator
        self._noticed: set[str] = set()
        self._notice()

    @classmethod
    def load(
        cls,
        path: PathLike,
        simulator: Simulator | None = None,
        *,
        strategy: AbstractStrategy | None = None,
        budget: float | None = None,
        experiments: int | None = None,
        keep: bool = True,
    ) -> "Optimizer":
        """Go on from a saved file; `keep=False` does not write to it again.

        A strategy that was given as an object is not in the file and must be given again. `budget` and `experiments`,
        where given, take the place of those in the file.
        """
        state = read_state(path)
        limits = {"budget": budget, "experiments": experiments}
        limits = {name: limit for name, limit in limits.items() if limit is not None}
        state = dataclasses.replace(state, settings=dataclasses.replace(state.settings, **limits))
        chosen = state.settings.strategy if strategy is None else strategy
        if chosen is None:
            raise ValueError(
                f"`strategy` must be given: {os.fspath(path)} was made with one of its own, which no file holds."
            )
        found = cls.__new__(cls)
        try:
            found._start(state, chosen, simulator, path if keep else None)
        except ValueError as error:
            raise StoreError(f"{os.fspath(path)} holds an optimization that cannot go on: {error}") from error
        return found

    def save(self, path: PathLike) -> None:
        """Write everything to one readable file, whole or not at all."""
        write_state(path, self._state)

    def _keep(self, state: State) -> None:
        """Write the state to disk, then make it the current one."""
        if self._path is not None:
            write_state(self._path, state)
        if state.rows is not self._state.rows:
            self._current_belief = CurrentBelief(state, self._strategy)
        else:
            self._current_belief.state = state  # beliefs hang on rows alone
        self._state = state
        self._notice()

    def _notice(self, again: Sequence[str] = ()) -> None:
        """Warn of problems that make advice doubtful, each kind once; those in `again` at every call."""
        for kind, text in notices(self._state).items():
            if kind in again or kind not in self._noticed:
                self._noticed.add(kind)
                warnings.warn(text, stacklevel=3)

    # Properties

    @property
    def state(self) -> State:
        """Everything that is saved; an immutable value."""
        return self._state

    @property
    def current_belief(self) -> CurrentBelief:
        """The belief behind recommendations, explanations and pictures."""
        return self._current_belief

    @property
    def variables(self) -> tuple[Variable, ...]:
        return self._state.settings.variables

    @property
    def target(self) -> str:
        return self._state.settings.target

    @property
    def stopped(self) -> bool:
        """True if the strategy wants no further experiment; `stop_reason` says why."""
        return self._state.stopped is not None

    @property
    def stop_reason(self) -> str | None:
        return self._state.stopped

    @property
    def spent(self) -> float:
        """Cost of the experiments with results."""
        return self._state.spent

    @property
    def remaining(self) -> float:
        """Number of experiments that may still be asked for, by their limit and by the cost of the cheapest."""
        settings, money = self._state.settings, self._state.money
        prices = []
        for v in settings.settable:
            if ends := affordable(settings, v.name, money):
                holds_zero = v.levels is None and ends[0] < 0 < ends[-1]
                prices.append(v.price(0.0 if holds_zero else min(ends, key=abs)))
        if not prices:
            return 0.0
        paid = money if money == float("inf") else float(np.floor(money / max(min(prices), 1e-12) + 1e-9))
        return min(self._state.places, paid)

    # Ask and tell

    def ask(self, n: int = 1) -> "pd.DataFrame":
        """The next experiments: a row for each under its number, values to set, NaN for what is left alone, and the cost.

        They are pending until they are told or cancelled; asking again gives others. Fewer than `n` come back where the
        budget ends, and none where the strategy wants to stop (see `stopped`).
        """
        if n < 1:
            raise ValueError(f"`n` must be at least 1; got {n}.")
        state, asked = self._state, []
        self._require_means(state)
        while len(asked) < n and _can_pay(state):
            choice = self._choose(state)
            if choice is None:
                reason = f"after {len(state.made)} experiments the strategy expects nothing of another one"
                state = dataclasses.replace(state, stopped=reason)
                break
            pending = Pending(state.asked, choice)
            asked.append(pending)
            state = dataclasses.replace(
                state, pending=(*state.pending, pending), asked=state.asked + 1, stopped=None
            )
        self._keep(state)
        return _experiment_frame(state.settings, asked)

    def _choose(self, state: State) -> Levels | None:
        """The next values to set; None where the strategy expects nothing of another experiment."""
        current_belief = self._current_belief
        current_belief.state = state  # its pending experiments are thought of as made
        scaling = current_belief.scaling
        problem = scaled_problem(state, scaling, state.money)
        # Random experiments do not depend on pending ones.
        expected = () if isinstance(self._strategy, Random) else current_belief.fantasies()
        data = data_of(state, scaling, expected)
        left = jnp.asarray(_plan(state), problem.low.dtype)
        key = key_for(state.settings, "choose", state.asked)
        choice = jax.device_get(next_choice(self._strategy, problem, data, left, key))
        return None if choice.stop else levels_of(state, scaling, choice.mask, choice.value, state.money)

    def _require_means(self, state: State) -> None:
        settings = state.settings
        if state.places < 1:
            raise ValueError(
                f"`experiments` must leave one to ask for; all {settings.experiments} are made or pending "
                f"({len(state.pending)} pending). Tell or cancel, or go on with "
                "`Optimizer.load(path, experiments=...)`."
            )
        if not _can_pay(state):
            raise ValueError(
                f"`budget` must pay for an experiment; {max(state.money, 0.0):g} of {settings.budget:g} is left "
                f"({state.pending_cost:g} is for pending ones), and none costs so little. Call `recommend`."
            )

    def tell(self, rows: Table, do: Marks = None) -> None:
        """Add measured rows: all of them, or none if one is wrong.

        A data frame, a mapping, or a list of mappings with a value of every variable. A row with the number of its
        `experiment` (a column, or the index of what `ask` gave) takes the values that were set from there. Others are
        observations, or experiments made elsewhere where `do` says what was set: names, a column of names joined by
        commas, or a mask. A mapping may hold its own, as in `{"do": {"dose": 3}, "pain": 1.5}`.
        """
        state = self._state
        new = parse_rows(state, rows, do)
        done = {row.experiment for row in new}
        self._keep(
            dataclasses.replace(
                state,
                rows=(*state.rows, *new),
                pending=tuple(p for p in state.pending if p.experiment not in done),
                stopped=None,
            )
        )

    def pending(self) -> "pd.DataFrame":
        """Experiments without results."""
        return _experiment_frame(self._state.settings, self._state.pending)

    def cancel(self, experiment: int) -> None:
        """Give up a pending experiment; its cost is free again."""
        state = self._state
        if experiment not in [p.experiment for p in state.pending]:
            known = ", ".join(str(p.experiment) for p in state.pending) or "none"
            raise ValueError(f"`experiment` must be pending ({known}); got {experiment}.")
        kept = tuple(p for p in state.pending if p.experiment != experiment)
        self._keep(dataclasses.replace(state, pending=kept, cancelled=(*state.cancelled, experiment)))

    def run(self, n: int | None = None, *, progress: bool | None = None) -> "pd.DataFrame":
        """Ask, simulate and tell: `n` times, or until the budget, the experiments or the strategy end it.

        Pending experiments come first. Ctrl-C ends it early; results so far are kept, and the current experiment stays pending.
        `progress` shows a bar on stderr; by default only on a terminal and in a notebook. Returns the history.
        """
        run(self, n, progress)
        return self.history()

    # Answers

    def history(self) -> "pd.DataFrame":
        """All rows: values, what was set (`set`), the number of the experiment, and its cost."""
        pandas, state = optional_package("pandas", "`history`"), self._state
        frame = pandas.DataFrame(
            [row.values for row in state.rows], columns=list(state.settings.names), dtype=float
        )
        costs = [0.0 if row.given else state.settings.price(state.levels(row)) for row in state.rows]
        return frame.assign(
            set=[",".join(row.do) for row in state.rows],
            experiment=pandas.array([row.experiment for row in state.rows], dtype="Int64"),
            cost=np.array(costs, float),
        )

    def posterior(self) -> GraphBelief:
        """Probability of every edge, and of every variable to be a direct cause of the target."""
        return graph_belief(self._current_belief)

    def recommend(self) -> Advice:
        """The best action by the current belief, and its expected target.

        What the strategy recommends is checked against the experiments made and against doing nothing. Where they
        disagree, the advice is the best of what was measured, and `notes` say why. The band is `explain`'s.
        """
        state, current_belief = self._state, self._current_belief
        if not state.rows:
            raise ValueError(
                "`recommend` needs at least one row; got none. Tell observations or experiments."
            )
        self._notice(again=("constant",))
        key = key_for(state.settings, "recommend")
        problem, data = current_belief.problem, current_belief.data
        proposal = unchecked_proposal(self._strategy, problem, data)
        choice = final_choice(self._strategy, problem, data, current_belief.belief, proposal, key)
        found, proposal = jax.device_get((choice, proposal))
        do = levels_of(state, current_belief.scaling, found.mask, found.value)
        proposed = None if proposal is None else levels_of(state, current_belief.scaling, *proposal)
        do, notes = check_advice(current_belief, do, proposed)
        low, expected, high = (float(part[0]) for part in bounds(current_belief, do))
        return Advice(do, expected, low, high, self.target, notes)

    def explain(self, experiment: int | Mapping[str, float] | None = None) -> Explanation:
        """Why this experiment: a pending one by number, values by name, or by default the last pending one.

        Without a pending one it explains the recommendation.
        """
        pending = {p.experiment: p.do for p in self._state.pending}
        if isinstance(experiment, Mapping):
            levels = {str(name): float(value) for name, value in experiment.items()}
            for name, value in levels.items():
                self._state.settings.variable(name, "experiment").refuse(value, "experiment")
            return explain(self._current_belief, levels)
        if experiment is None:
            if not pending:
                return explain(self._current_belief, self.recommend().do)
            experiment = next(reversed(pending))
        if experiment not in pending:
            known = ", ".join(map(str, pending)) or "none"
            raise ValueError(f"`experiment` must be pending ({known}) or values by name; got {experiment}.")
        return explain(self._current_belief, pending[experiment], experiment)

    # Pictures

    def plot_regret(self, optimum: float | None = None) -> "Figure":
        """The best expected target so far against the cost; with `optimum`, its distance from that."""
        return plot_regret(self._current_belief, optimum)

    def plot_effects(self) -> "Figure":
        """E[target | do] with bands that hold nine of ten models, for each variable, and what experiments gave."""
        return plot_effects(self._current_belief)

    def plot_graph(self) -> "Figure":
        """The variables with arrows as strong as their probability."""
        return plot_graph(self._current_belief)

    def report(self, path: PathLike, *, optimum: float | None = None) -> Path:
        """Write one HTML page: recommendation, progress, effects, graph, and all experiments."""
        return write_report(self, path, optimum=optimum)

    def __repr__(self) -> str:
        state = self._state
        money = (
            "" if state.settings.budget is None else f", {state.spent:g} of {state.settings.budget:g} spent"
        )
        return (
            f"Optimizer({state.settings.objective} {self.target}, {len(state.settings.variables)} variables, "
            f"{len(state.rows)} rows, {len(state.made)} experiments, {len(state.pending)} pending{money})"
        )


def _warn_of_range(target: Variable) -> None:
    """Warn if the target has a range: it is measured and never set."""
    if target.low is not None or target.levels is not None:
        warnings.warn(
            f"`variables` must give the target {target.name!r} no range or levels, because experiments never set it; they are "
            f"ignored. Write {{{target.name!r}: None}}.",
            stacklevel=3,
        )


def _can_pay(state: State) -> bool:
    settings = state.settings
    return state.places >= 1 and any(affordable(settings, v.name, state.money) for v in settings.settable)


def _plan(state: State) -> float:
    """Number of experiments the strategy may plan for."""
    settings = state.settings
    typical = np.mean([v.price(((v.low or 0.0) + (v.high or 0.0)) / 2) for v in settings.settable])
    money = state.money / typical if typical > 0 else float("inf")
    planned = min(state.places, money)
    return USUAL_EXPERIMENTS if planned == float("inf") else max(1.0, float(planned))


def _strategy_for(strategy: str | AbstractStrategy, settings: Settings) -> AbstractStrategy:
    """The strategy, with the kind of mechanism that the settings name."""
    if strategy == "cbo" and not settings.graph.known:
        raise ValueError(
            "`graph` must be the whole graph for `strategy='cbo'`; it is not. Give its edges, or take another strategy."
        )
    found: Any = strategy_named(strategy) if isinstance(strategy, str) else strategy
    own = getattr(found, "settings", None)
    # An object keeps its settings, but where the user says that effects bend it believes so too.
    if not isinstance(own, BeliefSettings) or (found is strategy and settings.mechanism != "smooth"):
        return found
    return dataclasses.replace(found, settings=dataclasses.replace(own, mechanism=settings.mechanism))


def _experiment_frame(settings: Settings, experiments: Any) -> "pd.DataFrame":
    pandas = optional_package("pandas", "`ask`")
    names = [v.name for v in settings.settable]
    rows = [[p.do.get(name, float("nan")) for name in names] + [settings.price(p.do)] for p in experiments]
    index = pandas.Index([p.experiment for p in experiments], name="experiment", dtype="int64")
    return pandas.DataFrame(rows, index=index, columns=[*names, "cost"], dtype=float)
