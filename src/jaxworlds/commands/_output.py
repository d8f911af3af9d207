"""Output of commands: lines, tables and JSON, also on terminals without Unicode."""

import codecs
import contextlib
import io
import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

from ..text import printable

_SIMPLER = str.maketrans(
    dict.fromkeys("─━═╌┄", "-") | dict.fromkeys("│┃║╎┆", "|") | dict.fromkeys("╭╮╰╯┌┐└┘├┤┬┴┼╞╡╪┏┓┗┛┡┩┳┻╇", "+")
    | {"×": "x", "…": "...", "−": "-", "–": "-", "—": "-", "°": " deg", "µ": "u", "μ": "u", "→": "->", "←": "<-"}
    | {"≥": ">=", "≤": "<=", "±": "+-", "·": "-", "²": "^2", "³": "^3", "█": "#", "▏": "|", "•": "*", "‘": "'", "’": "'"}
    | {"“": '"', "”": '"', "√": "sqrt", "✓": "ok"}
)  # fmt: skip


def _simplify(error: UnicodeError) -> tuple[str, int]:
    """Replace characters that the output encoding lacks by simpler ones."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lost = error.object[error.start : error.end].translate(_SIMPLER)
    return lost.encode(error.encoding, "replace").decode(error.encoding), error.end


def degrade_output() -> None:
    """Print simpler characters where the output has no Unicode (`LANG=C`), instead of raising.

    With a closed output (`>&-`), text is discarded.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - as long as the process
    codecs.register_error("jaxworlds-simplify", _simplify)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and (stream.errors in ("strict", "surrogateescape")):
            stream.reconfigure(errors="jaxworlds-simplify")


def print_json(value: Any) -> None:
    """Print one JSON object; NaN and infinity become null."""
    print(json.dumps(_finite(value), indent=1, allow_nan=False, default=_plain))


def say(text: str) -> None:
    """Print a line, not wrapped."""
    print(plain_text(text), flush=True)


def plain_text(text: str) -> str:
    """The text with control characters replaced by spaces: names in files may hold some."""
    return "\n".join(map(printable, text.split("\n")))


def people_console() -> Any:
    """A console as wide as the terminal; 200 columns for files and pipes, so that tables are not cut."""
    from rich.console import Console

    console = Console()
    return console if console.is_terminal else Console(width=200)


@contextlib.contextmanager
def show_status(words: str) -> Iterator[Callable[[str], Any]]:
    """Within this block, a terminal shows a status line on stderr; call the yielded function to change it."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _: None
        return
    from rich.text import Text

    with console.status(Text(words)) as status:
        yield lambda said: status.update(Text(said))


def show_table(title: str, head: tuple[str, ...], rows: list[tuple[str, ...]], note: str = "") -> None:
    """Print a table: words left-aligned, figures right-aligned."""
    from rich.table import Table

    console = people_console()
    table = Table()
    for number, name in enumerate(head):
        figures = all(not row[number] or row[number][0] in "+-0123456789" for row in rows)
        table.add_column(name, justify="right" if figures and number else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(plain_text, row))
    for part in (plain_text(title), table, plain_text(note)):
        if part:
            console.print(part, highlight=False, markup=False, soft_wrap=isinstance(part, str))


def show_facts(facts: dict[str, str]) -> None:
    """Print names and values, one pair to a line."""
    width = max(map(len, facts), default=0)
    for name, value in facts.items():
        say(f"{name:<{width}}  {value}")


def machine() -> dict[str, Any]:
    """The machine and versions behind a figure."""
    from ..measuring import environment

    found = environment()
    names = ("backend", "device_kind", "device_count", "cpu_model", "cores", "python", "jax", "date")
    return {name: found[name] for name in names}


def machine_words(found: dict[str, Any]) -> str:
    """`machine` as a phrase."""
    return (
        f"{found['device_count']} × {found['device_kind']} ({found['cpu_model']}, {found['cores']} cores), "
        f"jax {found['jax']}, Python {found['python']}"
    )


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not abs(value) < float("inf") else value


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)
