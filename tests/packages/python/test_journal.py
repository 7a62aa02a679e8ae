"""The journal of a server and its assertions."""

import pytest

import lockwheel as package

COMPARE_AND_DELETE = """
if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end
return 0
"""


def test_correct_recipe_passes_all_checks(lockwheel, connect):
    client = connect()
    assert client.set("lock", "token", nx=True, px=30_000)
    assert client.eval(COMPARE_AND_DELETE, 1, "lock", "token") == 1
    lockwheel.journal.assert_no_lock_held()
    lockwheel.journal.assert_never_two_holders()
    lockwheel.journal.assert_every_lock_has_a_lease()
    lockwheel.journal.assert_released_only_by_owner()
    assert lockwheel.journal.lint() == []


def failure(assertion):
    with pytest.raises(AssertionError) as failed:
        assertion()
    return str(failed.value)


@pytest.mark.lockwheel(frozen=True)
def test_failed_check_shows_the_entries(lockwheel, connect):
    owner, other = connect(protocol=2), connect(protocol=2, client_name="late")
    first = owner.client_id()
    owner.setnx("lock", "token")
    assert failure(lockwheel.journal.assert_no_lock_held).startswith(
        f"no-lock-held: client {first} holds the lock 'lock' as 'token'\n"
    )
    assert "has no lease" in failure(lockwheel.journal.assert_every_lock_has_a_lease)
    lockwheel.clock.advance("1s")
    other.delete("lock")
    sentence, *story = failure(lockwheel.journal.assert_released_only_by_owner).splitlines()
    assert sentence.startswith("released-only-by-owner: the lock 'lock' of client")
    lines = [line.split(": ", 1)[1] for line in story]
    assert lines == [
        "SETNX lock token -> 1",
        "acquired 'lock' as 'token' without a lease",
        "DEL lock -> 1",
        f"released 'lock', which is that of 'token', taken by client {first}",
    ]
    assert story[0].startswith("  +0 ms #") and f"client {first}: " in story[0]
    assert story[2].startswith("  +1000 ms #") and " 'late': " in story[2]


@pytest.mark.lockwheel(frozen=True)
def test_two_holders_are_found_when_the_former_returns(lockwheel, connect):
    a, b = connect(), connect()
    assert a.set("lock", "a", nx=True, px=1_000)
    lockwheel.clock.advance("1s")
    assert b.set("lock", "b", nx=True, px=1_000)
    lockwheel.journal.assert_never_two_holders()
    assert a.eval(COMPARE_AND_DELETE, 1, "lock", "a") == 0
    assert "never-two-holders: " in failure(lockwheel.journal.assert_never_two_holders)
    assert [found["rule"] for found in lockwheel.journal.lint()] == ["lease-shorter-than-hold"]


def test_entries_are_selected(lockwheel):
    lockwheel.call("SET", "lock:a", "1")
    lockwheel.call("SET", "lock:b", "1")
    lockwheel.call("SET", "other", "1")
    locks = lockwheel.journal.entries(key="lock:*")
    assert [entry["argv"][1] for entry in locks] == ["lock:a", "lock:b"]
    assert lockwheel.journal.entries(key="lock:*", count=1) == locks[1:]
    assert lockwheel.journal.entries(key="lock:*", since=locks[0]["seq"]) == locks[1:]
    lockwheel.journal.clear()
    assert lockwheel.journal.entries(key="lock:*") == []


@pytest.mark.lockwheel(frozen=True)
def test_locks_list_holder_and_waiting_clients(lockwheel, connect):
    holder, waiting = connect(), connect()
    holder.set("lock", "token", nx=True, px=30_000)
    waiting.set("lock", "another", nx=True, px=30_000)
    lockwheel.clock.advance("1s")
    (lock,) = lockwheel.journal.locks()
    assert (lock["key"], lock["owner"], lock["lease_ms"]) == ("lock", "token", 29_000)
    assert lock["client"] == holder.client_id()
    assert len(lock["waiting"]) == 1


def test_unknown_check_is_refused(lockwheel):
    with pytest.raises(package.ReplyError, match="no-lock-held, never-two-holders"):
        lockwheel.journal.check("no-such-rule")


def test_replies_have_the_fields_of_their_types(lockwheel, connect):
    client = connect(client_name="worker")
    assert client.set("lock", "token", nx=True)
    assert not client.set("lock", "other", nx=True)
    lockwheel.faults.add("delay", "1h", command="get", key="k", client="c", client_id=7, nth=1)
    lockwheel.faults.gate(command="del", probability=0.5, seed=1, times=3)
    for kind, objects in [
        (package.Entry, lockwheel.journal.entries()),
        (package.HeldLock, lockwheel.journal.locks()),
        (package.Finding, lockwheel.journal.lint()),
        (package.ListedRule, lockwheel.faults.list()),
    ]:
        assert objects
        for fields in objects:
            assert kind.__required_keys__ <= fields.keys() <= kind.__annotations__.keys()
