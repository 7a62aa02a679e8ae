"""A Redis lock server for tests: stop its clock, break it on purpose, ask who holds what.

    import leasehold

    with leasehold.start(frozen=True) as server:
        client = redis.Redis.from_url(server.url)
        client.set("lock", "token", nx=True, px=30_000)
        server.clock.advance(30)
        assert client.get("lock") is None

With pytest the fixture ``leasehold`` is such a server, one for each test.
"""

from leasehold._clock import Clock, ClockReading, Span
from leasehold._errors import LeaseholdError, ProgramNotFound, ReplyError, StartError
from leasehold._faults import Conditions, Faults, Gate, Rule
from leasehold._journal import Journal
from leasehold._program import program
from leasehold._server import Server, start

__all__ = [
    "Clock",
    "ClockReading",
    "Conditions",
    "Faults",
    "Gate",
    "Journal",
    "LeaseholdError",
    "ProgramNotFound",
    "ReplyError",
    "Rule",
    "Server",
    "Span",
    "StartError",
    "program",
    "start",
]
