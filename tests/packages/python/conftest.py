"""Fixtures: clients of the server under test, and threads with exceptions that reach the test."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

pytest_plugins = ["pytester"]


@pytest.fixture
def connect(lockwheel):
    """Makes clients of a server, by default that of the test. They are closed with the test."""
    clients = []

    def connect(server=lockwheel, retry=None, **options):
        options = {"decode_responses": True, "retry": retry, **options}
        clients.append(redis.Redis.from_url(server.url, **options))
        return clients[-1]

    yield connect
    for client in clients:
        client.close()


@pytest.fixture
def aside():
    """Runs functions on threads; `result()` of the returned future waits for one."""
    with ThreadPoolExecutor() as threads:
        yield threads.submit
