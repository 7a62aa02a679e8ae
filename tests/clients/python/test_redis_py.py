"""Locks made by hand with redis-py: the recipes that people copy, in both protocols, with its own
parser and with hiredis."""

import threading
import time
import uuid

import pytest
import redis
from redis._parsers import _HiredisParser, _RESP2Parser, _RESP3Parser

import servers
from contention import (
    MAX_WAIT_S,
    ROUNDS,
    WORKERS,
    aside,
    blocked_clients,
    contend,
    eventually,
    lease_ends,
    within_lease,
)

LIBRARY = ("redis-py", "redis")

DELETE_IF_MINE = """
if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end
"""
EXPIRE_IF_MINE = """
if redis.call('get', KEYS[1]) == ARGV[1] then
  return redis.call('pexpire', KEYS[1], ARGV[2])
else
  return 0
end
"""
PARSERS = {
    "RESP2": (2, _RESP2Parser),
    "RESP3": (3, _RESP3Parser),
    "RESP2, hiredis": (2, _HiredisParser),
    "RESP3, hiredis": (3, _HiredisParser),
}


@pytest.fixture(params=PARSERS)
def protocol(request):
    return request.param


@pytest.fixture
def client(protocol):
    number, parser = PARSERS[protocol]
    with redis.Redis.from_url(servers.MAIN, protocol=number, parser_class=parser) as client:
        yield client


def test_long_pipeline(client, name):
    """pipeline(transaction=False): all of 200,000 commands are sent before a reply is read ({protocol})"""
    value = "x" * 1_000
    client.set(name, value)
    pipeline = client.pipeline(transaction=False)
    for _ in range(200_000):
        pipeline.get(name)
    expected = value.encode()
    replies = pipeline.execute()
    assert len(replies) == 200_000
    assert all(reply == expected for reply in replies)


def test_setnx(client, name):
    """SETNX and DEL: one of many gets in ({protocol})"""

    def work(section):
        for _ in range(ROUNDS):
            while not client.setnx(name, "held"):
                time.sleep(0.001)
            section.visit()
            assert client.delete(name) == 1

    section, _ = contend(work)
    assert section.count == WORKERS * ROUNDS


def test_getset_takes_over_a_dead_lock_once(client, name):
    """SETNX and GETSET: of many clients that find a dead lock, one takes it ({protocol})"""
    client.set(name, "1.5")
    barrier = threading.Barrier(WORKERS)

    def work(_section):
        mine = repr(time.time() + 60 + threading.get_ident() % 1000)
        barrier.wait()
        if client.setnx(name, mine):
            return True
        if float(client.get(name)) > time.time():
            return False
        return float(client.getset(name, mine)) < time.time()

    _, won = contend(work)
    assert sorted(won) == [False] * (WORKERS - 1) + [True]


def test_set_nx_px(client, name):
    """SET NX PX and compare-and-delete: one of many gets in ({protocol})"""
    release = client.register_script(DELETE_IF_MINE)

    def work(section):
        token = uuid.uuid4().hex
        for _ in range(ROUNDS):
            while not client.set(name, token, nx=True, px=30_000):
                time.sleep(0.001)
            section.visit()
            assert release([name], [token]) == 1

    section, _ = contend(work)
    assert section.count == WORKERS * ROUNDS


def test_lease(client, name):
    """SET NX PX: refused before the end of the lease, granted after it ({protocol})"""
    since = time.monotonic()
    assert client.set(name, "first", nx=True, px=300)
    lease_ends(lambda: client.set(name, "second", nx=True, px=30_000), since, 0.3)
    assert client.get(name) == b"second"


def test_release_by_another_client(client, name):
    """Compare-and-delete: a release by another or after the lease changes nothing ({protocol})"""
    release = client.register_script(DELETE_IF_MINE)
    assert client.set(name, "first", nx=True, px=30_000)
    assert release([name], ["other"]) == 0
    assert client.get(name) == b"first"
    client.pexpire(name, 50)
    eventually(lambda: client.set(name, "second", nx=True, px=30_000))
    assert release([name], ["first"]) == 0
    assert client.get(name) == b"second"
    assert release([name], ["second"]) == 1
    assert client.get(name) is None


def test_renewal(client, name):
    """Compare-and-PEXPIRE: a renewed lease lasts, another client renews nothing ({protocol})"""
    renew = client.register_script(EXPIRE_IF_MINE)
    _, since = within_lease(
        1,
        lambda: client.set(name, "first", nx=True, px=1_000),
        lambda: renew([name], ["first", 1_200]) == 1,
    )
    assert renew([name], ["other", 1]) == 0
    lease_ends(lambda: client.set(name, "second", nx=True, px=30_000), since, 1.2)


def test_watch_release(client, name):
    """WATCH, GET, MULTI, DEL, EXEC: no lock that changed hands is freed ({protocol})"""
    client.set(name, "first", px=30_000)
    with client.pipeline() as pipe:
        pipe.watch(name)
        assert pipe.get(name) == b"first"
        client.set(name, "second", px=30_000)
        pipe.multi()
        pipe.delete(name)
        with pytest.raises(redis.WatchError):
            pipe.execute()
    assert client.get(name) == b"second"
    with client.pipeline() as pipe:
        pipe.watch(name)
        assert pipe.get(name) == b"second"
        pipe.multi()
        pipe.delete(name)
        assert pipe.execute() == [1]
    assert client.get(name) is None


def test_watch_expiry(client, name):
    """WATCH: a lease that ends while it is watched breaks the transaction ({protocol})"""
    with client.pipeline() as pipe:
        alive = None
        while alive is None:
            client.set(name, "first", px=100)
            pipe.watch(name)
            alive = pipe.get(name)
        eventually(lambda: client.get(name) is None)
        pipe.multi()
        pipe.set(name, "first again")
        with pytest.raises(redis.WatchError):
            pipe.execute()
    assert client.get(name) is None


def test_watch_counter(client, name):
    """WATCH, GET, MULTI, SET, EXEC: no increment is lost without a lock ({protocol})"""

    def work(_section):
        for _ in range(ROUNDS):
            client.transaction(lambda pipe: _increment(pipe, name), name, watch_delay=0.001)

    contend(work)
    assert int(client.get(name)) == WORKERS * ROUNDS


def _increment(pipe, name):
    count = int(pipe.get(name) or 0)
    pipe.multi()
    pipe.set(name, count + 1)


def test_fence(client, name):
    """SET NX PX and INCR in one script: every grant has a higher fence number ({protocol})"""
    take = client.register_script(
        "if redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then"
        " return redis.call('incr', KEYS[2]) else return nil end"
    )
    release = client.register_script(DELETE_IF_MINE)
    fences = []

    def work(_section):
        token = uuid.uuid4().hex
        for _ in range(ROUNDS):
            while (fence := take([name, name + ":fence"], [token, 30_000])) is None:
                time.sleep(0.001)
            fences.append(fence)
            assert release([name], [token]) == 1

    contend(work)
    assert fences == list(range(1, WORKERS * ROUNDS + 1))


def test_release_is_published(client, name):
    """PUBLISH at release: a subscribed waiter is woken and gets the lock ({protocol})"""
    release_is_published(client, name)


def test_release_is_published_over_tls(protocol, name):
    """TLS: a subscribed waiter is woken and gets the lock ({protocol})"""
    if not servers.TLS:
        pytest.skip("no port for TLS given")
    number, parser = PARSERS[protocol]
    options = {"protocol": number, "parser_class": parser, "ssl_ca_certs": servers.TLS_CA}
    with redis.Redis.from_url(servers.TLS, **options) as client:
        release_is_published(client, name)


def release_is_published(client, name):
    client.set(name, "first", px=30_000)
    woken = threading.Event()

    def wait(pubsub):
        while not client.set(name, "second", nx=True, px=30_000):
            pubsub.get_message(timeout=MAX_WAIT_S)
        woken.set()

    with client.pubsub(ignore_subscribe_messages=True) as pubsub:
        pubsub.subscribe(name + ":free")
        waiter = aside(wait, pubsub)
        assert not woken.wait(0.2)
        with client.pipeline() as pipe:
            pipe.delete(name).publish(name + ":free", "free").execute()
        waiter.join(MAX_WAIT_S)
    assert woken.is_set()
    assert client.get(name) == b"second"


def test_expiry_is_notified(client, name):
    """Keyspace events: waiters are notified of the end of a lease, not before it ({protocol})"""
    before = client.config_get("notify-keyspace-events")["notify-keyspace-events"]
    client.config_set("notify-keyspace-events", "Ex")
    try:
        with client.pubsub(ignore_subscribe_messages=True) as pubsub:
            pubsub.subscribe("__keyevent@0__:expired")
            pubsub.get_message(timeout=MAX_WAIT_S)
            since = time.monotonic()
            client.set(name, "first", px=200)
            message = None
            while message is None or message["data"] != name.encode():
                assert time.monotonic() - since < MAX_WAIT_S
                message = pubsub.get_message(timeout=1)
            assert time.monotonic() - since >= 0.2
            assert client.set(name, "second", nx=True)
    finally:
        client.config_set("notify-keyspace-events", before)


def test_list_semaphore(client, name):
    """Tokens in a list: BLPOP gives each to one, never more are out than there are ({protocol})"""
    permits = 2
    client.rpush(name, *range(permits))
    # All can be held at once. Under contention that would depend on timing.
    out = [client.blpop(name, timeout=MAX_WAIT_S)[1] for _ in range(permits)]
    assert client.lpop(name) is None
    client.rpush(name, *out)
    inside, most = [], []

    def work(_section):
        for _ in range(ROUNDS):
            _, token = client.blpop(name, timeout=MAX_WAIT_S)
            inside.append(token)
            most.append(len(inside))
            time.sleep(0.002)
            inside.remove(token)
            client.rpush(name, token)

    contend(work)
    assert max(most) <= permits
    assert sorted(client.lrange(name, 0, -1)) == [b"0", b"1"]


def test_blpop_order(client, name):
    """BLPOP: waiters are woken in the order in which they came ({protocol})"""
    order, waiters = [], []

    def wait(number):
        assert client.blpop(name, timeout=MAX_WAIT_S)
        order.append(number)

    for number in range(4):
        already = blocked_clients(client)
        waiters.append(aside(wait, number))
        eventually(lambda: blocked_clients(client) == already + 1)
    for woken in range(4):
        client.rpush(name, "go")
        eventually(lambda: len(order) == woken + 1)
    for waiter in waiters:
        waiter.join(MAX_WAIT_S)
    assert order == [0, 1, 2, 3]


def test_reliable_queue(client, name):
    """LMOVE: work of a dead worker stays in his list, and every piece is done once ({protocol})"""
    todo, dead, done = f"{{{name}}}:todo", f"{{{name}}}:dead", []
    client.rpush(todo, *range(WORKERS * ROUNDS))
    assert client.lmove(todo, dead, "LEFT", "RIGHT") == b"0"

    def work(_section):
        mine = f"{{{name}}}:{uuid.uuid4().hex}"
        while (piece := client.lmove(todo, mine, "LEFT", "RIGHT")) is not None:
            done.append(int(piece))
            assert client.lrem(mine, 1, piece) == 1

    assert client.lmove(dead, todo, "RIGHT", "LEFT") == b"0"
    contend(work)
    assert sorted(done) == list(range(WORKERS * ROUNDS))


def test_fair_semaphore(client, name):
    """Scores in a sorted set: a semaphore grants by rank and removes late holders ({protocol})"""
    limit, lease_s = 2, 0.3

    def acquire(member):
        now = time.monotonic()
        with client.pipeline() as pipe:
            pipe.zremrangebyscore(name, "-inf", now - lease_s)
            pipe.zadd(name, {member: now})
            pipe.zrank(name, member)
            rank = pipe.execute()[-1]
        if rank < limit:
            return True
        client.zrem(name, member)
        return False

    since = time.monotonic()
    assert acquire("first") and acquire("second")
    lease_ends(lambda: acquire("third"), since, lease_s)
    assert client.zscore(name, "first") is None
    assert client.zrank(name, "third") is not None


def test_reconnects(client, name):
    """A killed connection is replaced, and its lock stays ({protocol})"""
    assert client.set(name, "first", nx=True, px=30_000)
    with redis.Redis.from_url(servers.MAIN) as other:
        other.client_kill_filter(_id=client.client_id())
    assert not client.set(name, "second", nx=True, px=30_000)
    assert client.get(name) == b"first"
