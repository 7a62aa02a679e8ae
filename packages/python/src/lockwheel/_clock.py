"""The clock of a server: it stops, and moves when told to."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import NamedTuple, Union

from lockwheel._connection import Connections

#: A span of time: seconds, a `timedelta`, or a number with a unit, such as ``"30s"`` or ``"1500ms"``
#: (ms, s, m, h, d). What is below a millisecond is rounded.
Span = Union[float, timedelta, str]


class ClockReading(NamedTuple):
    """What a clock shows."""

    #: The clock of leases, in milliseconds since 1970.
    now_ms: int
    #: The wall clock, that of ``TIME`` and ``EXPIREAT``, in milliseconds since 1970.
    wall_ms: int
    #: How fast it runs: 1 in real time, 0 when it is stopped.
    rate: float


class Clock:
    """The clock of a server, which drives all that happens there by itself: the ends of leases,
    the timeouts of blocking commands. It runs in real time until it is told otherwise.

    The timers of a client library are its own, and are not hurried.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def freeze(self) -> None:
        """Stops it."""
        self._order("FREEZE")

    def run(self, rate: float = 1.0) -> None:
        """Lets it run again, so many times as fast as real time."""
        self._order("RUN", rate)

    def advance(self, span: Span) -> None:
        """Moves it on. What is due on the way happens in order, each thing at its own moment."""
        self._order("ADVANCE", as_argument(span))

    def set(self, moment: datetime | float) -> None:
        """Moves it on to a moment, given as such or in seconds since 1970. It never goes back."""
        seconds = moment.timestamp() if isinstance(moment, datetime) else moment
        self._order("SET", round(seconds * 1000))

    def jump(self, span: Span) -> None:
        """Steps it as Redis's clock may be stepped: forward, leases end early, and back (a negative
        span) they last longer."""
        self._order("JUMP", as_argument(span))

    def step(self, span: Span) -> None:
        """Steps the wall clock alone, that of ``TIME`` and ``EXPIREAT``. No lease follows."""
        self._order("STEP", as_argument(span))

    def now(self) -> ClockReading:
        """What it shows."""
        return ClockReading(**json.loads(self._connections.order("CLOCK")))

    def _order(self, order: str, *arguments: str | float) -> None:
        self._connections.order("CLOCK", order, *arguments)


def as_argument(span: Span) -> str:
    """A span as the server reads it."""
    if isinstance(span, str):
        return span
    seconds = span.total_seconds() if isinstance(span, timedelta) else span
    return f"{round(seconds * 1000)}ms"
