"""A lock server for tests that speaks the Redis protocol, with control of its clock and faults.

    import lockwheel

    with lockwheel.start(frozen=True) as server:
        client = redis.Redis.from_url(server.url)
        client.set("lock", "token", nx=True, px=30_000)
        server.clock.advance("30s")
        assert client.get("lock") is None

The pytest fixture ``lockwheel`` starts such a server for each test.
"""

from lockwheel._clock import Clock, ClockReading, Span
from lockwheel._errors import CheckError, LockwheelError, ProgramNotFound, ReplyError, StartError
from lockwheel._faults import Conditions, Faults, Gate, ListedRule, Rule
from lockwheel._journal import AppliedFault, Entry, Finding, HeldLock, Journal, KnownLock, Scope
from lockwheel._program import program
from lockwheel._server import Server, start

__all__ = [
    "AppliedFault",
    "CheckError",
    "Clock",
    "ClockReading",
    "Conditions",
    "Entry",
    "Faults",
    "Finding",
    "Gate",
    "HeldLock",
    "Journal",
    "KnownLock",
    "ListedRule",
    "LockwheelError",
    "ProgramNotFound",
    "ReplyError",
    "Rule",
    "Scope",
    "Server",
    "Span",
    "StartError",
    "program",
    "start",
]
