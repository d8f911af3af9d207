"""Ask and tell: descriptions, checks that change nothing, money, scaling, and exact resumption."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import networkx as nx
import numpy as np
import pandas as pd
import pytest

import acbo
from acbo.optimizer import Optimizer, Variable
from acbo.optimizer.arrays import data_of, levels_of, scaled_problem, scaling_of
from acbo.optimizer.graph_knowledge import graph_of
from acbo.optimizer.variables import variables_of
from jaxworlds.compiling import CompileWatch
from jaxworlds.store import StoreError

pytestmark = pytest.mark.usefixtures("quick_compile")

VARIABLES = {"dose": (0, 10), "coat": [0, 1, 4], "age": None, "pain": None}


def simulate(do: dict[str, float]) -> dict[str, float]:
    """A row that follows from what is set alone."""
    dose, coat = do.get("dose", 5.0), do.get("coat", 1.0)
    return {"dose": dose, "coat": coat, "age": 40.0 + coat, "pain": 8 - 0.5 * dose + coat}


def random_optimizer(**options: Any) -> Optimizer:
    return Optimizer(**{"variables": VARIABLES, "target": "pain", "strategy": "random", **options})


def rows_of(count: int) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    dose, coat = rng.normal(5, 2, count), rng.choice([0.0, 1.0, 4.0], count)
    pain = 8 - 0.5 * dose + coat + rng.normal(0, 0.3, count)
    return pd.DataFrame({"dose": dose, "coat": coat, "age": rng.normal(40, 5, count), "pain": pain})


def test_variables_are_described_in_friendly_ways() -> None:
    dose, sex, age, heat = variables_of(
        {"dose": (0, 10), "sex": [1, 0], "age": None, "heat": {"low": 1, "high": 2, "cost": 3}}
    )
    assert (dose.low, dose.high, dose.levels, dose.manipulable) == (0.0, 10.0, None, True)
    assert (sex.levels, sex.low, sex.high) == ((0.0, 1.0), 0.0, 1.0)
    assert not age.manipulable
    assert heat.price(1.5) == 3
    assert Variable.from_json(json.loads(json.dumps(sex.to_json()))) == sex
    assert variables_of([dose, "age"]) == (dose, age)
    assert Variable("dose", low=0, high=10, cost_per_unit=0.5).price(-4) == 3.0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"a": (1, 0), "b": None}, "`low` of 'a' must be below `high`; got 1 and 0"),
        ({"a": (0, float("nan")), "b": None}, "a: high` must be a finite number"),
        ({"a": [1], "b": None}, "`levels` of 'a' must be two or more different numbers"),
        ({"a": [1, 1], "b": None}, "two or more different"),
        ({"a": "0..1", "b": None}, "`variables` must describe 'a' by a tuple"),
        ({"a": {"lowest": 0}, "b": None}, "got 'lowest'"),
        ({"cost": (0, 1), "b": None}, "rename the variable"),
        ({"a": {"low": 0, "high": 1, "cost": -1}, "b": None}, "`cost` of 'a' must be at least 0; got -1"),
        ({"a": {"manipulable": True}, "b": None}, "`manipulable` needs a range"),
        ({"a": None}, "at least two"),
        ([Variable("a"), "a"], "got 'a' twice"),
    ],
)
def test_wrong_descriptions_are_refused(given: Any, said: str) -> None:
    with pytest.raises(ValueError) as error:
        variables_of(given)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"target": "pein"}, "Did you mean 'pain'?"),
        ({"objective": "least"}, "`objective` must be one of min, max"),
        ({"mechanism": "cubic"}, "`mechanism` must be one of linear, smooth"),
        ({"strategy": "rendom"}, "Did you mean 'random'?"),
        ({"strategy": "cbo"}, "`graph` must be the whole graph"),
        ({"budget": 0}, "`budget` must be a number above 0"),
        ({"experiments": 0}, "`experiments` must be at least 1"),
        ({"max_simultaneous": 0}, "`max_simultaneous` must be at least 1"),
        ({"graph": "dose -> pian"}, "Did you mean 'pain'?"),
        ({"graph": {"needed": []}}, "`graph` must be one of required, forbidden"),
        ({"graph": [("dose", "pain"), ("pain", "dose")]}, "cycle"),
        ({"variables": {"dose": None, "pain": (0, 1)}}, "one that can be set beside the target"),
        (
            {"variables": {"dose": {"low": 0, "high": 1, "cost": 0}, "pain": None}, "budget": 3},
            "spent by something",
        ),
        ({"data": rows_of(3).assign(pain=np.nan)}, "`data[0]` must have a finite number for 'pain'"),
        ({"data": rows_of(3).drop(columns="age")}, "got none of age"),
        ({"data": rows_of(3).assign(extra=1)}, "got the column 'extra'"),
    ],
)
def test_wrong_problems_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError) as error:
        random_optimizer(**options)
    assert said in str(error.value)


def test_knowledge_of_the_graph_comes_in_many_forms() -> None:
    names = ("X", "Z", "Y")
    whole = graph_of("X -> Z -> Y", names)
    assert (
        whole
        == graph_of([("X", "Z"), ("Z", "Y")], names)
        == graph_of(nx.DiGraph([("X", "Z"), ("Z", "Y")]), names)
    )
    assert whole.known
    arrays = whole.arrays(names, 8)
    assert np.asarray(arrays.required).sum() == 2
    assert (np.asarray(arrays.forbidden) == ~np.asarray(arrays.required)).all()
    assert graph_of("X -> Y; X <-> Z", names).required == (("X", "Y"),), "hidden common causes are no edges"
    part = graph_of(
        {"forbidden": [("Y", "X")], "tiers": [["X"], ["Y"]], "probabilities": {("Z", "Y"): 0.9}}, names
    )
    assert not part.known
    assert graph_of(None, names) == graph_of({}, names)
    for graph in (whole, part):
        assert type(graph).from_json(json.loads(json.dumps(dataclasses.asdict(graph)))) == graph
    with pytest.raises(ValueError, match="must be directed"):
        graph_of(nx.Graph([("X", "Z")]), names)
    with pytest.raises(ValueError, match=r"edges \(cause, effect\)"):
        graph_of(["XZ"], names)
    for given, argument in (
        ([("X", "Z"), ("Z", "X")], "graph"),
        ({"required": [("X", "X")]}, "graph: required"),
    ):
        with pytest.raises(ValueError, match=f"`{argument}` must have no directed cycle; got X -> "):
            graph_of(given, names)


def test_a_folder_in_place_of_a_file_is_refused(tmp_path: Path) -> None:
    optimizer = random_optimizer(data=rows_of(6))
    for call in (optimizer.save, optimizer.report, acbo.Optimizer.load):
        with pytest.raises(
            IsADirectoryError, match=r"`path` must be a file; .* is a folder\. Name a file in it"
        ):
            call(tmp_path)


def test_experiments_come_as_a_frame_and_stay_pending() -> None:
    optimizer = random_optimizer(max_simultaneous=2, data=rows_of(6))
    first = optimizer.ask()
    more = optimizer.ask(3)
    assert first.index.name == "experiment"
    assert [*first.index, *more.index] == [0, 1, 2, 3]
    assert list(first.columns) == ["dose", "coat", "cost"]
    both = pd.concat([first, more])
    pd.testing.assert_frame_equal(optimizer.pending(), both)
    assert (both["cost"] == both[["dose", "coat"]].notna().sum(axis=1)).all()
    assert both["dose"].dropna().between(0, 10).all()
    assert set(both["coat"].dropna()) <= {0.0, 1.0, 4.0}
    optimizer.cancel(2)
    assert list(optimizer.pending().index) == [0, 1, 3]
    with pytest.raises(ValueError, match=r"pending \(0, 1, 3\); got 2"):
        optimizer.cancel(2)
    rows = [
        simulate({k: v for k, v in row.items() if v == v and k != "cost"}) for row in both.to_dict("records")
    ]
    # A frame that is handed back with the results in it, numbers in the index.
    done = pd.DataFrame(rows, index=both.index).loc[[3, 0]].assign(cost=1.0)
    optimizer.tell(done)
    assert list(optimizer.pending().index) == [1]
    history = optimizer.history()
    assert history["experiment"].tolist()[-2:] == [3, 0]
    assert history["set"].iloc[0] == ""
    assert set(history["set"].iloc[-1].split(",")) == set(first.iloc[0].dropna().index) - {"cost"}
    assert optimizer.spent == both["cost"].loc[[3, 0]].sum()
    assert list(optimizer.ask().index) == [4]


def test_asking_for_several_is_asking_several_times() -> None:
    apart, together = random_optimizer(), random_optimizer()
    pd.testing.assert_frame_equal(pd.concat([apart.ask() for _ in range(3)]), together.ask(3))
    assert not random_optimizer(seed=1).ask(3).equals(together.pending())
    assert len(together.pending().drop_duplicates()) == 3


ROW = {"dose": 5.0, "coat": 1.0, "age": 40.0, "pain": 3.0}


@pytest.mark.parametrize(
    ("bad", "options", "said"),
    [
        ({**ROW, "pain": float("nan")}, {}, "`rows[1]` must have a finite number for 'pain'; got nan"),
        ({**ROW, "pain": float("inf")}, {}, "must have a finite number for 'pain'; got inf"),
        ({**ROW, "pain": "3"}, {}, "must have a number for 'pain'; got '3'"),
        ({**ROW, "pain": None}, {}, "must have a number for 'pain'; got None"),
        ({k: v for k, v in ROW.items() if k != "pain"}, {}, "got none of pain (the target)"),
        ({**ROW, "pian": 1.0}, {}, "Did you mean 'pain'?"),
        ({**ROW, "do": "dose", "dose": 10.5}, {}, "must set 'dose' within [0, 10]; got 10.5"),
        ({**ROW, "do": {"coat": 2.0}, "coat": 2.0}, {}, "to one of its levels, 0, 1, 4; got 2"),
        ({**ROW, "do": ["age"]}, {}, "'age' is only measured"),
        ({**ROW, "do": "pain"}, {}, "'pain' is only measured|must not set the target"),
        ({**ROW, "do": {"dose": 4.0}}, {}, "one value of 'dose'; got 5.0 measured and 4.0 set"),
        ({**ROW, "experiment": 7}, {}, "got 7, which was never asked for"),
        ({**ROW, "experiment": 1}, {}, "got 1, which was cancelled"),
        ({**ROW, "experiment": 0}, {}, "experiment 0 was told"),
        ({**ROW, "experiment": 2.5}, {}, "whole number; got 2.5"),
        ({**ROW, "experiment": 2, "dose": 9.99, "coat": 3.0}, {}, "as experiment 2 sets it"),
        ({**ROW, "experiment": 2, "do": ["coat", "dose"]}, {}, "must set what experiment 2 sets"),
        (ROW, {"do": "duse"}, "Did you mean 'dose'?"),
        (ROW, {"do": [[True, False]]}, "got shape (1, 2)"),
    ],
)
def test_a_wrong_row_changes_nothing(
    bad: dict[str, Any], options: dict[str, Any], said: str, tmp_path: Path
) -> None:
    optimizer = random_optimizer(path=tmp_path / "state.json")
    optimizer.ask(3)
    optimizer.cancel(1)
    optimizer.tell({**simulate(optimizer.state.pending[0].do), "experiment": 0})
    before, action_text = optimizer.state, (tmp_path / "state.json").read_bytes()
    good = {**ROW, "pain": 2.0}
    with pytest.raises(ValueError) as error:
        optimizer.tell([good, bad], **options)
    assert any(part in str(error.value) for part in said.split("|"))
    assert optimizer.state == before
    assert (tmp_path / "state.json").read_bytes() == action_text
    optimizer.tell([good])
    assert len(optimizer.state.rows) == len(before.rows) + 1


def test_the_same_experiment_twice_in_one_table_is_refused() -> None:
    optimizer = random_optimizer()
    optimizer.ask()
    row = {**simulate(optimizer.state.pending[0].do), "experiment": 0}
    with pytest.raises(ValueError, match=r"rows\[1\].*experiment 0 was told"):
        optimizer.tell([row, row])
    assert len(optimizer.pending()) == 1
    with pytest.raises(ValueError, match="at least one row"):
        optimizer.tell([])
    with pytest.raises(TypeError, match="must be a data frame"):
        optimizer.tell(3.0)


def test_rows_made_elsewhere_say_what_was_set() -> None:
    optimizer = random_optimizer()
    frame = rows_of(2).assign(dose=[2.0, 3.0], coat=1.0)
    optimizer.tell(frame)
    optimizer.tell(frame, do="dose")
    optimizer.tell(frame, do=["dose", "coat"])
    optimizer.tell(frame.assign(was_set=["", "coat, dose"]), do="was_set")
    optimizer.tell(frame, do=pd.DataFrame({"coat": [True, False]}))
    optimizer.tell({"do": {"dose": 3}, "coat": 1, "age": 40, "pain": 1.5})
    optimizer.tell(pd.Series(ROW))
    marks = [set(filter(None, said.split(","))) for said in optimizer.history()["set"]]
    both = {"dose", "coat"}
    assert marks == [
        set(),
        set(),
        {"dose"},
        {"dose"},
        both,
        both,
        set(),
        both,
        {"coat"},
        set(),
        {"dose"},
        set(),
    ]
    assert optimizer.spent == 1 + 1 + 2 + 2 + 2 + 1 + 1


def test_data_from_before_may_hold_experiments_and_costs_nothing() -> None:
    frame = rows_of(3).assign(was_set=["", "dose", "dose,coat"])
    optimizer = random_optimizer(data=frame, intervened="was_set", budget=1.5)
    assert [row.do for row in optimizer.state.rows] == [(), ("dose",), ("dose", "coat")]
    assert optimizer.spent == 0
    model = acbo.parse_model("dose = N(5, 1); pain = dose + N(0, 1); dose in [0, 10]; target pain")
    remembered = acbo.to_frame(model.sample(2, do={"dose": 3.0}), model.names)
    again = Optimizer({"dose": (0, 10), "pain": None}, target="pain", data=remembered, strategy="random")
    assert [row.do for row in again.state.rows] == [("dose",)] * 2


def test_money_is_counted_and_never_overspent() -> None:
    variables = [
        Variable("dose", low=-10, high=10, cost=1, cost_per_unit=0.5),
        Variable("coat", levels=(0, 1, 4), cost=2, cost_per_unit=1),
        "pain",
    ]
    optimizer = Optimizer(variables, target="pain", strategy="random", budget=9, max_simultaneous=2)
    asked = []
    while optimizer.remaining >= 1 and len(asked) < 10:
        asked.append(optimizer.ask())
    costs = pd.concat(asked)
    assert costs["cost"].sum() == pytest.approx(optimizer.state.pending_cost)
    assert optimizer.state.pending_cost <= 9
    expected = (1 + 0.5 * costs["dose"].abs()).fillna(0) + (2 + costs["coat"].abs()).fillna(0)
    assert costs["cost"].to_numpy() == pytest.approx(expected.to_numpy())
    with pytest.raises(ValueError, match=r"`budget` must pay for an experiment; .* of 9 is left"):
        optimizer.ask()
    state = optimizer.state
    optimizer.cancel(int(costs.index[0]))
    assert optimizer.state.money == pytest.approx(state.money + costs["cost"].iloc[0])
    assert len(optimizer.ask()) == 1


def test_the_number_of_experiments_is_a_limit_too() -> None:
    optimizer = random_optimizer(experiments=2)
    assert len(optimizer.ask(5)) == 2
    with pytest.raises(ValueError, match="all 2 are made or pending"):
        optimizer.ask()


def test_ends_levels_and_values_come_back_exactly() -> None:
    """Inside numbers are single precision; outside, ends and levels are what the user wrote."""
    variables = {"a": (0.123456789, 0.7), "b": [0.3, 1e6, 123.456], "c": (-1e-7, 3e-7), "y": None}
    optimizer = Optimizer(variables, target="y", strategy="random")
    state = optimizer.state
    scaling = scaling_of(state)
    problem = jax.device_get(scaled_problem(state, scaling))
    mask = np.arange(8) < 3
    assert levels_of(state, scaling, mask, problem.low) == {"a": 0.123456789, "b": 0.3, "c": -1e-7}
    assert levels_of(state, scaling, mask, problem.high) == {"a": 0.7, "b": 1e6, "c": 3e-7}
    assert levels_of(state, scaling, mask, problem.levels[:, 1])["b"] == 123.456
    middle = levels_of(state, scaling, mask, (problem.low + problem.high) / 2)
    assert middle["a"] == pytest.approx(0.4117284, abs=1e-6)
    assert middle["c"] == pytest.approx(1e-7, abs=1e-12)


@pytest.mark.parametrize("unit", [1e-15, 1e12])
@pytest.mark.parametrize("rows", [1, 3, 20])
def test_strategies_see_no_units(unit: float, rows: int) -> None:
    """A plant in metres and the same in nanometres and less; of few rows the spread is not that of the observations."""

    def seen(unit: float) -> np.ndarray:
        variables = {"dose": (0, 10 * unit), "heat": None, "pain": None, "still": None}
        frame = pd.DataFrame(np.random.default_rng(0).normal(0.4, 0.1, (rows, 4)), columns=list(variables))
        optimizer = Optimizer(
            variables, target="pain", strategy="random", data=frame.assign(still=0.3) * unit
        )
        return np.asarray(data_of(optimizer.state, scaling_of(optimizer.state)).values)

    np.testing.assert_allclose(seen(unit), seen(1.0), atol=1e-5)
    if rows > 1:
        assert (np.ptp(seen(unit)[:rows, 1:3], axis=0) > 1).all()


def test_another_value_than_was_asked_for_is_seen_in_small_units() -> None:
    optimizer = Optimizer({"dose": (0, 1e-9), "pain": None}, target="pain", strategy="random")
    asked = float(optimizer.ask()["dose"].iloc[0])
    with pytest.raises(ValueError, match="as experiment 0 sets it"):
        optimizer.tell({"experiment": 0, "dose": 1e-9 - asked, "pain": 1.0})
    optimizer.tell({"experiment": 0, "dose": float(np.float32(asked)), "pain": 1.0})
    assert optimizer.history()["dose"].tolist() == [asked]


def test_strategies_see_standardised_observations() -> None:
    optimizer = random_optimizer(data=rows_of(20))
    optimizer.tell({**ROW, "dose": 9.0, "do": "dose"})
    data = data_of(optimizer.state, scaling_of(optimizer.state))
    values, rows = np.asarray(data.values), np.asarray(data.rows)
    assert values.shape == (32, 8)
    assert rows.sum() == 21
    np.testing.assert_allclose(values[:20, :4].mean(0), 0, atol=1e-6)
    np.testing.assert_allclose(values[:20, :4].std(0), 1, atol=1e-6)
    assert np.asarray(data.intervened)[20].tolist() == [True] + [False] * 7
    problem = jax.device_get(scaled_problem(optimizer.state, scaling_of(optimizer.state)))
    frame = rows_of(20)
    assert problem.high[0] == pytest.approx((10 - frame["dose"].mean()) / frame["dose"].std(ddof=0), rel=1e-5)
    # Without observations the range is four deviations wide, and what has none keeps its numbers.
    bare = scaling_of(random_optimizer().state)
    assert (bare.offset.tolist(), bare.spread.tolist()) == ([5, 2, 0, 0], [2.5, 1, 1, 1])


def test_one_program_serves_until_the_rows_are_full() -> None:
    jax.clear_caches()
    optimizer = random_optimizer(data=rows_of(3))
    with CompileWatch() as watch:
        for _ in range(20):
            optimizer.ask()
            first = optimizer.state.pending[0]
            optimizer.tell({**simulate(first.do), "experiment": first.experiment})
    assert watch["next_choice"].compiles == 1
    optimizer.tell(rows_of(20))
    with CompileWatch() as watch:
        optimizer.ask(2)
    assert watch["next_choice"].compiles == 1


def test_a_saved_optimization_goes_on_to_the_last_bit(tmp_path: Path) -> None:
    data = rows_of(7).assign(pain=lambda frame: frame["pain"] / 3)
    whole = random_optimizer(data=data)
    parts = random_optimizer(data=data, path=tmp_path / "state.json")
    for step in range(4):
        for optimizer in (whole, parts):
            optimizer.ask(2)
            first = optimizer.state.pending[0]
            optimizer.tell({**simulate(first.do), "experiment": first.experiment})
        parts.save(tmp_path / "copy.json")
        assert (tmp_path / "copy.json").read_bytes() == (tmp_path / "state.json").read_bytes()
        parts = Optimizer.load(tmp_path / "state.json")
        assert parts.state == whole.state, step
        assert parts.state.rows == whole.state.rows
    with pytest.raises(ValueError, match=r"`path` must not be a file that is there.*Optimizer\.load"):
        random_optimizer(path=tmp_path / "state.json")
    more = Optimizer.load(tmp_path / "copy.json", experiments=30, budget=99.0, keep=False)
    assert (more.state.settings.experiments, more.state.settings.budget) == (30, 99.0)
    more.ask()
    assert Optimizer.load(tmp_path / "copy.json").state == whole.state, "keep=False writes nothing"


def test_foreign_and_damaged_files_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    random_optimizer(path=file)
    text = file.read_text()
    for bad, said in (
        (text[: len(text) // 2], "no JSON text"),
        ("[]", "does not say format"),
        (text.replace('"version": 1', '"version": 2'), "must be of version 1; got 2"),
        (text.replace('"asked"', '"asks"'), "whole optimization"),
        (text.replace('"objective": "min"', '"objective": "mim"'), "whole optimization"),
    ):
        assert bad != text
        file.write_text(bad)
        with pytest.raises(StoreError, match=said):
            Optimizer.load(file)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"asked": 1}, "experiment 1 is there, and 1 were asked for"),
        ({"cancelled": [0]}, "experiment 0 is there twice"),
        ({"pending": [{"experiment": 1, "do": {"pain": 1.0}}]}, "sets 'pain', which cannot be set"),
        ({"rows": [{"do": ["pain"]}]}, "a row sets the target"),
        ({"rows": [{"do": "dose"}]}, "`do` of a row is 'dose'"),
        ({"rows": [{"given": "false"}]}, "`given` 'false'"),
    ],
)
def test_a_file_edited_by_hand_holds_what_an_optimization_can_hold(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    file = tmp_path / "state.json"
    optimizer = random_optimizer(path=file)
    optimizer.ask(2)
    optimizer.tell({**ROW, **optimizer.state.pending[0].do, "experiment": 0})
    facts = json.loads(file.read_text())
    changed = [{**facts["rows"][0], **row} for row in change.get("rows", [{}])]
    file.write_text(json.dumps({**facts, **change, "rows": changed}))
    with pytest.raises(StoreError, match=said):
        Optimizer.load(file)


def test_what_was_set_is_named_once(tmp_path: Path) -> None:
    optimizer = random_optimizer(path=tmp_path / "state.json")
    optimizer.tell({**ROW, "dose": 9.0, "do": "dose, dose"})
    assert optimizer.state.rows[0].do == ("dose",)
    assert Optimizer.load(tmp_path / "state.json").state == optimizer.state


def test_a_strategy_of_ones_own_is_given_again(tmp_path: Path) -> None:
    own = acbo.strategies.LatinHypercube(trials=4)
    optimizer = random_optimizer(strategy=own)
    optimizer.save(tmp_path / "state.json")
    with pytest.raises(ValueError, match="`strategy` must be given"):
        Optimizer.load(tmp_path / "state.json")
    assert Optimizer.load(tmp_path / "state.json", strategy=own).state == optimizer.state


def test_a_simulator_is_run_until_the_means_end(capsys: pytest.CaptureFixture[str]) -> None:
    optimizer = random_optimizer(simulator=simulate, experiments=5)
    waiting = optimizer.ask(2)
    history = optimizer.run(progress=True)
    assert history["experiment"].tolist() == [0, 1, 2, 3, 4]
    assert list(waiting.index) == [0, 1]
    caught = capsys.readouterr()
    assert "5/5" in caught.err
    assert not caught.out
    assert len(optimizer.run(progress=False)) == 5
    advice = optimizer.recommend()
    best = history["pain"].min()
    assert simulate(advice.do)["pain"] == pytest.approx(best, abs=1e-5)
    assert advice.low <= best <= advice.high, (
        "what is expected of it is the belief's, not the one measurement"
    )
    with pytest.raises(ValueError, match="`simulator` must be given"):
        random_optimizer().run(1)
    with pytest.raises(ValueError, match="`n` must say how many"):
        random_optimizer(simulator=simulate).run()
    with pytest.raises(ValueError, match="at least one row"):
        random_optimizer().recommend()


def test_ctrl_c_keeps_what_was_told(capsys: pytest.CaptureFixture[str]) -> None:
    calls = []

    def interrupted(do: dict[str, float]) -> pd.DataFrame:
        calls.append(do)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return pd.DataFrame([simulate(do)])

    optimizer = random_optimizer(simulator=interrupted)
    assert len(optimizer.run(5)) == 2
    caught = capsys.readouterr()
    assert caught.err == "stopped; results so far are kept\n"
    assert not caught.out, "where nobody looks there is no bar, and what is printed stays clean"
    assert list(optimizer.pending().index) == [2]
    assert len(optimizer.run(3, progress=False)) == 5
    assert calls[3] == calls[2], "the experiment in hand is made first"
    optimizer.simulator = lambda do: {**simulate(do), "pain": float("nan")}
    with pytest.raises(ValueError, match="finite number for 'pain'"):
        optimizer.run(1, progress=False)
    assert len(optimizer.pending()) == 1


def test_a_strategy_may_want_to_stop() -> None:
    class Stopping(acbo.strategies.Random):
        def choose(self, problem: Any, data: Any, remaining: Any, key: Any) -> Any:
            found = super().choose(problem, data, remaining, key)
            return dataclasses.replace(found, stop=data.rows.sum() > 2)

    optimizer = random_optimizer(strategy=Stopping(), simulator=simulate)
    assert len(optimizer.run(9, progress=False)) == 3
    assert optimizer.stopped
    assert "after 3 experiments" in str(optimizer.stop_reason)
    assert list(optimizer.ask(2).columns) == ["dose", "coat", "cost"]
    assert optimizer.state.asked == 3
    optimizer.tell(ROW)
    assert not optimizer.stopped


CHILD = """
import sys, time
sys.path.insert(0, {folder!r})
from test_optimizer import random_optimizer, simulate
optimizer = random_optimizer(path=sys.argv[1])
for step in range(10_000):
    optimizer.ask()
    print(step, flush=True)
    time.sleep(0.01)
    first = optimizer.state.pending[0]
    optimizer.tell({{**simulate(first.do), "experiment": first.experiment}})
"""


@pytest.mark.own_process
def test_sigkill_between_ask_and_tell_loses_nothing_and_doubles_nothing(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    code = CHILD.format(folder=str(Path(__file__).parent))
    command = [sys.executable, "-c", code, str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=dict(os.environ)) as child:
        assert child.stdout is not None
        for _ in range(6):
            line = child.stdout.readline()
        time.sleep(0.003)
        child.send_signal(signal.SIGKILL)
        assert child.wait(timeout=60) == -signal.SIGKILL
    assert line == b"5\n"
    resumed = Optimizer.load(file)
    told = [row.experiment for row in resumed.state.rows]
    assert told == list(range(len(told)))
    assert len(told) >= 5
    assert [p.experiment for p in resumed.state.pending] in ([], [len(told)])
    unbroken = random_optimizer(simulator=simulate)
    unbroken.run(9, progress=False)
    resumed.simulator = simulate
    resumed.run(9 - len(told), progress=False)
    assert resumed.state == unbroken.state
