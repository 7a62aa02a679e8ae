"""The Celery application under test: broker, results and locks all on the main server.

It is imported by the workers and schedulers too, which are processes of their own. `NAMESPACE`
keeps what one test sends apart from what another does.
"""

import os
import time

import redis
from celery import Celery
from celery_singleton import Singleton

import servers
from contention import MAX_WAIT_S

NAMESPACE = os.environ["CELERY_NAMESPACE"]

app = Celery("clients", broker=servers.MAIN, backend=servers.MAIN)
app.conf.update(
    task_default_queue=NAMESPACE,
    broker_connection_retry_on_startup=True,
    singleton_key_prefix=NAMESPACE + ":",
    beat_max_loop_interval=1,
    beat_schedule={"every-second": {"task": "celery_app.tick", "schedule": 1.0}},
    redbeat_redis_url=servers.MAIN,
    redbeat_key_prefix=NAMESPACE + ":",
    redbeat_lock_timeout=5,
)


def _runs(which):
    """Stores the start time of a run of a task."""
    with redis.Redis.from_url(servers.MAIN) as client:
        client.rpush(f"{NAMESPACE}:runs:{which}", time.time())


@app.task(base=Singleton)
def once(which, seconds):
    """Runs for a while, one at a time."""
    _runs(which)
    time.sleep(seconds)
    return which


@app.task(base=Singleton)
def until_stopped(which):
    """Runs until the test ends it, one at a time."""
    _runs(which)
    with redis.Redis.from_url(servers.MAIN) as client:
        assert client.blpop(f"{NAMESPACE}:end:{which}", timeout=MAX_WAIT_S), "no order to end"
    return which


def stop(which):
    """Ends the task `until_stopped`."""
    with redis.Redis.from_url(servers.MAIN) as client:
        client.rpush(f"{NAMESPACE}:end:{which}", "now")


@app.task(base=Singleton, lock_expiry=1)
def leased(which, seconds):
    """The same with a lease."""
    _runs(which)
    time.sleep(seconds)


@app.task(base=Singleton)
def fails(which):
    """Runs and fails."""
    _runs(which)
    raise ValueError(which)


@app.task(base=Singleton, unique_on=["which"], raise_on_duplicate=True)
def by_name(which, _other):
    """Is the same task whatever its second argument is."""
    _runs(which)


@app.task
def tick():
    """What the scheduler sends."""
    _runs("tick")
