"""aioredlock, on aioredis 1, a client library that is no longer maintained."""

import asyncio
import random
import sys
import time

import pytest

import servers
from contention import MAX_WAIT_S, ROUNDS, contend_async, lease_ends_async, within_lease_async

LIBRARY = ("aioredlock", "aioredlock")


@pytest.fixture
async def manager():
    """Makes lock managers over some servers, and ends them."""
    if sys.version_info >= (3, 12):
        pytest.skip("it imports distutils, which Python 3.12 no longer has")
    from aioredlock import Aioredlock

    made = []

    def make(urls=servers.AIOREDLOCK, **options):
        addresses = [servers.host_and_port(url) for url in urls]
        made.append(Aioredlock(addresses, **options))
        return made[-1]

    yield make
    for each in made:
        await each.destroy()


async def taken(manager, name, lease_s):
    """Acquires the lock. Returns the time before the request, and the lock. The library discards a
    lock that took as long as its lease: if the machine stalled for that long, this tries again."""
    from aioredlock import LockError

    async with asyncio.timeout(MAX_WAIT_S):
        while True:
            since = time.monotonic()
            try:
                return since, await manager.lock(name, lock_timeout=lease_s)
            except LockError:
                # Contenders that failed together must not retry together.
                await asyncio.sleep(random.uniform(0.001, 0.03))


def attempt(manager, name):
    """A function that tries to acquire the lock and returns whether it was granted."""
    from aioredlock import LockError

    async def acquire():
        try:
            await manager.lock(name, lock_timeout=30)
        except LockError:
            return False
        return True

    return acquire


async def test_acquire_release(manager, name):
    """Aioredlock: acquired, seen as locked, released, free"""
    first = manager(retry_count=1)
    lock = await first.lock(name, lock_timeout=30)
    assert lock.valid and await first.is_locked(name)
    assert not await attempt(manager(retry_count=1), name)()
    await first.unlock(lock)
    assert not await first.is_locked(name)
    assert await attempt(manager(retry_count=1), name)()


async def test_mutual_exclusion(manager, name):
    """Aioredlock: one of many tasks gets in"""

    async def work(section):
        # The library keeps its keys between its own attempts: three clients with one server each
        # would block each other until they give up.
        mine = manager(retry_count=1)
        for _ in range(ROUNDS):
            _, lock = await taken(mine, name, 30)
            async with lock:
                await section.visit_async()

    section = await contend_async(work, workers=4)
    assert section.count == 4 * ROUNDS


async def test_lease(manager, name):
    """Aioredlock: refused before the end of the lease, granted after it"""
    since, _ = await taken(manager(), name, 0.5)
    await lease_ends_async(attempt(manager(retry_count=1), name), since, 0.5)


async def test_watchdog(manager, name):
    """Aioredlock: without a lease its watchdog holds the lock beyond the internal one"""
    # It is renewed each three fifths of its lease: a busy machine may stand for the other two.
    first = manager(internal_lock_timeout=4)
    lock = await first.lock(name)
    second = attempt(manager(retry_count=1), name)
    since = time.monotonic()
    while time.monotonic() - since < 5.5:
        assert not await second()
    await first.unlock(lock)
    assert await second()


async def test_extend(manager, name):
    """Aioredlock: an extended lease holds beyond its first end"""
    first, locks = manager(), []

    async def take():
        locks.append((await taken(first, name, 1))[1])
        return True

    _, since = await within_lease_async(1, take, lambda: locks[-1].extend(), after_s=0.2)
    await lease_ends_async(attempt(manager(retry_count=1), name), since, 1)


async def test_late_release(manager, name):
    """Aioredlock: release and extension after the lease are refused"""
    from aioredlock import LockError

    first, second = manager(retry_count=1), manager(retry_count=1)
    _, late = await taken(first, name, 0.5)
    async with asyncio.timeout(MAX_WAIT_S):
        while not await attempt(second, name)():
            await asyncio.sleep(0.02)
    with pytest.raises(LockError):
        await first.extend(late)
    with pytest.raises(LockError):
        await first.unlock(late)
    assert await second.is_locked(name)


async def test_scripts_forgotten(manager, name, client):
    """Aioredlock: released even when the server forgot its scripts meanwhile"""
    only = manager([servers.MAIN])
    lock = await only.lock(name, lock_timeout=30)
    client.script_flush()
    await only.unlock(lock)
    assert not await only.is_locked(name)


async def test_minority_killed(manager, name):
    """Aioredlock: with a minority of the servers killed it is still taken and excludes"""
    first = manager(servers.AIOREDLOCK_KILLED)
    lock = await first.lock(name, lock_timeout=30)
    servers.kill(servers.AIOREDLOCK_KILLED[0])
    assert not await attempt(manager(servers.AIOREDLOCK_KILLED, retry_count=1), name)()
    await first.unlock(lock)
    assert await attempt(manager(servers.AIOREDLOCK_KILLED), name)()
