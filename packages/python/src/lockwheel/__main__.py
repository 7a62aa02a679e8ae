"""The command `lockwheel`: runs the program that this package carries, with the same arguments."""

import os
import sys

from lockwheel._program import carried


def main() -> None:
    """Replaces this process by the program, so that signals and the exit status are the program's.

    It runs the carried program only, since ``LOCKWHEEL_BINARY`` and the ``PATH`` may name this
    command.
    """
    path = carried()
    if path is None:
        sys.exit("lockwheel: this package carries no program; install the wheel for this system")
    try:
        os.execv(path, [path, *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"lockwheel: cannot run {path}: {error.strerror}")


if __name__ == "__main__":
    main()
