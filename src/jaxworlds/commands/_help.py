"""The help of all commands: plain words in place of types, own options before those that many commands share."""

import contextlib
import dataclasses
import functools
import inspect
import shutil
import sys
import textwrap
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

WORDS: dict[Any, str] = {int: "N", float: "X", str: "NAME", Path: "FILE"}
"""What stands for a value in the help."""


def tidy(commands: Any) -> None:
    """Set how the help shows the options of each command of a union."""
    for member in typing.get_args(commands):
        _tidy_command(typing.get_args(member)[0] if typing.get_origin(member) is Annotated else member)


@functools.cache
def _tidy_command(command: Any) -> None:
    import tyro

    hints = typing.get_type_hints(command, include_extras=True)
    fields = {field.name: field for field in dataclasses.fields(command)}
    shared = {name for base in command.__mro__[1:-1] for name in inspect.get_annotations(base)}
    for name, field in fields.items():
        # None, an empty list and "off" are no news: the text says what happens then.
        silent = field.default is None or field.default is False or field.default in ((), "")
        shown = tyro.conf.arg(metavar=_word(field, hints[name]), help_behavior_hint="" if silent else None)
        command.__annotations__[name] = Annotated[hints[name], shown]
    command.__dataclass_fields__ = {name: fields[name] for name in sorted(fields, key=shared.__contains__)}


def _word(field: dataclasses.Field[Any], hint: Any) -> str | None:
    """The placeholder for the value of an option; None for a switch."""
    if typing.get_origin(hint) is Annotated:  # a positional argument is called by its name
        name = field.name.upper()
        return name if field.default is dataclasses.MISSING else f"[{name}]"
    kinds = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    kind = next(kind for kind in kinds if kind is not type(None))
    if (word := field.metadata.get("word")) is not None:  # where the type alone says too little
        return word
    if typing.get_origin(kind) is not tuple:
        return None if kind is bool else _one_word(kind, field)
    first, *rest = typing.get_args(kind)
    word = _one_word(first, field)
    return f"{word} ..." if rest == [...] else " ".join([word] * (1 + len(rest)))


def _one_word(kind: Any, field: dataclasses.Field[Any]) -> str:
    if typing.get_origin(kind) is Literal:
        return "|".join(typing.get_args(kind))
    folder = field.name == "checkpoint" or (isinstance(field.default, Path) and not field.default.suffix)
    return "FOLDER" if kind is Path and folder else WORDS[kind]


class _Wrapping:
    """An output on which long lines of text break between words; boxes and coloured lines are left alone."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, text: str) -> int:
        """Write `text`, wrapped."""
        width = shutil.get_terminal_size().columns
        lines = [
            line
            if line[:1] in ("╭", "│", "╰") or "\x1b" in line
            else textwrap.fill(line, width, break_on_hyphens=False)
            for line in text.split("\n")
        ]
        return self._file.write("\n".join(lines))


@contextlib.contextmanager
def wrapped_output() -> Iterator[None]:
    """Within this block, text on stdout is wrapped to the width of the terminal."""
    with contextlib.redirect_stdout(typing.cast(Any, _Wrapping(sys.stdout))):
        yield
