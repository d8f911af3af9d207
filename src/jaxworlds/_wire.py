"""Short messages between processes of one run: a JSON object to a line, over a connection that notices when the other is gone."""

import contextlib
import ipaddress
import json
import socket
from typing import Any

# Longer lines are not ours: anybody may knock at an open port.
_LONGEST = 1 << 16


class Wire:
    """One connection, on which nothing waits. Sending to one that is gone, or deaf, is no error, since reading tells it."""

    def __init__(self, connection: socket.socket, silence_s: int):
        self.connection = connection
        self.process: int | None = None
        self.node = ""
        self._unread = b""
        connection.setblocking(False)
        _keep_alive(connection, silence_s)

    def fileno(self) -> int:
        """For `select`."""
        return self.connection.fileno()

    def send(self, **message: Any) -> None:
        """One message."""
        with contextlib.suppress(OSError):
            self.connection.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> list[dict[str, Any]] | None:
        """The messages that have come, perhaps none yet; None if the other side is gone or does not speak our language."""
        try:
            part = self.connection.recv(_LONGEST)
        except BlockingIOError:
            return []
        except OSError:
            return None
        *lines, self._unread = (self._unread + part).split(b"\n")
        if not part or len(self._unread) > _LONGEST:
            return None
        try:
            messages = [json.loads(line) for line in lines]
        except ValueError:
            return None
        return messages if all(isinstance(message, dict) for message in messages) else None

    def close(self) -> None:
        """Hang up."""
        with contextlib.suppress(OSError):
            self.connection.close()


def _keep_alive(connection: socket.socket, silence_s: int) -> None:
    """Let the kernel ask whether the other host is there: it answers for a process that is busy, and not for one that is gone."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    every = max(1, silence_s // 6)
    options = {"TCP_KEEPIDLE": every, "TCP_KEEPINTVL": every, "TCP_KEEPCNT": 5}
    options["TCP_USER_TIMEOUT"] = 1000 * silence_s
    for name, value in options.items():
        if hasattr(socket, name):  # these names are Linux's
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def split_address(address: str) -> tuple[str, int]:
    """Name and port of `name:port`."""
    name, _, port = address.rpartition(":")
    if not name or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise ValueError(f"`coordinator` must be a name and a port, such as node0:1234; got {address!r}.")
    return name.removeprefix("[").removesuffix("]"), int(port)


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
    found = [ipaddress.ip_address(address.split("%")[0]) for address in addresses_of(name)]
    if not all(address.is_loopback for address in found):
        return None
    return str(min(found, key=lambda address: address.version))


def listen(address: str | None, port: int) -> socket.socket:
    """A listening socket at this address; at all addresses of this host for None."""
    if address is not None:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        return socket.create_server((address, port), family=family)
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port))
