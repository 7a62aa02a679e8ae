"""What is to go wrong at a server, and gates that hold a client where a race begins."""

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

Rules = list[dict[str, Any]]


class Conditions(TypedDict, total=False):
    """Which requests a rule or a gate is for: all that is said must hold. Patterns are those of
    ``KEYS``."""

    #: The command's name is like this: ``set``, ``client|id``, ``eval*``.
    command: str
    #: One of its keys is like this.
    key: str
    #: Its client's name (``CLIENT SETNAME``) is like this.
    client: str
    #: Its client has this ``CLIENT ID``.
    client_id: int
    #: Of all these only this one, from 1 on.
    nth: int
    #: No more than so many of them.
    times: int
    #: Each of them with this probability, from 0 to 1.
    probability: float
    #: The same seed chooses the same ones.
    seed: int


class Rule:
    """A rule for what becomes of requests. In a ``with`` statement it is cleared at the end."""

    def __init__(self, connections: Connections, number: int) -> None:
        self._connections = connections
        #: Its number among the rules of its server.
        self.number = number
        self._cleared = False

    @property
    def matched(self) -> int:
        """How many requests it could have been for."""
        return int(_listed(self._connections, "FAULT", self.number)["matched"])

    @property
    def fired(self) -> int:
        """How many requests it was for."""
        return int(_listed(self._connections, "FAULT", self.number)["fired"])

    def clear(self) -> None:
        """Removes it, and lets go whom it holds."""
        self._connections.order("FAULT", "CLEAR", self.number)
        self._cleared = True

    def __enter__(self) -> Rule:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._cleared:
            self.clear()


class Gate:
    """A gate, at which clients are held before their requests are run. In a ``with`` statement it
    is opened at the end."""

    def __init__(self, connections: Connections, number: int) -> None:
        self._connections = connections
        #: Its number among the rules of its server.
        self.number = number
        self._opened = False

    def wait(self) -> int:
        """Waits until somebody is held, and returns their ``CLIENT ID``.

        Raises `LockwheelError` if the gate is opened meanwhile, or nobody comes for a minute.
        """
        held = self._connections.order("GATE", "AWAIT", self.number)
        if held is None:
            raise LockwheelError("the gate has been opened, and nobody is held there")
        return int(held)

    async def wait_async(self) -> int:
        """The same for a task: the event loop goes on meanwhile."""
        import asyncio  # Tests that are not asynchronous need not wait for it.

        return await asyncio.get_running_loop().run_in_executor(None, self.wait)

    @property
    def held(self) -> list[int]:
        """The ``CLIENT ID`` of each who is held now."""
        return list(_listed(self._connections, "GATE", self.number)["held"])

    def open(self) -> int:
        """Removes it and lets go whom it holds; returns how many they are."""
        held = int(self._connections.order("GATE", "OPEN", self.number))
        self._opened = True
        return held

    def __enter__(self) -> Gate:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._opened:
            self.open()


class Faults:
    """The faults of a server: rules for what becomes of requests. The first rule that is for a
    request decides. Orders to the server, such as all of this package, are subject to none.

    For which requests a rule or a gate is, its conditions say: see `Conditions`.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def add(
        self, action: str, argument: Span | None = None, **conditions: Unpack[Conditions]
    ) -> Rule:
        """Adds a rule behind the others. The actions, and those that take an argument:

        - ``delay`` (a span): it is held for so long on the server's clock, and then run;
        - ``drop``: it is neither run nor answered;
        - ``close``: it is not run, and its connection is closed;
        - ``lose``: it is run and not answered;
        - ``lose-and-close``: it is run, and its connection is closed instead of an answer;
        - ``cut`` (bytes): it is run, its answer ends after so many bytes, then is closed;
        - ``stall``: the server reads no further, until the rule is cleared;
        - ``error`` (a line): it is not run, and answered with this error;
        - ``flush-scripts``: scripts are forgotten before it is run;
        - ``jump`` (a span): the clock jumps when it has been run;
        - ``lose-writes`` (how many): the last writes are undone when it has been answered;
        - ``refuse``: connections are closed as soon as they are there.
        """
        words: list[Any] = [action]
        if argument is not None:
            is_span = action.lower() in _SPANS or isinstance(argument, timedelta)
            words.append(as_argument(argument) if is_span else argument)
        words += _words(conditions)
        return Rule(self._connections, self._connections.order("FAULT", "ADD", *words))

    def gate(self, **conditions: Unpack[Conditions]) -> Gate:
        """Adds a gate before such requests."""
        words = _words(conditions)
        return Gate(self._connections, self._connections.order("GATE", "ADD", *words))

    def list(self) -> Rules:
        """The rules and the gates, with how often each has matched and fired, and whom it holds."""
        return _list(self._connections, "FAULT") + _list(self._connections, "GATE")

    def clear(self) -> None:
        """Removes all rules and opens all gates."""
        self._connections.order("FAULT", "CLEAR")
        for gate in _list(self._connections, "GATE"):
            self._connections.order("GATE", "OPEN", gate["id"])

    def failover(self, lose: int = 0) -> int:
        """Does what a failover does to a server whose replica has not heard of the last writes:
        so many are undone, scripts are forgotten and every client is disconnected. Returns how
        many writes were undone.
        """
        return int(self._connections.order("FAILOVER", "LOSE", lose))


def _words(conditions: Conditions) -> list[Any]:
    unknown = conditions.keys() - _WORDS.keys()
    if unknown:
        raise TypeError(f"no such condition: {', '.join(sorted(unknown))}")
    return [word for name, value in conditions.items() for word in (_WORDS[name], value)]


def _list(connections: Connections, kind: str) -> Rules:
    rules: Rules = json.loads(connections.order(kind, "LIST"))
    return rules


def _listed(connections: Connections, kind: str, number: int) -> dict[str, Any]:
    for rule in _list(connections, kind):
        if rule["id"] == number:
            return rule
    raise LockwheelError(f"the rule or gate {number} has been cleared")
