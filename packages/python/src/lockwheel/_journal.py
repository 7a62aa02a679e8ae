"""The journal of a server: its entries, its locks, lint findings and checks."""

from __future__ import annotations

import json
from typing import Any

from lockwheel._connection import Connections

#: One event. Every entry has `seq`, `time_ms`, `client`, `event` and `keys`.
Entry = dict[str, Any]


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
        return self._ask("JOURNAL", *_selection(since, key, count))

    def story(
        self, *, since: int | None = None, key: str | None = None, count: int | None = None
    ) -> str:
        """The same entries as text, one line each."""
        words = _selection(since, key, count)
        text: str = self._connections.order("JOURNAL", *words, "TEXT")
        return text

    def locks(self) -> list[dict[str, Any]]:
        """The held locks: owner, client, time of acquisition, lease, waiting clients."""
        return self._ask("LOCKS")

    def lint(self) -> list[dict[str, Any]]:
        """The common mistakes found in the use of locks: `rule`, `key`, `sentence`, `entries`."""
        return self._ask("LINT")

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
        """Raises `AssertionError` if the named check fails, with the entries of that lock. The names are ``no-lock-held``, ``never-two-holders``,
        ``every-lock-has-a-lease`` and ``released-only-by-owner``."""
        __tracebackhide__ = True
        verdict = json.loads(self._connections.order("CHECK", name, "STORY"))
        if not verdict["holds"]:
            raise AssertionError(verdict["text"])

    def _ask(self, *words: Any) -> list[Entry]:
        reply: list[Entry] = json.loads(self._connections.order(*words))
        return reply


def _selection(since: int | None, key: str | None, count: int | None) -> list[Any]:
    given = {"SINCE": since, "KEY": key, "COUNT": count}
    return [word for pair in given.items() if pair[1] is not None for word in pair]
