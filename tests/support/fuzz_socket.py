"""The coordinator's port as a loader: what a stranger may send to host 0, while its hosts meet and while they run.

Host 0 and its companions are processes of their own, which end as in a real run if something makes them end: that is a
finding, like a connection that host 0 neither answers nor drops.
"""

import atexit
import json
import os
import random
import re
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType

from fuzz_cases import SOURCE, Loader, demand
from fuzz_mutants import MUTANTS

TOKEN = "the token of a fuzzed run"
# Host 0 (argument 2) or another; JAX is not started, so something else listens where it would.
CHILD = """
import socket, sys, time
from jaxworlds.processes._hub import Hub
from jaxworlds.processes._lifeline import Card
from jaxworlds.processes._member import Member
port, process = map(int, sys.argv[1:])
line = (Hub if process == 0 else Member)(Card(process, 2, {"steps": "4"}), f"localhost:{port}", 3600)
if process == 0:
    print("open", flush=True)
found = line.meet(3600)
if process == 0:
    kept = socket.create_server(("127.0.0.1", found))
print("met", flush=True)
sys.stdin.readline()
line.leave()
"""
REPORTS = 40
HANG_S = 15.0


class Target:
    """Host 0, waiting for host 1, or in a run with it."""

    def __init__(self, folder: Path, *, running: bool):
        self.folder, self.running, self.host = folder, running, "127.0.0.1"
        with socket.create_server((self.host, 0)) as probe:
            self.port = probe.getsockname()[1]
        self.errors = folder / f"errors-{self.port}"
        self.processes: list[subprocess.Popen[str]] = []
        self.knocks = 0

    def __enter__(self) -> "Target":
        self._start(0, "open")
        if self.running:
            self._start(1, "met")
            self._await(0, "met")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self.processes:
            process.kill()
            process.communicate()

    def _start(self, number: int, until: str) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
        with self.errors.open("a") as errors:
            process = subprocess.Popen(
                [sys.executable, "-c", CHILD, str(self.port), str(number)],
                env={**kept, "JAXWORLDS_TOKEN": TOKEN, "PYTHONPATH": str(SOURCE)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self.processes.append(process)
        self._await(number, until)

    def _await(self, number: int, word: str) -> None:
        stream = self.processes[number].stdout
        assert stream is not None
        found = stream.readline().strip()
        assert found == word, f"host {number} said {found!r} in place of {word!r}: {self.said()}"

    def said(self) -> str:
        """What the hosts wrote on their error streams."""
        return self.errors.read_text()

    def knock(self, data: bytes) -> float:
        """Send this to host 0 as a stranger and wait until it hangs up; the seconds that it took."""
        self.knocks += 1
        began = time.monotonic()
        self._demand_alive()
        # Many addresses, so that no port runs out of numbers.
        own = (f"127.0.{self.knocks // 200 % 200}.{2 + self.knocks % 200}", 0)
        with socket.create_connection((self.host, self.port), timeout=HANG_S, source_address=own) as called:
            try:
                called.sendall(data)
                called.shutdown(socket.SHUT_WR)
                while called.recv(4096):
                    pass
            except TimeoutError:
                demand(False, f"host 0 did not hang up within {HANG_S:g} s")
            except ConnectionError:
                pass
            called.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._demand_alive()
        return time.monotonic() - began

    def _demand_alive(self) -> None:
        codes = [process.poll() for process in self.processes]
        demand(set(codes) == {None}, f"hosts ended with {codes}: {self.said()[-1500:]}")

    def finish(self) -> str:
        """Let the hosts meet, if they have not, and part; what they said."""
        if not self.running:
            self._start(1, "met")
            self._await(0, "met")
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        for number, process in enumerate(self.processes):
            code = process.wait(60)
            demand(code == 0, f"host {number} ended with {code}: {self.said()[-1500:]}")
        return self.said()


_targets: dict[bool, Target] = {}


def _target(running: bool, home: Path | None = None) -> Target:
    if running not in _targets:
        _targets[running] = Target(home or Path(tempfile.mkdtemp()), running=running)
        _targets[running].__enter__()
        atexit.register(_targets[running].__exit__, None, None, None)
    return _targets[running]


def _frame(body: bytes) -> bytes:
    return len(body).to_bytes(4) + body


def messages(folder: Path) -> list[bytes]:
    """What a host may send: greetings with right and wrong proofs, cards of this and of an older version, noise."""
    sys.path.insert(0, str(SOURCE))
    from jaxworlds.processes._lifeline import Card, said_of
    from jaxworlds.processes._token import proof
    from jaxworlds.processes._wire import pack

    card = Card(1, 2, {"steps": "5", "--out": "x\x1b[31m.npz"})
    old = {"jaxworlds": 1, "process": 1, "processes": 9, "facts": {"a": "\x1b[31m\x07"}, "node": "\x1b[2Jn"}
    greetings = [
        pack({"nonce": "a" * 64, "proof": proof(secret, "member", "b" * 64, "a" * 64)})
        for secret in (b"", b"x", TOKEN.encode())
    ]
    return [
        *(_frame(greeting) for greeting in greetings),
        _frame(greetings[2]) + _frame(b"\x00" * 32 + pack(said_of(card))),
        _frame(pack(said_of(card))),
        _frame(pack({"over": "\x1b[31mstop", "code": 1})) * 3,
        _frame(pack({"done": 1})) + _frame(pack({"failed": "x", "code": 2})),
        json.dumps(old).encode() + b"\n",
        json.dumps({"failed": "x", "code": 1}).encode() + b"\n",
        b"[" * 60_000,
        b'{"a":' * 9000 + b"\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(64)),
    ]


def _send(path: Path, running: bool) -> None:
    target = _target(running)
    took = target.knock(path.read_bytes())
    demand(took < HANG_S, "too slow")
    if target.knocks % 200 == 0:
        said = target.said()
        demand(said.count("\n") < REPORTS, "strangers fill the error stream")
        demand(not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", said), "control characters reach the terminal")
        demand("Traceback" not in said, f"a thread ended: {said[-1500:]}")
    if target.knocks % 2000 == 0:  # somebody who has the token is heard all the same
        _greet(target.port)


def _greet(port: int) -> None:
    from jaxworlds.processes._lifeline import Card, Noted
    from jaxworlds.processes._member import Member

    os.environ["JAXWORLDS_TOKEN"] = TOKEN
    began = time.monotonic()
    wire = Member(Card(1, 2, {}), f"localhost:{port}", 60)._greet(10, Noted())
    wire.close()
    demand(time.monotonic() - began < 10, "a host with the token had to wait")


def send_to_meeting(path: Path) -> None:
    """To host 0 while it waits for host 1."""
    _send(path, running=False)


def send_to_run(path: Path) -> None:
    """To host 0 in a run."""
    _send(path, running=True)


def noise(rng: random.Random, data: bytes) -> bytes:
    """Bytes of no meaning, some behind a length that fits."""
    made = rng.randbytes(rng.choice((1, 3, 4, 5, 40, 600)))
    return _frame(made) if rng.random() < 0.5 else made


MUTANTS["noise"] = noise
WAYS = ("bytes", "bytes", "bytes", "json", "noise")
LOADERS = [
    Loader("core/socket meeting", "message.bin", messages, send_to_meeting, WAYS, weight=0.2),
    Loader("core/socket run", "message.bin", messages, send_to_run, WAYS, weight=0.2),
]
