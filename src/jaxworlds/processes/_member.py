"""Every process of a run but the first: it calls process 0, and ends when that one does."""

import select
import socket
import threading
import time

from . import _token
from ._hub import exit_code
from ._lifeline import Card, Lifeline, MissingHostError, Noted, said_of, say, say_last
from ._wire import Wire, addresses_of, whole_number
from .exits import LOST, end_at_once

_ANSWER_S = 5.0
_KNOCK_S, _GREETING_S = 5.0, 10.0
_LONGEST_TEXT = 2000


class Member(Lifeline):
    """Holds one connection, to process 0."""

    def __init__(self, card: Card, coordinator: str, silence_s: int):
        super().__init__(card, coordinator, silence_s)
        self.wire: Wire | None = None
        self.answered, self.heard = threading.Event(), threading.Event()
        self.answer: dict[str, str] = {}

    def meet(self, patience_s: float) -> int:
        noted = Noted()
        self.wire = self._greet(patience_s, noted)
        self.wire.send(**said_of(self.card), silence=self.silence_s)
        self.start()
        while not self.answered.wait(0.1):
            if time.monotonic() - noted.began > patience_s + _ANSWER_S:
                raise MissingHostError(
                    f"host 0 at {self.coordinator} does not answer. Start all hosts again."
                )
        if "refused" in self.answer:
            missing = "code" in self.answer and exit_code(self.answer) == LOST
            raise (MissingHostError if missing else ValueError)(self.answer["refused"])
        port = whole_number(self.answer.get("go"))
        if port is None or not 0 < port < 1 << 16:
            raise MissingHostError(
                f"host 0 at {self.coordinator} hung up before the run began: its own output may say why."
            )
        self._call(port, patience_s, Noted()).close()
        return port

    def _greet(self, patience_s: float, noted: Noted) -> Wire:
        """A connection to host 0, on which both sides have shown that they have the token."""
        hung_up = False
        while True:
            wire = Wire(self._call(self.port, patience_s, noted), self.silence_s)
            left = patience_s - (time.monotonic() - noted.began)
            try:
                if self._shake_hands(wire, min(_GREETING_S, max(left, 1))):
                    return wire
            except BaseException:
                wire.close()
                raise
            hung_up = hung_up or wire.gone
            wire.close()
            if time.monotonic() - noted.began > patience_s:
                what = "it hung up" if hung_up else "it does not answer"
                raise MissingHostError(
                    f"what listens at {self.coordinator} is not host 0 of this run: {what}. Another program may have that port, "
                    "or too many connections keep host 0 from answering: try another port."
                )
            noted.say(
                f"waiting for host 0 at {self.coordinator}, where something listens that does not answer"
            )
            time.sleep(0.2)

    def _shake_hands(self, wire: Wire, seconds: float) -> bool:
        """Exchange proofs of the token; False if another try makes sense."""
        deadline = time.monotonic() + seconds
        hello = _next_record(wire, deadline)
        if hello is None and not wire.foreign:
            return False
        hub_nonce = (hello or {}).get("nonce")
        if hello is None or hub_nonce is None or not _token.is_nonce(hub_nonce):
            raise MissingHostError(
                f"what listens at {self.coordinator} is not host 0 of this run: it does not speak as one. Another program, or "
                "another version of jaxworlds, has that port: take another one, and the same version on all hosts."
            )
        own = _token.new_nonce()
        wire.send(nonce=own, proof=_token.proof(self.token, "member", hub_nonce, own))
        answer = _next_record(wire, deadline)
        if answer is None:
            return False
        if not _token.proves(answer.get("proof"), self.token, "hub", hub_nonce, own):
            raise ValueError(
                f"`{_token.VARIABLE}` must be the same on all hosts; host 0 at {self.coordinator} has another than "
                f"{self.card}. Type `{_token.MAKE_ONE}` once and give that value to all, or take "
                "another port if what listens there belongs to another run or user."
            )
        wire.secure(_token.session_key(self.token, hub_nonce, own), first=False)
        return True

    def _call(self, port: int, patience_s: float, noted: Noted) -> socket.socket:
        """Connect to host 0, trying again until it accepts."""
        while True:
            reason: OSError | None = None
            for address in addresses_of(self.name_of_first):
                try:
                    called = socket.create_connection((address, port), timeout=_KNOCK_S)
                except OSError as error:
                    reason = error
                    continue
                if called.getsockname() != called.getpeername():
                    return called
                called.close()  # nobody listens, and the kernel took that very port for our side
            if time.monotonic() - noted.began > patience_s:
                raise MissingHostError(
                    f"host 0 could not be reached at {self.name_of_first}:{port} within {patience_s:g} s ({reason}). Start it, "
                    "and check that its name means the same on all hosts and that no firewall stands between."
                ) from reason
            noted.say(f"waiting for host 0 at {self.name_of_first}:{port} ({reason})")
            time.sleep(0.2)

    def tell_failure(self, text: str, code: int) -> None:
        assert self.wire is not None
        self.wire.send(failed=text[:_LONGEST_TEXT], code=code)
        if not self.heard.wait(_ANSWER_S):  # host 0 says it for all
            say(text)

    def tell_done(self) -> None:
        assert self.wire is not None
        self.wire.send(done=1)

    def run(self) -> None:
        assert self.wire is not None
        try:
            while not self.parted.is_set():
                if select.select([self.wire], [], [], self.turn_s)[0]:
                    self._hear(self.wire)
                self.pulse(self.wire)
                if not self.parted.is_set() and self.silent(self.wire):
                    self._miss(self.frozen(f"host 0 ({self.name_of_first})"))
        finally:
            self.wire.close()

    def _hear(self, wire: Wire) -> None:
        for message in wire.receive():
            if "over" in message:
                self.heard.set()
                end_at_once(exit_code(message))
            elif "bye" in message:
                self.parted.set()
            elif "welcome" in message:
                self.heed(whole_number(message.get("silence")))
            elif "go" in message or "refused" in message:
                self.answer = message
                self.answered.set()
        if wire.gone and not self.parted.is_set():
            self._miss(self.lost(f"host 0 ({self.name_of_first})"))

    def _miss(self, text: str) -> None:
        """Handle the loss of host 0."""
        if "go" in self.answer:
            self.judged.set()
            say_last(text)
            end_at_once(LOST)
        self.parted.set()
        self.answered.set()


def _next_record(wire: Wire, deadline: float) -> dict[str, str] | None:
    """The next message; None if the peer is gone or silent for too long."""
    while not wire.gone:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([wire], [], [], left)[0]:
            return None
        for record in wire.receive():
            return record
    return None
