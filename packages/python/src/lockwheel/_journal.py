"""The journal of a server: its entries, its locks, lint findings and checks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Optional, TypedDict, Union

from lockwheel._connection import Connections
from lockwheel._errors import CheckError

if TYPE_CHECKING:
    from typing_extensions import Unpack


class AppliedFault(TypedDict):
    """A fault that happened to a request."""

    #: The number of the rule.
    rule: int
    #: What happened: ``executed; reply lost; connection closed``.
    effect: str


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
    #: The number of the request, the same for all entries of a script or a transaction; else 0.
    request: int


class Entry(_CommonFields, total=False):
    """An entry of the journal. The event determines which further fields it has."""

    #: The name of the client, if it has one.
    name: str
    #: The library of the client (``CLIENT SETINFO``), if it has named one.
    library: str
    #: The request of a command, shortened.
    argv: list[str]
    #: The reply to a command, shortened.
    reply: str
    #: True if a script called the command.
    script: bool
    #: True if ``EXEC`` ran the command.
    transaction: bool
    #: The fault that happened to the request.
    fault: AppliedFault
    #: The number of the rule that held a client.
    rule: int
    #: What happened to the clock.
    order: str
    #: Why a key is a lock.
    reason: str
    #: True if the key is only possibly a lock.
    possible: bool
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
    #: ``token``, ``owners`` or ``semaphore``.
    shape: str
    #: ``certain``, ``likely`` or ``possible``.
    confidence: str
    #: Why it is a lock.
    reason: str


class HeldLock(_LockFields, total=False):
    """A held lock."""

    #: The name of the client that took it, if it has one.
    name: str


class KnownLock(TypedDict):
    """A key that is or was a lock, possibly."""

    #: The key of the lock and its database.
    key: str
    database: int
    #: ``token``, ``owners`` or ``semaphore``.
    shape: str
    #: ``certain``, ``likely`` or ``possible``.
    confidence: str
    #: Why it is a lock.
    reason: str
    #: Whether it is held now.
    held: bool


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


class Scope(TypedDict, total=False):
    """What a check, lint or the entries are about."""

    #: Only keys that match this pattern. Checks also consider keys that are only possibly locks.
    key: str
    #: Only what this client has done: its ``CLIENT ID``, or its name.
    client: Union[int, str]
    #: Only what happened after the entry with this number.
    since: int


class Journal:
    """The commands of clients and scripts, and the events of locks.

    Locks are recognised from the effects of commands, whatever library sends them. A client is a
    connection: a program that takes a lock on one connection and deletes it on another without
    its token counts as two clients.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def entries(self, *, count: int | None = None, **scope: Unpack[Scope]) -> list[Entry]:
        """The entries in time order, at most the last `count`."""
        entries: list[Entry] = self._ask("JOURNAL", *_words(count=count, **scope))
        return entries

    def story(self, *, count: int | None = None, **scope: Unpack[Scope]) -> str:
        """The same entries as text, one line each."""
        text: str = self._connections.order("JOURNAL", *_words(count=count, **scope), "TEXT")
        return text

    def locks(self) -> list[HeldLock]:
        """The held locks, also those that are only possibly locks."""
        locks: list[HeldLock] = self._ask("JOURNAL", "HOLDERS")
        return locks

    def known_locks(self) -> list[KnownLock]:
        """The keys that are or were locks, also those that are only possibly locks, and why."""
        locks: list[KnownLock] = self._ask("JOURNAL", "KNOWN")
        return locks

    def declare_locks(self, pattern: str) -> None:
        """Declares that keys that match `pattern` are locks, however they are made."""
        self._connections.order("JOURNAL", "DECLARE", pattern)

    def ignore_locks(self, pattern: str) -> None:
        """Declares that keys that match `pattern` are no locks."""
        self._connections.order("JOURNAL", "IGNORE", pattern)

    def lint(self, **scope: Unpack[Scope]) -> list[Finding]:
        """The common mistakes found in the use of locks."""
        findings: list[Finding] = self._ask("LINT", *_words(**scope))
        return findings

    def clear(self) -> None:
        """Removes all entries. Held locks stay recognised."""
        self._connections.order("JOURNAL", "CLEAR")

    def assert_no_lock_held(self, **scope: Unpack[Scope]) -> None:
        """Asserts that no client holds a lock."""
        __tracebackhide__ = True
        self.check("no-lock-held", **scope)

    def assert_never_two_holders(self, **scope: Unpack[Scope]) -> None:
        """Asserts that no lock was taken while a former holder still used it."""
        __tracebackhide__ = True
        self.check("never-two-holders", **scope)

    def assert_every_lock_has_a_lease(self, **scope: Unpack[Scope]) -> None:
        """Asserts that every lock has a lease."""
        __tracebackhide__ = True
        self.check("every-lock-has-a-lease", **scope)

    def assert_released_only_by_owner(self, **scope: Unpack[Scope]) -> None:
        """Asserts that no client released the lock of another."""
        __tracebackhide__ = True
        self.check("released-only-by-owner", **scope)

    def assert_not_refused_by_own_token(self, **scope: Unpack[Scope]) -> None:
        """Asserts that no client was refused a lock that holds its own token."""
        __tracebackhide__ = True
        self.check("refused-by-own-token", **scope)

    def assert_no_waiter_lost(self, **scope: Unpack[Scope]) -> None:
        """Asserts that every client that was refused a lock has acquired it since."""
        __tracebackhide__ = True
        self.check("no-waiter-lost", **scope)

    def assert_renewed_before_expiry(self, **scope: Unpack[Scope]) -> None:
        """Asserts that no lease expired."""
        __tracebackhide__ = True
        self.check("renewed-before-expiry", **scope)

    def check(self, name: str, **scope: Unpack[Scope]) -> None:
        """Raises `CheckError` if the named check fails. The names are those of `LOCKWHEEL CHECK`,
        such as ``no-lock-held``."""
        __tracebackhide__ = True
        verdict = json.loads(self._connections.order("CHECK", name, *_words(**scope), "STORY"))
        if not verdict["holds"]:
            raise CheckError(verdict["text"], self)

    def _ask(self, *words: Any) -> Any:
        return json.loads(self._connections.order(*words))


def _words(**options: Any) -> list[Any]:
    known = ("key", "client", "since", "count")
    unknown = [name for name in options if name not in known]
    if unknown:
        raise TypeError(f"unknown option '{unknown[0]}'. Known: {', '.join(known)}")
    given = [(name.upper(), value) for name, value in options.items() if value is not None]
    return [word for pair in given for word in pair]
