"""Connections between the processes of a run, beside JAX's own: they meet before JAX starts and notice each other's end.

JAX ends a process whose companions are missing, wrong or lost by `abort`, with a stack of C++ functions and no word about what
to do. So processes first meet here, where every mistake has its sentence; and each keeps a connection to process 0, which ends
when its process does, whatever the reason.
"""

import abc
import contextlib
import ctypes
import dataclasses
import faulthandler
import hashlib
import os
import re
import signal
import socket
import sys
import threading
import time
from typing import NoReturn

from ..text import printable
from . import _token
from ._wire import Wire, own_address, split_address, whole_number
from .exits import end_at_once

VERSION = 2
_NOTE_AFTER_S = 10.0
# Others hear of an end within milliseconds; a host that does not answer for this many seconds is gone too.
_PART_S = 3.0
_PULSE_S, _TURN_S = 5.0, 0.5
_FACT = "fact "
# How JAX and its transports begin to speak of what other processes may have caused.
_DOUBTFUL = re.compile(
    r"\b(UNKNOWN|INTERNAL|UNAVAILABLE|ABORTED|CANCELLED|DEADLINE_EXCEEDED|FAILED_PRECONDITION):|Gloo|NCCL"
)


class MissingHostError(ConnectionError):
    """Other processes of a run did not come, or could not be reached."""


@dataclasses.dataclass(frozen=True)
class Card:
    """Number of a process, and the facts that must be equal in all processes."""

    process: int
    processes: int
    facts: dict[str, str]
    node: str = dataclasses.field(default_factory=socket.gethostname)

    def __post_init__(self) -> None:
        facts = {shorten(name, 100): shorten(value) for name, value in self.facts.items()}
        object.__setattr__(self, "facts", facts)
        object.__setattr__(self, "node", shorten(self.node))

    def __str__(self) -> str:
        return f"host {self.process} ({self.node})"


class Lifeline(threading.Thread, abc.ABC):
    """This process's connection with the others of its run."""

    def __init__(self, card: Card, coordinator: str, silence_s: int):
        super().__init__(name="jaxworlds lifeline", daemon=True)
        self.card, self.coordinator, self.silence_s = card, coordinator, silence_s
        self.name_of_first, self.port = split_address(coordinator)
        self.loopback = own_address(self.name_of_first)
        """The address of process 0 if all run on this machine, else None."""
        self.token = _token.run_token(loopback=self.loopback is not None, coordinator=coordinator)
        self.pulse_s = min(_PULSE_S, silence_s / 4)
        """How often this process gives a sign of life: often enough for the least patient of those who listen."""
        self.turn_s = min(_TURN_S, self.pulse_s / 2)
        """How long it waits for something to read at most."""
        self._pulsed = self._watched = time.monotonic()
        self.advice = ""
        """What people can do when a host is lost."""
        self.erring = threading.Event()
        """The main thread has met an error of its own."""
        self.ending = threading.Event()
        """It has begun to end for that."""
        self.judged = threading.Event()
        """A companion is lost, and this process is about to end."""
        self.parted = threading.Event()
        """All are done, and connections may end."""

    @abc.abstractmethod
    def meet(self, patience_s: float) -> int:
        """Wait for all others and compare cards; the port of process 0 that JAX is to take."""

    @abc.abstractmethod
    def tell_failure(self, text: str, code: int) -> None:
        """Let the others know that this process fails, and say why."""

    @abc.abstractmethod
    def tell_done(self) -> None:
        """Let the others know that this process has done its part."""

    def fail(self, text: str, code: int) -> NoReturn:
        """End this process, and with it the run."""
        self.await_judgement(text)
        self.ending.set()
        self.tell_failure(text, code)
        end_at_once(code)

    def await_judgement(self, error: str) -> None:
        """If an error looks like the loss of another process, wait for the other thread to report that and exit."""
        self.erring.set()
        if _DOUBTFUL.search(error) and self.judged.wait(_PART_S):
            self.parted.wait(2 * _PART_S)

    def leave(self) -> None:
        """Wait until all others are done too."""
        self.tell_done()
        if not self.parted.wait(_NOTE_AFTER_S):
            say(f"host {self.card.process} is done and waits for the others")
            self.parted.wait()

    def close(self) -> None:
        """Close the connections."""
        self.parted.set()
        if self.is_alive():
            self.join()

    def heed(self, silence_s: int | None) -> None:
        """Send signs of life often enough for a peer that waits `silence_s`."""
        self.pulse_s = min(self.pulse_s, max(silence_s or 1, 1) / 4)
        self.turn_s = min(self.turn_s, self.pulse_s / 2)

    def pulse(self, *wires: Wire) -> None:
        """Send a sign of life if one is due."""
        if time.monotonic() - self._pulsed >= self.pulse_s:
            self._pulsed = time.monotonic()
            for wire in wires:
                wire.send(alive=1)

    def silent(self, *wires: Wire) -> list[Wire]:
        """Peers without a sign of life for too long. Call it in every turn, after reading.

        Where this process itself was frozen meanwhile, what the others said may still be on its way.
        """
        now = time.monotonic()
        slept, self._watched = now - self._watched > self.silence_s / 2, now
        if slept:
            for wire in wires:
                wire.heard = now
        return [wire for wire in wires if now - wire.heard > self.silence_s]

    def lost(self, who: str) -> str:
        """Message for a process that has ended."""
        return (
            f"{who} is gone: it was killed, crashed, or lost its machine or network; its own output may say more. "
            f"{self.advice}".strip()
        )

    def frozen(self, who: str) -> str:
        """Message for a process that has been silent for too long."""
        return (
            f"{who} has given no sign of life for {self.silence_s} s: it is frozen (SIGSTOP, Ctrl-Z, a debugger), or lost its "
            f"machine or network; `--silence` waits longer. {self.advice}".strip()
        )


class Noted:
    """Prints once, after a delay, what is being waited for."""

    def __init__(self) -> None:
        self.began, self.said = time.monotonic(), False

    def say(self, text: str) -> None:
        """Print it, if it is due."""
        if not self.said and time.monotonic() - self.began > _NOTE_AFTER_S:
            self.said = True
            say(text)


def say(text: str) -> None:
    """Print a line on the error stream, without control characters."""
    with contextlib.suppress(OSError, ValueError):
        print(_plain_text(text), file=sys.stderr, flush=True)


def _plain_text(text: str) -> str:
    return "\n".join(map(printable, text.splitlines()))


def say_last(text: str) -> None:
    """Print a last line on the error stream and close it: JAX would add its own message."""
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.flush()
        kept = os.dup(2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        os.write(kept, _plain_text(text).encode("utf-8", "replace") + b"\n")


def difference(first: Card, other: Card) -> str | None:
    """The first difference between two cards, as a sentence."""
    mine, theirs = ({"`--hosts`": str(card.processes), **card.facts} for card in (first, other))
    for name in {**mine, **theirs}:
        one, two = (facts.get(name, "nothing") for facts in (mine, theirs))
        if one != two:
            return f"{name} must be the same on all hosts; {first} has {one}, {other} has {two}."
    return None


def hold_aborts() -> None:
    """Let a thread that aborts sleep for six seconds first, in which the lifeline ends the process with a sentence.

    JAX aborts as soon as it misses process 0. The handler is C's own `sleep`, which takes the signal's number (6) as its time.
    """
    if faulthandler.is_enabled():
        return
    with contextlib.suppress(OSError, AttributeError):
        c = ctypes.CDLL(None)
        c.signal.argtypes, c.signal.restype = (ctypes.c_int, ctypes.c_void_p), ctypes.c_void_p
        c.signal(int(signal.SIGABRT), ctypes.cast(c.sleep, ctypes.c_void_p))


def said_of(card: Card) -> dict[str, str | int]:
    """A card as a message."""
    facts = {f"{_FACT}{name}": value for name, value in card.facts.items()}
    numbers = {"jaxworlds": VERSION, "process": card.process, "processes": card.processes}
    return {**numbers, "node": card.node, **facts}


def card_of(message: dict[str, str]) -> Card | None:
    """The card in a message, or None."""
    process, processes = (whole_number(message.get(name)) for name in ("process", "processes"))
    if process is None or processes is None:
        return None
    facts = {name.removeprefix(_FACT): value for name, value in message.items() if name.startswith(_FACT)}
    if message.get("jaxworlds") != str(VERSION):
        facts = {"jaxworlds": "another version"}
    return Card(process, processes, facts, message.get("node", "unknown"))


def shorten(text: str, longest: int = 200) -> str:
    """The text on one line; a long one is cut and ends with a digest."""
    text = printable(text)
    if len(text) <= longest:
        return text
    digest = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=6).hexdigest()
    return f"{text[: longest - 16]}... {digest}"
