"""Lock objects: `Lock` over redis-py and `AsyncLock` over redis.asyncio, with the same tests."""

import asyncio
import contextlib
import gc
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest
import redis
from redis import asyncio as redis_asyncio

from lockwheel._program import program
from lockwheel.locks import AsyncLock, Lock, LockError, LockLost, NoNativeLocks, NotAcquired
from test_readme import blocks
from waiting import until

pytestmark = pytest.mark.lockwheel(frozen=True)

#: A lease that does not end by the clock of a process, however slow it is.
LEASE_MS = 600_000


@pytest.fixture
def loop():
    """An event loop that runs on a thread."""
    selector = selectors.DefaultSelector()
    loop = asyncio.SelectorEventLoop(selector)
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    idle = len(selector.get_map())
    yield loop
    # A connection with TLS ends when the server has closed it, too.
    until(lambda: len(selector.get_map()) == idle)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


class OnLoop:
    """An `AsyncLock` whose methods are called from another thread than that of its loop."""

    def __init__(self, loop, client, key, **options):
        self._loop = loop
        self._lock = self._run(self._made(client, key, options))

    async def _made(self, client, key, options):
        return AsyncLock(client, key, **options)

    def _run(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def __getattr__(self, name):
        value = getattr(self._lock, name)
        return (lambda *given: self._run(value(*given))) if callable(value) else value

    def __enter__(self):
        self._run(self._lock.__aenter__())
        return self

    def __exit__(self, *error):
        self._run(self._lock.__aexit__(*error))


@pytest.fixture(params=["threads", "asyncio"])
def lock_of(request, loop):
    """Makes locks of the server at a URL, or of the client that `client_of` makes."""
    made, clients = [], []
    library = redis if request.param == "threads" else redis_asyncio

    def lock_of(url, key, client_options={}, client_of=None, **options):
        options = {"ttl_ms": LEASE_MS, "renew_ms": 0, **options}
        if client_of is None:
            client = library.Redis.from_url(url, **client_options)
        else:
            client = client_of(library)
        clients.append(client)
        if request.param == "threads":
            made.append(Lock(client, key, **options))
        else:
            made.append(OnLoop(loop, client, key, **options))
        return made[-1]

    yield lock_of
    for lock in made:
        if lock.is_held:
            lock.release()
    for client in clients:
        manager = getattr(getattr(client, "connection_pool", None), "sentinel_manager", None)
        for sentinel in manager.sentinels if manager else []:
            closed = sentinel.close() if library is redis else sentinel.aclose()
            if library is redis_asyncio:
                asyncio.run_coroutine_threadsafe(closed, loop).result()


@pytest.fixture
def lock(lock_of, lockwheel):
    """Makes locks of the server of the test."""
    return lambda key="lock", **options: lock_of(lockwheel.url, key, **options)


def fields(reply):
    """The reply with its pairs as dictionaries."""
    if not isinstance(reply, list):
        return reply
    if reply and isinstance(reply[0], str):
        return {name: fields(value) for name, value in zip(reply[::2], reply[1::2])}
    return [fields(each) for each in reply]


def info(server, key="lock"):
    return fields(server.call("LOCK.INFO", key))


def holder(server, key="lock"):
    (holder,) = info(server, key)["holders"]
    return holder


def queue(server, key="lock"):
    return [waiter["owner"] for waiter in info(server, key)["queue"]]


def test_lock_is_held_within_its_block(lockwheel, lock):
    with lock(meta="job 7") as held:
        assert held.is_held
        shown = holder(lockwheel)
        assert (shown["owner"], shown["token"]) == (held.owner, held.token)
        assert (shown["meta"], shown["grace"], shown["ttl"]) == ("job 7", None, LEASE_MS)
        assert f":{os.getpid()}:" in held.owner
        other = lock()
        assert other.owner != held.owner and not other.acquire()
        with pytest.raises(NotAcquired, match=r"'lock' .*refused.*: owners 1, lease 600000 ms"):
            with other:
                pass
        with pytest.raises(LockError, match="holds the lock 'lock' already"):
            held.acquire()
    assert not held.is_held and info(lockwheel) is None
    assert not held.release()
    lockwheel.journal.assert_no_lock_held()


def test_tokens_grow(lock):
    held, tokens = lock(), []
    assert held.token is None
    for _ in range(3):
        assert held.acquire()
        tokens.append(held.token)
        held.release()
    assert tokens == sorted(set(tokens))


def test_owners_share_a_lock_and_permits(lockwheel, lock):
    readers = [lock(shared=True), lock(shared=True)]
    assert all(reader.acquire() for reader in readers) and not lock().acquire()
    assert [shown["owner"] for shown in info(lockwheel)["holders"]] == [
        reader.owner for reader in readers
    ]
    workers = [lock("jobs", permits=(2, 3)), lock("jobs", permits=(2, 3))]
    assert [worker.acquire() for worker in workers] == [True, False]
    assert holder(lockwheel, "jobs")["permits"] == 2
    with pytest.raises(TypeError):
        lock(shared=True, permits=(1, 2))


def test_locks_with_one_owner_are_held_at_the_same_time(lockwheel, lock):
    first, second = lock(owner="me"), lock(owner="me")
    assert first.acquire() and second.acquire() and first.token == second.token
    assert first.release() and holder(lockwheel)["count"] == 1
    assert second.release() and info(lockwheel) is None


def test_waiters_get_the_lock_in_order(lockwheel, lock, aside):
    holds = lock()
    assert holds.acquire()
    # The limits of the client do not apply to waiting.
    hasty = {"socket_timeout": 0.001}
    waiters = [lock(wait_ms=60_000, client_options=hasty) for _ in range(3)]
    waits = []
    for count, waiter in enumerate(waiters, 1):
        waits.append(aside(waiter.acquire))
        until(lambda: len(queue(lockwheel)) == count)
    assert queue(lockwheel) == [waiter.owner for waiter in waiters]
    for waiter, wait in zip(waiters, waits):
        holds.release()
        assert wait.result() and holder(lockwheel)["owner"] == waiter.owner
        holds = waiter


def test_wait_ends_by_the_clock_of_the_server(lockwheel, lock, aside):
    assert lock().acquire()
    waiter = lock()
    waits = aside(waiter.acquire, 60_000)
    until(lambda: queue(lockwheel))
    lockwheel.clock.advance("59s999ms")
    assert queue(lockwheel) == [waiter.owner]
    lockwheel.clock.advance("1ms")
    assert waits.result() is False


@pytest.fixture
def pass_s(monkeypatch):
    """Moves the clock of the locks in this process forward."""
    passed_s = [0]
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + passed_s[0])
    monkeypatch.setattr("lockwheel.locks.time", clock)

    def pass_s(seconds):
        passed_s[0] += seconds

    return pass_s


def test_lease_that_began_at_an_unknown_time_is_renewed_at_once(lockwheel, lock, aside, pass_s):
    holds = lock()
    assert holds.acquire()
    # A rule without an effect counts the requests.
    renewals = lockwheel.faults.add("flush-scripts", command="lock.renew")
    waits = aside(lock().acquire, 60_000)
    until(lambda: queue(lockwheel))
    pass_s(LEASE_MS / 1000 / 3 + 1)
    holds.release()
    assert waits.result() and renewals.fired == 1


# Shows L17, L18.
def test_lock_counts_from_when_its_request_was_sent(lockwheel, lock, aside, pass_s):
    held = lock()
    assert held.acquire()
    with lockwheel.faults.gate(command="lock.renew") as gate:
        renews = aside(held.renew)
        gate.wait()
        pass_s(LEASE_MS / 1000 * 0.5)
    assert renews.result()
    pass_s(LEASE_MS / 1000 * 0.4)
    assert held.is_held
    pass_s(LEASE_MS / 1000 * 0.06)  # The clock of the server may be faster by a twentieth.
    assert not held.is_held


def test_lease_is_renewed(lockwheel, lock):
    held = lock(renew_ms=1)
    assert held.acquire()
    for _ in range(3):
        lockwheel.clock.advance("9m59s")
        until(lambda: holder(lockwheel)["ttl"] == LEASE_MS)
    assert held.release()
    lockwheel.journal.assert_renewed_before_expiry()


@pytest.mark.parametrize(
    "options", [{"ttl_ms": 300}, {"bound": True, "grace_ms": 300}, {"bound": True, "grace_ms": 0}]
)
def test_lock_renews_itself_by_default(lockwheel, lock, options):
    renewals = lockwheel.faults.add("flush-scripts", command="lock.renew")
    assert lock(renew_ms=None, **options).acquire()
    until(lambda: renewals.fired)


def test_lease_is_renewed_by_hand(lockwheel, lock):
    lost = []
    held = lock(on_lost=lost.append)
    assert not held.renew() and held.acquire()
    lockwheel.clock.advance("9m59s")
    assert held.renew() and holder(lockwheel)["ttl"] == LEASE_MS
    lockwheel.clock.advance("10m")
    assert not held.renew() and not held.is_held
    assert len(lost) == 1 and not held.renew() and len(lost) == 1


@pytest.mark.parametrize("loss", ["lease", "force", "other"])
def test_callback_is_called_for_a_lost_lock(lockwheel, lock, loss):
    lost = []
    held = lock(renew_ms=1, on_lost=lost.append)
    assert held.acquire()
    token = held.token
    with lockwheel.faults.gate(command="lock.renew") as gate:
        gate.wait()
        if loss == "lease":
            lockwheel.clock.advance("10m")
        else:
            lockwheel.call("LOCK.FORCE", "lock")
        if loss == "other":
            # Another grant to the same owner is not this one.
            lockwheel.call("LOCK.ACQUIRE", "lock", held.owner, "TTL", LEASE_MS)
    until(lambda: lost)
    assert lost[0].token == token and not held.is_held and not held.release()
    lockwheel.call("LOCK.FORCE", "lock")
    assert held.acquire() and held.token > token


def test_block_ends_with_an_error_if_the_lock_was_lost(lockwheel, lock):
    with pytest.raises(LockLost, match=r"the lock 'lock' with the token \d+ was lost"):
        with lock():
            lockwheel.call("LOCK.FORCE", "lock")
    with pytest.raises(KeyError):  # The error of the block itself is not replaced.
        with lock():
            lockwheel.call("LOCK.FORCE", "lock")
            raise KeyError


def test_lock_of_an_unreachable_server_is_lost_with_its_lease(lockwheel, lock):
    lost = []
    held = lock(ttl_ms=300, renew_ms=1, on_lost=lost.append)
    assert held.acquire()
    client = holder(lockwheel)["client"]
    lockwheel.faults.add("refuse")
    lockwheel.faults.add("close", client_id=client)
    until(lambda: lost)
    assert info(lockwheel) is not None, "the clock of the server has moved"


@pytest.mark.parametrize("failure", ["close", "lose-and-close", "error"])
def test_failed_renewal_is_tried_again(lockwheel, lock, failure):
    lost = []
    held = lock(renew_ms=1, on_lost=lost.append)
    assert held.acquire()
    argument = {"error": "ERR not now"}.get(failure)
    fault = lockwheel.faults.add(failure, argument, command="lock.renew", times=3)
    until(lambda: fault.fired == 3)
    lockwheel.clock.advance("9m59s")
    until(lambda: holder(lockwheel)["ttl"] == LEASE_MS)
    assert lost == [] and held.release()


def test_bound_lock_survives_its_connection(lockwheel, lock):
    held = lock(bound=True, grace_ms=60_000, renew_ms=1)
    assert held.acquire()
    first = holder(lockwheel)["client"]
    lockwheel.call("CLIENT", "KILL", "ID", first)
    until(lambda: holder(lockwheel)["client"] not in (0, first))
    lockwheel.clock.advance("9m59s")
    assert holder(lockwheel)["owner"] == held.owner
    assert held.release()


def test_lock_is_held_over_a_unix_socket(lockwheel_factory, lock_of, tmp_path):
    path = tmp_path / "socket"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    # Without a number of a port a server with a socket listens on no port.
    server = lockwheel_factory(options=["--port", str(port), "--unixsocket", str(path)])
    held = lock_of(f"unix://{path}", "lock", bound=True, grace_ms=60_000, renew_ms=1)
    assert held.acquire()
    first = holder(server)["client"]
    server.call("CLIENT", "KILL", "ID", first)
    until(lambda: holder(server)["client"] not in (0, first))
    assert holder(server)["owner"] == held.owner and held.release()


def test_bound_lock_is_released_over_a_new_connection(lockwheel, lock):
    held = lock(bound=True)
    assert held.acquire()
    lockwheel.call("CLIENT", "KILL", "ID", holder(lockwheel)["client"])
    assert held.release() and info(lockwheel) is None


HOLD = """
import sys
import redis
from lockwheel.locks import Lock

lock = Lock(redis.Redis.from_url(sys.argv[1]), "lock", ttl_ms=600_000, bound=True, grace_ms=5_000)
assert lock.acquire()
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("end", ["kill", "exit"])
def test_bound_lock_of_an_ended_process_is_released_after_its_grace(lockwheel, lock, aside, end):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, lockwheel.url], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with process:
        assert process.stdout.readline() == b"held\n"
        waits = aside(lock().acquire, 60_000)
        until(lambda: queue(lockwheel))
        if end == "kill":
            process.kill()
    until(lambda: holder(lockwheel)["client"] == 0)
    lockwheel.clock.advance("4s999ms")
    assert not waits.done()
    lockwheel.clock.advance("1ms")
    assert waits.result()


def test_acquiring_again_after_a_lost_reply_holds_the_lock_once(lockwheel, lock):
    lockwheel.faults.add("lose-and-close", command="lock.acquire", nth=1)
    held = lock()
    with pytest.raises(redis.ConnectionError):
        held.acquire()
    assert not held.is_held
    assert held.acquire() and holder(lockwheel)["count"] == 2
    assert held.release() and info(lockwheel) is None


def test_connection_of_a_lock_is_not_one_of_the_pool(lockwheel, connect):
    client = connect(max_connections=1)
    with Lock(client, "lock", ttl_ms=LEASE_MS, bound=True):
        bound_to = holder(lockwheel)["client"]
        assert client.client_id() != bound_to
        client.connection_pool.disconnect()
        assert holder(lockwheel)["client"] == bound_to


def test_settings_of_the_client_apply(lock_of, lockwheel_factory):
    server = lockwheel_factory(options=["--requirepass", "secret"])
    for protocol in (2, 3):
        options = {"client_options": {"db": 3, "protocol": protocol, "client_name": "worker"}}
        with lock_of(server.url, "lock", **options) as held:
            assert server.call("DBSIZE") == 0
            (lock,) = server.journal.locks()
            assert (lock["database"], lock["owner"], lock["name"]) == (3, held.owner, "worker")


def test_client_of_a_sentinel_takes_the_lock_of_the_master(lockwheel_factory, lock_of, tmp_path):
    masters = [lockwheel_factory(), lockwheel_factory()]
    file = tmp_path / "sentinel.conf"
    file.write_text(f"sentinel monitor mymaster 127.0.0.1 {masters[0].port} 1\n")
    sentinel = lockwheel_factory(options=[str(file), "--sentinel"])

    def client_of(library):
        return library.Sentinel([(sentinel.host, sentinel.port)]).master_for("mymaster")

    held = lock_of(None, "lock", client_of=client_of)
    assert held.acquire() and holder(masters[0])["owner"] == held.owner
    sentinel.call("SENTINEL", "REMOVE", "mymaster")
    sentinel.call("SENTINEL", "MONITOR", "mymaster", "127.0.0.1", masters[1].port, 1)
    assert held.renew()
    masters[0].call("CLIENT", "KILL", "TYPE", "normal")
    # The new master has granted nothing.
    assert not held.renew() and not held.is_held
    assert held.acquire() and holder(masters[1])["owner"] == held.owner


class Cluster:
    """A cluster of three nodes. With `is_secure` it has TLS and the user of the tests."""

    def __init__(self, folder, is_secure):
        self.client_options, directives, environment = {}, [], dict(os.environ)
        if is_secure:
            directives = "--requirepass secret --user worker on >word ~* &* +@all".split()
            environment["TLS"] = certificate = str(folder / "certificate")
            self.client_options = {"username": "worker", "password": "word"}
            self.client_options |= {"ssl": True, "ssl_ca_certs": certificate}
        self._script = subprocess.Popen(
            [os.environ["CLUSTER"], program(), *directives],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        lines = [self._script.stdout.readline().split() for _ in range(3)]
        #: The processes of the nodes, by their ports.
        self.processes = {int(port): int(process) for port, process in lines}
        sentinel = self.sentinel(redis)
        #: The port of the node that leads.
        self.leader = sentinel.discover_master("mymaster")[1]
        for client in sentinel.sentinels:
            client.close()

    def sentinel(self, library):
        nodes = [("127.0.0.1", port) for port in self.processes]
        options = self.client_options
        return library.Sentinel(nodes, sentinel_kwargs=options, **options)

    def locks(self, loop, **options):
        """A `Lock` and an `AsyncLock`, with different keys."""
        threads = self.sentinel(redis).master_for("mymaster", db=3)
        tasks = self.sentinel(redis_asyncio).master_for("mymaster", db=3)
        return [Lock(threads, "threads", **options), OnLoop(loop, tasks, "tasks", **options)]

    def __exit__(self, *_):
        self._script.__exit__(None, None, None)


@pytest.fixture
def cluster(tmp_path):
    """Starts clusters that end with the test."""
    with contextlib.ExitStack() as clusters:

        def cluster(is_secure):
            made = Cluster(tmp_path, is_secure)
            clusters.push(made)
            return made

        yield cluster


def answered(call):
    """The answer to a call of a lock; nothing if the server has ended, or does not lead yet."""
    try:
        return call()
    except redis.RedisError:
        return None


@pytest.mark.parametrize("end", ["SIGKILL", "SIGSTOP"])
def test_locks_outlive_the_leader_of_a_cluster(cluster, loop, end):
    nodes = cluster(is_secure=end == "SIGKILL")
    # A renewal waits for a third of the lease for a server that is stopped.
    options = {"ttl_ms": LEASE_MS if end == "SIGKILL" else 12_000, "renew_ms": 50}
    held = nodes.locks(loop, **options)
    assert all(lock.acquire() for lock in held)
    os.kill(nodes.processes.pop(nodes.leader), signal.Signals[end])
    others = nodes.locks(loop, **options)
    for lock, other in zip(held, others):
        until(lambda: answered(lock.renew) or not lock.is_held)
        assert lock.is_held and not other.acquire()
        assert lock.release() and other.acquire() and other.token > lock.token
        assert other.release()


# Shows L17, L18.
def test_locks_of_one_address_are_lost_before_the_cluster_grants_them_again(cluster, loop):
    nodes = cluster(is_secure=False)
    lost = []
    options = {"ttl_ms": 6_000, "renew_ms": 50, "on_lost": lost.append}
    held = [
        Lock(redis.Redis(port=nodes.leader, db=3), "threads", **options),
        OnLoop(loop, redis_asyncio.Redis(port=nodes.leader, db=3), "tasks", **options),
    ]
    assert all(lock.acquire() for lock in held)
    os.kill(nodes.processes.pop(nodes.leader), signal.SIGKILL)
    for lock in held:
        with pytest.raises(redis.ConnectionError):
            lock.renew()
    for lock, other in zip(held, nodes.locks(loop, ttl_ms=LEASE_MS, wait_ms=60_000)):
        until(lambda: answered(other.acquire))
        assert not lock.is_held and other.token > lock.token and other.release()
    until(lambda: len(lost) == 2)


def test_example_of_the_readme_survives_a_failover(cluster):
    (example,) = [code for code in blocks("python") if "10.0.0.1" in code]
    nodes = cluster(is_secure=False)
    for number, port in enumerate(nodes.processes, 1):
        example = example.replace(f'"10.0.0.{number}", 6379', f'"127.0.0.1", {port}')
    names = {}
    exec(example, names)
    lock = names["lock"]
    assert lock.acquire()
    os.kill(nodes.processes[nodes.leader], signal.SIGKILL)
    until(lambda: answered(lock.renew) or not lock.is_held)
    assert lock.is_held and lock.release()


# Shows L17, L18.
def test_bound_locks_of_a_stopped_cluster_are_lost_with_their_grace(cluster, loop):
    nodes, lost = cluster(is_secure=False), []
    options = {"ttl_ms": LEASE_MS, "bound": True, "grace_ms": 300, "on_lost": lost.append}
    held = nodes.locks(loop, **options)
    assert all(lock.acquire() for lock in held)
    for process in nodes.processes.values():
        os.kill(process, signal.SIGSTOP)
    until(lambda: not any(lock.is_held for lock in held))
    until(lambda: len(lost) == 2)


def test_clients_without_a_server_of_their_own_are_refused(lock_of):
    def replica(library):
        return library.Sentinel([("127.0.0.1", 1)]).slave_for("mymaster")

    def other_library(library):
        return redis.Redis() if library is redis_asyncio else redis_asyncio.Redis()

    for client_of, problem in [
        (replica, "of Sentinel.master_for, not of slave_for"),
        (other_library, "expected a redis.*Redis, .*, and not a Redis"),
        (lambda library: object.__new__(library.RedisCluster), "and not a RedisCluster"),
        (lambda library: None, "and not a NoneType"),
    ]:
        with pytest.raises(TypeError, match=problem):
            lock_of(None, "lock", client_of=client_of)


def test_lock_is_not_held_after_its_lease_while_a_renewal_waits(lockwheel, lock, pass_s):
    held = lock(renew_ms=1)
    assert held.acquire()
    with lockwheel.faults.gate(command="lock.renew") as gate:
        gate.wait()
        assert held.is_held
        pass_s(LEASE_MS / 1000)
        assert not held.is_held
    held.release()


@pytest.mark.parametrize("renew_ms", [0, 1])
def test_bound_lock_of_a_stopped_server_is_lost_with_its_grace(lockwheel, lock, renew_ms):
    held = lock(bound=True, grace_ms=300, renew_ms=renew_ms)
    assert held.acquire()
    process = int(lockwheel.call("INFO", "server").split("process_id:")[1].split()[0])
    os.kill(process, signal.SIGSTOP)
    try:
        until(lambda: not held.is_held)
    finally:
        os.kill(process, signal.SIGCONT)
    held.release()


def accepts(path):
    """Whether a server accepts connections to the socket, whose file exists before it does."""
    with socket.socket(socket.AF_UNIX) as connection:
        return connection.connect_ex(str(path)) == 0


@pytest.fixture
def plain_redis(tmp_path):
    """The URL of a server without native locks: a redis-server, if it is installed."""
    path = tmp_path / "socket"
    options = ["--port", "0", "--unixsocket", str(path), "--save", "", "--dir", str(tmp_path)]
    try:
        process = subprocess.Popen(["redis-server", *options], stdout=subprocess.DEVNULL)
    except FileNotFoundError:
        pytest.skip("there is no redis-server")
    until(lambda: accepts(path))
    yield f"unix://{path}"
    process.terminate()
    process.wait()


def test_server_without_native_locks_is_a_clear_error(plain_redis, lock_of):
    held = lock_of(plain_redis, "lock")
    with pytest.raises(NoNativeLocks, match="it must be Lockwheel 0.1 or later"):
        held.acquire()
    assert not held.is_held


def test_other_errors_of_the_server_are_passed_on(lockwheel, lock):
    lockwheel.call("SET", "lock", "value")
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        lock().acquire()


def test_no_connection_stays_behind(lockwheel, lock):
    assert lock().acquire()
    others = lockwheel.call("CLIENT", "LIST").count("id=")
    held = lock("another")
    for _ in range(3):
        assert held.acquire() and held.release() and not lock().acquire()
    gc.collect()
    until(lambda: lockwheel.call("CLIENT", "LIST").count("id=") == others)


def test_cancelled_task_leaves_the_queue(lockwheel):
    async def scenario():
        async with redis_asyncio.Redis.from_url(lockwheel.url) as client:
            async with AsyncLock(client, "lock", ttl_ms=LEASE_MS):
                waiter = AsyncLock(client, "lock", ttl_ms=LEASE_MS, wait_ms=60_000)
                waits = asyncio.create_task(waiter.acquire())
                while not queue(lockwheel):
                    await client.ping()
                waits.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waits
                while queue(lockwheel):
                    await client.ping()
                assert not waiter.is_held

    asyncio.run(scenario())


def test_callback_may_be_a_coroutine_function(lockwheel):
    async def scenario():
        lost = asyncio.Event()

        async def on_lost(lock):
            assert not await lock.release()
            lost.set()

        async with redis_asyncio.Redis.from_url(lockwheel.url) as client:
            lock = AsyncLock(client, "lock", ttl_ms=LEASE_MS, renew_ms=1, on_lost=on_lost)
            assert await lock.acquire()
            lockwheel.call("LOCK.FORCE", "lock")
            await lost.wait()

    asyncio.run(scenario())
