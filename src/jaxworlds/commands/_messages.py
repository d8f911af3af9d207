"""Errors and warnings in one line, with Python arguments spelled as options, so that remedies can be typed."""

import ast
import contextlib
import dataclasses
import io
import re
import sys
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from ._command import WRITTEN
from ._output import plain_text

_QUOTED = re.compile(r"`([^`\n]+)`")
_DEMANDED = re.compile(r"^`([A-Za-z_][A-Za-z_0-9]*)` must ")
_DEMANDS = re.compile(r" (must|names|demands|and `)")
_ARGUMENT = re.compile(r"^([A-Za-z_][A-Za-z_0-9]*)(?:=(.*))?$", re.DOTALL)


# What the driver of runs advises in Python, as every command says it that can go on from a checkpoint.
_RESUMING = {
    "Call `resume` to continue it, pass another folder, or `Checkpoint(folder, overwrite=True)`.": (
        "Type the same command with `--resume` to go on with it, or give `--checkpoint` another folder."
    ),
    "free some space and `resume`, or pass another folder.": (
        "free some space and type the same command with `--resume`, or give `--checkpoint` another folder."
    ),
    "Give `resume` what that run was given, or take another folder.": (
        "Type the options of that run, or give `--checkpoint` another folder."
    ),
    "is a state but not a checkpoint of a run. Load it with `load_state`.": (
        "is a saved state but not that of a run. Give `--checkpoint` the folder of a run."
    ),
}


def typed_message(command: Any, error: BaseException) -> str:
    """The message of an error, with remedies that can be typed at the command line."""
    text = one_line(error)
    misfit = r"(`\w+` must be what the checkpointed run had|.*: the file does not fit `like`:)"
    if re.match(misfit, text) and getattr(command, "resume", False):
        how = {*WRITTEN, "checkpoint_every", "resume", "json"}  # the others decide what a run computes
        given = [(name, value) for name, value in command.own_options().items() if name not in how]
        said = [f"--{name.replace('_', '-')} {value}" for name, value in given if value not in (None, (), "")]
        return (
            f"`--resume` must be typed with the options of the run in {getattr(command, 'checkpoint', None)}, and the same data; "
            f"that run had other ones (now {', '.join(said)}). Type those, or give `--checkpoint` another folder."
        )
    return spelled_for(command, text)


def out_of_memory(command: Any, error: BaseException) -> str:
    """Message for an allocation that failed: the size asked for, and the size that would fit if the command knows it."""
    needed = re.search(
        r"(?:allocat\w*|request\w*)[^0-9]{0,20}([0-9.]+ ?[KMGT]?i?B?(?:ytes)?)", str(error), re.IGNORECASE
    )
    asked = f" ({needed[1].strip()} asked for at once)" if needed else ""
    own = r"needs ([0-9.]+ \w+) beyond its arguments.*? and ([0-9.]+ \w+) are free"
    if refused := re.search(own, str(error)):
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
_BAD_CHOICE = re.compile(r"invalid choice '(.*?)' for argument '(.*?)'\. Expected one of \((.*?)\)\.")


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
        elif wrong := _BAD_CHOICE.search(flat):
            # tyro lists the choices of an option that may be left out in any order, and None among them.
            choices = sorted(set(re.findall("'([^']*)'", wrong[3])) - {"None"})
            from ..arguments import suggestion  # brings jax, which help does without

            hint = suggestion(wrong[1], choices)
            text = f"`{wrong[2]}` must be one of {', '.join(choices)}; got {wrong[1]!r}.{hint}\n"
        sys.stderr.write(text)
        raise
    sys.stderr.write(kept.getvalue())


def spelled_for(command: Any, text: str) -> str:
    """The message with `name=value` in backticks written as `--name value`, where `command` has such an option.

    So is an argument that a message begins with. A command's `spellings` say which option stands for an argument of another
    name, and what to type in place of other words in backticks. What has no option stays as it is.
    """
    options = {field.name: field for field in dataclasses.fields(command)}
    own: Mapping[str, str] = getattr(command, "spellings", {})
    spellings = {**_RESUMING, **own} if "resume" in options else own

    def spell(found: re.Match[str]) -> str:
        whole = found[1]
        if whole in spellings and not whole.endswith("="):
            return f"`{spellings[whole]}`"
        argument = _ARGUMENT.match(whole)
        if argument is None:
            return found[0]
        name, value = argument.groups()
        option = spellings.get(f"{name}=", name).rstrip("=")
        if option not in options:
            return found[0]
        # A bare name may be a word of a file: it is the option's where the message demands something of it.
        if value is None and f"{name}=" not in spellings:
            part = text[: found.start()].endswith(" of ")  # `inside` of `seeds`: words of a file
            said = own and not part and _DEMANDS.match(text, found.end())
            said = said and not _is_positional(options[option])
            return f"`{_option(option, None)}`" if said else found[0]
        return f"`{_option(option, value)}`"

    for phrase, typed_phrase in spellings.items():
        if " " in phrase:
            text = text.replace(phrase, typed_phrase)
    text = _QUOTED.sub(spell, text)
    demanded = _DEMANDED.match(text)
    if demanded and demanded[1] in options and not _is_positional(options[demanded[1]]):
        text = f"`{_option(demanded[1], None)}`{text[demanded.end(1) + 1 :]}"
    return text


def _is_positional(field: dataclasses.Field[Any]) -> bool:
    """True for a positional argument."""
    return any("ositional" in str(mark) for mark in getattr(field.type, "__metadata__", ()))


def _option(name: str, value: str | None) -> str:
    """An option with its value, quoted for a shell; a switch that is off as `--no-…`."""
    word = f"--{name.replace('_', '-')}"
    if not value:
        return word
    try:
        known = ast.literal_eval(value)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return f"{word} {value}"
    if isinstance(known, bool):
        return word if known else f"--no-{word[2:]}"
    return f"{word} {_shell(known)}"


def _shell(value: Any) -> str:
    if isinstance(value, dict):
        pairs = [
            (f"{key}.{name}", one) if isinstance(part, dict) else (key, part)
            for key, part in value.items()
            for name, one in (part.items() if isinstance(part, dict) else [("", None)])
        ]
        return " ".join(_quote(f"{key}={'none' if one is None else one}") for key, one in pairs)
    if isinstance(value, list | tuple):
        return " ".join(map(_shell, value))
    return _quote("none" if value is None else str(value))


def _quote(text: str) -> str:
    """A word, quoted for a shell if needed."""
    return f'"{text}"' if re.search(r"[\s*?\[\]()&;|<>$]", text) else text
