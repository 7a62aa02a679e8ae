"""What has happened on a server: its entries, its locks, the mistakes, and what must hold."""

from __future__ import annotations

import json
from typing import Any

from lockwheel._connection import Connections

#: One thing that has happened. Every entry has `seq`, `time_ms`, `client`, `event` and `keys`.
Entry = dict[str, Any]


class Journal:
    """What clients and their scripts called, and what became of locks.

    Locks are recognised from what commands do, whatever library sends them. A client is a
    connection: who takes a lock through one and deletes it through another, without its token, is
    a stranger.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def entries(
        self, *, since: int | None = None, key: str | None = None, count: int | None = None
    ) -> list[Entry]:
        """What has happened, in time order: after the entry with the number `since`, about keys
        like `key`, the last `count` of them."""
        return self._ask("JOURNAL", *_selection(since, key, count))

    def story(
        self, *, since: int | None = None, key: str | None = None, count: int | None = None
    ) -> str:
        """The same entries as a person reads them, a line for each."""
        words = _selection(since, key, count)
        text: str = self._connections.order("JOURNAL", *words, "TEXT")
        return text

    def locks(self) -> list[dict[str, Any]]:
        """The locks that are held: by whom, since when, for how long, and who was refused them."""
        return self._ask("LOCKS")

    def lint(self) -> list[dict[str, Any]]:
        """The usual mistakes that were made with locks: `rule`, `key`, `sentence`, `entries`."""
        return self._ask("LINT")

    def clear(self) -> None:
        """Forgets what has happened. Locks that are held stay known."""
        self._connections.order("JOURNAL", "CLEAR")

    def assert_no_lock_held(self) -> None:
        """Nobody holds a lock any more."""
        __tracebackhide__ = True
        self.check("no-lock-held")

    def assert_never_two_holders(self) -> None:
        """Nobody took a lock that another came back for, believing to have it."""
        __tracebackhide__ = True
        self.check("never-two-holders")

    def assert_every_lock_has_a_lease(self) -> None:
        """No lock stays if its owner dies."""
        __tracebackhide__ = True
        self.check("every-lock-has-a-lease")

    def assert_released_only_by_owner(self) -> None:
        """No lock was taken from its owner."""
        __tracebackhide__ = True
        self.check("released-only-by-owner")

    def check(self, name: str) -> None:
        """Raises `AssertionError` if the rule of this name has been broken, with what happened to
        that lock. The names are ``no-lock-held``, ``never-two-holders``,
        ``every-lock-has-a-lease`` and ``released-only-by-owner``."""
        __tracebackhide__ = True
        verdict = json.loads(self._connections.order("CHECK", name, "STORY"))
        if not verdict["holds"]:
            raise AssertionError(verdict["text"])

    def _ask(self, *words: Any) -> list[Entry]:
        answer: list[Entry] = json.loads(self._connections.order(*words))
        return answer


def _selection(since: int | None, key: str | None, count: int | None) -> list[Any]:
    given = {"SINCE": since, "KEY": key, "COUNT": count}
    return [word for pair in given.items() if pair[1] is not None for word in pair]
