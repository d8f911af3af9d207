"""Process 0 of a run: it accepts the others and tells all when one is lost."""

import contextlib
import dataclasses
import itertools
import os
import selectors
import threading
import time
from collections import Counter
from typing import Any

from . import _token
from ._lifeline import Card, Lifeline, MissingHostError, Noted, card_of, difference, say, say_last, shorten
from ._wire import Wire, listen, listen_as, whole_number
from .exits import LOST, end_at_once

_PART_S = 3.0
# A connection that has not shown the token after this many seconds is dropped.
_STRANGER_S = 10.0
# The same mistake mostly happens on all hosts, and then this one says it better itself.
_GRACE_S = 2.0
# Connections that may wait at once, beside two for every host.
_WAITING = 64
_KNOCKS_IN_A_TURN = 64
_REPORTS = 8
_NAMED = 16
_LONGEST_TEXT = 2000


@dataclasses.dataclass
class Stranger:
    """A connection that has not shown the token yet."""

    nonce: str
    address: str
    since: float = dataclasses.field(default_factory=time.monotonic)
    proven: bool = False


class Hub(Lifeline):
    """Holds a connection to every other process. The door stays open, to tell latecomers that they are not wanted.

    Anybody may knock. Who does not show the token in time is dropped, and has no say in anything; only what comes from a
    process that has shown it counts.
    """

    def __init__(self, card: Card, coordinator: str, silence_s: int):
        super().__init__(card, coordinator, silence_s)
        try:
            self.door = listen_as(self.name_of_first, self.port)
            self.door.setblocking(False)
        except OSError as error:
            raise ValueError(
                f"`coordinator` must have a free port on host 0; {coordinator} is not ({error}). Another host 0 or another "
                "program has it: give every host its own number, or take another port."
            ) from error
        self.address = str(self.door.getsockname()[0])
        self.members: dict[int, Wire] = {}
        self.strangers: dict[Wire, Stranger] = {}
        self.done: set[int] = set()
        self.complete = threading.Event()
        self.refused: str | None = None
        self.sent_away: Counter[str] = Counter()
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.door, selectors.EVENT_READ)

    def meet(self, patience_s: float) -> int:
        if _token.weak(self.token):
            say(
                f"note: {_token.VARIABLE} is short enough to be guessed; `{_token.MAKE_ONE}` makes one that is not."
            )
        self.start()
        noted = Noted()
        while not self.complete.wait(0.1):
            awaited = self._missing_hosts()
            if self.refused is not None:
                raise ValueError(self.refused)
            if time.monotonic() - noted.began > patience_s:
                text = (
                    f"{awaited} of {self.card.processes} did not come to {self.coordinator} within {patience_s:g} s. Run the "
                    f"same command on every host, each with its own number; `--patience` waits longer.{self._hint()}"
                )
                self._tell(refused=text, code=LOST)
                raise MissingHostError(text)
            noted.say(f"waiting for {awaited} at {self.coordinator}, for {patience_s:g} s at most")
        port = self._free_port()
        self._tell(go=port)
        return port

    def _missing_hosts(self) -> str:
        """Hosts that have not connected yet; at most the first few."""
        count = self.card.processes - 1 - len(self.members)
        missing = (str(k) for k in range(1, self.card.processes) if k not in self.members)
        more = f" and {count - _NAMED:,} more" if count > _NAMED else ""
        return f"host{'s' * (count > 1)} {', '.join(itertools.islice(missing, _NAMED))}{more}"

    def _hint(self) -> str:
        """Likely reasons why hosts have not connected."""
        hints = []
        if self.sent_away["token"]:
            hints.append(f"Some came with another {_token.VARIABLE}, which must be the same on all hosts.")
        if self.loopback and self.name_of_first not in ("localhost", self.address):
            here = f"Here {self.name_of_first} is {self.address}"
            hints.append(f"{here}, which other machines cannot reach.")
        return "".join(f" {hint}" for hint in hints)

    def _free_port(self) -> int:
        given = os.environ.get("JAX_COORDINATOR_PORT", "")
        if given.isdecimal() and int(given) != self.door.getsockname()[1]:
            return int(given)
        with contextlib.closing(listen(self.address, 0)) as probe:
            return probe.getsockname()[1]

    def tell_failure(self, text: str, code: int) -> None:
        say(text)
        self._tell(over=text[:_LONGEST_TEXT], code=code)
        self._await_parting()

    def tell_done(self) -> None:
        self._note_done(0)

    def run(self) -> None:
        try:
            while not self.parted.is_set():
                self._turn()
        finally:
            for wire in (*self.members.values(), *self.strangers):
                wire.close()
            self.selector.close()
            self.door.close()

    def _turn(self) -> None:
        for key, _ in self.selector.select(self.turn_s):
            if key.fileobj is self.door:
                self._let_in()
            else:
                self._read(key.fileobj)
        now = time.monotonic()
        for wire in [wire for wire, one in self.strangers.items() if now - one.since > _STRANGER_S]:
            self._send_away(wire, "silence")
        self.pulse(*list(self.members.values()))
        for wire in self.silent(*list(self.members.values())):
            self._miss(wire, self.frozen(f"host {wire.process} ({wire.node})"))

    def _let_in(self) -> None:
        for _ in range(_KNOCKS_IN_A_TURN):
            try:
                connection, address = self.door.accept()
            except OSError:
                return
            try:
                wire = Wire(connection, self.silence_s)
            except OSError:  # gone again
                connection.close()
                continue
            if len(self.strangers) >= max(_WAITING, 2 * self.card.processes):
                self._send_away(self._most_troublesome(), "crowd")
            stranger = self.strangers[wire] = Stranger(_token.new_nonce(), str(address[0]))
            self.selector.register(wire, selectors.EVENT_READ)
            wire.send(jaxworlds="hello", nonce=stranger.nonce)

    def _most_troublesome(self) -> Wire:
        """The connection to drop when too many wait: the oldest from the most frequent address."""
        knocks = Counter(one.address for one in self.strangers.values())
        return max(self.strangers, key=lambda wire: knocks[self.strangers[wire].address])

    def _read(self, wire: Any) -> None:
        if wire.process is None and wire not in self.strangers:  # sent away in this very turn
            return
        for message in wire.receive():
            if wire in self.strangers:
                self._hear_stranger(wire, message)
            elif wire.process is None:  # sent away
                return
            elif "done" in message:
                self._note_done(wire.process)
            elif "failed" in message and not self.erring.wait(min(_GRACE_S, self.silence_s / 2)):
                text = f"{message['failed'][:_LONGEST_TEXT]} (host {wire.process}, {wire.node})"
                self._end_all(text, exit_code(message))
        if wire.gone and wire in self.strangers:
            self._send_away(wire, "noise" if wire.foreign else "")
        elif wire.gone and wire.process is not None:
            self._miss(wire, self.lost(f"host {wire.process} ({wire.node})"))

    def _miss(self, wire: Wire, text: str) -> None:
        """Handle the loss of an accepted process."""
        self._drop(wire)
        needed = wire.process not in self.done
        if needed and self.complete.is_set() and not self.ending.is_set():
            self.judged.set()
            self._end_all(text, LOST)

    def _drop(self, wire: Wire) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self.selector.unregister(wire)
        self.strangers.pop(wire, None)
        if wire.process is not None and self.members.get(wire.process) is wire:
            del self.members[wire.process]
        wire.close()

    def _send_away(self, wire: Wire, why: str) -> None:
        """Drop a connection; log the first few that sent something."""
        stranger = self.strangers[wire]
        self._drop(wire)
        words = {
            "token": f"it does not have this run's {_token.VARIABLE}, which must be the same on all hosts",
            "noise": "it does not speak as a host of this run does",
            "silence": f"it did not say within {_STRANGER_S:g} s who it is",
        }
        if why in words:
            self.sent_away[why] += 1
            if self.sent_away[why] <= _REPORTS:
                last = " (no more of these are reported)" if self.sent_away[why] == _REPORTS else ""
                say(f"note: dropped a connection from {stranger.address}: {words[why]}{last}")

    def _hear_stranger(self, wire: Wire, message: dict[str, str]) -> None:
        stranger = self.strangers[wire]
        if stranger.proven:
            self._welcome(wire, message)
            return
        nonce = message.get("nonce")
        if nonce is None or not _token.is_nonce(nonce):
            self._send_away(wire, "noise")
        elif not _token.proves(message.get("proof"), self.token, "member", stranger.nonce, nonce):
            wire.send(refused="token")
            self._send_away(wire, "token")
        else:
            wire.send(proof=_token.proof(self.token, "hub", stranger.nonce, nonce))
            wire.secure(_token.session_key(self.token, stranger.nonce, nonce), first=True)
            stranger.proven = True

    def _welcome(self, wire: Wire, message: dict[str, str]) -> None:
        card = card_of(message)
        if card is None:
            self._send_away(wire, "noise")
            return
        problem = self._problem(card)
        if problem is None:
            del self.strangers[wire]
            wire.process, wire.node = card.process, card.node
            self.members[card.process] = wire
            self.heed(whole_number(message.get("silence")))
            wire.send(welcome=1, silence=self.silence_s)
            if len(self.members) == self.card.processes - 1:
                self.complete.set()
            return
        wire.send(refused=problem)
        self._drop(wire)
        if not self.complete.is_set():
            self._tell(refused=problem)
            self.refused = problem

    def _problem(self, card: Card) -> str | None:
        taken = self.members.get(card.process)
        if card.process == 0 or taken is not None:
            here = self.card.node if taken is None else taken.node
            return (
                f"`--host` must be another number on every host; {card.process} came from {here} and from {card.node}. "
                "Count from 0."
            )
        if card.process not in range(card.processes):
            return f"`--host` must be in 0..{card.processes - 1}; got {card.process} from {card.node}."
        if self.complete.is_set():
            return f"the run at {self.coordinator} has begun with all its hosts. Take another port for another run."
        return difference(self.card, card)

    def _note_done(self, process: int) -> None:
        self.done.add(process)
        if len(self.done) == self.card.processes and not self.parted.is_set():
            self._tell(bye=1)
            self.parted.set()

    def _end_all(self, text: str, code: int) -> None:
        say_last(text)
        self._tell(over=shorten(text, _LONGEST_TEXT), code=code)
        self._await_parting()
        end_at_once(code)

    def _tell(self, **message: str | int) -> None:
        for wire in list(self.members.values()):
            wire.send(**message)

    def _await_parting(self) -> None:
        """Until all others have gone, or long enough: JAX would end them by `abort` if this process went first."""
        deadline = time.monotonic() + _PART_S
        while self.members and time.monotonic() < deadline:
            if threading.current_thread() is self:  # else this thread reads on by itself
                for wire in list(self.members.values()):
                    for _ in wire.receive():
                        pass
                    if wire.gone:
                        self._drop(wire)
            time.sleep(0.01)


def exit_code(message: dict[str, str]) -> int:
    """The exit code in a message."""
    code = whole_number(message.get("code"))
    return code if code is not None and 0 < code < 256 else LOST
