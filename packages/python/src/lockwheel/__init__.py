"""A Redis lock server for tests: stop its clock, break it on purpose, ask who holds what.

    import lockwheel

    with lockwheel.start(frozen=True) as server:
        client = redis.Redis.from_url(server.url)
        client.set("lock", "token", nx=True, px=30_000)
        server.clock.advance(30)
        assert client.get("lock") is None

With pytest the fixture ``lockwheel`` is such a server, one for each test.
"""

from lockwheel._clock import Clock, ClockReading, Span
from lockwheel._errors import LockwheelError, ProgramNotFound, ReplyError, StartError
from lockwheel._faults import Conditions, Faults, Gate, Rule
from lockwheel._journal import Journal
from lockwheel._program import program
from lockwheel._server import Server, start

__all__ = [
    "Clock",
    "ClockReading",
    "Conditions",
    "Faults",
    "Gate",
    "Journal",
    "LockwheelError",
    "ProgramNotFound",
    "ReplyError",
    "Rule",
    "Server",
    "Span",
    "StartError",
    "program",
    "start",
]
