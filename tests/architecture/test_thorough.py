"""The list of tests that only `make thorough` runs names tests that exist, and leaves no file without tests."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def lines() -> list[str]:
    text = (ROOT / "tests" / "thorough.txt").read_text()
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def test_every_line_names_a_test_that_exists() -> None:
    assert lines()
    assert len(set(lines())) == len(lines())
    for line in lines():
        path, name = line.split("::")
        source = (ROOT / path).read_text()
        assert re.search(rf"^def {re.escape(name.split('[')[0])}\(", source, re.MULTILINE), line


def test_no_whole_law_and_no_whole_comparison_with_the_oracle_is_left_out() -> None:
    for line in lines():
        if line.startswith(("tests/laws/", "tests/peers/test_arc_oracle.py")):
            assert "[" in line, f"{line}: only further cases of it may be left out"


def test_each_file_keeps_tests_in_the_usual_run() -> None:
    for path in {line.split("::")[0] for line in lines()}:
        defined = set(re.findall(r"^def (test_\w+)\(", (ROOT / path).read_text(), re.MULTILINE))
        left_out = {line.split("::")[1] for line in lines() if line.startswith(path)}
        assert defined - left_out, path
