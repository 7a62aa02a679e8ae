"""The README's statements on lock libraries: which of their timers use the server's clock, and
which use the clock of their own process."""

import asyncio
import json
from types import SimpleNamespace

import pytest
import redis_lock
from celery import Celery
from celery.beat import Service
from celery_singleton import Singleton
from pottery import Redlock
from redbeat.schedulers import RedBeatScheduler, acquire_distributed_beat_lock
from redis import asyncio as redis_asyncio
from redis.exceptions import LockNotOwnedError

from waiting import LIMIT_S, until

pytestmark = pytest.mark.lockwheel(frozen=True)


def refusals(server):
    """The number of refused attempts to take a lock."""
    return [entry["event"] for entry in server.journal.entries()].count("refused")


def is_refused_again(server):
    """Waits for the next refused attempt."""
    before = refusals(server)
    until(lambda: refusals(server) > before)


def test_redis_py_has_a_lease_of_the_server(lockwheel, connect):
    client = connect()
    late, next_one = client.lock("lock", timeout=30), client.lock("lock", timeout=30)
    assert late.acquire(blocking=False)
    assert late.extend(10)
    lockwheel.clock.advance("39s999ms")
    assert late.owned() and not next_one.acquire(blocking=False)
    lockwheel.clock.advance("1ms")
    assert not late.owned() and next_one.acquire(blocking=False)
    for call in (lambda: late.extend(30), late.reacquire, late.release):
        with pytest.raises(LockNotOwnedError):
            call()


def test_redis_py_waits_by_its_own_clock(lockwheel, connect, aside):
    holder = connect().lock("lock")
    assert holder.acquire()
    waits = aside(connect().lock("lock", sleep=0.001).acquire, blocking_timeout=LIMIT_S)
    is_refused_again(lockwheel)
    lockwheel.clock.advance("1d")
    is_refused_again(lockwheel)  # A day later its minute is not over.
    holder.release()
    assert waits.result()


def test_redis_py_gets_the_lock_when_the_lease_is_over(lockwheel, connect, aside):
    assert connect().lock("lock", timeout=30).acquire()
    waits = aside(connect().lock("lock", sleep=0.001).acquire, blocking_timeout=LIMIT_S)
    is_refused_again(lockwheel)
    lockwheel.clock.advance("30s")
    assert waits.result()


def test_redis_py_asyncio_waits_by_its_own_clock(lockwheel):
    async def scenario():
        async with redis_asyncio.Redis.from_url(lockwheel.url) as client:
            holder = client.lock("lock", timeout=30)
            assert await holder.acquire()
            waiter = client.lock("lock", sleep=0.001)
            waits = asyncio.create_task(waiter.acquire(blocking_timeout=LIMIT_S))
            while not refusals(lockwheel):
                await client.ping()
            lockwheel.clock.advance("29s999ms")
            assert await holder.owned() and not waits.done()
            lockwheel.clock.advance("1ms")
            assert await waits
            with pytest.raises(LockNotOwnedError):
                await holder.release()

    asyncio.run(scenario())


def test_python_redis_lock_waits_by_the_clock_of_the_server(lockwheel, connect, aside):
    assert redis_lock.Lock(connect(), "lock", expire=3600).acquire()
    waits = aside(redis_lock.Lock(connect(), "lock", expire=3600).acquire, timeout=1800)
    until(lambda: "blocked_clients:1" in lockwheel.call("INFO", "clients"))
    lockwheel.clock.advance("29m59s")
    assert not waits.done()
    lockwheel.clock.advance("1s")
    assert waits.result() is False


def test_python_redis_lock_gets_that_of_a_dead_holder_with_the_clock(lockwheel, connect, aside):
    assert redis_lock.Lock(connect(), "lock", expire=60).acquire()
    waits = aside(redis_lock.Lock(connect(), "lock", expire=60).acquire)
    until(lambda: "blocked_clients:1" in lockwheel.call("INFO", "clients"))
    lockwheel.clock.advance("60s")
    assert waits.result()


def test_python_redis_lock_renews_by_its_own_clock(lockwheel, connect):
    renewed = redis_lock.Lock(connect(), "lock", expire=3600, auto_renewal=True)
    assert renewed.acquire()
    lockwheel.clock.advance("1h")  # Its thread would have renewed it after forty minutes.
    assert redis_lock.Lock(connect(), "lock").acquire(blocking=False)
    with pytest.raises(redis_lock.NotAcquired):
        renewed.release()


def test_python_redis_lock_renews_by_extend(lockwheel, connect):
    lock = redis_lock.Lock(connect(), "lock", expire=60, auto_renewal=True)
    assert lock.acquire()
    for _ in range(3):
        lockwheel.clock.advance("40s")
        lock.extend()
    assert not redis_lock.Lock(connect(), "lock").acquire(blocking=False)
    lock.release()


def test_pottery_has_leases_of_the_servers(lockwheel_factory, connect):
    servers = [lockwheel_factory() for _ in range(3)]
    masters = {connect(server) for server in servers}
    first = Redlock(key="printer", masters=masters, auto_release_time=10)
    second = Redlock(key="printer", masters=masters, auto_release_time=10)
    assert first.acquire(blocking=False)
    assert first.locked() and not second.acquire(blocking=False)
    for server in servers:
        server.clock.advance("10s")
    assert not first.locked()
    assert second.acquire(blocking=False)


def test_pottery_extends_by_the_clock_of_the_servers(lockwheel_factory, connect):
    server = lockwheel_factory()
    lock = Redlock(key="printer", masters={connect(server)}, auto_release_time=10)
    assert lock.acquire(blocking=False)
    for _ in range(3):
        server.clock.advance("9s")
        lock.extend()
        assert lock.locked()


def test_pottery_measures_by_its_own_clock_how_long_acquiring_took(
    lockwheel_factory, connect, aside
):
    server = lockwheel_factory()
    slow = server.faults.add("delay", "1h", command="set")
    lock = Redlock(key="printer", masters={connect(server)}, auto_release_time=LIMIT_S)
    acquired = aside(lock.acquire, blocking=False)
    until(lambda: slow.fired)
    server.clock.advance("1h")
    assert acquired.result(), "the lease of a minute counts as valid"


def test_pottery_waits_by_its_own_clock(lockwheel_factory, connect, aside):
    server = lockwheel_factory()
    first = Redlock(key="printer", masters={connect(server)}, auto_release_time=10 * 86_400)
    second = Redlock(key="printer", masters={connect(server)})
    assert first.acquire(blocking=False)
    waits = aside(second.acquire, timeout=LIMIT_S)
    is_refused_again(server)
    server.clock.advance("1d")
    is_refused_again(server)
    first.release()
    assert waits.result()


@pytest.fixture
def singleton(lockwheel, monkeypatch):
    """A task of celery-singleton, of which one may be queued or run, for an hour."""
    # The library keeps its first connection for as long as the process lives.
    monkeypatch.setattr("celery_singleton.backends._backend", None)
    app = Celery(broker=lockwheel.url, backend=lockwheel.url)

    @app.task(base=Singleton, lock_expiry=3600, shared=False)
    def invoice(number):
        return number

    yield invoice
    invoice.singleton_backend.redis.close()
    app.close()


def test_celery_singleton_has_an_expiry_of_the_server(lockwheel, singleton):
    first = singleton.delay(1)
    lockwheel.clock.advance("59m59s")
    assert singleton.delay(1).id == first.id
    lockwheel.clock.advance("1s")
    assert singleton.delay(1).id != first.id


def test_celery_singleton_frees_the_lock_of_another(lockwheel, singleton):
    assert singleton.delay(1)
    lockwheel.clock.advance("1h")
    assert singleton.delay(1)
    singleton.on_success(1, "the first, which took too long", [1], {})
    assert lockwheel.journal.locks() == []
    assert "delete-without-check" in [found["rule"] for found in lockwheel.journal.lint()]


@pytest.fixture
def beat(lockwheel):
    """Makes schedulers of RedBeat with a lease of a minute, which hold the lock."""

    def beat(**schedule):
        app = Celery(broker=lockwheel.url, set_as_current=False)
        app.conf.redbeat_redis_url = lockwheel.url
        app.conf.redbeat_lock_timeout = 60
        app.conf.beat_schedule = schedule
        app.conf.result_expires = None  # It would add a task of its own.
        service = Service(app, max_interval=0.001, scheduler_cls=RedBeatScheduler)
        return SimpleNamespace(service=service, scheduler=service.scheduler)

    return beat


def test_redbeat_renews_at_each_tick(lockwheel, beat):
    first = beat()
    acquire_distributed_beat_lock(sender=first)
    for _ in range(3):
        lockwheel.clock.advance("59s")
        first.scheduler.tick()
    lockwheel.journal.assert_every_lock_has_a_lease()
    assert len(lockwheel.journal.locks()) == 1


def test_redbeat_hands_over_with_the_clock(lockwheel, beat, aside):
    first, second = beat(), beat()
    acquire_distributed_beat_lock(sender=first)

    def take_over():
        acquire_distributed_beat_lock(sender=second)
        second.scheduler.tick()

    takes_over = aside(take_over)
    is_refused_again(lockwheel)
    lockwheel.clock.advance("60s")
    takes_over.result()
    with pytest.raises(LockNotOwnedError):
        first.scheduler.tick()


def test_redbeat_finds_tasks_due_by_its_own_clock(lockwheel, beat):
    always, hourly = {"task": "always", "schedule": 0.0}, {"task": "hourly", "schedule": 3600.0}
    scheduler = beat(always=always, hourly=hourly)
    for _ in range(4):
        acquire_distributed_beat_lock(sender=scheduler)
        scheduler.scheduler.tick()
        lockwheel.clock.advance("1h")
    sent = [
        json.loads(each)["headers"]["task"] for each in lockwheel.call("LRANGE", "celery", 0, -1)
    ]
    assert sent == ["always"] * 4
