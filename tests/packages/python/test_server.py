"""The start, the commands and the end of a server."""

import gc
import os
import signal
import socket
import subprocess
import sys
import threading
from select import select

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

import lockwheel
from waiting import LIMIT_S


def process_id(server):
    """The id of a server's process."""
    lines = server.call("INFO", "server").splitlines()
    return int(next(line for line in lines if line.startswith("process_id:")).partition(":")[2])


def ends(process):
    """Whether a process that is open by `os.pidfd_open` ends."""
    return bool(select([process], [], [], LIMIT_S)[0])


def refuses(address):
    """Whether connections to the address are refused."""
    with socket.socket() as probe:
        return probe.connect_ex(address) != 0


def test_server_starts_and_stops_with_its_block():
    with lockwheel.start() as server:
        assert server.url == f"redis://{server.host}:{server.port}"
        with redis.Redis.from_url(server.url, decode_responses=True) as client:
            assert client.set("lock", "token", nx=True, px=30_000)
            assert server.call("GET", "lock") == "token"
        address, process = (server.host, server.port), os.pidfd_open(process_id(server))
        assert str(server.port) in repr(server)
    assert ends(process) and refuses(address)
    os.close(process)
    assert "stopped" in repr(server)
    assert "bye bye" in server.log[-1]


def test_stopped_server_refuses_calls():
    server = lockwheel.start()
    server.stop()
    server.stop()
    with pytest.raises(lockwheel.LockwheelError, match="has been stopped"):
        server.call("PING")
    with pytest.raises(lockwheel.LockwheelError, match="has been stopped"):
        server.clock.now()


def test_replies_are_those_of_python(lockwheel):
    assert lockwheel.call("PING") == "PONG"
    assert lockwheel.call("SET", b"k", "\u00e9") == "OK"
    assert lockwheel.call("GET", "k") == "\u00e9"
    assert lockwheel.call("GET", "nothing") is None
    assert lockwheel.call("INCRBY", "n", 41) == 41
    assert lockwheel.call("RPUSH", "l", "a", 1.5) == 2
    assert lockwheel.call("LRANGE", "l", 0, -1) == ["a", "1.5"]
    assert lockwheel.call("SET", "raw", b"\xff\r\n") == "OK"
    assert lockwheel.call("GET", "raw").encode("utf-8", "surrogateescape") == b"\xff\r\n"


def test_an_error_is_raised(lockwheel):
    from lockwheel import ReplyError

    with pytest.raises(ReplyError, match="^ERR unknown command 'NOSUCH'"):
        lockwheel.call("NOSUCH")
    assert lockwheel.call("EVAL", "return {1, redis.error_reply('MY error')}", 0)[0] == 1
    assert lockwheel.call("PING") == "PONG"


def test_each_thread_is_a_client_of_its_own(lockwheel, aside):
    mine = lockwheel.call("CLIENT", "ID")
    assert lockwheel.call("CLIENT", "ID") == mine
    assert aside(lockwheel.call, "CLIENT", "ID").result() != mine


def test_clock_moves_while_the_session_is_in_a_transaction(lockwheel):
    assert lockwheel.call("MULTI") == "OK"
    lockwheel.clock.freeze()
    assert lockwheel.call("SUBSCRIBE", "channel") == "QUEUED"
    lockwheel.clock.advance("1s")


def test_options_are_those_of_redis_server(tmp_path):
    with lockwheel.start(options=["--requirepass", "se:cret/", "--databases", "3"]) as server:
        with redis.Redis.from_url(server.url) as client:
            assert client.config_get("databases") == {"databases": "3"}
        with redis.Redis(host=server.host, port=server.port, retry=None) as other:
            with pytest.raises(redis.AuthenticationError):
                other.get("lock")
        server.clock.freeze()
    file = tmp_path / "redis.conf"
    file.write_text("databases 5\n")
    with lockwheel.start(options=[str(file), "--maxclients", "77"]) as server:
        assert server.call("CONFIG", "GET", "databases") == ["databases", "5"]
        assert server.call("CONFIG", "GET", "maxclients") == ["maxclients", "77"]


def test_options_start_a_sentinel_or_a_cluster():
    with lockwheel.start(options=["--cluster-enabled", "yes"]) as server:
        assert "cluster_state:ok" in server.call("CLUSTER", "INFO")
    with lockwheel.start(options=["--sentinel"]) as server:
        assert server.call("SENTINEL", "MASTERS") == []


def test_failed_start_reports_the_output():
    problem = r"before it accepted connections \(status 1\)"
    with pytest.raises(lockwheel.StartError, match=problem) as failed:
        lockwheel.start(options=["--nosuch", "yes"])
    assert "--end-with-stdin yes --nosuch yes" in str(failed.value)
    assert "Bad directive" in str(failed.value)


def test_start_without_a_log_fails_after_the_limit(monkeypatch):
    monkeypatch.setattr("lockwheel._server.START_LIMIT_S", 0.01)
    with pytest.raises(lockwheel.StartError, match="did not report its port within 0.01 s"):
        lockwheel.start(options=["--loglevel", "warning"])


def test_used_port_fails_the_start(lockwheel):
    from lockwheel import StartError, start

    with pytest.raises(StartError, match="in use"):
        start(options=["--port", str(lockwheel.port)])


def test_environment_does_not_set_options(monkeypatch):
    monkeypatch.setenv("LOCKWHEEL_REQUIREPASS", "secret")
    monkeypatch.setenv("LOCKWHEEL_DATABASES", "3")
    with lockwheel.start() as server:
        assert server.call("CONFIG", "GET", "databases") == ["databases", "16"]


def test_servers_are_independent():
    servers = [lockwheel.start() for _ in range(5)]
    assert len({server.url for server in servers}) == 5
    assert [server.call("SETNX", "lock", "token") for server in servers] == [1] * 5
    for server in servers:
        server.stop()


def test_servers_start_on_many_threads_at_once(aside):
    def start_and_stop(_):
        with lockwheel.start() as server:
            return server.call("SETNX", "lock", "token")

    assert [aside(start_and_stop, number).result() for number in range(16)] == [1] * 16


def test_reset_restores_the_state_after_the_start(lockwheel, connect):
    client = connect()
    client.client_setname("worker")
    lockwheel.call("SELECT", 3)
    lockwheel.call("SETNX", "lock", "token")
    lockwheel.call("CONFIG", "SET", "notify-keyspace-events", "KEA")
    digest = lockwheel.call("SCRIPT", "LOAD", "return 1")
    lockwheel.clock.freeze()
    lockwheel.faults.add("error", "LOADING not yet", command="flushall")
    gate = lockwheel.faults.gate(command="del")
    port = lockwheel.port
    lockwheel.reset()
    assert lockwheel.port == port
    assert lockwheel.call("DBSIZE") == 0
    assert lockwheel.call("CLIENT", "INFO").split(" db=")[1].split(" ")[0] == "0"
    assert not client.client_getname()
    assert lockwheel.call("CONFIG", "GET", "notify-keyspace-events")[1] == ""
    assert lockwheel.call("SCRIPT", "EXISTS", digest) == [0]
    assert lockwheel.clock.now().rate == 1
    assert lockwheel.faults.list() == []
    lockwheel.journal.assert_every_lock_has_a_lease()
    assert gate.number > 0


@pytest.mark.lockwheel(frozen=True)
def test_reset_stops_the_clock_of_a_frozen_server(lockwheel):
    lockwheel.clock.run()
    lockwheel.reset()
    assert lockwheel.clock.now().rate == 0


@pytest.mark.lockwheel(frozen=True)
def test_clients_reconnect_after_a_restart(lockwheel, connect):
    client = connect(retry=Retry(NoBackoff(), 1))
    assert client.set("lock", "token")
    process, url = process_id(lockwheel), lockwheel.url
    lockwheel.restart()
    assert lockwheel.url == url
    assert process_id(lockwheel) != process
    assert client.get("lock") is None
    assert lockwheel.clock.now().rate == 0
    lockwheel.stop()
    lockwheel.restart()
    assert client.ping()


def test_log_is_restored_after_a_restart(tmp_path):
    options = ["--appendonly", "yes", "--dir", str(tmp_path)]
    with lockwheel.start(options=options) as server:
        server.call("SET", "lock", "token")
        server.restart()
        assert server.call("GET", "lock") == "token"


def test_server_ends_when_garbage_collected():
    server = lockwheel.start()
    process = os.pidfd_open(process_id(server))
    del server
    gc.collect()
    assert ends(process)
    os.close(process)


# Starts a server, prints its process id and port, and continues with the end of the script.
SCRIPT = """
import os, sys
import lockwheel
server = lockwheel.start()
info = server.call("INFO", "server").split("process_id:")[1].split()[0]
print(info, server.port, flush=True)
"""


def script(end):
    """Runs the script in a process and a group of its own. Returns the process, the pidfd of its
    server, and the server's address."""
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", SCRIPT + end]
    owner = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    pid, port = owner.stdout.readline().split()
    return owner, os.pidfd_open(int(pid)), (lockwheel.Server.host, int(port))


@pytest.mark.parametrize("deadly", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_server_ends_with_a_killed_process(deadly):
    owner, server, address = script("sys.stdin.read()")
    with owner:
        owner.send_signal(deadly)
        # Python handles an interrupt that comes just before a read only when the read returns.
        owner.stdin.close()
        assert ends(server) and refuses(address)
    os.close(server)
    assert owner.returncode == -deadly


@pytest.mark.parametrize("end", ["", "sys.exit(3)", "os._exit(4)"])
def test_server_ends_with_its_process(end):
    owner, server, address = script("sys.stdin.read()\n" + end)
    with owner:
        owner.stdin.close()
        assert ends(server) and refuses(address)
    os.close(server)


def test_server_survives_the_end_of_a_forked_process():
    child_and_parent = """
child = os.fork()
if child == 0:
    server.call("SET", "child", server.call("CLIENT", "ID"))
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
print(int(server.call("GET", "child")) != server.call("CLIENT", "ID"), flush=True)
sys.stdin.read()
"""
    owner, server, _ = script(child_and_parent)
    with owner:
        assert owner.stdout.readline() == "True\n"
        owner.stdin.close()
        assert ends(server)
    os.close(server)


def test_server_survives_an_interrupt_from_the_terminal():
    owner, server, _ = script("""
try:
    print("waits", flush=True)
    sys.stdin.read()
except KeyboardInterrupt:
    print(server.call("PING"), flush=True)
""")
    with owner:
        assert owner.stdout.readline() == "waits\n"
        os.killpg(owner.pid, signal.SIGINT)
        owner.stdin.close()  # As in the test of a killed process.
        assert owner.stdout.readline() == "PONG\n"
        assert ends(server)
    os.close(server)


def test_stop_leaves_no_thread_or_socket():
    before = threading.active_count()
    for _ in range(3):
        with lockwheel.start() as server:
            server.call("PING")
            server.clock.now()
    assert threading.active_count() == before
    gc.collect()  # A socket or pipe that is left open causes a warning, which is an error.
