"""The servers from environment variables, and the tests that own the disposable ones.

A test that kills servers must own them: no other test may use its slice.
"""

import os

import redis

MAIN = os.environ["REDIS_URL"]
TLS = os.environ.get("REDIS_TLS_URL")
TLS_CA = os.environ.get("REDIS_TLS_CA")
CLUSTER = os.environ.get("REDIS_CLUSTER_URL")
SENTINEL = os.environ.get("REDIS_SENTINEL_URL")
SENTINEL_MASTER = "mymaster"

_DISPOSABLE = os.environ["REDIS_SERVERS"].split(",")

POTTERY = _DISPOSABLE[0:5]
POTTERY_KILLED = _DISPOSABLE[5:8]
POTTERY_LOST = _DISPOSABLE[8:11]
NEXT_ID_KILLED = _DISPOSABLE[11:13] + _DISPOSABLE[0:1]
AIOREDLOCK = _DISPOSABLE[0:3]
AIOREDLOCK_KILLED = _DISPOSABLE[13:16]


def host_and_port(url):
    """The host and port of a URL of this suite, for clients that accept no URL."""
    connection = redis.connection.parse_url(url)
    return connection["host"], connection.get("port", 6379)


def kill(url):
    """Stops a disposable server; it is not restarted."""
    with redis.Redis.from_url(url, retry=None) as client:
        client.shutdown(nosave=True)
