"""What the optimizer believes and says: edges, advice, explanations, pictures and the report, on a plant that is known."""

import itertools
import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.patches import FancyArrowPatch

from acbo.optimizer import Optimizer
from acbo.optimizer.current_belief import Curve
from acbo.optimizer.report import plot_effect
from acbo.strategies import LatinHypercube

pytestmark = pytest.mark.usefixtures("quick_compile")

VARIABLES = {"dose": (0, 10), "coat": [0, 1, 2], "colour": (0, 30), "age": None, "pain": None}
BEST = 14 - 1.0 * 10
"""Expected pain at the full dose; the coat adds 0.1 and the colour nothing."""


class Plant:
    """dose → pain ← coat, pain → colour; the age is alone."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)

    def __call__(self, do: dict[str, float]) -> dict[str, float]:
        noise = self.rng.normal(size=5)
        dose, coat = do.get("dose", 5 + noise[0]), do.get("coat", float(self.rng.integers(0, 3)))
        pain = 14 - dose + 0.1 * (coat - 1) + 0.3 * noise[1]
        colour = do.get("colour", 2 * pain + 0.5 * noise[2])
        return {"dose": dose, "coat": coat, "colour": colour, "age": 40 + noise[3], "pain": pain}


def plant_optimizer(**options: object) -> Optimizer:
    plant = Plant()
    given = {
        "variables": VARIABLES,
        "target": "pain",
        "data": pd.DataFrame([plant({}) for _ in range(16)]),
        "simulator": plant,
        "strategy": "expected_improvement",
    }
    return Optimizer(**{**given, **options})  # pyright: ignore[reportArgumentType]


@pytest.fixture(scope="module")
def finished() -> Optimizer:
    optimizer = plant_optimizer()
    optimizer.tell({"do": {"colour": 30.0}, "dose": 5, "coat": 1, "age": 40, "pain": 9.2})
    optimizer.run(4, progress=False)
    optimizer.ask()
    return optimizer


def test_it_finds_what_to_do(finished: Optimizer) -> None:
    advice = finished.recommend()
    assert advice.do == {"dose": 10.0}
    assert advice.low < BEST < advice.high
    assert advice.expected == pytest.approx(BEST, abs=0.5)
    assert advice.as_series().index.tolist() == ["dose", "expected pain", "low", "high"]
    assert repr(advice).startswith("set dose = 10: pain ")


def test_the_other_direction_is_found_too() -> None:
    optimizer = plant_optimizer(objective="max")
    assert optimizer.recommend().do in ({"dose": 0.0}, {"colour": 30.0}, {"colour": 0.0})
    optimizer.tell({"do": {"dose": 0.0}, "coat": 1, "age": 40, "colour": 28, "pain": 14.1})
    assert optimizer.recommend().do == {"dose": 0.0}
    best = optimizer.explain().alternatives
    assert best.index[0] == "dose"
    assert best["expected"].is_monotonic_decreasing


def test_edges_are_told_with_their_probability(finished: Optimizer) -> None:
    found = finished.posterior()
    assert found.edges.shape == (5, 5)
    assert found.edges.loc["dose", "pain"] > 0.9
    assert found.edges.loc["pain", "dose"] < 0.1
    assert found.parents.index[0] == "dose"
    assert "pain" not in found.parents.index
    assert ("pain", "colour") in [edge[:2] for edge in found.likely(0.9)]
    assert "dose → pain" in repr(found)


def test_experiments_are_explained(finished: Optimizer) -> None:
    said = finished.explain()
    pending = finished.state.pending[0]
    assert (said.experiment, said.do) == (pending.experiment, pending.do)
    table = said.alternatives
    assert set(table.index) == {"dose", "coat", "colour", "(nothing)"}
    assert table.index[0] == "dose"
    assert table.loc["dose", "value"] == 10.0
    assert table["expected"].is_monotonic_increasing
    assert (table["low"] <= table["expected"]).all()
    assert (table["high"] >= table["expected"]).all()
    assert table["chance_best"].sum() <= 1 + 1e-9
    assert table.loc["dose", "chance_best"] > 0.9
    full = finished.explain({"dose": 10.0})
    assert full.experiment is None
    assert full.chance_best == table.loc["dose", "chance_best"]
    assert full.expected == pytest.approx(BEST, abs=0.5)
    assert full.low < full.expected < full.high
    none = finished.explain({"dose": 5.0})
    assert none.expected == pytest.approx(9.0, abs=0.4)
    assert none.chance_best < 0.01
    assert "set dose = 10 (cost 1)" in repr(full)
    with pytest.raises(ValueError, match=r"must be pending .* got 99"):
        finished.explain(99)
    with pytest.raises(ValueError, match=r"within \[0, 10\]; got 11"):
        finished.explain({"dose": 11.0})


def test_open_edges_are_those_an_experiment_decides() -> None:
    """Observations cannot tell whether the dose causes the pain; setting the dose can, and setting the coat cannot."""
    optimizer = plant_optimizer(graph={"forbidden": [("colour", "pain"), ("age", "pain"), ("pain", "age")]})
    told = optimizer.explain({"dose": 10.0}).decides
    assert "dose → pain" in told.index
    assert told.loc["dose → pain", "share"] > 0.3
    other = optimizer.explain({"coat": 2.0}).decides
    assert "dose → pain" not in other.index or other.loc["dose → pain", "share"] < 0.2


def test_resumed_beliefs_choose_the_same(tmp_path: Path) -> None:
    """Several pending experiments are thought of as made, before and after a resumption."""
    optimizer = plant_optimizer(path=tmp_path / "state.json")
    first = optimizer.ask(2)
    resumed = Optimizer.load(tmp_path / "state.json")
    pd.testing.assert_frame_equal(resumed.pending(), first)
    pd.testing.assert_frame_equal(resumed.ask(2), optimizer.ask(2))
    assert resumed.recommend() == optimizer.recommend()


def test_pending_experiments_count_as_made() -> None:
    """Of a Latin hypercube of four, each falls into a quarter of its own, told or not."""
    given = {"variables": {**VARIABLES, "coat": None, "colour": None}}
    optimizer = plant_optimizer(strategy=LatinHypercube(trials=4), **given)
    doses = optimizer.ask(4)["dose"]
    assert sorted((doses // 2.5).tolist()) == [0, 1, 2, 3]
    rows = optimizer.current_belief.fantasies()
    assert [row.do for row in rows] == [("dose",)] * 4
    assert [row.values[0] for row in rows] == doses.tolist(), "what is set is known"
    forecast = optimizer.current_belief.forecast([{"dose": dose} for dose in doses])
    expected = np.asarray(forecast.effects.mean).mean(0)
    np.testing.assert_allclose([row.values[4] for row in rows], expected)


def test_it_begins_without_any_row() -> None:
    optimizer = plant_optimizer(data=None)
    asked = optimizer.ask(2)
    assert len(asked) == 2
    assert asked[["dose", "coat", "colour"]].notna().sum(axis=1).eq(1).all()
    optimizer.run(3, progress=False)
    assert len(optimizer.history()) == 3
    assert np.isfinite(optimizer.recommend().expected)


def test_a_known_graph_is_no_question() -> None:
    optimizer = plant_optimizer(graph="dose, coat -> pain -> colour")
    found = optimizer.posterior()
    assert found.likely(0.0) == [("dose", "pain", 1.0), ("coat", "pain", 1.0), ("pain", "colour", 1.0)]
    assert not len(optimizer.explain({"dose": 3.0}).decides)
    colour = next(curve for curve in optimizer.current_belief.curves if curve.name == "colour")
    np.testing.assert_allclose(colour.mean, colour.mean[0], atol=1e-5)


def test_pictures_are_figures_without_global_state(finished: Optimizer) -> None:
    effects = finished.plot_effects()
    assert [axes.get_xlabel() for axes in effects.axes] == ["dose", "coat", "colour"]
    regret = finished.plot_regret(optimum=BEST).axes[0]
    line = np.asarray(regret.lines[1].get_ydata(), float)
    assert (np.diff(line) <= 1e-9).all()
    assert abs(line[-1]) < 0.5 < line[0]
    assert finished.plot_regret().axes[0].get_ylabel() == "pain"
    names = {text.get_text() for text in finished.plot_graph().axes[0].texts}
    assert set(VARIABLES) <= names
    effects.savefig(Path("/dev/null"), format="svg")
    assert "matplotlib.pyplot" not in sys.modules or not sys.modules["matplotlib.pyplot"].get_fignums()


def test_the_report_is_one_page_with_everything(finished: Optimizer, tmp_path: Path) -> None:
    page = finished.report(tmp_path / "out" / "report.html", optimum=BEST).read_text()
    assert page.index("Recommended") < page.index("<h2>Problem") < page.index("<h2>Experiments")
    assert "set dose = 10" in page
    assert page.count("<svg") == 1 + 3 + 2
    assert page.count("<tr>") == 1 + 5 + 1 + 5 + 1
    assert "(pending)" in page
    assert "elsewhere" in page
    outside = re.sub(r'xmlns(:xlink)?="[^"]*"', "", page)
    assert not re.search(r"https?:|src=|<script", outside), "self-contained: no address outside"
    bare = Optimizer({"a<b": (0, 1), "y": None}, target="y", strategy="random")
    page = bare.report(tmp_path / "bare.html").read_text()
    assert "nothing is recommended" in page
    assert "a&lt;b" in page
    assert "a<b" not in page


@pytest.mark.parametrize("reach", [(3e-9, 7e-9), (3e5, 7e5), (-2.0, 2.0), (101_320.5, 101_329.0)])
def test_long_numbers_stand_inside_and_apart(reach: tuple[float, float]) -> None:
    line = np.linspace(*reach, 5)
    figure = plot_effect(Curve("x", line, line, line - 1, line + 1, np.zeros((0, 2)), False), "y")
    figure.draw_without_rendering()
    low, high = figure.axes[0].get_xlim()
    labels = [label for label in figure.axes[0].get_xticklabels() if low <= label.get_position()[0] <= high]
    boxes = [label.get_window_extent() for label in labels]
    assert 1 <= len(boxes) <= 12
    assert max(box.x1 for box in boxes) <= figure.bbox.width + 1
    assert all(a.x1 < b.x0 for a, b in itertools.pairwise(boxes))


def test_long_arrows_stay_inside_the_figure() -> None:
    """Twenty variables in a column, and an arrow from the first to the last, which bends far out."""
    optimizer = Optimizer({f"v{i}": (0, 1) if i else None for i in range(20)}, target="v0", strategy="random")
    edges = np.zeros((20, 20))
    edges[0, 19] = edges[19, 0] = 0.4
    optimizer.current_belief.edges = edges  # in place of what nothing says
    figure = optimizer.plot_graph()
    figure.draw_without_rendering()
    arrows = [patch for patch in figure.axes[0].patches if isinstance(patch, FancyArrowPatch)]
    assert len(arrows) == 2
    for arrow in arrows:
        box = arrow.get_window_extent()
        assert box.x0 > 0
        assert box.x1 < figure.bbox.width
