"""Common mistakes in lock recipes. Each has two tests under the same fault: one of the mistake,
made visible with the clock and fault rules, and one of its correction.

The tests of every package contain the same recipes under the same names.
"""

from datetime import timedelta

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from waiting import LIMIT_S, until

pytestmark = pytest.mark.lockwheel(frozen=True)

YEAR = timedelta(days=365)

#: The lease of `take`.
LEASE_S = 10
LEASE = timedelta(seconds=LEASE_S)

COMPARE_AND_DELETE = """
if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end
return 0
"""

COMPARE_AND_RENEW = """
if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) end
return 0
"""

# The scripts of Redisson 3.15.4.
REENTRANT_LOCK = """
if (redis.call('exists', KEYS[1]) == 0) then
    redis.call('hincrby', KEYS[1], ARGV[2], 1);
    redis.call('pexpire', KEYS[1], ARGV[1]);
    return nil;
end;
if (redis.call('hexists', KEYS[1], ARGV[2]) == 1) then
    redis.call('hincrby', KEYS[1], ARGV[2], 1);
    redis.call('pexpire', KEYS[1], ARGV[1]);
    return nil;
end;
return redis.call('pttl', KEYS[1]);
"""
REENTRANT_UNLOCK = """
if (redis.call('hexists', KEYS[1], ARGV[3]) == 0) then
    return nil;
end;
local counter = redis.call('hincrby', KEYS[1], ARGV[3], -1);
if (counter > 0) then
    redis.call('pexpire', KEYS[1], ARGV[2]);
    return 0;
else
    redis.call('del', KEYS[1]);
    redis.call('publish', KEYS[2], ARGV[1]);
    return 1;
end;
return nil;
"""


def take(client, token):
    """Acquires the lock for ten seconds. Returns whether it was granted."""
    return bool(client.set("lock", token, nx=True, ex=LEASE_S))


def release(client, token):
    """Releases the lock if it is held by `token`. Returns whether it was."""
    return client.eval(COMPARE_AND_DELETE, 1, "lock", token) == 1


def renew(client, token):
    """Renews the lock for ten seconds if it is held by `token`. Returns whether it was."""
    return client.eval(COMPARE_AND_RENEW, 1, "lock", token, LEASE_S * 1000) == 1


def mistakes(server):
    """The rules that `LOCKWHEEL LINT` found broken."""
    return {finding["rule"] for finding in server.journal.lint()}


def test_setnx_without_a_lease(lockwheel, connect):
    a, b = connect(), connect()
    assert a.setnx("lock", "a")
    a.close()  # It dies.
    lockwheel.clock.advance(YEAR)
    assert not b.setnx("lock", "b")
    with pytest.raises(AssertionError, match="has no lease"):
        lockwheel.journal.assert_every_lock_has_a_lease()
    assert mistakes(lockwheel) == {"lock-without-lease"}


def test_setnx_without_a_lease_corrected(lockwheel, connect):
    a, b = connect(), connect()
    assert take(a, "a")
    a.close()
    lockwheel.clock.advance(LEASE)
    assert take(b, "b")
    lockwheel.journal.assert_every_lock_has_a_lease()


def test_setnx_then_expire(lockwheel, connect):
    lockwheel.faults.add("close", command="expire")
    a, b = connect(), connect()
    assert a.setnx("lock", "a")
    with pytest.raises(redis.ConnectionError):
        a.expire("lock", LEASE_S)
    lockwheel.clock.advance(YEAR)
    assert not b.setnx("lock", "b")
    with pytest.raises(AssertionError, match="has no lease"):
        lockwheel.journal.assert_every_lock_has_a_lease()


def test_setnx_then_expire_corrected(lockwheel, connect):
    lockwheel.faults.add("lose-and-close", command="set", nth=1)
    a, b = connect(), connect()
    with pytest.raises(redis.ConnectionError):
        take(a, "a")
    assert not take(b, "b"), "a has it, and does not know"
    lockwheel.clock.advance(LEASE)
    assert take(b, "b")
    lockwheel.journal.assert_every_lock_has_a_lease()


def test_release_without_a_check(lockwheel, connect):
    a, b, c = connect(), connect(), connect()
    assert take(a, "OK")
    lockwheel.clock.advance(LEASE)  # It still works ...
    assert take(b, "OK")
    a.delete("lock")  # ... and is done.
    assert take(c, "OK"), "b and c are inside"
    with pytest.raises(AssertionError, match="was released by client"):
        lockwheel.journal.assert_released_only_by_owner()
    assert "delete-without-check" in mistakes(lockwheel)


def test_release_without_a_check_corrected(lockwheel, connect):
    a, b, c = connect(), connect(), connect()
    assert take(a, "a")
    lockwheel.clock.advance(LEASE)
    assert take(b, "b")
    assert not release(a, "a")
    assert not take(c, "c")
    assert release(b, "b")
    lockwheel.journal.assert_released_only_by_owner()
    lockwheel.journal.assert_no_lock_held()


def while_it_is_released(server, connect, aside, last_command, release):
    """A holds the lock and releases it. Before the last command of that its lease ends, and B takes
    the lock. Returns the result of A's release, and the owner of the lock after it."""
    a, b = connect(), connect()
    assert take(a, "a")
    with server.faults.gate(command=last_command) as gate:
        releases = aside(release, a)
        gate.wait()
        server.clock.advance(LEASE)
        assert take(b, "b")
    return releases.result(), b.get("lock")


def test_check_then_delete(lockwheel, connect, aside):
    def release_in_two_steps(client):
        return client.get("lock") == "a" and client.delete("lock")

    done = while_it_is_released(lockwheel, connect, aside, "del", release_in_two_steps)
    assert done == (1, None), "b works, and holds nothing"
    assert "compare-and-delete-in-two-steps" in mistakes(lockwheel)


def test_check_then_delete_corrected(lockwheel, connect, aside):
    def release_by_script(client):
        return release(client, "a")

    done = while_it_is_released(lockwheel, connect, aside, "eval", release_by_script)
    assert done == (False, "b")
    lockwheel.journal.assert_released_only_by_owner()


def test_check_then_delete_corrected_by_a_transaction(lockwheel, connect, aside):
    def release_by_transaction(client):
        with client.pipeline() as pipeline:
            pipeline.watch("lock")
            assert pipeline.get("lock") == "a"
            pipeline.multi()
            pipeline.delete("lock")
            try:
                return pipeline.execute()
            except redis.WatchError:
                return "lost"

    done = while_it_is_released(lockwheel, connect, aside, "exec", release_by_transaction)
    assert done == ("lost", "b")
    lockwheel.journal.assert_released_only_by_owner()


def test_work_longer_than_the_lease(lockwheel, connect):
    a, b = connect(), connect()
    inside = set()
    if take(a, "a"):
        inside.add("a")
    lockwheel.clock.advance(LEASE)
    if take(b, "b"):
        inside.add("b")
    assert inside == {"a", "b"}
    lockwheel.clock.advance("5s")
    assert not release(a, "a"), "after fifteen seconds the release is refused"
    with pytest.raises(AssertionError, match="never-two-holders"):
        lockwheel.journal.assert_never_two_holders()
    assert "lease-shorter-than-hold" in mistakes(lockwheel)


def test_work_longer_than_the_lease_corrected(lockwheel, connect):
    a, b = connect(), connect()
    assert take(a, "a")
    for _ in range(5):
        lockwheel.clock.advance(f"{LEASE_S * 1000 // 3}ms")
        assert renew(a, "a")
        assert not take(b, "b")
    assert release(a, "a")
    assert take(b, "b")
    assert not mistakes(lockwheel)
    lockwheel.journal.assert_never_two_holders()


def test_renewal_without_a_check(lockwheel, connect):
    a, b, c = connect(), connect(), connect()
    assert take(a, "a")
    lockwheel.clock.advance(LEASE)
    assert take(b, "b")
    b.close()  # Simulates a crash. No client should wait for longer than the lease.
    lockwheel.clock.advance(LEASE - timedelta(seconds=1))
    assert a.get("lock") is not None, "there is a lock ..."
    assert a.expire("lock", LEASE_S), "... so it is renewed"
    lockwheel.clock.advance("1s")
    assert not take(c, "c")
    assert "renewal-after-loss" in mistakes(lockwheel)


def test_renewal_without_a_check_corrected(lockwheel, connect):
    a, b, c = connect(), connect(), connect()
    assert take(a, "a")
    lockwheel.clock.advance(LEASE)
    assert take(b, "b")
    b.close()
    lockwheel.clock.advance(LEASE - timedelta(seconds=1))
    assert not renew(a, "a"), "and so it learns that it must stop"
    lockwheel.clock.advance("1s")
    assert take(c, "c")


def test_not_reentrant(lockwheel, connect):
    a = connect()
    assert take(a, "a")
    assert not take(a, "a"), "it waits for itself ..."
    lockwheel.clock.advance(LEASE)
    assert take(a, "a"), "... until it has lost what it waited for"


def test_not_reentrant_corrected(lockwheel, connect):
    a, b = connect(), connect()

    def lock(client, owner):
        return client.eval(REENTRANT_LOCK, 1, "lock", LEASE_S * 1000, owner)

    def unlock(client, owner):
        return client.eval(REENTRANT_UNLOCK, 2, "lock", "released", 0, LEASE_S * 1000, owner)

    assert lock(a, "a:1") is None
    assert lock(a, "a:1") is None
    assert a.hget("lock", "a:1") == "2"
    assert unlock(a, "a:1") == 0
    assert a.hget("lock", "a:1") == "1", "still inside"
    assert lock(b, "b:1") == LEASE_S * 1000
    assert unlock(a, "a:1") == 1
    assert lock(b, "b:1") is None
    lockwheel.journal.assert_never_two_holders()


def next_message(subscription):
    """The type of the next message for a subscriber, waiting for it."""
    return subscription.get_message(timeout=LIMIT_S)["type"]


def test_waiting_for_the_release_message_alone(lockwheel, connect):
    a, b = connect(), connect()
    assert take(a, "a")
    assert not take(b, "b")
    with b.pubsub() as released:
        released.subscribe("released")
        assert next_message(released) == "subscribe"
        a.close()  # A crashed holder does not publish.
        lockwheel.clock.advance(YEAR)
        assert not b.exists("lock")
        released.unsubscribe()
        assert next_message(released) == "unsubscribe", "nothing before it: the lock is free, b waits"


def test_waiting_for_the_release_message_alone_corrected(lockwheel, connect):
    a, b = connect(), connect()
    b.config_set("notify-keyspace-events", "Ex")
    assert take(a, "a")
    assert not take(b, "b")
    # It waits for a message, but for no longer than the lease, or for the end of the lease too.
    remaining_ms = b.pttl("lock")
    with b.pubsub() as released:
        released.subscribe("released", "__keyevent@0__:expired")
        assert [next_message(released), next_message(released)] == ["subscribe", "subscribe"]
        a.close()
        lockwheel.clock.advance(f"{remaining_ms}ms")
        assert next_message(released) == "message"
    assert take(b, "b")


def test_lost_reply(lockwheel, connect):
    lockwheel.faults.add("lose-and-close", command="set", nth=1)
    # redis-py sends again what it has no answer to, as it does by default.
    a = connect(retry=Retry(NoBackoff(), 3))
    for attempt in range(4):
        assert not take(a, f"a{attempt}"), "its own lock keeps it out"
        lockwheel.clock.advance("2s")
    lockwheel.clock.advance("2s")
    assert take(a, "a4")


def test_lost_reply_corrected(lockwheel, connect):
    lockwheel.faults.add("lose-and-close", command="set", nth=1)
    a = connect(retry=Retry(NoBackoff(), 3))
    # A refused client checks whether the lock is its own.
    assert take(a, "a") or a.get("lock") == "a"
    assert renew(a, "a"), "from now on for the whole lease"
    assert release(a, "a")
    lockwheel.journal.assert_no_lock_held()


def test_failover_loses_the_lock(lockwheel, connect):
    assert take(connect(), "a")
    assert lockwheel.faults.failover(lose=1) == 1
    assert take(connect(), "b"), "both are inside"


class Majority:
    """Three independent servers; a lock is held on most of them."""

    def __init__(self, factory, connect):
        self.servers = [factory() for _ in range(3)]
        self.clients = [connect(server) for server in self.servers]

    def take(self, token):
        """The number of servers that confirmed the lock of `token`."""
        taken = 0
        for client in self.clients:
            try:
                taken += take(client, token)
            except redis.ConnectionError:
                pass
        return taken

    def release(self, token):
        """Releases the lock on all servers, also on those that did not reply."""
        for client in self.clients:
            release(client, token)

    def advance(self, span):
        # The last first: a client that uses the servers in order finds the same time everywhere.
        for server in reversed(self.servers):
            server.clock.advance(span)

    def now_ms(self):
        return self.servers[0].clock.now().now_ms


@pytest.fixture
def majority(lockwheel_factory, connect):
    return Majority(lockwheel_factory, connect)


def test_failover_loses_the_lock_corrected(majority):
    assert majority.take("a") == 3
    majority.servers[1].faults.failover(lose=1)
    assert majority.take("b") == 1, "and one of three is not most of them"


def take_slowly(majority, aside, token):
    """Takes the lock while each server needs four seconds for it. Returns on how many, and how many
    milliseconds it took."""
    begin_ms = majority.now_ms()
    slow = [server.faults.add("delay", "4s", command="set", nth=1) for server in majority.servers]
    takes = aside(majority.take, token)
    for rule in slow:
        until(lambda rule=rule: rule.fired)
        majority.advance("4s")
    return takes.result(), majority.now_ms() - begin_ms


def test_slow_majority(majority, aside):
    taken, _ = take_slowly(majority, aside, "a")
    assert taken == 3, "so it believes that it holds the lock, for ten seconds"
    majority.advance("6s")
    assert majority.take("b") == 2, "b holds it as well"


def test_slow_majority_corrected(majority, aside):
    taken, elapsed_ms = take_slowly(majority, aside, "a")
    assert taken == 3
    assert LEASE_S * 1000 - elapsed_ms <= 0, "there is nothing left of the lease"
    majority.release("a")
    assert majority.take("b") == 3


def take_unknowingly(majority, token):
    """Takes the lock on one of three; the others take it as well, and their answers are lost."""
    for server in majority.servers[1:]:
        server.faults.add("lose-and-close", command="set", nth=1)
    assert majority.take(token) == 1, "it gives up"


def test_leftovers_of_a_failed_majority(majority):
    take_unknowingly(majority, "a")
    assert release(majority.clients[0], "a"), "where it knows that it has it"
    assert majority.take("b") == 1, "no client holds the lock, and none can take it"
    with pytest.raises(AssertionError, match="holds the lock"):
        majority.servers[1].journal.assert_no_lock_held()


def test_leftovers_of_a_failed_majority_corrected(majority):
    take_unknowingly(majority, "a")
    majority.release("a")
    for server in majority.servers:
        server.journal.assert_no_lock_held()
    assert majority.take("b") == 3
