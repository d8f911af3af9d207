"""acbo's part of the demo: what it shows and says, and that it fails when an answer is wrong."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import acbo.demo as demo
from acbo.pictures import FOUND
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
    assert pictures[0].count(f"stroke: {FOUND}") == 2 * 7, "a line and a head for each of seven edges"
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
    demo._check_advice(np.array([[1.0, 0.1], [1.0, 0.5]]))
    with pytest.raises(RuntimeError, match=r"mean regret is 0\.60"):
        demo._check_advice(np.array([[1.0, 0.2], [1.0, 1.0]]))


def test_the_weights_come_in_the_precision_that_is_asked_for() -> None:
    assert pretrained(precision="float32").network.config.precision == "float32"
    assert pretrained().network.config.precision == "bfloat16"


def test_random_models_have_the_edges_they_should() -> None:
    models = demo.random_models(40, seed=3)
    weights = np.stack([np.asarray(model.scm.mechanism.weight) for model in models])
    there = weights != 0
    assert 1.3 < there.sum((1, 2)).mean() / 10 < 1.7
    assert 0.5 <= np.abs(weights[there]).min() < np.abs(weights[there]).max() <= 2.0
