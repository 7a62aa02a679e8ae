"""celery-singleton with a real worker; the broker and the results are on the same server."""

import os
import subprocess
import sys
import threading
import uuid

import pytest

from contention import MAX_WAIT_S, aside, eventually, lease_ends, within_lease

LIBRARY = ("celery-singleton", "celery-singleton")


@pytest.fixture(scope="module")
def tasks():
    """The tasks of an application of this module's own."""
    os.environ["CELERY_NAMESPACE"] = "singleton-" + uuid.uuid4().hex[:8]
    import celery_app

    return celery_app


@pytest.fixture(scope="module")
def worker(tasks):
    """A worker process with several threads."""
    command = [sys.executable, "-m", "celery", "--app", "celery_app", "--quiet", "worker"]
    options = ["--pool", "threads", "--concurrency", "4", "--loglevel", "ERROR"]
    worker = subprocess.Popen(command + options, stderr=subprocess.DEVNULL)
    eventually(lambda: tasks.app.control.ping(timeout=2, limit=1))
    yield worker
    worker.kill()
    worker.wait()


def runs(client, tasks, which):
    return client.llen(f"{tasks.NAMESPACE}:runs:{which}")


def test_duplicates(client, tasks, worker, name):
    """Singleton: of many calls while one is queued or runs, one is run, and all get its result"""
    results = [tasks.until_stopped.delay(name) for _ in range(10)]
    tasks.stop(name)
    assert {result.id for result in results} == {results[0].id}
    assert [result.get(timeout=MAX_WAIT_S) for result in results] == [name] * 10
    assert runs(client, tasks, name) == 1


def test_concurrent_callers(client, tasks, worker, name):
    """Singleton: of calls made at the same moment on many threads one is run"""
    barrier, results = threading.Barrier(8), []

    def call():
        barrier.wait()
        results.append(tasks.until_stopped.delay(name))

    for caller in [aside(call) for _ in range(8)]:
        caller.join(MAX_WAIT_S)
    tasks.stop(name)
    assert len({result.id for result in results}) == 1
    assert results[0].get(timeout=MAX_WAIT_S) == name
    assert runs(client, tasks, name) == 1


def test_again(client, tasks, worker, name):
    """Singleton: the lock is free when the task has run, so it can run again"""
    first = tasks.once.delay(name, 0)
    first.get(timeout=MAX_WAIT_S)
    eventually(lambda: tasks.once.delay(name, 0).id != first.id)
    eventually(lambda: runs(client, tasks, name) == 2)


def test_arguments(client, tasks, worker, name):
    """Singleton: other arguments are another lock"""
    first, second = tasks.once.delay(name, 0.2), tasks.once.delay(name + "-other", 0.2)
    assert first.id != second.id
    assert first.get(timeout=MAX_WAIT_S) == name
    assert second.get(timeout=MAX_WAIT_S) == name + "-other"


def test_failure(client, tasks, worker, name):
    """Singleton: the lock is free when the task has failed"""
    first = tasks.fails.delay(name)
    with pytest.raises(ValueError):
        first.get(timeout=MAX_WAIT_S)
    eventually(lambda: tasks.fails.delay(name).id != first.id)
    eventually(lambda: runs(client, tasks, name) == 2)


def test_unique_on(tasks, name):
    """Singleton: unique_on names the arguments that count, a duplicate raises if configured"""
    from celery_singleton import DuplicateTaskError

    lock = tasks.by_name.generate_lock(tasks.by_name.name, [name, 1])
    assert tasks.by_name.aquire_lock(lock, "another")
    with pytest.raises(DuplicateTaskError) as duplicate:
        tasks.by_name.delay(name, 2)
    assert duplicate.value.task_id == "another"


def test_lease(tasks, name):
    """Singleton: the lock of a task that never ended is refused before its expiry, granted after"""
    lock = tasks.leased.generate_lock(tasks.leased.name, [name, 60])
    since, _ = within_lease(
        1,
        lambda: tasks.leased.aquire_lock(lock, "first"),
        lambda: tasks.leased.get_existing_task_id(lock) == "first",
    )
    lease_ends(lambda: tasks.leased.aquire_lock(lock, "second"), since, 1)
    assert tasks.leased.get_existing_task_id(lock) == "second"


def test_clear_locks(client, tasks, name):
    """clear_locks: every lock is free, nothing else is touched (SCAN MATCH)"""
    from celery_singleton import clear_locks

    client.set(name, "stays")
    locks = [tasks.once.generate_lock(tasks.once.name, [name, number]) for number in range(50)]
    assert all(tasks.once.aquire_lock(lock, "another") for lock in locks)
    clear_locks(tasks.app)
    assert not any(tasks.once.get_existing_task_id(lock) for lock in locks)
    assert client.get(name) == b"stays"
