"""Text for people: durations, sizes and tables as plain text, and strings that a terminal can show."""

import io
from typing import Any


def format_seconds(seconds: float | int | None) -> str:
    """`1.2e-05` as `12.0 µs`; a missing figure as `-`."""
    if seconds is None:
        return "-"
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        value = seconds / size
        if abs(value) >= 1:
            return f"{value:.{2 if abs(value) < 10 else 1 if abs(value) < 100 else 0}f} {unit}"
    return f"{seconds / 1e-9:.0f} ns"


def format_bytes(size: float | int | None) -> str:
    """`2400000` as `2.40 MB`; a missing figure as `-`."""
    if size is None:
        return "-"
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(size) >= scale:
            return f"{size / scale:.2f} {unit}"
    return f"{size:.0f} B"


def render(renderable: Any, width: int = 110) -> str:
    """A rich table as plain text, for `str()` and logs."""
    from rich.console import Console

    stream = io.StringIO()
    Console(file=stream, width=width, color_system=None).print(renderable)
    return stream.getvalue().rstrip("\n")


def show(renderable: Any) -> None:
    """Print a rich table: fitted to a terminal, as wide as needed in a file or a pipe."""
    from rich.console import Console

    console = Console()
    if console.is_terminal:
        console.print(renderable)
    else:
        print(render(renderable))


def printable(text: str) -> str:
    """The text with control characters replaced by spaces."""
    return "".join(c if c.isprintable() else " " for c in text)
