"""The journal of a server and its assertions."""

import pickle
import re

import pytest
import redis

import lockwheel as package

COMPARE_AND_DELETE = """
if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end
return 0
"""


def test_correct_recipe_passes_all_checks(lockwheel, connect):
    client = connect()
    assert client.set("lock", "token", nx=True, px=30_000)
    assert client.eval(COMPARE_AND_DELETE, 1, "lock", "token") == 1
    for assertion in BREACHES:
        getattr(lockwheel.journal, assertion)()
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
    late = other.client_id()
    assert [re.sub(r" #\d+", "", line) for line in story] == [
        f"  +0 ms client {first} (redis-py): SETNX lock token -> 1",
        f"  +0 ms client {first} (redis-py): acquired 'lock' as 'token' without a lease",
        "  +0 ms the clock: was advanced by 1000 ms",
        f"  +1000 ms client {late}: connected",
        f"  +1000 ms client {late} 'late' (redis-py): DEL lock -> 1",
        f"=>+1000 ms client {late} 'late' (redis-py): released 'lock', which is that of 'token', "
        f"taken by client {first}",
    ]


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


def take(client, token):
    client.set("lock", token, nx=True, px=30_000)


def lose_waiter(server, a, b):
    take(a, "a")
    take(b, "b")
    a.delete("lock")


def let_expire(server, a, b):
    take(a, "a")
    server.clock.advance("30s")


def let_another_release(server, a, b):
    take(a, "a")
    b.delete("lock")


def use_lost_lock(server, a, b):
    let_expire(server, a, b)
    take(b, "b")
    a.eval(COMPARE_AND_DELETE, 1, "lock", "a")


def take_twice(server, a, b):
    take(a, "a" + UNIQUE)  # Tokens that others may use too are not compared.
    take(a, "a" + UNIQUE)


UNIQUE = "2f1c7a9-58f4-4a6e-9d54-0f0e9f3c8a11"

#: How each check is broken by one or two clients.
BREACHES = {
    "assert_no_lock_held": lambda server, a, b: take(a, "a"),
    "assert_every_lock_has_a_lease": lambda server, a, b: a.setnx("lock", "a"),
    "assert_released_only_by_owner": let_another_release,
    "assert_never_two_holders": use_lost_lock,
    "assert_not_refused_by_own_token": take_twice,
    "assert_no_waiter_lost": lose_waiter,
    "assert_renewed_before_expiry": let_expire,
}


@pytest.mark.lockwheel(frozen=True)
@pytest.mark.parametrize("assertion", BREACHES)
def test_broken_check_marks_the_entry_that_broke_it(lockwheel, connect, assertion):
    check = getattr(lockwheel.journal, assertion)
    check()
    BREACHES[assertion](lockwheel, connect(protocol=2), connect(protocol=2))
    message = failure(check)
    begin = r"[a-z-]+: .*'lock'.*\n  \+0 ms #\d+ client \d+ \(redis-py\): SET.* lock a"
    assert re.match(begin, message)
    assert len(re.findall(r"^=> *\+\d+ ms #\d+ .*'lock'", message, re.MULTILINE)) == 1


def acquire_after_waiting(server, a, b):
    lose_waiter(server, a, b)
    take(b, "b")


def renew(server, a, b):
    take(a, "a")
    for _ in range(2):
        server.clock.advance("20s")
        a.pexpire("lock", 30_000)


def refuse_another_token(server, a, b):
    take(a, "a" + UNIQUE)
    take(b, "b" + UNIQUE)


@pytest.mark.lockwheel(frozen=True)
@pytest.mark.parametrize(
    "assertion, use",
    [
        ("assert_no_waiter_lost", acquire_after_waiting),
        ("assert_renewed_before_expiry", renew),
        ("assert_not_refused_by_own_token", refuse_another_token),
    ],
)
def test_correct_use_keeps_the_check(lockwheel, connect, assertion, use):
    use(lockwheel, connect(), connect())
    getattr(lockwheel.journal, assertion)()


def test_check_of_a_key_of_a_client_and_after_an_entry(lockwheel, connect):
    worker = connect(client_name="worker")
    take(worker, "a")
    client = worker.client_id()
    (last,) = lockwheel.journal.entries(key="lock", count=1)
    check = lockwheel.journal.assert_no_lock_held
    client_scopes = {"client": client}, {"client": "worker"}
    for scope in {"key": "l*"}, *client_scopes, {"since": last["seq"] - 1}:
        with pytest.raises(package.CheckError):
            check(**scope)
    others = {"client": client + 100}, {"client": "other"}, {"since": last["seq"]}
    for scope in {"key": "job:*"}, *others:
        check(**scope)


def test_key_that_is_only_possibly_a_lock_fails_a_check_that_names_it(lockwheel):
    lockwheel.call("SET", "idem:1", "done", "NX", "EX", 3600)
    lockwheel.journal.assert_no_lock_held()
    with pytest.raises(package.CheckError, match="holds the lock 'idem:1' as 'done'"):
        lockwheel.journal.assert_no_lock_held(key="idem:*")
    (known,) = lockwheel.journal.known_locks()
    assert (known["key"], known["shape"]) == ("idem:1", "token")
    assert (known["confidence"], known["held"]) == ("possible", True)


def held_keys(server):
    server.call("FLUSHALL")
    server.call("SET", "job:1", "1", "NX", "PX", 30_000)
    server.call("SET", "tmp:1", UNIQUE, "NX", "PX", 30_000)
    locks = server.journal.locks()
    return [lock["key"] for lock in locks if lock["confidence"] != "possible"]


def test_keys_are_declared_as_locks_and_as_none(lockwheel, lockwheel_factory):
    assert held_keys(lockwheel) == ["tmp:1"]
    lockwheel.journal.declare_locks("job:*")
    lockwheel.journal.ignore_locks("tmp:*")
    assert held_keys(lockwheel) == ["job:1"]

    server = lockwheel_factory(lock_keys=["cron:*", "job:*"], ignored_lock_keys=["tmp:*"])
    assert held_keys(server) == ["job:1"]
    server.reset()
    assert held_keys(server) == ["job:1"]
    server.restart()
    assert held_keys(server) == ["job:1"]


@pytest.mark.lockwheel(lock_keys=["job:*"], ignored_lock_keys=["tmp:*"])
def test_marker_declares_keys(lockwheel):
    assert held_keys(lockwheel) == ["job:1"]


def test_text_is_no_list_of_patterns():
    problem = r"lock-keys: expected a list of patterns, not 'job:\*'"
    for option in "lock_keys", "ignored_lock_keys":
        with pytest.raises(TypeError, match=problem):
            package.start(**{option: "job:*"})


@pytest.mark.lockwheel(frozen=True)
def test_story_shows_that_a_reply_was_lost(lockwheel, connect):
    client = connect(protocol=2)
    lockwheel.faults.add("lose-and-close", command="set")
    with pytest.raises(redis.ConnectionError):
        take(client, "token")
    request, acquired = lockwheel.journal.story(key="lock").splitlines()
    outcome = "OK [fault 1: executed; reply lost; connection closed]"
    assert request.endswith(f"(redis-py): SET lock token NX PX 30000 -> {outcome}")
    assert acquired.endswith("(redis-py): acquired 'lock' as 'token' for 30000 ms")


def test_failed_check_reaches_another_process(lockwheel):
    lockwheel.call("SET", "lock", "token", "NX", "PX", 30_000)
    with pytest.raises(package.CheckError) as failed:
        lockwheel.journal.assert_no_lock_held()
    passed_on = pickle.loads(pickle.dumps(failed.value))
    assert (type(passed_on), str(passed_on)) == (package.CheckError, str(failed.value))


def test_unknown_check_is_refused(lockwheel):
    known = "Known: no-lock-held, never-two-holders, .*, no-waiter-lost"
    problem = rf"unknown check 'no-lock-helt'; did you mean no-lock-held\? {known}"
    with pytest.raises(package.ReplyError, match=problem):
        lockwheel.journal.check("no-lock-helt")


def test_unknown_part_of_a_scope_is_refused(lockwheel):
    known = "key, client, since, count"
    with pytest.raises(TypeError, match=f"unknown option 'keys'. Known: {known}"):
        lockwheel.journal.assert_no_lock_held(keys="lock")


def test_replies_have_the_fields_of_their_types(lockwheel, connect):
    client = connect(client_name="worker")
    assert client.set("lock", "token", nx=True)
    assert not client.set("lock", "other", nx=True)
    lockwheel.faults.add("delay", "1h", command="get", key="k", client="c", client_id=7, nth=1)
    lockwheel.faults.gate(command="del", probability=0.5, seed=1, times=3)
    for kind, objects in [
        (package.Entry, lockwheel.journal.entries()),
        (package.HeldLock, lockwheel.journal.locks()),
        (package.KnownLock, lockwheel.journal.known_locks()),
        (package.Finding, lockwheel.journal.lint()),
        (package.ListedRule, lockwheel.faults.list()),
    ]:
        assert objects
        for fields in objects:
            assert kind.__required_keys__ <= fields.keys() <= kind.__annotations__.keys()
