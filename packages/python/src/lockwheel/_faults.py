"""Fault rules, and gates that hold requests until a test opens them."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypedDict

from lockwheel._clock import Span, as_argument
from lockwheel._connection import Connections
from lockwheel._errors import LockwheelError

if TYPE_CHECKING:
    from typing_extensions import Unpack

_SPANS = ("delay", "jump")

_WORDS = {
    "command": "COMMAND",
    "key": "KEY",
    "client": "CLIENT",
    "client_id": "ID",
    "nth": "NTH",
    "times": "TIMES",
    "probability": "PROBABILITY",
    "seed": "SEED",
}


class Conditions(TypedDict, total=False):
    """The conditions of a rule or a gate, all of which a request must match. Patterns are those
    of ``KEYS``."""

    #: A pattern of the command's name: ``set``, ``client|id``, ``eval*``.
    command: str
    #: A pattern of one of the request's keys.
    key: str
    #: A pattern of the client's name (``CLIENT SETNAME``).
    client: str
    #: The ``CLIENT ID`` of the client.
    client_id: int
    #: Only the n-th of the matching requests, from 1.
    nth: int
    #: At most this many of them.
    times: int
    #: Each of them with this probability, from 0 to 1.
    probability: float
    #: The seed of the choice: the same seed chooses the same requests.
    seed: int


class _CommonFields(TypedDict):
    #: The number of the rule or gate on its server.
    id: int
    #: The action: ``delay``, ``lose-and-close``, ``gate`` ...
    action: str
    #: The requests that matched the conditions, ``nth``, ``times`` and ``probability`` aside.
    matched: int
    #: The requests that it was applied to.
    fired: int
    #: The ``CLIENT ID`` of each client that it holds.
    held: list[int]


class ListedRule(_CommonFields, Conditions, total=False):
    """A rule or gate as the server lists it, with its conditions and the argument of its action."""

    #: The delay in milliseconds.
    delay_ms: int
    #: The bytes of the reply that ``cut`` sends.
    bytes: int
    #: The line of the error.
    line: str
    #: The jump in milliseconds.
    jump_ms: int
    #: The writes that ``lose-writes`` undoes.
    writes: int


Rules = list[ListedRule]


class Rule:
    """A fault rule. A ``with`` statement clears it at the end."""

    def __init__(self, connections: Connections, number: int) -> None:
        self._connections = connections
        #: The number of the rule or gate on its server.
        self.number = number
        self._cleared = False

    @property
    def matched(self) -> int:
        """The number of requests that matched the conditions, ``nth``, ``times`` and
        ``probability`` aside."""
        return int(_listed(self._connections, "FAULT", self.number)["matched"])

    @property
    def fired(self) -> int:
        """The number of requests that the rule was applied to."""
        return int(_listed(self._connections, "FAULT", self.number)["fired"])

    def clear(self) -> None:
        """Removes the rule and releases the requests that it holds."""
        self._connections.order("FAULT", "CLEAR", self.number)
        self._cleared = True

    def __enter__(self) -> Rule:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._cleared:
            self.clear()


class Gate:
    """A gate, which holds matching requests before they run. A ``with`` statement opens it at the
    end."""

    def __init__(self, connections: Connections, number: int) -> None:
        self._connections = connections
        #: The number of the rule or gate on its server.
        self.number = number
        self._opened = False

    def wait(self) -> int:
        """Waits until the gate holds a client, and returns its ``CLIENT ID``.

        Raises `LockwheelError` if the gate is opened meanwhile, or holds no client for a minute.
        """
        held = self._connections.order("GATE", "AWAIT", self.number)
        if held is None:
            raise LockwheelError("the gate was opened before it held a client")
        return int(held)

    async def wait_async(self) -> int:
        """As `wait`, without blocking the event loop."""
        import asyncio  # Imported late, since most tests do not need it.

        return await asyncio.get_running_loop().run_in_executor(None, self.wait)

    @property
    def held(self) -> list[int]:
        """The ``CLIENT ID`` of each client that the gate holds."""
        return list(_listed(self._connections, "GATE", self.number)["held"])

    def open(self) -> int:
        """Removes the gate and releases its clients. Returns their number."""
        held = int(self._connections.order("GATE", "OPEN", self.number))
        self._opened = True
        return held

    def __enter__(self) -> Gate:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._opened:
            self.open()


class Faults:
    """The fault rules and gates of a server. The first rule that matches a request applies. No
    rule applies to ``LOCKWHEEL`` commands.

    `Conditions` select the requests of a rule or a gate.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def add(
        self, action: str, argument: Span | None = None, **conditions: Unpack[Conditions]
    ) -> Rule:
        """Adds a rule after the others. The actions, with their arguments:

        - ``delay`` (span): holds the request for the span on the server's clock, then runs it;
        - ``drop``: does not run the request and sends no reply;
        - ``close``: does not run the request and closes the connection;
        - ``lose``: runs the request and sends no reply;
        - ``lose-and-close``: runs the request and closes the connection without a reply;
        - ``cut`` (bytes): runs the request, sends this much of the reply, closes the connection;
        - ``stall``: stops reading from the connection until the rule is cleared;
        - ``error`` (line): does not run the request and replies with this error;
        - ``flush-scripts``: removes all scripts, then runs the request;
        - ``jump`` (span): runs the request, then lets the clock jump;
        - ``lose-writes`` (count): sends the reply, then undoes the last writes;
        - ``refuse``: closes new connections at once.
        """
        words: list[Any] = [action]
        if argument is not None:
            is_span = action.lower() in _SPANS or isinstance(argument, timedelta)
            words.append(as_argument(argument) if is_span else argument)
        words += _words(conditions)
        return Rule(self._connections, self._connections.order("FAULT", "ADD", *words))

    def gate(self, **conditions: Unpack[Conditions]) -> Gate:
        """Adds a gate for the requests that match the conditions."""
        words = _words(conditions)
        return Gate(self._connections, self._connections.order("GATE", "ADD", *words))

    def list(self) -> Rules:
        """The rules and the gates, each with its counts and the clients that it holds."""
        return _list(self._connections, "FAULT") + _list(self._connections, "GATE")

    def clear(self) -> None:
        """Removes all rules and opens all gates."""
        self._connections.order("FAULT", "CLEAR")
        for gate in _list(self._connections, "GATE"):
            self._connections.order("GATE", "OPEN", gate["id"])

    def failover(self, lose: int = 0) -> int:
        """Simulates a failover to a replica that lacks the last `lose` writes: undoes them,
        removes all scripts and disconnects every client. Returns the number of undone writes.
        """
        return int(self._connections.order("FAILOVER", "LOSE", lose))


def _words(conditions: Conditions) -> list[Any]:
    unknown = conditions.keys() - _WORDS.keys()
    if unknown:
        raise TypeError(f"unknown condition: {', '.join(sorted(unknown))}")
    return [word for name, value in conditions.items() for word in (_WORDS[name], value)]


def _list(connections: Connections, kind: str) -> Rules:
    rules: Rules = json.loads(connections.order(kind, "LIST"))
    return rules


def _listed(connections: Connections, kind: str, number: int) -> ListedRule:
    for rule in _list(connections, kind):
        if rule["id"] == number:
            return rule
    raise LockwheelError(f"the rule or gate {number} has been cleared")
