"""Processes of a run meet and part, and every wrong setup has its sentence: here as threads that talk over real sockets."""

import contextlib
import queue
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from jaxworlds.processes import _hub, _lifeline, _member
from jaxworlds.processes._hub import Hub
from jaxworlds.processes._lifeline import Card, Lifeline, MissingHostError
from jaxworlds.processes._member import Member
from jaxworlds.processes._wire import Wire, own_address, pack, split_address

LINES: list[Lifeline] = []
THREADS: list[threading.Thread] = []


class Ended(BaseException):
    """In place of the end of a process: it ends a thread."""


@pytest.fixture(autouse=True)
def hung_up(ends: "queue.Queue[tuple[str, int]]") -> Iterator[None]:
    """Every connection of a test ends with it, before what was patched is as it was."""
    yield
    for line in LINES:
        line.close()
        if isinstance(line, Hub):
            line.door.close()
    for thread in THREADS:
        thread.join(10)
        assert not thread.is_alive()
    LINES.clear()
    THREADS.clear()


def started(call: Any, *arguments: Any) -> threading.Thread:
    THREADS.append(thread := threading.Thread(target=call, args=arguments, daemon=True))
    thread.start()
    return thread


def hub_of(card: Card, coordinator: str) -> Hub:
    LINES.append(hub := Hub(card, coordinator, 6))
    return hub


def member_of(card: Card, coordinator: str) -> Member:
    LINES.append(member := Member(card, coordinator, 6))
    return member


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> "queue.Queue[tuple[str, int]]":
    """The exit codes of threads that would have ended their process."""
    found: queue.Queue[tuple[str, int]] = queue.Queue()

    def end(code: int) -> None:
        found.put((type(threading.current_thread()).__name__, code))
        raise Ended

    shown = threading.excepthook
    monkeypatch.setattr(
        threading, "excepthook", lambda error: None if error.exc_type is Ended else shown(error)
    )
    for module in (_hub, _member, _lifeline):
        monkeypatch.setattr(module, "end_at_once", end)
    # These threads share their error stream with the tests: nothing may be redirected.
    for module in (_hub, _member):
        monkeypatch.setattr(module, "say_last", _lifeline.say)
    return found


@pytest.fixture
def coordinator() -> str:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return f"localhost:{probe.getsockname()[1]}"


def card(process: int, processes: int = 2, node: str | None = None, **facts: str) -> Card:
    return Card(process, processes, facts, node or f"node{process}")


def met(line: Lifeline, patience_s: float = 5.0) -> "queue.Queue[Any]":
    """Meet in a thread; what comes of it."""
    found: queue.Queue[Any] = queue.Queue()

    def meet() -> None:
        try:
            found.put(line.meet(patience_s))
        except (ValueError, OSError) as error:
            found.put(error)

    started(meet)
    return found


@contextlib.contextmanager
def jax_at(port: int) -> Iterator[None]:
    """Something that listens where JAX would."""
    with socket.create_server(("127.0.0.1", port)):
        yield


def joined(coordinator: str, processes: int = 2) -> tuple[Hub, list[Member]]:
    hub = hub_of(card(0, processes), coordinator)
    first = met(hub)
    members = [member_of(card(number, processes), coordinator) for number in range(1, processes)]
    others = [met(member) for member in members]
    port = first.get(timeout=10)
    with jax_at(port):
        assert [other.get(timeout=10) for other in others] == [port] * (processes - 1)
    return hub, members


def secured(coordinator: str) -> Wire:
    """A connection with host 0 after the handshake, before the card."""
    member = member_of(card(1), coordinator)
    return member._greet(5.0, _lifeline.Noted())


def replied(wire: Wire) -> dict[str, str]:
    """The next message."""
    record = _member._next_record(wire, time.monotonic() + 10)
    assert record is not None
    return record


def came(hub: Hub, process: int) -> None:
    """Wait until a process is let in."""
    deadline = time.monotonic() + 10
    while process not in hub.members:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def refused(coordinator: str, *cards: Card) -> list[BaseException]:
    """What hosts with these cards are told."""
    hub = hub_of(cards[0], coordinator)
    waiting = [met(hub)]
    for other in cards[1:]:
        waiting.append(met(member_of(other, coordinator)))
        if other is not cards[-1]:
            came(hub, other.process)  # the order decides who is told what
    return [found.get(timeout=10) for found in waiting]


def test_all_meet_and_part_when_the_last_is_done(
    coordinator: str, ends: "queue.Queue[Any]", capsys: pytest.CaptureFixture[str]
) -> None:
    hub, members = joined(coordinator, 3)
    lines: list[Lifeline] = [hub, *members]
    leaving = [threading.Thread(target=line.leave) for line in lines]
    for thread in leaving[:2]:
        thread.start()
    leaving[0].join(0.1)
    assert leaving[0].is_alive()
    assert leaving[1].is_alive(), "nobody leaves before the last is done"
    leaving[2].start()
    for thread in leaving:
        thread.join(10)
        assert not thread.is_alive()
    assert ends.empty()
    assert capsys.readouterr().err == ""


def test_who_goes_at_once_after_the_farewell_is_not_missed(
    coordinator: str, ends: "queue.Queue[Any]"
) -> None:
    hub, members = joined(coordinator, 3)
    for member in members:
        member.tell_done()
    deadline = time.monotonic() + 10
    while hub.done != {1, 2}:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    hub._tell(bye=True)  # as the main thread does, while the other still watches
    for member in members:
        member.join(10)
    while hub.members:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    hub.join(0.3)
    assert hub.is_alive()
    assert ends.empty()


def test_a_member_that_is_gone_ends_all(
    coordinator: str, ends: "queue.Queue[Any]", capsys: pytest.CaptureFixture[str]
) -> None:
    hub, members = joined(coordinator, 3)
    hub.advice = "Start again."
    assert members[0].wire is not None
    members[0].wire.connection.shutdown(socket.SHUT_RDWR)
    assert {ends.get(timeout=10) for _ in range(3)} >= {("Hub", 75), ("Member", 75)}
    said = [line for line in capsys.readouterr().err.splitlines() if "host 1" in line]
    assert len(said) == 1
    assert said[0].startswith(
        "host 1 (node1) is gone: it was killed, crashed, or lost its machine or network"
    )
    assert said[0].endswith("Start again.")


def test_the_members_end_when_the_first_is_gone(
    coordinator: str, ends: "queue.Queue[Any]", capsys: pytest.CaptureFixture[str]
) -> None:
    hub, members = joined(coordinator, 3)
    hub.ending.set()
    for wire in list(hub.members.values()):
        wire.connection.shutdown(socket.SHUT_WR)
    assert [ends.get(timeout=10) for _ in members] == [("Member", 75)] * 2
    assert capsys.readouterr().err.count("host 0 (localhost) is gone") == 2


def test_a_failure_is_said_once_and_ends_all_with_its_code(
    coordinator: str, ends: "queue.Queue[Any]", capsys: pytest.CaptureFixture[str]
) -> None:
    joined_hub, (one, _) = joined(coordinator, 3)
    started(one.fail, "tool: `x` must be 1; got 2.", 2)
    ended = sorted(ends.get(timeout=10) for _ in range(4))
    assert ended == [("Hub", 2), ("Member", 2), ("Member", 2), ("Thread", 2)]
    assert capsys.readouterr().err == "tool: `x` must be 1; got 2. (host 1, node1)\n"
    assert not joined_hub.judged.is_set()


def test_the_first_speaks_for_itself_if_it_fails_too(
    coordinator: str, ends: "queue.Queue[Any]", capsys: pytest.CaptureFixture[str]
) -> None:
    hub, members = joined(coordinator)
    lines: list[Lifeline] = [members[0], hub]
    for line in lines:
        started(line.fail, "tool: no such file", 2)
    assert sorted(ends.get(timeout=10) for _ in range(3)) == [("Member", 2), ("Thread", 2), ("Thread", 2)]
    assert capsys.readouterr().err == "tool: no such file\n"


def test_an_error_that_comes_of_a_loss_is_not_blamed_on_who_met_it(
    coordinator: str, ends: "queue.Queue[Any]", capsys: pytest.CaptureFixture[str]
) -> None:
    hub, (one, two) = joined(coordinator, 3)
    text = "UNKNOWN: Gloo AllGather failed: Connection closed by peer"
    started(hub.fail, text, 2)
    started(two.fail, text, 2)
    assert one.wire is not None
    one.wire.connection.shutdown(socket.SHUT_RDWR)
    while ends.get(timeout=10) != ("Hub", 75):
        pass
    said = capsys.readouterr().err
    assert "host 1 (node1) is gone" in said
    assert "Gloo" not in said


def test_who_did_not_come_is_named(coordinator: str) -> None:
    hub = hub_of(card(0, 4), coordinator)
    first = met(hub, 0.5)
    came = met(member_of(card(2, 4), coordinator))
    errors = [first.get(timeout=10), came.get(timeout=10)]
    assert all(isinstance(error, MissingHostError) for error in errors)
    assert "hosts 1, 3 of 4 did not come to localhost:" in str(errors[0])
    assert str(errors[0]) == str(errors[1])


def test_who_waits_long_is_told_for_whom(
    coordinator: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(_lifeline, "_NOTE_AFTER_S", 0.1)
    errors = [
        met(member_of(card(1), coordinator), 0.4).get(timeout=10),
        met(hub_of(card(0), coordinator), 0.4).get(timeout=10),
    ]
    assert all(isinstance(error, MissingHostError) for error in errors)
    assert "host 0 could not be reached at localhost:" in str(errors[0])
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith("waiting for host 0 at localhost:")
    assert said[1].startswith("waiting for host 1 at localhost:")


def test_a_number_that_two_have_is_refused(coordinator: str) -> None:
    errors = refused(coordinator, card(0, 3), card(1, 3), card(1, 3, "node7"))
    assert {str(error) for error in errors} == {
        "`--host` must be another number on every host; 1 came from node1 and from node7. Count from 0."
    }
    assert all(isinstance(error, ValueError) for error in errors)


def test_a_second_host_0_elsewhere_is_refused(coordinator: str) -> None:
    errors = refused(coordinator, card(0), card(0, 2, "node7"))
    assert "0 came from node0 and from node7" in str(errors[1])


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (card(1, 3), "`--hosts` must be the same on all hosts; host 0 (node0) has 2, host 1 (node1) has 3."),
        (
            card(1, steps="5"),
            "steps must be the same on all hosts; host 0 (node0) has 4, host 1 (node1) has 5.",
        ),
        (card(1), "steps must be the same on all hosts; host 0 (node0) has 4, host 1 (node1) has nothing."),
        (card(1, steps="4", jax="1"), "jax must be the same on all hosts; host 0 (node0) has nothing"),
    ],
)
def test_what_differs_is_named_on_both_sides(coordinator: str, other: Card, message: str) -> None:
    errors = refused(coordinator, card(0, steps="4"), other)
    assert all(isinstance(error, ValueError) and message in str(error) for error in errors)


def test_another_version_is_named_if_it_has_the_token(coordinator: str) -> None:
    first = met(hub_of(card(0), coordinator))
    wire = secured(coordinator)
    wire.send(**{**_lifeline.said_of(card(1)), "jaxworlds": 1})
    assert "jaxworlds must be the same on all hosts" in replied(wire)["refused"]
    wire.close()
    assert "another version" in str(first.get(timeout=10))


def test_latecomers_and_strangers_do_not_disturb_a_run(coordinator: str, ends: "queue.Queue[Any]") -> None:
    hub, (member,) = joined(coordinator)
    late = met(member_of(card(1, 2, "node7"), coordinator)).get(timeout=10)
    assert "1 came from node1 and from node7" in str(late)
    late = met(member_of(card(5, 9), coordinator)).get(timeout=10)
    assert "has begun with all its hosts" in str(late)
    card_unasked = pack(_lifeline.said_of(card(1)))
    noises = (
        b"GET / HTTP/1.1\r\n\r\n",
        b"[" * 60_000,
        b'{"process": "x"}\n{}\n',
        b"x" * (1 << 18),
        len(card_unasked).to_bytes(4) + card_unasked,
    )
    for noise in noises:
        heard = b""
        with socket.create_connection(split_address(coordinator)) as stranger:
            stranger.settimeout(5)
            with contextlib.suppress(ConnectionError):
                stranger.sendall(noise)
                while part := stranger.recv(1000):
                    heard += part
        assert b"refused" not in heard
        assert len(heard) < 200, "a greeting, and nothing after it"
    assert hub.is_alive()
    assert member.is_alive()
    assert ends.empty()


def test_a_host_that_comes_back_before_the_start_is_welcome(coordinator: str) -> None:
    hub = hub_of(card(0, 3), coordinator)
    first = met(hub)
    early = secured(coordinator)
    early.send(**_lifeline.said_of(card(1, 3)))
    came(hub, 1)
    early.close()
    others = [met(member_of(card(number, 3), coordinator)) for number in (1, 2)]
    port = first.get(timeout=10)
    with jax_at(port):
        assert [other.get(timeout=10) for other in others] == [port, port]


def test_addresses_are_checked(coordinator: str) -> None:
    for wrong in ("node0", "node0:", ":12", "node0:0", "node0:99999", "node0:x"):
        with pytest.raises(ValueError, match="must be a name and a port, such as node0:1234; got"):
            split_address(wrong)
    assert split_address("[::1]:12") == ("::1", 12)
    assert own_address("127.0.0.1") == "127.0.0.1"
    assert own_address("192.0.2.1") is None
    with pytest.raises(ValueError, match=r"must be a host that this one finds; 'nowhere\.invalid' is not"):
        Member(card(1), "nowhere.invalid:1234", 6)
    with (
        socket.create_server(("127.0.0.1", split_address(coordinator)[1])),
        pytest.raises(ValueError, match="must have a free port on host 0"),
    ):
        hub_of(card(0), coordinator)


def test_another_program_at_the_port_is_recognised(coordinator: str) -> None:
    with socket.create_server(split_address(coordinator)) as other:
        found = met(member_of(card(1), coordinator))
        other.accept()[0].close()
        error = found.get(timeout=10)
    assert isinstance(error, MissingHostError)
    assert "is not host 0 of this run: it hung up" in str(error)


def test_many_missing_hosts_are_counted() -> None:
    hub = object.__new__(Hub)
    hub.card, hub.members = Card(0, 65536, {}), {3: None}
    assert (
        hub._missing_hosts() == "hosts 1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17 and 65,518 more"
    )
    hub.card = Card(0, 3, {})
    hub.members = {1: None}
    assert hub._missing_hosts() == "host 2"
