"""The help of every command, as a newcomer reads it in a narrow terminal."""

import importlib
import os
import typing

import pytest

from jaxworlds.commands import _help

pytestmark = pytest.mark.devices

PARTS = {
    "acbo": ("optimize", "show", "train", "eval", "bench"),
    "jaxarc": ("show", "rollout", "data", "bench"),
    "jaxtrace": ("info", "run", "plot", "bench"),
    "jaxworlds": ("demo", "doctor", "bench"),
}


def shown(program: str, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(f"{program}.cli").main(arguments)
    assert ended.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("program", PARTS)
def test_help_fits_a_narrow_terminal_and_has_an_example(
    program: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_help.shutil, "get_terminal_size", lambda *_: os.terminal_size((80, 24)))
    whole = shown(program, ["--help"], capsys)
    assert all(part in whole for part in PARTS[program])
    for part in PARTS[program]:
        text = shown(program, [part, "--help"], capsys)
        assert f"Example: {program} {part}" in text
        assert max(map(len, text.splitlines())) <= 80, part
        for jargon in ("None", "--no-", "STR", "INT", "FLOAT", "PATH", "(default: )"):
            assert jargon not in text, (part, jargon)


def test_own_options_stand_before_those_that_many_commands_share(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown("jaxtrace", ["run", "--help"], capsys)
    assert text.index("--particles N ") < text.index("--out FILE ") < text.index("--devices N ")
    assert "--checkpoint FOLDER" in text
    assert "--span X X" in text
    assert "--velocity NAME ..." in text
    assert "--boundary none|reflective|" in text
    assert shown("acbo", ["bench", "--help"], capsys).count("[POLICY]") == 2, "it may be left out"


def test_the_help_is_settled_once(capsys: pytest.CaptureFixture[str]) -> None:
    """A second run in one process reads annotations that the first has changed."""
    from jaxarc.cli import Command

    first = shown("jaxarc", ["show", "--help"], capsys)
    _help.tidy(Command)
    assert shown("jaxarc", ["show", "--help"], capsys) == first
    assert len(typing.get_args(Command)) == 4
