"""RedBeat: of two scheduler processes, one holds the lock and sends tasks."""

import json
import os
import signal
import subprocess
import sys
import time
import uuid

import pytest

from contention import MAX_WAIT_S, eventually

LIBRARY = ("RedBeat", "celery-redbeat")

# Renewed each second: a busy machine may stand for four.
LOCK_TIMEOUT_S = 5


@pytest.fixture
def schedulers():
    """Starts schedulers that share a name space, and ends them."""
    namespace = "redbeat-" + uuid.uuid4().hex[:8]
    running = []

    def start():
        command = [sys.executable, "-m", "celery", "--app", "celery_app", "--quiet", "beat"]
        options = ["--scheduler", "redbeat.RedBeatScheduler", "--pidfile=", "--loglevel=ERROR"]
        environment = {**os.environ, "CELERY_NAMESPACE": namespace}
        running.append(subprocess.Popen(command + options, env=environment))
        return running[-1]

    start.namespace = namespace
    yield start
    for scheduler in running:
        scheduler.kill()
        scheduler.wait()


def test_one_sends(client, schedulers):
    """RedBeat: of two schedulers the one with the lock sends, and holds it beyond its lease"""
    lock, queue = schedulers.namespace + "::lock", schedulers.namespace
    first = schedulers()
    eventually(lambda: client.exists(lock))
    holder = client.get(lock)
    schedulers()
    since = time.monotonic()
    while time.monotonic() - since < LOCK_TIMEOUT_S + 2:
        assert client.get(lock) == holder
        assert 0 < client.pttl(lock) <= LOCK_TIMEOUT_S * 1000
        time.sleep(0.05)
    eventually(lambda: client.llen(queue) > 0)
    # A message names the process that sent it.
    senders = {json.loads(each)["headers"]["origin"] for each in client.lrange(queue, 0, -1)}
    assert [sender.split("@")[0] for sender in senders] == [f"gen{first.pid}"]
    assert client.zcard(schedulers.namespace + "::schedule") == 1


def test_takes_over(client, schedulers):
    """RedBeat: when the holder is killed another takes over, after the lease and not before"""
    lock, queue = schedulers.namespace + "::lock", schedulers.namespace
    first = schedulers()
    eventually(lambda: client.exists(lock))
    second = schedulers()
    eventually(lambda: client.llen(queue) > 0)
    holder = client.get(lock)
    first.kill()
    first.wait()
    since = time.monotonic()
    held_by, remaining_ms = client.pipeline().get(lock).pttl(lock).execute()
    eventually(lambda: client.get(lock) not in (holder, None))
    # On a machine that stood for as long as the lease it may have ended before it was looked at.
    if held_by == holder:
        assert time.monotonic() - since >= remaining_ms / 1000
    sent = client.llen(queue)
    eventually(lambda: client.llen(queue) > sent)
    assert second.poll() is None


def test_hands_over(client, schedulers):
    """RedBeat: a scheduler that stops frees the lock"""
    lock = schedulers.namespace + "::lock"
    scheduler = schedulers()
    eventually(lambda: client.llen(schedulers.namespace) > 0)
    scheduler.send_signal(signal.SIGTERM)
    scheduler.wait(timeout=MAX_WAIT_S)
    assert not client.exists(lock)
