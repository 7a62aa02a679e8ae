"""redis-py's own `Lock`."""

import threading
import time

import pytest
import redis
from redis.cluster import RedisCluster
from redis.exceptions import LockError, LockNotOwnedError
from redis.sentinel import Sentinel

import servers
from contention import MAX_WAIT_S, ROUNDS, WORKERS, aside, contend, lease_ends, within_lease

LIBRARY = ("redis-py", "redis")


def test_acquire_release(client, name):
    """Lock: acquired, seen as locked, released, free"""
    lock = client.lock(name, timeout=30)
    assert lock.acquire(blocking=False)
    assert lock.locked() and lock.owned()
    assert not client.lock(name).acquire(blocking=False)
    assert not client.lock(name).owned()
    lock.release()
    assert not lock.locked()
    assert client.lock(name).acquire(blocking=False)


@pytest.mark.parametrize("protocol", [2, 3])
def test_mutual_exclusion(name, protocol):
    """Lock: one of many gets in (RESP{protocol})"""

    def work(section):
        with redis.Redis.from_url(servers.MAIN, protocol=protocol) as client:
            for _ in range(ROUNDS):
                with client.lock(name, timeout=30, sleep=0.002):
                    section.visit()

    section, _ = contend(work)
    assert section.count == WORKERS * ROUNDS


def test_lease(client, name):
    """Lock: refused before the end of the lease, granted after it"""
    since = time.monotonic()
    assert client.lock(name, timeout=0.3).acquire()
    lease_ends(lambda: client.lock(name, timeout=30).acquire(blocking=False), since, 0.3)


def test_no_lease(client, name):
    """Lock: without a timeout it does not end"""
    assert client.lock(name).acquire()
    assert client.ttl(name) == -1


def test_waiter(client, name):
    """Lock: a waiter gets it when it is released, not before"""
    lock = client.lock(name, timeout=30)
    assert lock.acquire()
    got = threading.Event()

    def wait():
        assert client.lock(name, timeout=30, sleep=0.01).acquire(blocking_timeout=MAX_WAIT_S)
        got.set()

    waiter = aside(wait)
    assert not got.wait(0.2)
    lock.release()
    waiter.join(MAX_WAIT_S)
    assert got.is_set()


def test_blocking_timeout(client, name):
    """Lock: a waiter gives up after its blocking timeout, and holds nothing"""
    holder = client.lock(name, timeout=30)
    assert holder.acquire()
    waiter = client.lock(name, timeout=30, sleep=0.01)
    since = time.monotonic()
    assert not waiter.acquire(blocking_timeout=0.2)
    assert time.monotonic() - since < MAX_WAIT_S
    assert holder.owned()
    with pytest.raises(LockError):
        waiter.release()


def test_release_by_another_client(client, name):
    """Lock: release by another client or after the lease is refused"""
    late = client.lock(name, timeout=30)
    assert late.acquire()
    with pytest.raises(LockError):
        client.lock(name).release()
    assert late.owned()
    assert late.extend(0.05, replace_ttl=True)
    second = client.lock(name, timeout=30)
    assert second.acquire(blocking_timeout=MAX_WAIT_S)
    with pytest.raises(LockNotOwnedError):
        late.release()
    assert second.owned()


def test_token_of_another_thread(client, name):
    """Lock: another thread with the same object does not own it"""
    lock = client.lock(name, timeout=30)
    assert lock.acquire()
    seen = []

    def look():
        seen.append(lock.acquire(blocking=False))

    aside(look).join(MAX_WAIT_S)
    assert seen == [False]
    assert lock.owned()


def test_extend(client, name):
    """Lock: extend adds to the lease, and the lock holds so long"""
    lock = client.lock(name, timeout=1)
    since, _ = within_lease(1, lock.acquire, lambda: lock.extend(0.5))
    lease_ends(lambda: client.lock(name, timeout=30).acquire(blocking=False), since, 1.5)


def test_extend_replaces(client, name):
    """Lock: extend with replace_ttl sets the lease anew"""
    lock = client.lock(name, timeout=30)
    assert lock.acquire()
    since = time.monotonic()
    assert lock.extend(0.4, replace_ttl=True)
    lease_ends(lambda: client.lock(name, timeout=30).acquire(blocking=False), since, 0.4)


def test_reacquire(client, name):
    """Lock: reacquire starts the lease again"""
    lock = client.lock(name, timeout=1)
    _, since = within_lease(1, lock.acquire, lock.reacquire, after_s=0.2)
    lease_ends(lambda: client.lock(name, timeout=30).acquire(blocking=False), since, 1)


def test_late_extend(client, name):
    """Lock: a lost lock can be neither extended nor reacquired"""
    late = client.lock(name, timeout=0.1)
    assert late.acquire()
    second = client.lock(name, timeout=30)
    assert second.acquire(blocking_timeout=MAX_WAIT_S)
    with pytest.raises(LockNotOwnedError):
        late.extend(60)
    with pytest.raises(LockNotOwnedError):
        late.reacquire()
    assert client.pttl(name) <= 30_000


def test_scripts_forgotten(client, name):
    """Lock: released even when the server forgot its scripts meanwhile"""
    lock = client.lock(name, timeout=30)
    assert lock.acquire()
    client.script_flush()
    assert lock.extend(1)
    client.script_flush()
    lock.release()
    assert not lock.locked()


def test_user_that_may_only_lock(client, name):
    """Lock: a user whose rules permit nothing but its locks"""
    prefix, user = f"lock:{name}", f"user-{name}"
    has_category = "lock" in client.acl_cat()
    commands = ["+@lock"] if has_category else ["+set", "+get", "+del", "+pexpire", "+pttl"]
    needs = ["+evalsha", "+script|load"]
    rules = ["on", ">secret", f"~{prefix}:*", "-@all", *commands, *needs]
    client.execute_command("ACL", "SETUSER", user, *rules)
    try:
        login = {"username": user, "password": "secret"}
        with redis.Redis.from_url(servers.MAIN, **login) as restricted:
            lock = restricted.lock(f"{prefix}:1", timeout=30)
            assert lock.acquire(blocking=False)
            assert lock.locked() and lock.owned()
            assert lock.extend(10) and lock.reacquire()
            assert not client.lock(f"{prefix}:1").acquire(blocking=False)
            lock.release()
            assert not lock.locked()
            with pytest.raises(redis.exceptions.NoPermissionError):
                restricted.lock(f"other:{name}", timeout=30).acquire(blocking=False)
            for command in (["KEYS", "*"], ["FLUSHALL"], ["CONFIG", "GET", "*"]):
                with pytest.raises(redis.exceptions.NoPermissionError):
                    restricted.execute_command(*command)
            # Its scripts reach no other key either.
            script = "return redis.call('get', ARGV[1])"
            with pytest.raises(redis.exceptions.ResponseError, match="(?i)permission|can't access"):
                restricted.register_script(script)(args=[name])
    finally:
        assert client.acl_deluser(user) == 1


def test_cluster(name):
    """Lock on a cluster client: one of many gets in"""
    if servers.CLUSTER is None:
        pytest.skip("no cluster given")

    with RedisCluster.from_url(servers.CLUSTER) as cluster:

        def work(section):
            for _ in range(ROUNDS):
                with cluster.lock(name, timeout=30, sleep=0.002):
                    section.visit()

        section, _ = contend(work)
        assert section.count == WORKERS * ROUNDS


def test_sentinel(name):
    """Lock on the master that a sentinel names: one of many gets in"""
    if servers.SENTINEL is None:
        pytest.skip("no sentinel given")
    sentinel = Sentinel([servers.host_and_port(servers.SENTINEL)])
    with sentinel.master_for(servers.SENTINEL_MASTER) as master:

        def work(section):
            for _ in range(ROUNDS):
                with master.lock(name, timeout=30, sleep=0.002):
                    section.visit()

        section, _ = contend(work)
        assert section.count == WORKERS * ROUNDS
