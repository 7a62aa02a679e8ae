"""A small client of the Redis protocol, so that this package needs no other.

Each thread has two connections of its own: one for orders to the server (``LOCKWHEEL ...``), which
no fault touches, and one for commands, which are as exposed as those of any client.
"""

from __future__ import annotations

import os
import socket
import threading
from typing import Any, BinaryIO, Union, cast

from lockwheel._errors import LockwheelError, ReplyError

#: So long an answer is waited for. Only what never comes takes that long: a gate to which nobody
#: comes, or a command that a fault keeps. Such a test ends with an error instead of never.
LIMIT_S = 60.0

Argument = Union[str, bytes, int, float]


class Connection:
    """One connection, which answers one command after the other."""

    def __init__(self, host: str, port: int, password: str | None) -> None:
        self._socket = socket.create_connection((host, port), timeout=LIMIT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._answers = cast(BinaryIO, self._socket.makefile("rb"))
        if password is not None:
            self.call("AUTH", password)

    def call(self, *arguments: Argument) -> Any:
        """The answer to one command, in which texts are `str`. Error replies are raised."""
        try:
            self._socket.sendall(_encoded(arguments))
            answer = self._answer()
        except socket.timeout:
            self.close()
            words = " ".join(str(argument) for argument in arguments)
            raise LockwheelError(f"no answer to {words!r} within {LIMIT_S:g} s") from None
        except OSError:
            self.close()
            raise
        if isinstance(answer, ReplyError):
            raise answer
        return answer

    def is_over(self) -> bool:
        """Whether the server has closed it, or it has been closed here."""
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
        """Closes it. May be called again."""
        self._answers.close()
        self._socket.close()

    def _answer(self) -> Any:
        line = self._answers.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionResetError("the server closed the connection instead of an answer")
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
            return [self._answer() for _ in range(length)]
        bulk = self._answers.read(length + 2)
        if len(bulk) < length + 2:
            raise ConnectionResetError("the server closed the connection within an answer")
        return _text(bulk[:-2])


class Connections:
    """The connections to one server, two for each thread that asks."""

    def __init__(self, host: str, port: int, password: str | None) -> None:
        self._address = host, port, password
        self._mine = threading.local()
        self._all: list[Connection] = []
        self._closed = False

    def call(self, *arguments: Argument) -> Any:
        """The answer to a command, which is that of an ordinary client."""
        return self._connection("commands").call(*arguments)

    def order(self, *arguments: Argument) -> Any:
        """The answer to ``LOCKWHEEL`` with these arguments."""
        return self._connection("orders").call("LOCKWHEEL", *arguments)

    def forget_session(self) -> None:
        """Begins a new session for the commands of this thread."""
        self._connection("commands").close()

    def close(self) -> None:
        """Closes all of them, for good: another server may have the port next."""
        self._closed = True
        for connection in self._all:
            connection.close()
        self._all.clear()

    def _connection(self, purpose: str) -> Connection:
        if self._closed:
            raise LockwheelError("the server has been stopped")
        # A process that was forked off must not speak on the connections of its parent.
        slot = f"{purpose} {os.getpid()}"
        connection: Connection | None = getattr(self._mine, slot, None)
        if connection is None or connection.is_over():
            connection = Connection(*self._address)
            setattr(self._mine, slot, connection)
            self._all.append(connection)
        return connection


def _encoded(arguments: tuple[Argument, ...]) -> bytes:
    parts = [b"*%d\r\n" % len(arguments)]
    for argument in arguments:
        raw = argument if isinstance(argument, bytes) else _bytes(str(argument))
        parts.append(b"$%d\r\n%s\r\n" % (len(raw), raw))
    return b"".join(parts)


# Bytes that are no UTF-8 come through as they are.
def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")
