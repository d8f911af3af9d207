"""Exit codes, SIGTERM as an exception, and an exit that waits for nothing."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any, NoReturn

BAD_INPUT, LOST, STOPPED, PIPE_CLOSED, TERMINATED = 2, 75, 130, 141, 143
"""Wrong input; another host is missing or lost, so that it is worth trying again; Ctrl-C; `head` has seen enough; SIGTERM."""

_CODES = {"interrupted": STOPPED, "terminated": TERMINATED}
_CAUSES = {"interrupted": "Ctrl-C", "terminated": "SIGTERM"}


class Terminated(KeyboardInterrupt):
    """SIGTERM as an exception; code that handles Ctrl-C handles it too."""


def code_of(outcome: str) -> int:
    """The exit code of a command whose run had this outcome."""
    return _CODES.get(outcome, 0)


def stopped_by(outcome: str, checkpoint: Any) -> str | None:
    """Message for a run that was stopped by a signal, with how to go on; None for other outcomes."""
    cause = _CAUSES.get(outcome)
    if cause is None:
        return None
    go_on = "the same command with --resume goes on" if checkpoint else "--checkpoint makes runs resumable"
    return f"stopped early by {cause}; {go_on}"


@contextlib.contextmanager
def sigterm_raises() -> Iterator[None]:
    """Within this block, SIGTERM raises `Terminated`, so that half-written files are removed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(signum: int, frame: Any) -> NoReturn:
        raise Terminated

    kept = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL if kept is None else kept)


def end_at_once(code: int) -> NoReturn:
    """Exit without waiting for other processes or threads, which may be gone."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
