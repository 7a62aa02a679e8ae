"""Waiting for what happens in another thread or process, for as long as a busy machine takes."""

import time

#: Nothing in these tests takes long. What takes longer than this hangs.
PATIENCE_S = 60


def until(condition):
    """Asks again and again until it is so."""
    give_up_at = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < give_up_at, "it never came to that"
