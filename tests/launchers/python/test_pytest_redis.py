"""pytest-redis: its fixtures, given our program as the executable."""

from pathlib import Path

import pytest
import redis
from mirakuru.exceptions import AlreadyRunning
from pytest_redis import factories
from pytest_redis.executor import RedisExecutor

import server

LIBRARY = ("pytest-redis", "pytest-redis")

PORT = server.free_port()

redis_launched = factories.redis_proc(executable=server.PROGRAM, port=PORT)
client_launched = factories.redisdb("redis_launched")


def executor(port, folder, **options):
    """As the fixture makes one."""
    return RedisExecutor(
        executable=server.PROGRAM,
        databases=8,
        redis_timeout=0,
        loglevel="notice",
        host="127.0.0.1",
        port=port,
        datadir=folder,
        **options,
    )


def test_serves(redis_launched, client_launched):
    """starts on the port asked for, and serves"""
    assert redis_launched.port == PORT
    assert server.use(client_launched) == redis_launched.process.pid
    with redis.Redis(port=PORT) as client:
        assert server.use(client) == redis_launched.process.pid


def test_other_tests_find_it_empty(client_launched):
    """is emptied between two tests"""
    assert client_launched.dbsize() == 0
    client_launched.set("a", "b")


def test_port_is_taken(redis_launched, tmp_path):
    """refuses a port that is taken"""
    second = executor(PORT, tmp_path)
    with pytest.raises(AlreadyRunning):
        second.start()


def test_leaves_nothing(tmp_path):
    """ends with status 0, and leaves no process, socket or pidfile"""
    launched = executor(server.free_port(), tmp_path)
    launched.start()
    process = launched.process
    assert Path(launched.unixsocket).is_socket()
    assert int((tmp_path / f"redis-server.{launched.port}.pid").read_text()) == process.pid
    launched.stop()
    assert process.returncode == 0
    assert not server.is_running(process.pid)
    left = {path.suffix for path in tmp_path.iterdir()}
    assert not left & {".sock", ".pid"}, left


def test_starts_again(tmp_path):
    """is stopped and started again on the same port, with a password and with what to save"""
    options = {"password": "secret", "save": "3600 1", "syslog_enabled": False}
    launched = executor(server.free_port(), tmp_path, **options)
    for _ in range(3):
        with launched:
            with redis.Redis(port=launched.port, password="secret") as client:
                assert server.use(client) == launched.process.pid
            with redis.Redis(unix_socket_path=launched.unixsocket, password="secret") as client:
                assert client.ping()
            with redis.Redis(port=launched.port) as other:
                with pytest.raises(redis.AuthenticationError):
                    other.ping()
