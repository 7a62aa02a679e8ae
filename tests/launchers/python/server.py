"""Shared code of the tests: the program, free ports, and the requests to a running server."""

import os
import socket
import time

PROGRAM = os.environ["REDIS_SERVER"]

# The limit of every wait, much longer than any step takes.
MAX_WAIT_SECONDS = 20

COMPARE_AND_DELETE = (
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) "
    "else return 0 end"
)


def free_port():
    """A free port of 127.0.0.1."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def use(client):
    """Acquires and releases a lock. Returns the server's process id."""
    assert client.set("lock", "token", nx=True, px=30_000)
    assert not client.set("lock", "other", nx=True, px=30_000)
    assert client.get("lock") == b"token"
    assert client.eval(COMPARE_AND_DELETE, 1, "lock", "other") == 0
    assert client.eval(COMPARE_AND_DELETE, 1, "lock", "token") == 1
    return client.info("server")["process_id"]


def is_running(process_id):
    """Whether the process runs; a zombie counts as ended."""
    try:
        with open(f"/proc/{process_id}/stat", encoding="utf-8") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until(what, holds):
    """Waits until the condition holds."""
    end = time.monotonic() + MAX_WAIT_SECONDS
    while not holds():
        assert time.monotonic() < end, f"timed out: {what}"
        time.sleep(0.01)
