"""Errors and warnings in one line, with remedies that can be typed at the command line."""

import contextlib
import io
import re
import sys
import warnings
from collections.abc import Iterator
from typing import Any

from ._checks import WRITTEN
from ._command import Command
from ._options import spelled_for
from ._output import plain_text


def typed_message(command: Any, error: BaseException) -> str:
    """The message of an error, with remedies that can be typed at the command line."""
    text = one_line(error)
    misfit = re.match(
        r"(`\w+` must be what the checkpointed run had|.*: the file does not fit `like`:)", text
    )
    if misfit and getattr(command, "resume", False):
        return (
            f"`--resume` must be typed with the options of the run in {getattr(command, 'checkpoint', None)}, and the same data; "
            f"that run had other ones ({_other_than_saved(command)}). Type those, or give `--checkpoint` another folder."
        )
    return spelled_for(command, text)


def _other_than_saved(command: Command) -> str:
    """The given options that decide what a run computes, as text."""
    how = {*WRITTEN, "checkpoint_every", "resume", "json"}
    given = [(name, value) for name, value in command.own_options().items() if name not in how]
    said = [f"--{name.replace('_', '-')} {value}" for name, value in given if value not in (None, (), "")]
    return f"now {', '.join(said)}"


def out_of_memory(command: Any, error: BaseException) -> str:
    """Message for an allocation that failed: the size asked for, and the size that would fit if the command knows it."""
    needed = re.search(
        r"(?:allocat\w*|request\w*)[^0-9]{0,20}([0-9.]+ ?[KMGT]?i?B?(?:ytes)?)", str(error), re.IGNORECASE
    )
    asked = f" ({needed[1].strip()} asked for at once)" if needed else ""
    if refused := re.search(
        r"needs ([0-9.]+ \w+) beyond its arguments.*? and ([0-9.]+ \w+) are free", str(error)
    ):
        asked = f" ({refused[1]} needed, {refused[2]} free)"
    remedy = "Ask for less at a time: fewer environments, particles, samples or steps."
    tell = getattr(command, "what_fits", None)
    with contextlib.suppress(Exception):  # an estimate that fails must not hide what happened
        remedy = (tell() if tell is not None else "") or remedy
    return f"out of memory{asked}. {remedy}"


def one_line(error: BaseException) -> str:
    """The message of an error without line breaks; its class if the message is empty."""
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split()) or type(error).__name__


@contextlib.contextmanager
def plain_warnings(command: Any = None) -> Iterator[None]:
    """Within this block, each warning is one line on stderr, without file and line of our code.

    Remedies in them are spelled as options of `command`.
    """
    usual = warnings.showwarning

    def show(message: Any, category: Any, *place: Any, **_: Any) -> None:
        text = one_line(message)
        print(plain_text(f"note: {text if command is None else spelled_for(command, text)}"), file=sys.stderr)

    warnings.showwarning = show
    try:
        yield
    finally:
        warnings.showwarning = usual


_TYPES = {"int": "a whole number", "float": "a number", "Path": "a path", "bool": "True or False"}
_BAD_VALUE = re.compile(
    r"(?:invalid literal for int\(\) with base 10|could not convert string to float): ('[^']*')"
)


@contextlib.contextmanager
def plain_option_errors() -> Iterator[None]:
    """Within this block, a wrong value of an option prints one line: the option, what it must be, and the value."""
    kept = io.StringIO()
    try:
        with contextlib.redirect_stderr(kept):
            yield
    except SystemExit:
        text = kept.getvalue()
        flat = " ".join(re.sub(r"[│╭╮╰╯─|+]", " ", text).split())
        option = re.search(r"Error parsing (--[\w-]+|[A-Z][\w.-]*)", flat)
        given = _BAD_VALUE.search(flat)
        if option and given:
            kinds = [words for kind, words in _TYPES.items() if f"<class '{kind}'>" in flat]
            kinds = kinds or ["a whole number" if "invalid literal" in flat else "a number"]
            text = f"`{option[1]}` must be {' or '.join(kinds)}; got {given[1]}.\n"
        sys.stderr.write(text)
        raise
    sys.stderr.write(kept.getvalue())
