"""What can go wrong with a server for tests."""


class LeaseholdError(Exception):
    """Something is wrong with a server, or with what it was asked."""


class ProgramNotFound(LeaseholdError):
    """There is no program to start a server with."""


class StartError(LeaseholdError):
    """The program ended, or said nothing, before it served."""


class ReplyError(LeaseholdError):
    """The server answered with an error, whose line this is: ``ERR syntax error``."""
