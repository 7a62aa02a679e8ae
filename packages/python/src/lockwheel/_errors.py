"""The exceptions of this package."""


class LockwheelError(Exception):
    """The base class: a server failed or refused a request."""


class ProgramNotFound(LockwheelError):
    """There is no program to start a server with."""


class StartError(LockwheelError):
    """The program ended, or did not report its port in time, before it accepted connections."""


class ReplyError(LockwheelError):
    """The server replied with an error. The message is its line: ``ERR syntax error``."""
