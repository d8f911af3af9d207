"""acbo's part of the demo: what it shows and says, that it fails when an answer is wrong; and its pictures."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import acbo._demo_optimizer as optimizing
import acbo.demo as demo
from acbo.pictures import (
    COLUMN,
    FOUND,
    FRAME,
    MISSED,
    WRONG,
    edge_matrix_svg,
    edge_table,
    graph_svg,
    layered_places,
)
from acbo.surrogate import pretrained

pytestmark = pytest.mark.usefixtures("quick_compile")

NAMES = ("a < b", "c", "goal")
TRUTH = np.array([[False, True, False], [False, False, True], [False, False, False]])
SEEN = np.array([[0.0, 0.9, 0.3], [0.0, 0.0, 0.02], [0.0, 0.0, 0.0]])
SVG = "{http://www.w3.org/2000/svg}"


def test_the_section_shows_and_says_what_happened(tmp_path: Path) -> None:
    console = Console(record=True, width=200)
    section = demo.demo(tmp_path, console, models=6, runs=6, experiments=6)
    said = console.export_text()
    rows = dict(re.findall(r"(\w+ → \w+) +│ +(\d+|·)", said))
    assert rows["pressure → impurity"] == "100"
    assert "truth: set feed = -2; expected impurity -1.73, regret 0.00" in said
    assert "surrogate: set feed = -2; expected impurity -1.73, regret 0.00" in said
    # -2 × 1.2 × 0.9 × 0.8 is what setting the feed gives; changing the colour leaves 0.
    assert "correlation alone: set colour = -2; expected impurity 0.00, regret 1.00" in said
    speed = re.search(r"6 datasets of 100 rows, ([\d.]+) ms each .*AUROC ([\d.]+) over 6 models", said)
    assert speed
    assert float(speed[1]) > 0
    assert 0.95 <= float(speed[2]) <= 1
    regret = re.search(
        r"6 optimizations of 6 experiments: mean regret .* ([\d.]+) before, ([\d.]+) after", said
    )
    assert regret
    assert float(regret[2]) < 0.5 * float(regret[1])
    assert [speed.unit for speed in section.speeds] == ["s/dataset", "s/ask"]
    assert all(speed.value > 0 and speed.compile_seconds > 0 for speed in section.speeds)
    assert section.title.startswith("acbo")
    pictures = re.findall(r"<svg.*?</svg>", section.body, re.DOTALL)
    # Three graphs and two squares of the plant; of the optimizer its regret, seven effects, a graph and a square.
    assert len(pictures) == 5 + 10
    assert "Regret of the advice" in pictures[5]
    assert "1 is to set nothing" in section.body  # as the README's table says
    for picture in pictures:
        ET.fromstring(picture)
    # On a phone: what is wider stands in a figure that scrolls, and whose edges show it.
    scrolled = re.findall(r'<figure class="wide">(<svg.*?</svg>)', section.body, re.DOTALL)
    widths = [
        float(re.search(r'width="([\d.]+)"', picture)[1]) for picture in pictures if picture not in scrolled
    ]  # pyright: ignore[reportOptionalSubscript]
    assert max(widths) <= 440
    assert pictures[0].count(FOUND) == 2 * 7, "a line and a head for each of seven edges"
    assert "correlation alone" in section.body


def test_a_wrong_answer_is_an_error() -> None:
    right = {"teacher": TRUTH.astype(float), "surrogate": TRUTH * 0.8}
    decisions = [("truth", {"c": 1.0}, -1.0, 0.0), ("teacher", {"c": 1.0}, -1.0, 0.0)]
    demo._check(TRUTH, right, decisions, 0.99)
    with pytest.raises(RuntimeError, match="surrogate is wrong about 1 edges"):
        demo._check(TRUTH, right | {"surrogate": SEEN}, decisions, 0.99)
    with pytest.raises(RuntimeError, match=r"regret of 0\.500"):
        demo._check(TRUTH, right, [("teacher", {"a": 1.0}, -0.5, 0.5)], 0.99)
    with pytest.raises(RuntimeError, match=r"AUROC of 0\.900"):
        demo._check(TRUTH, right, decisions, 0.9)


def test_advice_that_does_not_get_better_is_an_error() -> None:
    optimizing.check(np.array([[1.0, 0.1], [1.0, 0.5]]))
    with pytest.raises(RuntimeError, match=r"mean regret is 0\.60"):
        optimizing.check(np.array([[1.0, 0.2], [1.0, 1.0]]))


def test_the_weights_come_in_the_precision_that_is_asked_for() -> None:
    assert pretrained(precision="float32").network.config.precision == "float32"
    assert pretrained().network.config.precision == "bfloat16"


def test_random_models_have_the_edges_they_should() -> None:
    models = demo.random_models(40, seed=3)
    weights = np.stack([np.asarray(model.scm.mechanism.weight) for model in models])
    there = weights != 0
    assert 1.3 < there.sum((1, 2)).mean() / 10 < 1.7
    assert 0.5 <= np.abs(weights[there]).min() < np.abs(weights[there]).max() <= 2.0


def test_a_graph_is_drawn_with_names_strengths_and_colours() -> None:
    picture = ET.fromstring(graph_svg(SEEN, NAMES, target="goal", truth=TRUTH, title="seen & true"))
    texts = [text.text for text in picture.iter(f"{SVG}text")]
    assert texts == ["seen & true", *NAMES]
    arrows = {group.find(f"{SVG}title").text: group for group in picture.iter(f"{SVG}g")}  # type: ignore[union-attr]
    colours = {name: group.find(f"{SVG}path").get("stroke") for name, group in arrows.items()}  # type: ignore[union-attr]
    assert colours == {
        "a < b → c: 0.900": FOUND,
        "a < b → goal: 0.300": WRONG,
        "c → goal: 0.020": MISSED,
    }
    dashes = {name: group.find(f"{SVG}path").get("stroke-dasharray") for name, group in arrows.items()}  # type: ignore[union-attr]
    assert dashes["a < b → c: 0.900"] is None
    assert len({*dashes.values()}) == 3, "colour is not all that tells them apart"
    assert float(arrows["a < b → c: 0.900"].get("opacity", 0)) > float(
        arrows["a < b → goal: 0.300"].get("opacity", 1)
    )
    boxes = picture.findall(f"{SVG}rect")
    left = [float(box.get("x", 0)) + float(box.get("width", 0)) / 2 for box in boxes]
    np.testing.assert_allclose(np.diff(left), COLUMN, atol=0.2)
    assert boxes[2].get("fill") != boxes[1].get("fill"), "the target stands out"
    assert len(ET.fromstring(graph_svg(SEEN, NAMES)).findall(f"{SVG}g")) == 2, "0.02 is left out"


def test_bent_arrows_stay_within_the_picture() -> None:
    """The first of six in a row causes the last; its arrow bends around those between."""
    chain = np.diag([0.9] * 5, 1)
    chain[0, 5] = 0.9
    picture = ET.fromstring(graph_svg(chain, ("a long name", "b", "c", "e", "f", "d")))
    left, top, width, height = map(float, (picture.get("viewBox") or "").split())
    arrow = next(
        group.find(f"{SVG}path")
        for group in picture.iter(f"{SVG}g")
        if "a long name → d" in (group.find(f"{SVG}title").text or "")  # type: ignore[union-attr]
    )
    numbers = np.array(re.findall(r"[-\d.]+", arrow.get("d")), float).reshape(3, 2)  # type: ignore[union-attr]
    part = np.linspace(0, 1, 200)[:, None]
    drawn = (1 - part) ** 2 * numbers[0] + 2 * part * (1 - part) * numbers[1] + part**2 * numbers[2]
    assert np.ptp(drawn[:, 1]) > 20, "it bends"
    assert (drawn >= [left + 2, top + 2]).all()
    assert (drawn <= [left + width - 2, top + height - 2]).all()


def test_causes_stand_left_of_effects_even_where_probabilities_go_round() -> None:
    around = np.array([[0.0, 0.9, 0.0], [0.0, 0.0, 0.8], [0.6, 0.0, 0.0]])
    assert layered_places(around)[:, 0].tolist() == [0, 1, 2]
    both = np.array([[0, 0, 1], [0, 0, 1], [0, 0, 0]], bool)
    places = layered_places(both)
    assert places[:, 0].tolist() == [0, 0, 1]
    assert places[0, 1] != places[1, 1]


def test_a_matrix_is_drawn_row_by_row() -> None:
    picture = ET.fromstring(edge_matrix_svg(SEEN, NAMES, truth=TRUTH, title="seen"))
    cells = picture.findall(f"{SVG}rect")
    assert len(cells) == 9
    assert [cell.find(f"{SVG}title").text for cell in cells][1] == "a < b → c: 0.900"  # type: ignore[union-attr]
    assert [cell.get("stroke") == FRAME for cell in cells] == TRUTH.ravel().tolist()
    assert [text.text for text in picture.iter(f"{SVG}text")].count("90") == 1
    dark, pale = (int((cells[k].get("fill") or "")[1:3], 16) for k in (1, 2))
    assert dark < pale < 255


def test_a_table_lists_what_some_column_believes() -> None:
    console = Console(record=True, width=80)
    console.print(edge_table({"truth": TRUTH, "seen": SEEN}, NAMES, least=0.1))
    said = console.export_text()
    assert re.search(r"a < b → c +│ +100 +│ +90", said)
    assert re.search(r"a < b → goal +│ +· +│ +30", said)
    assert re.search(r"c → goal +│ +100 +│ +2", said)


def test_pictures_refuse_what_they_cannot_draw() -> None:
    with pytest.raises(ValueError, match="takes off the padding"):
        graph_svg(np.zeros((4, 4)), NAMES)
    with pytest.raises(ValueError, match="numbers from -2 to -1"):
        edge_matrix_svg(TRUTH - 2.0, NAMES)
    with pytest.raises(ValueError, match="`target` must be one of"):
        graph_svg(SEEN, NAMES, target="gaol")
