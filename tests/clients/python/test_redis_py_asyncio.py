"""redis-py's asyncio `Lock`."""

import asyncio
import time

import pytest
from redis import asyncio as redis_asyncio
from redis.exceptions import LockError, LockNotOwnedError

import servers
from contention import (
    MAX_WAIT_S,
    ROUNDS,
    WORKERS,
    contend_async,
    lease_ends_async,
    within_lease_async,
)

LIBRARY = ("redis-py asyncio", "redis")


async def test_acquire_release(async_client, name):
    """Lock: acquired, seen as locked, released, free"""
    lock = async_client.lock(name, timeout=30)
    assert await lock.acquire(blocking=False)
    assert await lock.locked() and await lock.owned()
    assert not await async_client.lock(name).acquire(blocking=False)
    await lock.release()
    assert not await lock.locked()
    assert await async_client.lock(name).acquire(blocking=False)


@pytest.mark.parametrize("protocol", [2, 3])
async def test_mutual_exclusion(name, protocol):
    """Lock: one of many tasks gets in (RESP{protocol})"""

    async def work(section):
        async with redis_asyncio.Redis.from_url(servers.MAIN, protocol=protocol) as client:
            for _ in range(ROUNDS):
                async with client.lock(name, timeout=30, sleep=0.002):
                    await section.visit_async()

    section = await contend_async(work)
    assert section.count == WORKERS * ROUNDS


async def test_lease(async_client, name):
    """Lock: refused before the end of the lease, granted after it"""
    since = time.monotonic()
    assert await async_client.lock(name, timeout=0.3).acquire()
    await lease_ends_async(
        lambda: async_client.lock(name, timeout=30).acquire(blocking=False), since, 0.3
    )


async def test_waiter(async_client, name):
    """Lock: a waiting task gets it when it is released, not before"""
    lock = async_client.lock(name, timeout=30)
    assert await lock.acquire()
    second = async_client.lock(name, timeout=30, sleep=0.01)
    waiter = asyncio.create_task(second.acquire(blocking_timeout=MAX_WAIT_S))
    await asyncio.sleep(0.2)
    assert not waiter.done()
    await lock.release()
    assert await waiter
    assert await second.owned()


async def test_release_by_another_client(async_client, name):
    """Lock: release by another client or after the lease is refused"""
    late = async_client.lock(name, timeout=0.1)
    assert await late.acquire()
    with pytest.raises(LockError):
        await async_client.lock(name).release()
    second = async_client.lock(name, timeout=30)
    assert await second.acquire(blocking_timeout=MAX_WAIT_S)
    with pytest.raises(LockNotOwnedError):
        await late.release()
    assert await second.owned()


async def test_extend(async_client, name):
    """Lock: an extended lease holds beyond its first end"""
    lock = async_client.lock(name, timeout=1)
    since, _ = await within_lease_async(1, lock.acquire, lambda: lock.extend(0.5))
    await lease_ends_async(
        lambda: async_client.lock(name, timeout=30).acquire(blocking=False), since, 1.5
    )


async def test_late_extend(async_client, name):
    """Lock: a lost lock can be neither extended nor reacquired"""
    late = async_client.lock(name, timeout=0.1)
    assert await late.acquire()
    second = async_client.lock(name, timeout=30)
    assert await second.acquire(blocking_timeout=MAX_WAIT_S)
    with pytest.raises(LockNotOwnedError):
        await late.extend(60)
    with pytest.raises(LockNotOwnedError):
        await late.reacquire()


async def test_cancelled_waiter(async_client, name):
    """Lock: a cancelled waiter takes nothing, and the lock goes to the next"""
    lock = async_client.lock(name, timeout=30)
    assert await lock.acquire()
    async with redis_asyncio.Redis.from_url(servers.MAIN, client_name=name) as other:
        waiter = asyncio.create_task(other.lock(name, timeout=30, sleep=0.01).acquire())
        await asyncio.sleep(0.1)
        await cancelled(waiter)
    # What it had sent when it was cancelled is answered when its connections are gone.
    async with asyncio.timeout(MAX_WAIT_S):
        while any(each["name"] == name for each in await async_client.client_list()):
            await asyncio.sleep(0.01)
    await lock.release()
    assert await async_client.lock(name, timeout=30).acquire(blocking=False)


async def test_blpop_cancelled(async_client, name):
    """BLPOP: a cancelled waiter swallows no token"""
    waiter = asyncio.create_task(async_client.blpop(name, timeout=MAX_WAIT_S))
    await blocked(async_client, 1)
    await cancelled(waiter)
    await blocked(async_client, 0)
    await async_client.rpush(name, "token")
    assert (await async_client.blpop(name, timeout=MAX_WAIT_S))[1] == b"token"


async def cancelled(task):
    """Cancels a task. redis-py swallows a cancellation that meets it within some commands."""
    while not task.done():
        task.cancel()
        await asyncio.sleep(0.005)
    assert task.cancelled()


async def blocked(client, count):
    """Waits until so many connections of the server wait in a blocking command."""
    async with asyncio.timeout(MAX_WAIT_S):
        while (await client.info("clients"))["blocked_clients"] != count:
            await asyncio.sleep(0.01)
