"""Checks that a lock excludes other holders, and that a lease ends on time."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

WORKERS = 8
ROUNDS = 5

# The limit of every wait: long enough for slow machines, so that only a lost wake-up exceeds it.
MAX_WAIT_S = 30

# The time before the end of a lease in which it is polled without pauses.
NEAR_S = 0.03

# The time for which a worker holds the lock. A second holder in that time reads the old count.
INSIDE_S = 0.002


class Section:
    """A counter that is read, left alone and written: two inside at once lose counts."""

    def __init__(self):
        self.count = 0

    def visit(self):
        """Goes in and out once."""
        seen = self.count
        time.sleep(INSIDE_S)
        self.count = seen + 1

    async def visit_async(self):
        """The same for a task."""
        seen = self.count
        await asyncio.sleep(INSIDE_S)
        self.count = seen + 1


def contend(work, workers=WORKERS):
    """Runs `work(section)` on many threads at once; the section they met in, and what they gave."""
    section = Section()
    with ThreadPoolExecutor(workers) as pool:
        futures = [pool.submit(work, section) for _ in range(workers)]
        results = [future.result(timeout=4 * MAX_WAIT_S) for future in futures]
    return section, results


async def contend_async(work, workers=WORKERS):
    """Runs `work(section)` as many tasks at once; the section they met in."""
    section = Section()
    await asyncio.gather(*(work(section) for _ in range(workers)))
    return section


def lease_ends(attempt, since, lease_s):
    """Tries until granted, without a pause when the end is near: fails if that is sooner than a
    lease after `since`, the moment before it began."""
    while not attempt():
        time.sleep(_pause_s(since, lease_s))
    _check_end(since, lease_s)


async def lease_ends_async(attempt, since, lease_s):
    """The same for a task."""
    while not await attempt():
        await asyncio.sleep(_pause_s(since, lease_s))
    _check_end(since, lease_s)


def _pause_s(since, lease_s):
    passed_s = time.monotonic() - since
    assert passed_s < MAX_WAIT_S, "not granted after the lease"
    return max(0, min(NEAR_S, lease_s - NEAR_S - passed_s))


def _check_end(since, lease_s):
    passed_s = time.monotonic() - since
    assert passed_s >= lease_s, f"granted {passed_s} s after the beginning of a lease of {lease_s}"


def within_lease(lease_s, take, follow, after_s=0):
    """Takes a lease, and `after_s` later does what must be done within it: the moments before each.

    `follow` gives false or raises where it is refused. That is a failure, unless the machine stood
    for as long as the lease: whatever was refused came too late then, and all is done anew."""
    while True:
        begin = time.monotonic()
        assert take(), "not granted"
        time.sleep(after_s)
        since, refusal = time.monotonic(), None
        try:
            followed = follow() is not False
        except Exception as error:  # Each library has its own.
            followed, refusal = False, error
        if followed:
            return begin, since
        assert time.monotonic() - begin >= lease_s, f"refused within the lease: {refusal!r}"


async def within_lease_async(lease_s, take, follow, after_s=0):
    """The same for a task."""
    while True:
        begin = time.monotonic()
        assert await take(), "not granted"
        await asyncio.sleep(after_s)
        since, refusal = time.monotonic(), None
        try:
            followed = await follow() is not False
        except Exception as error:  # Each library has its own.
            followed, refusal = False, error
        if followed:
            return begin, since
        assert time.monotonic() - begin >= lease_s, f"refused within the lease: {refusal!r}"


def aside(work, *arguments):
    """Runs `work` on a thread of its own, which does not keep the process running."""
    thread = threading.Thread(target=work, args=arguments, daemon=True)
    thread.start()
    return thread


def eventually(condition):
    """Waits until `condition()` holds."""
    since = time.monotonic()
    while not condition():
        assert time.monotonic() - since < MAX_WAIT_S, "did not come about"
        time.sleep(0.01)


def blocked_clients(client):
    """How many connections of the server wait in a blocking command."""
    return client.info("clients")["blocked_clients"]
