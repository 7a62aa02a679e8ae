"""The journal of a server: its entries, its locks, lint findings and checks."""

from __future__ import annotations

import json
from typing import Any, Optional, TypedDict, Union

from lockwheel._connection import Connections


class _CommonFields(TypedDict):
    #: The number of the entry, counted from 1.
    seq: int
    #: The time, in milliseconds since 1970 on the clock of leases.
    time_ms: int
    #: The ``CLIENT ID`` of the client, 0 if there was none.
    client: int
    #: ``command``, ``acquired``, ``renewed``, ``refused``, ``released``, ``expired-while-held`` ...
    event: str
    #: The keys of the command or event.
    keys: list[str]


class Entry(_CommonFields, total=False):
    """An entry of the journal. The event determines which further fields it has."""

    #: The name of the client, if it has one.
    name: str
    #: The request of a command, shortened.
    argv: list[str]
    #: The reply to a command, shortened.
    reply: str
    #: True if a script called the command.
    script: bool
    #: The present or former owner of the lock: the token, or the field of a hash.
    owner: str
    #: How many times the owner holds the lock.
    count: int
    #: How many holds are left after a release.
    left: int
    #: The lease in milliseconds, None if there is none.
    lease_ms: Optional[int]
    #: The owner that was refused, as far as the request shows it.
    by: str
    #: The owner of the refused lock, else the ``CLIENT ID`` of the client that took the lock.
    holder: Union[str, int]
    #: The milliseconds from the first refusal to the acquisition.
    waited_ms: int
    #: The milliseconds from the loss of the lock to the late command.
    late_ms: int


class _LockFields(TypedDict):
    #: The key of the lock and its database.
    key: str
    database: int
    #: The token, or the field of a hash.
    owner: str
    #: How many times the owner holds it.
    count: int
    #: The ``CLIENT ID`` of the client that took it.
    client: int
    #: When it was taken, in milliseconds since 1970 on the clock of leases.
    since_ms: int
    #: The rest of the lease in milliseconds, None if there is none.
    lease_ms: Optional[int]
    #: The ``CLIENT ID`` of each client that was refused and has not acquired it since.
    waiting: list[int]


class HeldLock(_LockFields, total=False):
    """A held lock."""

    #: The name of the client that took it, if it has one.
    name: str


class Finding(TypedDict):
    """A common mistake in the use of a lock."""

    #: ``lock-without-lease``, ``delete-without-check``, ``lease-shorter-than-hold`` ...
    rule: str
    #: The key of the lock.
    key: str
    #: The problem and its correction.
    sentence: str
    #: How many times the mistake was made.
    count: int
    #: The entries of the first occurrence.
    entries: list[Entry]


class Journal:
    """The commands of clients and scripts, and the events of locks.

    Locks are recognised from the effects of commands, whatever library sends them. A client is a
    connection: a program that takes a lock on one connection and deletes it on another without
    its token counts as two clients.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def entries(
        self, *, since: int | None = None, key: str | None = None, count: int | None = None
    ) -> list[Entry]:
        """The entries in time order: after the number `since`, with keys that match the pattern
        `key`, at most the last `count`."""
        entries: list[Entry] = self._ask("JOURNAL", *_selection(since, key, count))
        return entries

    def story(
        self, *, since: int | None = None, key: str | None = None, count: int | None = None
    ) -> str:
        """The same entries as text, one line each."""
        words = _selection(since, key, count)
        text: str = self._connections.order("JOURNAL", *words, "TEXT")
        return text

    def locks(self) -> list[HeldLock]:
        """The held locks."""
        locks: list[HeldLock] = self._ask("LOCKS")
        return locks

    def lint(self) -> list[Finding]:
        """The common mistakes found in the use of locks."""
        findings: list[Finding] = self._ask("LINT")
        return findings

    def clear(self) -> None:
        """Removes all entries. Held locks stay recognised."""
        self._connections.order("JOURNAL", "CLEAR")

    def assert_no_lock_held(self) -> None:
        """Asserts that no client holds a lock."""
        __tracebackhide__ = True
        self.check("no-lock-held")

    def assert_never_two_holders(self) -> None:
        """Asserts that no lock was taken while a former holder still used it."""
        __tracebackhide__ = True
        self.check("never-two-holders")

    def assert_every_lock_has_a_lease(self) -> None:
        """Asserts that every lock has a lease."""
        __tracebackhide__ = True
        self.check("every-lock-has-a-lease")

    def assert_released_only_by_owner(self) -> None:
        """Asserts that no client released the lock of another."""
        __tracebackhide__ = True
        self.check("released-only-by-owner")

    def check(self, name: str) -> None:
        """Raises `AssertionError` if the named check fails, with the entries of that lock. The
        names are ``no-lock-held``, ``never-two-holders``, ``every-lock-has-a-lease`` and
        ``released-only-by-owner``."""
        __tracebackhide__ = True
        verdict = json.loads(self._connections.order("CHECK", name, "STORY"))
        if not verdict["holds"]:
            raise AssertionError(verdict["text"])

    def _ask(self, *words: Any) -> Any:
        return json.loads(self._connections.order(*words))


def _selection(since: int | None, key: str | None, count: int | None) -> list[Any]:
    given = {"SINCE": since, "KEY": key, "COUNT": count}
    return [word for pair in given.items() if pair[1] is not None for word in pair]
