"""What can go wrong with a server for tests."""


class LockwheelError(Exception):
    """Something is wrong with a server, or with what it was asked."""


class ProgramNotFound(LockwheelError):
    """There is no program to start a server with."""


class StartError(LockwheelError):
    """The program ended, or said nothing, before it served."""


class ReplyError(LockwheelError):
    """The server answered with an error, whose line this is: ``ERR syntax error``."""
