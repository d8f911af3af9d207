"""Every process of a run but the first: it calls process 0, and ends when that one does."""

import select
import socket
import threading
import time
from typing import Any

from ._ending import LOST, end_at_once
from ._lifeline import Card, Lifeline, MissingHostError, Noted, said_of, say, say_last
from ._wire import Wire, addresses_of, split_address

_ANSWER_S = 5.0
_KNOCK_S, _TURN_S = 5.0, 0.5


class Member(Lifeline):
    """Holds one connection, to process 0."""

    def __init__(self, card: Card, coordinator: str, silence_s: int):
        super().__init__(card, silence_s)
        self.coordinator = coordinator
        self.name_of_first, self.port = split_address(coordinator)
        addresses_of(self.name_of_first)
        self.wire: Wire | None = None
        self.answered, self.heard = threading.Event(), threading.Event()
        self.answer: dict[str, Any] = {}

    def meet(self, patience_s: float) -> int:
        noted = Noted()
        self.wire = Wire(self._call(self.port, patience_s, noted), self.silence_s)
        self.wire.send(**said_of(self.card))
        self.start()
        while not self.answered.wait(0.1):
            if time.monotonic() - noted.began > patience_s + _ANSWER_S:
                raise MissingHostError(
                    f"host 0 does not answer at {self.coordinator}. What listens there may be another program, or another run."
                )
        if "refused" in self.answer:
            raise (MissingHostError if self.answer.get("code") == LOST else ValueError)(
                self.answer["refused"]
            )
        port = self.answer.get("go")
        if type(port) is not int:
            raise MissingHostError(
                f"what listens at {self.coordinator} is not host 0 of this run: it hung up."
            )
        self._call(port, patience_s, Noted()).close()
        return port

    def _call(self, port: int, patience_s: float, noted: Noted) -> socket.socket:
        """Knock until host 0 opens."""
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
        self.wire.send(failed=text, code=code)
        if not self.heard.wait(_ANSWER_S):  # host 0 says it for all
            say(text)

    def tell_done(self) -> None:
        assert self.wire is not None
        self.wire.send(done=True)

    def run(self) -> None:
        assert self.wire is not None
        try:
            while not self.parted.is_set():
                if select.select([self.wire], [], [], _TURN_S)[0]:
                    self._hear(self.wire.receive())
        finally:
            self.wire.close()

    def _hear(self, messages: list[dict[str, Any]] | None) -> None:
        for message in messages or ():
            if "over" in message:
                self.heard.set()
                end_at_once(int(message.get("code", LOST)))
            elif message.get("bye"):
                self.parted.set()
            else:
                self.answer = message
                self.answered.set()
        if messages is None:
            if "go" in self.answer:
                self.judged.set()
                say_last(self.lost(f"host 0 ({self.name_of_first})"))
                end_at_once(LOST)
            self.parted.set()
            self.answered.set()
