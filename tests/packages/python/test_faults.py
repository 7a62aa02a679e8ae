"""Fault rules and gates."""

import asyncio
from datetime import timedelta

import pytest
import redis
from redis import asyncio as redis_asyncio

import lockwheel as package
from waiting import until


def test_every_action_can_be_added(lockwheel):
    orders = [
        ("delay", "0m2s"),
        ("delay", timedelta(seconds=2)),
        ("delay", "2s"),
        ("drop",),
        ("close",),
        ("lose",),
        ("LOSE-AND-CLOSE",),
        ("cut", 3),
        ("stall",),
        ("error", "LOADING not yet"),
        ("flush-scripts",),
        ("jump", "-1.5s"),
        ("lose-writes", 1),
    ]
    rules = [lockwheel.faults.add(*order, command="echo") for order in orders]
    rules.append(lockwheel.faults.add("refuse", nth=1000))
    assert [rule["id"] for rule in lockwheel.faults.list()] == [rule.number for rule in rules]
    common = ("id", "command", "nth", "matched", "fired", "held")
    listed = [
        {name: value for name, value in rule.items() if name not in common}
        for rule in lockwheel.faults.list()
    ]
    assert listed == [
        *[{"action": "delay", "delay_ms": 2000}] * 3,
        {"action": "drop"},
        {"action": "close"},
        {"action": "lose"},
        {"action": "lose-and-close"},
        {"action": "cut", "bytes": 3},
        {"action": "stall"},
        {"action": "error", "line": "LOADING not yet"},
        {"action": "flush-scripts"},
        {"action": "jump", "jump_ms": -1500},
        {"action": "lose-writes", "writes": 1},
        {"action": "refuse"},
    ]


def test_conditions_select_requests(lockwheel, connect):
    client = connect(client_name="worker-1")
    conditions = {"command": "set", "key": "lock:*", "client": "worker-?"}
    rule = lockwheel.faults.add("error", "OOPS", client_id=client.client_id(), **conditions)
    lockwheel.call("SET", "lock:a", "token")
    client.set("other", "token")
    with pytest.raises(redis.ResponseError, match="OOPS"):
        client.set("lock:a", "token")
    assert (rule.matched, rule.fired) == (1, 1)


def test_nth_and_times_limit_a_rule(lockwheel):
    second = lockwheel.faults.add("error", "SECOND", command="get", nth=2)
    assert lockwheel.call("GET", "k") is None
    with pytest.raises(package.ReplyError, match="SECOND"):
        lockwheel.call("GET", "k")
    assert lockwheel.call("GET", "k") is None
    assert (second.matched, second.fired) == (3, 1)
    lockwheel.faults.add("error", "TWICE", command="set", times=2)
    for _ in range(2):
        with pytest.raises(package.ReplyError, match="TWICE"):
            lockwheel.call("SET", "k", "v")
    assert lockwheel.call("SET", "k", "v") == "OK"


def test_same_seed_selects_the_same_requests(lockwheel):
    def chosen():
        with lockwheel.faults.add("error", "X", command="get", probability=0.5, seed=42) as rule:
            return [hit(rule) for _ in range(50)]

    def hit(rule):
        fired = rule.fired
        try:
            lockwheel.call("GET", "k")
        except package.ReplyError:
            pass
        return rule.fired > fired

    first = chosen()
    assert first == chosen() and 0 < sum(first) < 50


def test_unknown_condition_is_refused(lockwheel):
    with pytest.raises(TypeError, match="comand"):
        lockwheel.faults.add("close", comand="get")
    with pytest.raises(package.ReplyError):
        lockwheel.faults.add("explode")


def test_rule_is_cleared_by_its_block_or_by_clear(lockwheel):
    with lockwheel.faults.add("error", "X", command="get") as rule:
        with pytest.raises(package.ReplyError):
            lockwheel.call("GET", "k")
    assert lockwheel.call("GET", "k") is None
    with pytest.raises(package.LockwheelError, match="has been cleared"):
        rule.fired  # noqa: B018
    with lockwheel.faults.add("error", "X", command="get") as rule:
        rule.clear()
        assert lockwheel.call("GET", "k") is None
    lockwheel.faults.add("error", "X", command="get")
    lockwheel.faults.gate(command="get")
    lockwheel.faults.clear()
    assert lockwheel.faults.list() == []


def test_connection_closed_by_a_fault_fails_one_call(lockwheel):
    lockwheel.faults.add("close", command="get", times=1)
    with pytest.raises(ConnectionError):
        lockwheel.call("GET", "k")
    assert lockwheel.call("GET", "k") is None


def test_faults_can_be_cleared_while_connections_are_refused(lockwheel, connect):
    lockwheel.faults.add("refuse")
    with pytest.raises(redis.ConnectionError):
        connect().ping()
    lockwheel.faults.clear()
    assert connect().ping()


@pytest.mark.lockwheel(frozen=True)
def test_delay_follows_the_clock(lockwheel, connect, aside):
    rule = lockwheel.faults.add("delay", "3s", command="get")
    answer = aside(connect().get, "k")
    until(lambda: rule.fired)
    lockwheel.clock.advance("2s999ms")
    assert not answer.done() and lockwheel.faults.list()[0]["held"]
    lockwheel.clock.advance("1ms")
    assert answer.result() is None


def test_failover_undoes_the_last_writes_and_closes_all_connections(lockwheel, connect):
    client = connect()
    identity = client.client_id()
    client.set("a", "1")
    client.set("b", "1")
    assert lockwheel.faults.failover(lose=1) == 1
    assert lockwheel.call("MGET", "a", "b") == ["1", None]
    assert lockwheel.faults.failover() == 0
    assert connect().client_id() > identity


def test_gate_holds_until_it_is_opened(lockwheel, connect, aside):
    client = connect()
    identity = client.client_id()
    gate = lockwheel.faults.gate(command="del", key="lock")
    lockwheel.call("SET", "lock", "token")
    deletes = aside(client.delete, "lock")
    assert gate.wait() == identity
    assert gate.held == [identity]
    assert lockwheel.call("GET", "lock") == "token" and not deletes.done()
    assert gate.open() == 1
    assert deletes.result() == 1
    with pytest.raises(package.ReplyError, match="no rule or gate"):
        gate.open()


def test_gate_is_opened_by_its_block(lockwheel, connect, aside):
    with lockwheel.faults.gate(command="get") as gate:
        answer = aside(connect().get, "k")
        gate.wait()
    assert answer.result() is None


def test_wait_fails_when_the_gate_is_opened(lockwheel, aside):
    gate = lockwheel.faults.gate(command="get")
    waits = aside(gate.wait)
    until(lambda: "blocked_clients:1" in lockwheel.call("INFO", "clients"))
    assert gate.open() == 0
    with pytest.raises(package.LockwheelError, match="was opened before"):
        waits.result()


def test_wait_fails_at_the_limit(lockwheel, monkeypatch):
    gate = lockwheel.faults.gate(command="del")
    monkeypatch.setattr("lockwheel._connection.LIMIT_S", 0.01)
    with pytest.raises(
        package.LockwheelError, match="no reply to 'LOCKWHEEL GATE AWAIT 1' within"
    ):
        gate.wait()
    monkeypatch.undo()
    assert gate.open() == 0


def test_tasks_wait_at_gates(lockwheel):
    async def race():
        async with redis_asyncio.Redis.from_url(lockwheel.url) as client:
            with lockwheel.faults.gate(command="del") as gate:
                deletes = asyncio.create_task(client.delete("lock"))
                await gate.wait_async()
                lockwheel.call("SET", "lock", "another's")
            return await deletes

    assert asyncio.run(race()) == 1
