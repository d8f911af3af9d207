"""The guides' Python blocks: who owns each, and how one is run after its preamble, line by line as people read it."""

import re
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from jaxworlds import taps

GUIDES = Path(__file__).resolve().parents[3] / "shared" / "guides"
BLOCK = re.compile(r"^(?P<indent> *)```python\n(?P<code>.*?)^(?P=indent)```", re.DOTALL | re.MULTILINE)

needs_guides = pytest.mark.skipif(not GUIDES.is_dir(), reason="the guides are not here (../shared/guides)")

# Guide -> owner -> blocks. "core" runs in `docs/test_guides.py`, "jaxarc" in `docs/test_guides_jaxarc.py`, "jaxtrace" in
# `docs/test_guides_jaxtrace.py`, "acbo" in `docs/test_guides_acbo.py`, which lists the block that its policy owes.
OWNERS: dict[str, dict[str, list[int]]] = {
    "000": {"core": [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]},
    "001": {"core": [4, 13, 14, 19], "jaxarc": [0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 15, 16, 17, 18]},
    "002": {"core": [0, 4, 9], "jaxarc": [1, 2, 3, 5, 6, 7, 8, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19]},
    "003": {"core": [0, 1, 2, 3, 4, 5, 6, 8, 14, 15], "acbo": [7, 9, 10, 11, 12, 13]},
    "004": {
        "core": [0, 1, 7, 12, 13],
        "jaxtrace": [2, 3, 4, 5, 6, 8, 9, 10, 11, 14, 15, 16, 17, 18, 19, 20, 21, 22],
    },
}

Namespace = dict[str, Any]
Key = tuple[str, int]
"""A guide and the number of a block in it."""


def owned_by(owner: str) -> set[Key]:
    """The blocks of one owner."""
    return {(guide, index) for guide, owners in OWNERS.items() for index in owners.get(owner, [])}


def blocks(guide: str) -> list[str]:
    """The Python blocks of a guide, without the indentation that a list puts before them."""
    (file,) = GUIDES.glob(f"{guide}_*.txt")
    return [textwrap.dedent(match["code"]) for match in BLOCK.finditer(file.read_text(encoding="utf-8"))]


@dataclass(frozen=True)
class Allowed:
    """A line of a guide that cannot work: the error it gives, why, and the line that runs instead."""

    line: str
    error: type[BaseException]
    reason: str
    instead: str


@dataclass(frozen=True)
class Case:
    """How one block is run: after `preamble`, with `allowed` lines replaced; `outcome` says what must come of it.

    `fill` puts code where the guide leaves a comment for the reader to fill in. `smaller` gives a call of the guide
    smaller numbers than its defaults, where these take minutes; the function called is the guide's, whole.
    """

    outcome: Callable[[Namespace, str], None]
    preamble: str = ""
    allowed: tuple[Allowed, ...] = ()
    fill: tuple[tuple[str, str], ...] = ()
    smaller: tuple[tuple[str, str], ...] = ()


def with_lines(code: str, changes: dict[str, str]) -> str:
    """`code` with whole lines replaced, each found exactly once, at its own indentation."""
    lines = code.splitlines()
    for old, new in changes.items():
        (position,) = [i for i, line in enumerate(lines) if line.strip() == old]
        indent = lines[position][: len(lines[position]) - len(lines[position].lstrip())]
        lines[position] = textwrap.indent(textwrap.dedent(new), indent)
    return "\n".join(lines)


def play(case: Case, key: Key, capsys: pytest.CaptureFixture[str], keep: str | None = None) -> None:
    """Run the preamble, the block and its outcome; `keep` is an allowed line that stays as the guide has it."""
    guide, index = key
    changes = {bad.line: bad.instead for bad in case.allowed if bad.line != keep}
    code = with_lines(blocks(guide)[index], changes | dict(case.fill) | dict(case.smaller))
    namespace: Namespace = {"__name__": "guide"}
    exec(compile(textwrap.dedent(case.preamble), f"preamble of {guide}[{index}]", "exec"), namespace)
    exec(compile(code, f"guide {guide}[{index}]", "exec"), namespace)
    taps.flush_taps(5.0)
    case.outcome(namespace, capsys.readouterr().out)


def name_of(value: Any) -> str:
    """The id of a parametrized test: a block's guide and number, or the beginning of a line."""
    return value.line[:30] if isinstance(value, Allowed) else f"{value[0]}-{value[1]}"


def allowed_lines(cases: Mapping[Key, Case]) -> list[tuple[Key, Allowed]]:
    """Every line that is allowed to fail, with its block."""
    return [(key, bad) for key, case in cases.items() for bad in case.allowed]
