"""python-redis-lock: SET NX to take, a list to wait on. Its leases are whole seconds."""

import threading
import time

import pytest
import redis
from redis_lock import AlreadyAcquired, Lock, NotAcquired, NotExpirable, reset_all

import servers
from contention import (
    MAX_WAIT_S,
    ROUNDS,
    WORKERS,
    aside,
    blocked_clients,
    contend,
    eventually,
    lease_ends,
    within_lease,
)

LIBRARY = ("python-redis-lock", "python-redis-lock")


def test_acquire_release(client, name):
    """Lock: acquired, seen as locked, released, free"""
    lock = Lock(client, name)
    assert lock.acquire(blocking=False)
    assert lock.locked()
    assert Lock(client, name).get_owner_id() == lock.id
    assert not Lock(client, name).acquire(blocking=False)
    with pytest.raises(AlreadyAcquired):
        lock.acquire()
    lock.release()
    assert not lock.locked()
    assert Lock(client, name).acquire(blocking=False)


@pytest.mark.parametrize("protocol", [2, 3])
def test_mutual_exclusion(name, protocol):
    """Lock: one of many gets in, each waits in BLPOP (RESP{protocol})"""

    def work(section):
        with redis.Redis.from_url(servers.MAIN, protocol=protocol) as client:
            for _ in range(ROUNDS):
                with Lock(client, name, expire=30):
                    section.visit()

    section, _ = contend(work)
    assert section.count == WORKERS * ROUNDS


def test_waiter(client, name):
    """Lock: a waiter sleeps in BLPOP and is woken by the release"""
    lock = Lock(client, name, expire=60)
    assert lock.acquire()
    got = threading.Event()

    def wait():
        assert Lock(client, name, expire=60).acquire()
        got.set()

    waiter = aside(wait)
    eventually(lambda: blocked_clients(client) == 1)
    assert not got.is_set()
    lock.release()
    waiter.join(MAX_WAIT_S)
    assert got.is_set()


def test_order(client, name):
    """Lock: waiters get it in the order in which they came"""
    holder = Lock(client, name)
    assert holder.acquire()
    order, waiters = [], []

    def wait(number):
        with Lock(client, name):
            order.append(number)

    for number in range(4):
        waiters.append(aside(wait, number))
        eventually(lambda: blocked_clients(client) == number + 1)
    holder.release()
    for waiter in waiters:
        waiter.join(MAX_WAIT_S)
    assert order == [0, 1, 2, 3]


def test_timeout(client, name):
    """Lock: a waiter gives up after its timeout, and not before"""
    holder = Lock(client, name, expire=60)
    assert holder.acquire()
    since = time.monotonic()
    assert not Lock(client, name, expire=60).acquire(timeout=1)
    assert time.monotonic() - since >= 1
    assert holder.get_owner_id() == holder.id


def test_lease(client, name):
    """Lock: refused before the end of the lease, granted after it"""
    since = time.monotonic()
    assert Lock(client, name, expire=1).acquire()
    lease_ends(lambda: Lock(client, name).acquire(blocking=False), since, 1)


def test_waiter_of_a_dead_holder(client, name):
    """Lock: a waiter gets the lock of a crashed holder after the lease"""
    since = time.monotonic()
    assert Lock(client, name, expire=1).acquire()
    assert Lock(client, name, expire=1).acquire()
    assert time.monotonic() - since >= 1


def test_release_by_another_client(client, name):
    """Lock: release by another client or after the lease is refused"""
    late = Lock(client, name, expire=60)
    assert late.acquire()
    with pytest.raises(NotAcquired):
        Lock(client, name).release()
    assert late.locked()
    late.extend(1)
    second = Lock(client, name, expire=60)
    eventually(lambda: second.acquire(blocking=False))
    with pytest.raises(NotAcquired):
        late.release()
    with pytest.raises(NotAcquired):
        late.extend(60)
    assert second.get_owner_id() == second.id


def test_release_elsewhere(client, name):
    """Lock: released by another object with the same id"""
    lock = Lock(client, name)
    assert lock.acquire()
    Lock(client, name, id=lock.id).release()
    assert not lock.locked()


def test_extend(client, name):
    """Lock: an extended lease holds beyond its first end"""
    lock = Lock(client, name, expire=2)
    _, since = within_lease(2, lock.acquire, lambda: lock.extend(3))
    lease_ends(lambda: Lock(client, name).acquire(blocking=False), since, 3)


def test_extend_unlimited(client, name):
    """Lock: a lock without a lease is not given one by extend"""
    lock = Lock(client, name)
    assert lock.acquire()
    with pytest.raises(NotExpirable):
        lock.extend(1)
    assert client.ttl("lock:" + name) == -1


def test_auto_renewal(client, name):
    """Lock: auto_renewal holds it beyond the lease, and only until the release"""
    # It is renewed each two thirds of its lease: a busy machine may stand for the other third.
    lock = Lock(client, name, expire=6, auto_renewal=True)
    since = time.monotonic()
    assert lock.acquire()
    while time.monotonic() - since < 7.5:
        assert not Lock(client, name).acquire(blocking=False)
        time.sleep(0.02)
    lock.release()
    assert Lock(client, name).acquire(blocking=False)


def test_signal_is_cleared(client, name):
    """Lock: the signal of a release without waiters is gone after its time, and wakes no waiter"""
    lock = Lock(client, name, signal_expire=100)
    assert lock.acquire()
    lock.release()
    assert client.llen("lock-signal:" + name) == 1
    eventually(lambda: client.llen("lock-signal:" + name) == 0)


def test_reset(client, name):
    """reset: frees the lock of another, and wakes a waiter"""
    assert Lock(client, name).acquire()
    waiter = aside(lambda: Lock(client, name).acquire(timeout=MAX_WAIT_S))
    eventually(lambda: blocked_clients(client) == 1)
    Lock(client, name).reset()
    waiter.join(MAX_WAIT_S)
    assert not waiter.is_alive()
    assert client.exists("lock:" + name) == 1


def test_reset_all(name):
    """reset_all: frees all locks (KEYS within a script, keys not declared)"""
    with redis.Redis.from_url(servers.MAIN, db=9) as client:
        locks = [Lock(client, f"{name}-{number}") for number in range(20)]
        assert all(lock.acquire() for lock in locks)
        client.set("unrelated", "stays")
        reset_all(client)
        assert not any(lock.locked() for lock in locks)
        assert client.get("unrelated") == b"stays"
