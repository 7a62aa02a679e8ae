"""Waiting for events in other threads and processes."""

import time

#: No event in these tests takes this long, even on a busy machine.
LIMIT_S = 60


def until(condition):
    """Calls the condition repeatedly until it is true."""
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, "the condition did not become true"
