"""The exceptions of this package."""

from __future__ import annotations


class LockwheelError(Exception):
    """The base class: a server failed or refused a request."""


class ProgramNotFound(LockwheelError):
    """There is no program to start a server with."""


class StartError(LockwheelError):
    """The program ended, or did not report its port in time, before it accepted connections."""


class CheckError(AssertionError):
    """A check failed. The message names what broke the rule, and contains the entries of the lock.

    `journal` is the journal of the server; None in another process.
    """

    __module__ = "lockwheel"

    def __init__(self, message: str, journal: object = None) -> None:
        super().__init__(message)
        self.journal = journal

    def __reduce__(self) -> tuple[type[CheckError], tuple[str]]:
        # The journal belongs to connections, which cannot be passed to another process.
        return CheckError, (str(self),)


class ReplyError(LockwheelError):
    """The server replied with an error. The message is its line: ``ERR syntax error``."""
