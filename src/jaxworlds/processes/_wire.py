"""Messages between the processes of one run: flat records in small frames, authenticated once both sides have a key.

A frame is its length (four bytes) and its content: after the handshake a tag of 32 bytes first, then the record. A record is a
list of names and values, all of them text, each with its length (two bytes). Reading one needs no recursion and no more memory
than the frame has; whatever is wrong with a frame ends the connection and nothing else.
"""

import contextlib
import errno
import hashlib
import hmac
import ipaddress
import socket
import threading
import time
from collections.abc import Iterator

from ..text import printable

LONGEST_GREETING = 512
"""Bytes in a frame of somebody who has not shown the token."""
_LONGEST = 1 << 18
_READ_AT_ONCE = 1 << 16
_TAG = 32
_TEXT = 1 << 16
# This machine does not have the address, or not this kind of addresses.
_NOT_HERE = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


class Wire:
    """One non-blocking connection. Sending to a lost peer is no error; reading reports the loss."""

    def __init__(self, connection: socket.socket, silence_s: float):
        self.connection = connection
        self.process: int | None = None
        self.node = ""
        self.gone = False
        """The other side has hung up, or sent what is no frame of ours."""
        self.foreign = False
        """It sent what is no frame of ours."""
        self.heard = time.monotonic()
        """When it last gave a sign of life."""
        self._unread = b""
        self._key: bytes | None = None
        self._sides = (b"", b"")
        self._sent = self._received = 0
        self._sending = threading.Lock()
        connection.setblocking(False)
        _keep_alive(connection, silence_s)

    def fileno(self) -> int:
        """For `select`."""
        return self.connection.fileno()

    def secure(self, key: bytes, *, first: bool) -> None:
        """Authenticate every frame from here on; `first` on the side of process 0."""
        self._key, self._sides = key, (b"0", b"1") if first else (b"1", b"0")

    def send(self, **record: str | int) -> None:
        """One message."""
        with self._sending:
            body = pack(record)
            if self._key is not None:
                body = _tag(self._key, self._sides[0], self._sent, body) + body
                self._sent += 1
            try:
                self.connection.sendall(len(body).to_bytes(4) + body)
            except OSError:  # it may have taken a part: what follows would be no frame
                with contextlib.suppress(OSError):
                    self.connection.shutdown(socket.SHUT_WR)

    def receive(self) -> Iterator[dict[str, str]]:
        """Messages received so far; `gone` is true afterwards if no more will follow."""
        try:
            part = self.connection.recv(_READ_AT_ONCE)
            ended = not part
        except BlockingIOError:
            part, ended = b"", False
        except OSError:
            part, ended = b"", True
        self._unread += part
        while (body := self._next_frame()) is not None:
            record = self._open(body)
            if record is None:
                self.gone = self.foreign = True
                return
            self.heard = time.monotonic()
            yield record
        self.gone = self.gone or ended

    def _next_frame(self) -> bytes | None:
        """The content of the next whole frame; None until it is there."""
        if self.gone or len(self._unread) < 4:
            return None
        length = int.from_bytes(self._unread[:4])
        if length > (LONGEST_GREETING if self._key is None else _LONGEST):
            self.gone = self.foreign = True
            return None
        if len(self._unread) < 4 + length:
            return None
        body, self._unread = self._unread[4 : 4 + length], self._unread[4 + length :]
        return body

    def _open(self, body: bytes) -> dict[str, str] | None:
        """The record in a frame; None if it is malformed or its tag is wrong."""
        if self._key is None:
            return unpack(body)
        tag, body = body[:_TAG], body[_TAG:]
        if not hmac.compare_digest(tag, _tag(self._key, self._sides[1], self._received, body)):
            return None
        self._received += 1
        return unpack(body)

    def close(self) -> None:
        """Close the connection after pending messages."""
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            self.connection.recv(_READ_AT_ONCE)  # what lies here unread would turn the end into a reset
        self.connection.close()


def _tag(key: bytes, side: bytes, number: int, body: bytes) -> bytes:
    """Authentication tag of frame `number` from this side."""
    return hmac.new(key, side + number.to_bytes(8) + body, hashlib.sha256).digest()


def pack(record: dict[str, str | int]) -> bytes:
    """A record as bytes."""
    parts = [str(text).encode("utf-8", "replace") for pair in record.items() for text in pair]
    body = b"".join(len(part).to_bytes(2) + part for part in parts if len(part) < _TEXT)
    if len(body) + _TAG > _LONGEST or any(len(part) >= _TEXT for part in parts):
        raise ValueError(f"a message must have at most {_LONGEST} bytes; got {len(body)}.")
    return body


def unpack(body: bytes) -> dict[str, str] | None:
    """The record in these bytes, without characters that a terminal would obey; None if they hold none."""
    parts, at = [], 0
    while at < len(body):
        end = at + 2 + int.from_bytes(body[at : at + 2])
        if end > len(body):
            return None
        try:
            parts.append(printable(body[at + 2 : end].decode()))
        except UnicodeDecodeError:
            return None
        at = end
    names, values = parts[::2], parts[1::2]
    if not names or len(names) != len(values) or len(set(names)) != len(names):
        return None
    return dict(zip(names, values, strict=True))


def whole_number(text: str | None) -> int | None:
    """The number in a message, of at most nine digits, or None."""
    return int(text) if text and text.isascii() and text.isdigit() and len(text) <= 9 else None


def _keep_alive(connection: socket.socket, silence_s: float) -> None:
    """Turn on TCP keep-alive, which works even while this process computes."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    every = max(1, int(silence_s) // 6)
    options = {"TCP_KEEPIDLE": every, "TCP_KEEPINTVL": every, "TCP_KEEPCNT": 5}
    options["TCP_USER_TIMEOUT"] = int(1000 * silence_s)
    for name, value in options.items():
        if hasattr(socket, name):  # these names are Linux's
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def split_address(address: str) -> tuple[str, int]:
    """Name and port of `name:port`."""
    name, _, port = address.rpartition(":")
    if not name or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise ValueError(f"`coordinator` must be a name and a port, such as node0:1234; got {address!r}.")
    return name.removeprefix("[").removesuffix("]"), int(port)


def with_port(name: str, port: int) -> str:
    """`name:port`, or `[name]:port` for a number of IPv6."""
    return f"[{name}]:{port}" if ":" in name else f"{name}:{port}"


def addresses_of(name: str) -> list[str]:
    """The addresses of a host, as this one finds them."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ValueError(
            f"`coordinator` must be a host that this one finds; {name!r} is not ({error}). Give its address, or a name "
            f"that `getent hosts` knows on {socket.gethostname()}."
        ) from error
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def own_address(name: str) -> str | None:
    """The loopback address, where `name` means this machine only; None if others can reach it."""
    found = addresses_of(name)
    return min(found, key=lambda address: ":" in address) if all(map(_is_loopback, found)) else None


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.split("%")[0]).is_loopback


def listen(address: str, port: int) -> socket.socket:
    """A listening socket at this address, and at no other."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.create_server((address, port), family=family, backlog=1024)


def listen_as(name: str, port: int) -> socket.socket:
    """A listening socket at the first address of `name` that this machine has."""
    alone = own_address(name)
    # A name may stand for loopback beside its real address, which is the one that the others find.
    addresses = [address for address in addresses_of(name) if not _is_loopback(address)] or [str(alone)]
    if any(ipaddress.ip_address(address.split("%")[0]).is_unspecified for address in addresses):
        raise ValueError(
            f"`coordinator` must be the one address at which the other hosts reach host 0; {name} means all of them. "
            "Give that address, or host 0's name."
        )
    for address in addresses:
        try:
            return listen(address, port)
        except OSError as error:
            if error.errno not in _NOT_HERE:
                raise
    raise ValueError(
        f"`coordinator` must be an address of host 0; {name} is {', '.join(addresses)}, which {socket.gethostname()} does not "
        "have. Run host 0 there, or give an address that `hostname -I` lists here."
    )
