"""Process 0 of a run: it listens, lets the others in, and tells all when one is lost."""

import contextlib
import os
import selectors
import threading
import time
from typing import Any

from ._ending import LOST, end_at_once
from ._lifeline import Card, Lifeline, MissingHostError, Noted, card_of, difference, say, say_last
from ._wire import Wire, listen, own_address, split_address

_PART_S, _TURN_S = 3.0, 0.5
# Whoever knocks and does not say who he is for so long is not one of us.
_STRANGER_S = 10.0
# The same mistake mostly happens on all hosts, and then this one says it better itself.
_GRACE_S = 2.0


class Hub(Lifeline):
    """Holds a connection to every other process. The door stays open, to tell latecomers that they are not wanted."""

    def __init__(self, card: Card, coordinator: str, silence_s: int):
        super().__init__(card, silence_s)
        self.coordinator = coordinator
        name, port = split_address(coordinator)
        self.address = own_address(name)
        try:
            self.door = listen(self.address, port)
            self.door.setblocking(False)
        except OSError as error:
            raise ValueError(
                f"`coordinator` must have a free port on host 0; {coordinator} is not ({error}). Another host 0 or another "
                "program has it: give every host its own number, or take another port."
            ) from error
        self.members: dict[int, Wire] = {}
        self.strangers: dict[Wire, float] = {}
        self.done: set[int] = set()
        self.complete = threading.Event()
        self.refused: str | None = None
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.door, selectors.EVENT_READ)

    def meet(self, patience_s: float) -> int:
        self.start()
        noted = Noted()
        while not self.complete.wait(0.1):
            missing = [str(k) for k in range(1, self.card.processes) if k not in self.members]
            awaited = f"host{'s' * (len(missing) > 1)} {', '.join(missing)}"
            if self.refused is not None:
                raise ValueError(self.refused)
            if time.monotonic() - noted.began > patience_s:
                text = (
                    f"{awaited} of {self.card.processes} did not come to {self.coordinator} within {patience_s:g} s. Run the "
                    "same command on every host, each with its own number; `--patience` waits longer."
                )
                self._tell(refused=text, code=LOST)
                raise MissingHostError(text)
            noted.say(f"waiting for {awaited} at {self.coordinator}, for {patience_s:g} s at most")
        port = self._free_port()
        self._tell(go=port)
        return port

    def _free_port(self) -> int:
        given = os.environ.get("JAX_COORDINATOR_PORT", "")
        if given.isdecimal() and int(given) != self.door.getsockname()[1]:
            return int(given)
        with contextlib.closing(listen(self.address, 0)) as probe:
            return probe.getsockname()[1]

    def tell_failure(self, text: str, code: int) -> None:
        say(text)
        self._tell(over=text, code=code)
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
        for key, _ in self.selector.select(_TURN_S):
            if key.fileobj is self.door:
                self._let_in()
            else:
                self._read(key.fileobj)
        now = time.monotonic()
        for wire in [wire for wire, since in self.strangers.items() if now - since > _STRANGER_S]:
            self._drop(wire)

    def _let_in(self) -> None:
        with contextlib.suppress(OSError):
            connection, _ = self.door.accept()
            wire = Wire(connection, self.silence_s)
            self.strangers[wire] = time.monotonic()
            self.selector.register(wire, selectors.EVENT_READ)

    def _read(self, wire: Any) -> None:
        messages = wire.receive()
        for message in messages or ():
            if wire in self.strangers:
                self._welcome(wire, message)
            elif wire.process is None:  # sent away
                break
            elif message.get("done"):
                self._note_done(wire.process)
            elif "failed" in message and not self.erring.wait(_GRACE_S):
                text = f"{str(message['failed'])[:2000]} (host {wire.process}, {wire.node})"
                self._end_all(text, int(message.get("code", LOST)))
        if messages is None:
            self._drop(wire)
            needed = wire.process is not None and wire.process not in self.done
            if needed and self.complete.is_set() and not self.ending.is_set():
                self.judged.set()
                self._end_all(self.lost(f"host {wire.process} ({wire.node})"), LOST)

    def _drop(self, wire: Wire) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self.selector.unregister(wire)
        self.strangers.pop(wire, None)
        if wire.process is not None and self.members.get(wire.process) is wire:
            del self.members[wire.process]
        wire.close()

    def _welcome(self, wire: Wire, message: dict[str, Any]) -> None:
        card = card_of(message)
        if card is None:
            self._drop(wire)
            return
        problem = self._problem(card)
        if problem is None:
            del self.strangers[wire]
            wire.process, wire.node = card.process, card.node
            self.members[card.process] = wire
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
            self._tell(bye=True)
            self.parted.set()

    def _end_all(self, text: str, code: int) -> None:
        say_last(text)
        self._tell(over=text, code=code)
        self._await_parting()
        end_at_once(code)

    def _tell(self, **message: Any) -> None:
        for wire in list(self.members.values()):
            wire.send(**message)

    def _await_parting(self) -> None:
        """Until all others have gone, or long enough: JAX would end them by `abort` if this process went first."""
        deadline = time.monotonic() + _PART_S
        while self.members and time.monotonic() < deadline:
            for wire in list(self.members.values()):
                if wire.receive() is None:
                    self._drop(wire)
            time.sleep(0.01)
