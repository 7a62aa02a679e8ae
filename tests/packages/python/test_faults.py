"""Faults and gates as they are told in Python."""

import asyncio
from datetime import timedelta

import pytest
import redis
from redis import asyncio as redis_asyncio

import leasehold as package
from patience import until


def test_every_action_can_be_ordered(leasehold):
    orders = [
        ("delay", 2),
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
        ("jump", -1.5),
        ("lose-writes", 1),
    ]
    rules = [leasehold.faults.add(*order, command="nothing") for order in orders]
    rules.append(leasehold.faults.add("refuse", nth=1000))
    assert [rule["id"] for rule in leasehold.faults.list()] == [rule.number for rule in rules]
    common = ("id", "command", "nth", "matched", "fired", "held")
    told = [
        {name: value for name, value in rule.items() if name not in common}
        for rule in leasehold.faults.list()
    ]
    assert told == [
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


def test_the_conditions_say_which_requests(leasehold, connect):
    client = connect(client_name="worker-1")
    conditions = {"command": "set", "key": "lock:*", "client": "worker-?"}
    rule = leasehold.faults.add("error", "OOPS", client_id=client.client_id(), **conditions)
    leasehold.call("SET", "lock:a", "token")
    client.set("other", "token")
    with pytest.raises(redis.ResponseError, match="OOPS"):
        client.set("lock:a", "token")
    assert (rule.matched, rule.fired) == (1, 1)


def test_only_the_nth_and_only_so_many(leasehold):
    second = leasehold.faults.add("error", "SECOND", command="get", nth=2)
    assert leasehold.call("GET", "k") is None
    with pytest.raises(package.ReplyError, match="SECOND"):
        leasehold.call("GET", "k")
    assert leasehold.call("GET", "k") is None
    assert (second.matched, second.fired) == (3, 1)
    leasehold.faults.add("error", "TWICE", command="set", times=2)
    for _ in range(2):
        with pytest.raises(package.ReplyError, match="TWICE"):
            leasehold.call("SET", "k", "v")
    assert leasehold.call("SET", "k", "v") == "OK"


def test_the_same_seed_chooses_the_same_ones(leasehold):
    def chosen():
        with leasehold.faults.add("error", "X", command="get", probability=0.5, seed=42) as rule:
            return [hit(rule) for _ in range(50)]

    def hit(rule):
        fired = rule.fired
        try:
            leasehold.call("GET", "k")
        except package.ReplyError:
            pass
        return rule.fired > fired

    first = chosen()
    assert first == chosen() and 0 < sum(first) < 50


def test_a_condition_that_is_none_is_refused(leasehold):
    with pytest.raises(TypeError, match="comand"):
        leasehold.faults.add("close", comand="get")
    with pytest.raises(package.ReplyError):
        leasehold.faults.add("explode")


def test_a_rule_is_cleared_with_its_block_or_by_itself(leasehold):
    with leasehold.faults.add("error", "X", command="get") as rule:
        with pytest.raises(package.ReplyError):
            leasehold.call("GET", "k")
    assert leasehold.call("GET", "k") is None
    with pytest.raises(package.LeaseholdError, match="has been cleared"):
        rule.fired  # noqa: B018
    with leasehold.faults.add("error", "X", command="get") as rule:
        rule.clear()
        assert leasehold.call("GET", "k") is None
    leasehold.faults.add("error", "X", command="get")
    leasehold.faults.gate(command="get")
    leasehold.faults.clear()
    assert leasehold.faults.list() == []


def test_a_connection_that_a_fault_closed_is_an_error_once(leasehold):
    leasehold.faults.add("close", command="get", times=1)
    with pytest.raises(ConnectionError):
        leasehold.call("GET", "k")
    assert leasehold.call("GET", "k") is None


def test_connections_are_refused_and_the_faults_are_cleared_all_the_same(leasehold, connect):
    leasehold.faults.add("refuse")
    with pytest.raises(redis.ConnectionError):
        connect().ping()
    leasehold.faults.clear()
    assert connect().ping()


@pytest.mark.leasehold(frozen=True)
def test_a_delay_is_over_by_the_clock(leasehold, connect, aside):
    rule = leasehold.faults.add("delay", 3, command="get")
    answer = aside(connect().get, "k")
    until(lambda: rule.fired)
    leasehold.clock.advance(2.999)
    assert not answer.done() and leasehold.faults.list()[0]["held"]
    leasehold.clock.advance(0.001)
    assert answer.result() is None


def test_a_failover_loses_the_last_writes_and_all_connections(leasehold, connect):
    client = connect()
    identity = client.client_id()
    client.set("a", "1")
    client.set("b", "1")
    assert leasehold.faults.failover(lose=1) == 1
    assert leasehold.call("MGET", "a", "b") == ["1", None]
    assert leasehold.faults.failover() == 0
    assert connect().client_id() > identity


def test_a_gate_holds_until_it_is_opened(leasehold, connect, aside):
    client = connect()
    identity = client.client_id()
    gate = leasehold.faults.gate(command="del", key="lock")
    leasehold.call("SET", "lock", "token")
    deletes = aside(client.delete, "lock")
    assert gate.wait() == identity
    assert gate.held == [identity]
    assert leasehold.call("GET", "lock") == "token" and not deletes.done()
    assert gate.open() == 1
    assert deletes.result() == 1
    with pytest.raises(package.ReplyError, match="no rule or gate"):
        gate.open()


def test_a_gate_is_opened_with_its_block(leasehold, connect, aside):
    with leasehold.faults.gate(command="get") as gate:
        answer = aside(connect().get, "k")
        gate.wait()
    assert answer.result() is None


def test_who_waits_at_a_gate_that_is_opened_hears_of_it(leasehold, aside):
    gate = leasehold.faults.gate(command="get")
    waits = aside(gate.wait)
    until(lambda: "blocked_clients:1" in leasehold.call("INFO", "clients"))
    assert gate.open() == 0
    with pytest.raises(package.LeaseholdError, match="has been opened"):
        waits.result()


def test_a_gate_to_which_nobody_comes_ends_the_test(leasehold, monkeypatch):
    gate = leasehold.faults.gate(command="del")
    monkeypatch.setattr("leasehold._connection.LIMIT_S", 0.01)
    with pytest.raises(
        package.LeaseholdError, match="no answer to 'LEASEHOLD GATE AWAIT 1' within"
    ):
        gate.wait()
    monkeypatch.undo()
    assert gate.open() == 0


def test_tasks_wait_at_gates_too(leasehold):
    async def race():
        async with redis_asyncio.Redis.from_url(leasehold.url) as client:
            with leasehold.faults.gate(command="del") as gate:
                deletes = asyncio.create_task(client.delete("lock"))
                await gate.wait_async()
                leasehold.call("SET", "lock", "another's")
            return await deletes

    assert asyncio.run(race()) == 1
