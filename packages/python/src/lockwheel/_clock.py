"""The clock of a server, which a test can stop and move."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import NamedTuple, Union

from lockwheel._connection import Connections

#: A span of time in whole milliseconds: a `timedelta`, or text with units, such as ``"250ms"``,
#: ``"30s"``, ``"1.5h"`` or ``"1h30m"`` (ms, s, m, h, d). A number without a unit is refused.
Span = Union[timedelta, str]


class ClockReading(NamedTuple):
    """The times and the rate of a clock."""

    #: The clock of leases, in milliseconds since 1970.
    now_ms: int
    #: The wall clock, that of ``TIME`` and ``EXPIREAT``, in milliseconds since 1970.
    wall_ms: int
    #: How fast it runs: 1 in real time, 0 when it is stopped.
    rate: float


class Clock:
    """The clock of a server. Leases and the timeouts of blocking commands follow it. It runs in
    real time until a test changes it.

    The timers of client libraries do not follow it.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def freeze(self) -> None:
        """Stops the clock."""
        self._order("FREEZE")

    def run(self, rate: float = 1.0) -> None:
        """Runs the clock at a multiple of real time."""
        self._order("RUN", rate)

    def advance(self, span: Span) -> None:
        """Moves the clock forward. Everything due on the way happens in order, at its own time."""
        self._order("ADVANCE", as_argument(span))

    def set(self, moment: datetime) -> None:
        """Moves the clock forward to a moment, to the millisecond, as `advance` does.

        Raises `ReplyError` if the moment is in the past, since the clock never goes back.
        """
        self._order("SET", milliseconds_since_1970(moment))

    def jump(self, span: Span) -> None:
        """Simulates a step of the clock that Redis uses: a positive span ends leases early, a
        negative span prolongs them."""
        self._order("JUMP", as_argument(span))

    def step(self, span: Span) -> None:
        """Steps only the wall clock, that of ``TIME`` and ``EXPIREAT``. Leases do not change."""
        self._order("STEP", as_argument(span))

    def now(self) -> ClockReading:
        """The times and the rate of the clock."""
        return ClockReading(**json.loads(self._connections.order("CLOCK")))

    def _order(self, order: str, *arguments: str | float) -> None:
        self._connections.order("CLOCK", order, *arguments)


def as_argument(span: Span) -> str:
    """The span in the syntax of the server, which refuses what is not a span."""
    if not isinstance(span, timedelta):
        return str(span)
    whole, rest = divmod(span, timedelta(milliseconds=1))
    # The server refuses a fraction of a millisecond.
    fraction = f".{rest.microseconds:03}" if rest else ""
    return f"{whole}{fraction}ms"


def milliseconds_since_1970(moment: datetime) -> int:
    """The moment in the syntax of the server."""
    if not isinstance(moment, datetime):
        raise TypeError(f"a moment is a datetime, not {moment!r}")
    return round(moment.timestamp() * 1000)
