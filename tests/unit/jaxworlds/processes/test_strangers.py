"""The coordinator's port is open to anybody: strangers neither end nor stall a run, and cannot write to a terminal."""

import contextlib
import json
import os
import random
import re
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fuzz_socket import Target

from jaxworlds.processes import _token, _wire
from jaxworlds.processes._hub import Hub
from jaxworlds.processes._lifeline import Card, difference
from jaxworlds.processes._wire import Wire, listen_as, pack, unpack
from jaxworlds.text import printable

ROOT = Path(__file__).parents[4]
OLD_CARD = {
    "jaxworlds": 1,
    "process": 1,
    "processes": 7,
    "facts": {"a": "\x1b[31mred\x1b]0;title\x07"},
    "node": "\x1b[2J",
}
NOISES = [
    b"[" * 60_000,
    b"[" * 60_000 + b"\n",
    json.dumps(OLD_CARD).encode() + b"\n",
    b"\xff\xff\xff\xff",
    (40).to_bytes(4) + b"\xff" * 40,
    b"\x00\x00\x00\x00" * 5000,
    struct.pack(">IHsHs", 6, 1, b"a", 1, b"b") * 50,
]


@pytest.mark.own_process
@pytest.mark.parametrize("running", [False, True])
def test_strangers_do_not_end_a_meeting_or_a_run(running: bool, tmp_path: Path) -> None:
    rng = random.Random(3)
    with Target(tmp_path, running=running) as target:
        for number in range(300):
            noise = NOISES[number] if number < len(NOISES) else rng.randbytes(rng.randrange(1, 700))
            assert target.knock(noise) < 10
        with contextlib.ExitStack() as idle:  # as many as like may stand at the door
            for number in range(300):
                called = socket.create_connection((target.host, target.port))
                idle.enter_context(called)
                if number % 2:
                    called.sendall(b"\x00\x00")
            said = target.finish()
    assert "note: dropped a connection from 127.0." in said
    assert said.count("\n") < 30, "reports are few, however many knock"
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", said)
    assert "red" not in said


@pytest.fixture
def token(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("JAXWORLDS_TOKEN", "0123456789abcdef0123456789abcdef")
    return "0123456789abcdef0123456789abcdef"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


CHILD = """
import sys
from jaxworlds import start_processes
start_processes(sys.argv[1], 2, int(sys.argv[2]), timeout_s=20, same={"what": sys.argv[3]})
import jax
print(jax.process_count())
"""


def process(coordinator: str, number: int, what: str = "x", **variables: str) -> "subprocess.Popen[str]":
    kept = {name: value for name, value in os.environ.items() if name != "JAXWORLDS_TOKEN"}
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, coordinator, str(number), what],
        env={**kept, "JAX_PLATFORMS": "cpu", **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def own_network_address() -> str | None:
    """An address of this machine that is not loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
        probe.connect(("192.0.2.1", 9))  # sends nothing
        found = probe.getsockname()[0]
        return None if found.startswith("127.") else found
    return None


@pytest.mark.own_process
def test_without_a_token_no_other_address_than_loopback_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAXWORLDS_TOKEN", raising=False)
    for number in (0, 1):
        ended = process(f"192.0.2.1:{free_port()}", number)
        _, said = ended.communicate(timeout=60)
        assert ended.returncode != 0
        last = said.strip().splitlines()[-1]
        assert last.startswith(
            "ValueError: `JAXWORLDS_TOKEN` must be set where other machines can reach the coordinator"
        )
        assert "export JAXWORLDS_TOKEN=$(openssl rand -hex 32)" in last


@pytest.mark.own_process
def test_processes_with_one_token_meet_at_an_address_of_the_network() -> None:
    address = own_network_address()
    if address is None:
        pytest.skip("this machine has no other address than loopback")
    coordinator = f"{address}:{free_port()}"
    both = [process(coordinator, number, JAXWORLDS_TOKEN="a secret of some length") for number in (0, 1)]
    deadline = time.monotonic() + 60
    opened = False
    while not opened and time.monotonic() < deadline and both[0].poll() is None:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", int(coordinator.split(":")[1])), timeout=1).close()
            opened = True
        if all(one.poll() is not None for one in both):
            break
        time.sleep(0.05)
    ended = [one.communicate(timeout=60) for one in both]
    assert [one.returncode for one in both] == [0, 0], ended
    assert [said for said, _ in ended] == ["2\n", "2\n"]
    assert not opened, "host 0 listens at the coordinator's address alone"


def test_another_token_is_refused_on_both_sides(
    token: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from jaxworlds.processes._lifeline import MissingHostError
    from jaxworlds.processes._member import Member

    coordinator = f"localhost:{free_port()}"
    hub = Hub(Card(0, 2, {}), coordinator, 6)
    monkeypatch.setenv("JAXWORLDS_TOKEN", "f" * 32)
    member = Member(Card(1, 2, {}), coordinator, 6)
    hub.start()
    try:
        with pytest.raises(
            ValueError, match="`JAXWORLDS_TOKEN` must be the same on all hosts; host 0 at localhost:"
        ):
            member.meet(5)
        hub.card = Card(0, 2, {})
        deadline = time.monotonic() + 5
        while not hub.sent_away["token"] and time.monotonic() < deadline:
            time.sleep(0.01)
        assert hub.is_alive()
        assert hub.refused is None, "who has another token has no say"
        assert "Some came with another JAXWORLDS_TOKEN" in hub._hint()
        assert issubclass(MissingHostError, ConnectionError)
    finally:
        hub.close()
    said = capfd.readouterr().err
    assert "note: dropped a connection from 127.0.0.1: it does not have this run's JAXWORLDS_TOKEN" in said
    assert token not in said
    assert "f" * 32 not in said


def test_a_proof_works_once_and_in_one_direction() -> None:
    secret, hub, member = b"secret", _token.new_nonce(), _token.new_nonce()
    given = _token.proof(secret, "member", hub, member)
    assert _token.proves(given, secret, "member", hub, member)
    assert not _token.proves(given, secret, "hub", hub, member), "not sent back"
    assert not _token.proves(given, secret, "member", _token.new_nonce(), member), "not sent again"
    assert not _token.proves(given, b"another", "member", hub, member)
    assert not _token.proves(None, secret, "member", hub, member)
    assert not _token.proves("é" * 64, secret, "member", hub, member)
    assert "secret" not in given


def pair(key: bytes | None) -> tuple[Wire, Wire]:
    listening = socket.create_server(("127.0.0.1", 0))
    one = socket.create_connection(listening.getsockname())
    two = listening.accept()[0]
    listening.close()
    wires = Wire(one, 6), Wire(two, 6)
    if key is not None:
        for wire, first in zip(wires, (True, False), strict=True):
            wire.secure(key, first=first)
    return wires


def heard(wire: Wire) -> list[dict[str, str]]:
    deadline, found = time.monotonic() + 5, []
    while not found and not wire.gone and time.monotonic() < deadline:
        found = list(wire.receive())
        time.sleep(0.005)
    return found


def test_frames_of_a_run_cannot_be_forged_repeated_or_sent_back() -> None:
    for spoil in ("nothing", "bit", "again", "back"):
        hub, member = pair(b"key")
        try:
            hub.send(go=1234)
            raw = member.connection.recv(1000) if spoil != "nothing" else b""
            if spoil == "bit":
                raw = raw[:-1] + bytes([raw[-1] ^ 1])
                hub.connection.sendall(raw)
                assert heard(member) == []
                assert member.foreign
            elif spoil == "again":
                hub.connection.sendall(raw + raw)
                assert heard(member) == [{"go": "1234"}]
                assert member.foreign
            elif spoil == "back":
                member.connection.sendall(raw)
                assert heard(hub) == []
                assert hub.foreign
            else:
                assert heard(member) == [{"go": "1234"}]
                assert not member.gone
        finally:
            hub.close()
            member.close()


def test_records_are_flat_text_and_anything_else_is_none() -> None:
    record = {"a": "1", "é": "x" * 60_000, "": ""}
    assert unpack(pack(dict(record))) == record
    rng = random.Random(0)
    whole = pack({"name": "value", "other": "text"})
    for _ in range(20_000):
        data = bytearray(whole if rng.random() < 0.7 else rng.randbytes(rng.randrange(40)))
        for _ in range(rng.randrange(3)):
            if data:
                data[rng.randrange(len(data))] = rng.randrange(256)
        found = unpack(bytes(data[: rng.randrange(len(data) + 1)]))
        assert found is None or all(map(str.isprintable, (*found, *found.values())))
    assert unpack(pack({"a": 1, "b": 2}) + pack({"a": 3})) is None, "a name comes once"
    with pytest.raises(ValueError, match="at most 262144 bytes"):
        pack({"a": "x" * 70_000})


def test_controls_never_reach_a_terminal() -> None:
    assert printable("a\x1b[31m\nb\x9b\u202e\u2028é") == "a [31m b   é"
    card = Card(1, 2, {"--out": "x\x1b]0;t\x07" + "y" * 300}, node="\x1b[2Jnode")
    assert str(card).isprintable()
    assert all(text.isprintable() and len(text) <= 200 for text in card.facts.values())


def test_long_values_that_differ_at_their_end_differ() -> None:
    one, two = (Card(k, 2, {"path": "x" * 300 + end}) for k, end in enumerate("ab"))
    assert difference(one, two) is not None
    assert difference(one, Card(1, 2, {"path": "x" * 300 + "a"})) is None


def test_the_secret_of_a_user_is_private_and_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAXWORLDS_TOKEN", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    first = _token.run_token(loopback=True, coordinator="localhost:1")
    assert len(first) == 64
    assert first == _token.run_token(loopback=True, coordinator="localhost:1")
    path = tmp_path / "jaxworlds" / "token"
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o644)
    assert _token.run_token(loopback=True, coordinator="localhost:1") == b"", (
        "what others can read is no secret"
    )
    monkeypatch.setenv("JAXWORLDS_TOKEN", " given\n")
    assert _token.run_token(loopback=True, coordinator="localhost:1") == b"given"
    assert _token.weak(b"given")
    assert not _token.weak(first)


def test_an_address_that_is_not_ours_or_means_all_is_refused() -> None:
    with pytest.raises(ValueError, match=r"must be the one address at which .* 0\.0\.0\.0 means all"):
        listen_as("0.0.0.0", free_port())
    with pytest.raises(
        ValueError, match=r"must be an address of host 0; 192\.0\.2\.1 is 192\.0\.2\.1, which"
    ):
        listen_as("192.0.2.1", free_port())


def test_a_name_that_also_means_loopback_is_opened_where_others_find_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_wire, "addresses_of", lambda name: ["127.0.1.1", "192.0.2.1"])
    with pytest.raises(ValueError, match=r"node0 is 192\.0\.2\.1, which"):
        listen_as("node0", free_port())
    monkeypatch.setattr(_wire, "addresses_of", lambda name: ["::1", "127.0.1.1"])
    with listen_as("node0", free_port()) as door:
        assert door.getsockname()[0] == "127.0.1.1"


def test_the_token_is_not_shown_by_the_report_of_the_runtime(token: str) -> None:
    from jaxworlds import runtime_report

    report = runtime_report()
    assert report.environment["JAXWORLDS_TOKEN"] == "(set)"
    assert token not in str(report)
