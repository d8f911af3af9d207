"""Messages of the library for the command line: Python arguments spelled as options."""

import ast
import dataclasses
import re
from collections.abc import Mapping
from typing import Any

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
        name, value = argument[1], argument[2]
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
