"""pottery: Redlock and NextID over several servers, some of which are killed."""

import asyncio
import contextlib
import threading
import time

import pytest
import redis
from pottery import (
    AIONextID,
    AIORedlock,
    ExtendUnlockedLock,
    NextID,
    QuorumIsImpossible,
    QuorumNotAchieved,
    Redlock,
    ReleaseUnlockedLock,
    TooManyExtensions,
    synchronize,
)
from redis import asyncio as redis_asyncio

import servers
from contention import (
    MAX_WAIT_S,
    ROUNDS,
    Section,
    aside,
    contend,
    contend_async,
    eventually,
    lease_ends,
    lease_ends_async,
    within_lease,
)

LIBRARY = ("pottery", "pottery")


@contextlib.contextmanager
def masters_of(urls):
    """A client of each server. None retries: a killed server stays dead."""
    clients = frozenset(redis.Redis.from_url(url, retry=None, socket_timeout=5) for url in urls)
    yield clients
    for client in clients:
        client.close()


@pytest.fixture
def masters():
    with masters_of(servers.POTTERY) as masters:
        yield masters


@pytest.fixture
async def async_masters():
    clients = frozenset(redis_asyncio.Redis.from_url(url) for url in servers.POTTERY)
    yield clients
    for client in clients:
        await client.aclose()


def lock(name, masters, lease_s=30, **options):
    return Redlock(key=name, masters=masters, auto_release_time=lease_s, **options)


def test_acquire_release(name, masters):
    """Redlock: acquired on a majority, seen as locked, released, free"""
    first = lock(name, masters)
    assert first.acquire(blocking=False)
    assert 0 < first.locked() <= 30
    eventually(lambda: all(master.exists(first.key) for master in masters))
    second = lock(name, masters)
    assert not second.acquire(blocking=False)
    assert not second.locked()
    first.release()
    assert not first.locked()
    eventually(lambda: not any(master.exists(first.key) for master in masters))
    assert second.acquire(blocking=False)


def test_mutual_exclusion(name, masters):
    """Redlock: one of many gets in"""

    def work(section):
        mine = lock(name, masters)
        for _ in range(ROUNDS):
            assert mine.acquire(timeout=4 * MAX_WAIT_S)
            section.visit()
            mine.release()

    section, _ = contend(work, workers=3)
    assert section.count == 3 * ROUNDS


def test_synchronize(name, masters):
    """synchronize: one call of many runs at a time"""
    section = Section()

    @synchronize(key=name, masters=masters, auto_release_time=30)
    def visit():
        section.visit()

    contend(lambda _section: visit(), workers=4)
    assert section.count == 4


def test_lease(name, masters):
    """Redlock: refused before the end of the lease, granted after it"""
    since = time.monotonic()
    assert lock(name, masters, lease_s=0.5).acquire()
    lease_ends(lambda: lock(name, masters).acquire(blocking=False), since, 0.5)


def test_minority_does_not_count(name, masters):
    """Redlock: a key on a minority of servers holds nothing up, one on a majority does"""
    held = sorted(masters, key=repr)
    for master in held[:2]:
        master.set(f"redlock:{name}", "another", px=30_000)
    first = lock(name, masters)
    assert first.acquire(blocking=False)
    first.release()
    eventually(lambda: not held[4].exists(first.key))
    held[2].set(f"redlock:{name}", "another", px=30_000)
    assert not first.acquire(blocking=False)
    eventually(lambda: not any(master.exists(first.key) for master in held[3:]))


def test_release_by_another_client(name, masters):
    """Redlock: release by another client or after the lease is refused"""
    late = lock(name, masters)
    assert late.acquire()
    with pytest.raises(ReleaseUnlockedLock):
        lock(name, masters).release()
    assert late.locked()
    for master in masters:
        eventually(lambda master=master: master.pexpire(late.key, 50))
    second = lock(name, masters)
    assert second.acquire(timeout=MAX_WAIT_S)
    with pytest.raises(ReleaseUnlockedLock):
        late.release()
    with pytest.raises(ExtendUnlockedLock):
        late.extend()
    assert second.locked()


def test_extend(name, masters):
    """Redlock: an extended lease holds beyond its first end, and only so often"""
    first = lock(name, masters, lease_s=1, num_extensions=1)
    _, since = within_lease(1, first.acquire, first.extend, after_s=0.2)
    with pytest.raises(TooManyExtensions):
        first.extend()
    lease_ends(lambda: lock(name, masters).acquire(blocking=False), since, 1)


def test_waiter(name, masters):
    """Redlock: a waiter gets it when it is released, not before"""
    first = lock(name, masters)
    assert first.acquire()
    got = threading.Event()

    def wait():
        assert lock(name, masters).acquire(timeout=MAX_WAIT_S)
        got.set()

    waiter = aside(wait)
    assert not got.wait(0.5)
    first.release()
    waiter.join(MAX_WAIT_S)
    assert got.is_set()


def test_minority_killed(name):
    """Redlock: with a minority of the servers killed it is still taken, excludes and is released"""
    with masters_of(servers.POTTERY_KILLED) as masters:
        first = lock(name, masters)
        assert first.acquire(blocking=False)
        servers.kill(servers.POTTERY_KILLED[0])
        assert first.locked()
        first.extend()
        assert not lock(name, masters).acquire(blocking=False)
        first.release()

        def work(section):
            mine = lock(name, masters)
            for _ in range(2):
                assert mine.acquire(timeout=4 * MAX_WAIT_S)
                section.visit()
                mine.release()

        section, _ = contend(work, workers=3)
        assert section.count == 6


def test_majority_killed(name):
    """Redlock: with a majority of the servers killed no client gets it"""
    with masters_of(servers.POTTERY_LOST) as masters:
        first = lock(name, masters)
        assert first.acquire(blocking=False)
        for url in servers.POTTERY_LOST[:2]:
            servers.kill(url)
        assert not first.locked()
        assert not lock(name + "-free", masters).acquire(blocking=False)
        with pytest.raises(QuorumIsImpossible):
            lock(name, masters, raise_on_redis_errors=True).acquire(blocking=False)


def test_next_id(name, masters):
    """NextID: no number is given twice, and each worker's rise"""

    def work(_section):
        ids = NextID(key=name, masters=masters, num_tries=100)
        return [next(ids) for _ in range(ROUNDS)]

    _, given = contend(work, workers=4)
    assert all(numbers == sorted(numbers) for numbers in given)
    everything = sum(given, [])
    assert len(set(everything)) == len(everything) == 4 * ROUNDS


def test_next_id_minority_killed(name):
    """NextID: goes on rising when a minority of the servers is killed, stops without a majority"""
    with masters_of(servers.NEXT_ID_KILLED) as masters:
        ids = NextID(key=name, masters=masters)
        before = [next(ids) for _ in range(5)]
        servers.kill(servers.NEXT_ID_KILLED[0])
        after = [next(ids) for _ in range(5)]
        assert before + after == sorted(set(before + after))
        servers.kill(servers.NEXT_ID_KILLED[1])
        with pytest.raises(QuorumNotAchieved):
            next(ids)


async def test_async_mutual_exclusion(name, async_masters):
    """AIORedlock: one of many tasks gets in"""

    async def work(section):
        mine = AIORedlock(key=name, masters=async_masters, auto_release_time=30)
        for _ in range(2):
            assert await mine.acquire(timeout=4 * MAX_WAIT_S)
            await section.visit_async()
            await mine.release()

    section = await contend_async(work, workers=3)
    assert section.count == 6


async def test_async_lease(name, async_masters):
    """AIORedlock: refused before the end of the lease, granted after it"""
    since = time.monotonic()
    assert await AIORedlock(key=name, masters=async_masters, auto_release_time=0.5).acquire()
    second = AIORedlock(key=name, masters=async_masters, auto_release_time=30)
    await lease_ends_async(lambda: second.acquire(blocking=False), since, 0.5)


async def test_async_next_id(name, async_masters):
    """AIONextID: no number is given twice"""

    async def work(_section):
        ids = AIONextID(key=name, masters=async_masters, num_tries=100)
        return [await anext(ids) for _ in range(ROUNDS)]

    given = await asyncio.gather(*(work(None) for _ in range(4)))
    everything = sum(given, [])
    assert len(set(everything)) == len(everything) == 4 * ROUNDS
