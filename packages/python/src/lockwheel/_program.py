"""Finds the server program: named by a variable, carried by this package, or on the PATH."""

from __future__ import annotations

import os
import platform
import shutil
from pathlib import Path

from lockwheel._errors import ProgramNotFound

VARIABLE = "LOCKWHEEL_BINARY"

_CARRIED = Path(__file__).with_name("bin") / "lockwheel"


def program() -> str:
    """The path of the program that servers are started with.

    It is the program that the environment variable ``LOCKWHEEL_BINARY`` names, else the program
    of this package, else ``lockwheel`` on the ``PATH``. Raises `ProgramNotFound` if there is none.
    """
    named = os.environ.get(VARIABLE)
    if named:
        if os.path.isfile(named) and os.access(named, os.X_OK):
            return named
        raise ProgramNotFound(f"{VARIABLE} names {named!r}, which is not an executable file")
    found = carried() or shutil.which("lockwheel")
    if found is None:
        raise ProgramNotFound(
            f"there is no lockwheel for {platform.system()} on {platform.machine()}: "
            f"neither in this package ({_CARRIED}) nor on the PATH. "
            "Install the wheel for this system, "
            f"or build the program and set {VARIABLE} to its path"
        )
    return found


def carried() -> str | None:
    """The path of the program in this package, None if it carries none."""
    return str(_CARRIED) if _CARRIED.is_file() else None
