"""A small client for the Redis protocol, so that this package has no dependencies.

Each thread has two connections: one for ``LOCKWHEEL ...``, to which no fault rule applies, and one
for other commands, to which fault rules apply as to any client.
"""

from __future__ import annotations

import os
import socket
import threading
from typing import Any, BinaryIO, Union, cast

from lockwheel._errors import LockwheelError, ReplyError

#: The limit for a reply. Only a reply that never comes takes this long, for example that of a gate
#: that no client reaches. The test then fails with an error instead of hanging.
LIMIT_S = 60.0

Argument = Union[str, bytes, int, float]


class Connection:
    """A connection that runs one command at a time."""

    def __init__(self, host: str, port: int, password: str | None) -> None:
        self._socket = socket.create_connection((host, port), timeout=LIMIT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._replies = cast(BinaryIO, self._socket.makefile("rb"))
        if password is not None:
            self.call("AUTH", password)

    def call(self, *arguments: Argument) -> Any:
        """The reply to one command, with strings as `str`. Error replies are raised."""
        try:
            self._socket.sendall(_encoded(arguments))
            reply = self._read_reply()
        except socket.timeout:
            self.close()
            words = " ".join(str(argument) for argument in arguments)
            raise LockwheelError(f"no reply to {words!r} within {LIMIT_S:g} s") from None
        except OSError:
            self.close()
            raise
        if isinstance(reply, ReplyError):
            raise reply
        return reply

    def is_over(self) -> bool:
        """Whether the server or this client has closed the connection."""
        if self._socket.fileno() < 0:
            return True
        self._socket.setblocking(False)
        try:
            return self._socket.recv(1, socket.MSG_PEEK) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True
        finally:
            self._socket.settimeout(LIMIT_S)

    def close(self) -> None:
        """Closes the connection. May be called again."""
        self._replies.close()
        self._socket.close()

    def _read_reply(self) -> Any:
        line = self._replies.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionResetError("the server closed the connection without a reply")
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return _text(rest)
        if kind == b"-":
            return ReplyError(_text(rest))
        if kind == b":":
            return int(rest)
        length = int(rest)
        if length < 0:
            return None
        if kind == b"*":
            return [self._read_reply() for _ in range(length)]
        bulk = self._replies.read(length + 2)
        if len(bulk) < length + 2:
            raise ConnectionResetError("the server closed the connection within a reply")
        return _text(bulk[:-2])


class Connections:
    """The connections to one server, two for each thread."""

    def __init__(self, host: str, password: str | None) -> None:
        self._host = host
        self._password = password
        #: None while there is no server.
        self._port: int | None = None
        self._mine = threading.local()
        self._all: list[Connection] = []

    def open(self, port: int) -> None:
        """Allows connections to a server at this port."""
        self._port = port

    def call(self, *arguments: Argument) -> Any:
        """The reply to a command, on a connection to which fault rules apply."""
        return self._connection("commands").call(*arguments)

    def order(self, *arguments: Argument) -> Any:
        """The reply to ``LOCKWHEEL`` with these arguments."""
        return self._connection("orders").call("LOCKWHEEL", *arguments)

    def forget_session(self) -> None:
        """Starts a new session for the commands of this thread."""
        self._connection("commands").close()

    def close(self) -> None:
        """Closes all connections and refuses new ones, since another server may reuse the port."""
        self._port = None
        for connection in self._all:
            connection.close()
        self._all.clear()

    def _connection(self, purpose: str) -> Connection:
        if self._port is None:
            raise LockwheelError("the server has been stopped")
        # A forked process must not use the connections of its parent.
        slot = f"{purpose} {os.getpid()}"
        connection: Connection | None = getattr(self._mine, slot, None)
        if connection is None or connection.is_over():
            connection = Connection(self._host, self._port, self._password)
            setattr(self._mine, slot, connection)
            self._all.append(connection)
        return connection


def _encoded(arguments: tuple[Argument, ...]) -> bytes:
    parts = [b"*%d\r\n" % len(arguments)]
    for argument in arguments:
        raw = argument if isinstance(argument, bytes) else _bytes(str(argument))
        parts.append(b"$%d\r\n%s\r\n" % (len(raw), raw))
    return b"".join(parts)


# Bytes that are not UTF-8 are kept unchanged.
def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")
