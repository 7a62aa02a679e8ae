"""sherlock's `RedisLock`. Its leases are whole seconds."""

import threading
import time

import pytest
from sherlock import LockException, LockTimeoutException, RedisLock

from contention import (
    MAX_WAIT_S,
    ROUNDS,
    WORKERS,
    aside,
    contend,
    eventually,
    lease_ends,
    within_lease,
)

LIBRARY = ("sherlock", "sherlock")


@pytest.fixture
def lock(client, name):
    """Makes locks of one name, and frees them: sherlock frees a forgotten lock noisily."""
    made = []

    def make(**options):
        options = {"expire": 30, "retry_interval": 0.005, **options}
        made.append(RedisLock(name, client=client, **options))
        return made[-1]

    yield make
    client.delete(name)
    for lock in made:
        lock._owner = None


def test_acquire_release(lock):
    """RedisLock: acquired, seen as locked, released, free"""
    first = lock()
    assert first.acquire(blocking=False)
    assert first.locked()
    assert not lock().acquire(blocking=False)
    first.release()
    assert not first.locked()
    assert lock().acquire(blocking=False)


def test_mutual_exclusion(lock):
    """RedisLock: one of many gets in"""

    def work(section):
        for _ in range(ROUNDS):
            with lock(timeout=MAX_WAIT_S):
                section.visit()

    section, _ = contend(work)
    assert section.count == WORKERS * ROUNDS


def test_namespaces(client, name):
    """RedisLock: the same name in two namespaces is two locks"""
    first = RedisLock(name, client=client, namespace="first", expire=30)
    second = RedisLock(name, client=client, namespace="second", expire=30)
    assert first.acquire(blocking=False) and second.acquire(blocking=False)
    first.release()
    assert second.locked() and not first.locked()
    second.release()


def test_waiter(lock):
    """RedisLock: a waiter gets it when it is released, not before"""
    first = lock()
    assert first.acquire()
    got = threading.Event()

    def wait():
        lock(timeout=MAX_WAIT_S).acquire()
        got.set()

    waiter = aside(wait)
    assert not got.wait(0.2)
    first.release()
    waiter.join(MAX_WAIT_S)
    assert got.is_set()


def test_timeout(lock):
    """RedisLock: a waiter gives up after its timeout"""
    first = lock()
    assert first.acquire()
    with pytest.raises(LockTimeoutException):
        lock(timeout=0.1).acquire()
    assert first.locked()


def test_lease(lock):
    """RedisLock: refused before the end of the lease, granted after it"""
    since = time.monotonic()
    assert lock(expire=1).acquire()
    lease_ends(lambda: lock().acquire(blocking=False), since, 1)


def test_no_lease(lock):
    """RedisLock: without a lease it does not end"""
    first = lock(expire=None)
    assert first.acquire()
    if not first.locked():
        pytest.skip(
            "its script compares ARGV[2], a string, with the number -1, finds them unequal and "
            "sends EXPIRE -1: the lock is gone at once, on every server"
        )
    assert not lock().acquire(blocking=False)


def test_renew(lock):
    """RedisLock: a renewed lease holds beyond its first end"""
    first = lock(expire=1)
    _, since = within_lease(1, first.acquire, first.renew, after_s=0.2)
    lease_ends(lambda: lock().acquire(blocking=False), since, 1)


def test_release_by_another_client(lock):
    """RedisLock: release and renewal by another client or after the lease are refused"""
    late = lock(expire=1)
    assert late.acquire()
    with pytest.raises(LockException):
        lock().release()
    with pytest.raises(LockException):
        lock().renew()
    second = lock()
    eventually(lambda: second.acquire(blocking=False))
    with pytest.raises(LockException):
        late.release()
    assert not late.renew()
    assert second.locked()
