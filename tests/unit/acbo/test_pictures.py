"""Pictures of causal graphs: arrows, matrices and tables, as SVG for any page."""

import re
import sys
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from matplotlib.patches import FancyBboxPatch
from rich.console import Console

from acbo.optimizer.report import picture as picture_or_note
from acbo.pictures import (
    COLUMN,
    FOUND,
    FRAME,
    INK,
    MISSED,
    WRONG,
    edge_matrix_svg,
    edge_table,
    graph_figure,
    graph_svg,
    layered_places,
)

NAMES = ("a < b", "c", "goal")
TRUTH = np.array([[False, True, False], [False, False, True], [False, False, False]])
SEEN = np.array([[0.0, 0.9, 0.3], [0.0, 0.0, 0.02], [0.0, 0.0, 0.0]])
SVG = "{http://www.w3.org/2000/svg}"


def drawn_arrows(picture: str) -> dict[str, ET.Element]:
    """The line of each arrow by the text that appears over it."""
    groups = [g for g in ET.fromstring(picture).iter(f"{SVG}g") if g.find(f"{SVG}title") is not None]
    return {g.find(f"{SVG}title").text: g.find(f"{SVG}path") for g in groups}  # type: ignore[union-attr,misc]


def style_of(path: ET.Element) -> dict[str, str]:
    return dict(part.strip().split(": ") for part in (path.get("style") or "").split(";"))


def test_a_graph_is_drawn_with_names_strengths_and_colours() -> None:
    picture = graph_svg(SEEN, NAMES, target="goal", truth=TRUTH, title="seen & true")
    assert sorted(text.text or "" for text in ET.fromstring(picture).iter(f"{SVG}text")) == sorted(
        ["seen & true", *NAMES]
    )
    arrows = {name: style_of(path) for name, path in drawn_arrows(picture).items()}
    assert {name: style["stroke"] for name, style in arrows.items()} == {
        "a < b → c: 0.900": FOUND,
        "a < b → goal: 0.300": WRONG,
        "c → goal: 0.020": MISSED,
    }
    dashes = {name: style.get("stroke-dasharray") for name, style in arrows.items()}
    assert dashes["a < b → c: 0.900"] is None
    assert len({*dashes.values()}) == 3, "colour is not all that tells them apart"
    assert float(arrows["a < b → c: 0.900"]["opacity"]) > float(arrows["a < b → goal: 0.300"]["opacity"])
    figure = graph_figure(SEEN, NAMES, target="goal", truth=TRUTH)
    boxes = [patch for patch in figure.axes[0].patches if isinstance(patch, FancyBboxPatch)]
    np.testing.assert_allclose(
        np.diff([box.get_x() + box.get_width() / 2 for box in boxes]), COLUMN, atol=0.2
    )
    assert boxes[2].get_facecolor() != boxes[1].get_facecolor(), "the target stands out"
    assert len(drawn_arrows(graph_svg(SEEN, NAMES))) == 2, "0.02 is left out"


def test_a_picture_fits_any_page() -> None:
    """No background, no address outside, the page's colour of text, and ids that no other picture has."""
    pictures = [graph_svg(SEEN, NAMES, title=title) for title in ("one", "two")]
    for picture in pictures:
        assert "currentColor" in picture
        assert INK not in picture
        assert "<style" not in picture
        assert not re.search(r"https?:", re.sub(r'xmlns(:xlink)?="[^"]*"', "", picture))
    ids = [set(re.findall(r' id="([^"]*)"', picture)) for picture in pictures]
    assert ids[0]
    assert not ids[0] & ids[1]
    assert pictures[0] == graph_svg(SEEN, NAMES, title="one"), "the same every time"
    assert "$a$" in graph_svg(SEEN, ("$a$", "b", "c")), "a dollar is no formula"


def test_bent_arrows_stay_within_the_picture() -> None:
    """The first of six in a row causes the last; its arrow bends around those between."""
    chain = np.diag([0.9] * 5, 1)
    chain[0, 5] = 0.9
    picture = graph_svg(chain, ("a long name", "b", "c", "e", "f", "d"))
    left, top, width, height = map(float, (ET.fromstring(picture).get("viewBox") or "").split())
    arrow = next(path for name, path in drawn_arrows(picture).items() if "a long name → d" in name)
    numbers = np.array(re.findall(r"[-\d.]+", arrow.get("d") or ""), float).reshape(3, 2)
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
    picture = edge_matrix_svg(SEEN, NAMES, truth=TRUTH, title="seen")
    cells = drawn_arrows(picture)
    assert len(cells) == 9
    assert list(cells)[1] == "a < b → c: 0.900"
    styles = [style_of(cell) for cell in cells.values()]
    assert [style["stroke"] == FRAME for style in styles] == TRUTH.ravel().tolist()
    assert [text.text for text in ET.fromstring(picture).iter(f"{SVG}text")].count("90") == 1
    dark, pale = (int(styles[k]["fill"][1:3], 16) for k in (1, 2))
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


def test_without_matplotlib_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=re.escape("pip install 'jaxworlds[causal]'")):
        graph_svg(SEEN, NAMES)
    assert "pip install &#x27;jaxworlds[causal]&#x27;" in picture_or_note(lambda: graph_svg(SEEN, NAMES))
