"""What the tests stand on: clients of the server under test, and threads that tell what went wrong
in them."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

pytest_plugins = ["pytester"]


@pytest.fixture
def connect(lockwheel):
    """Makes clients of a server, that of the test if no other is named. They end with the test."""
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
    """Runs functions on threads of their own; `result()` of what it returns waits for one."""
    with ThreadPoolExecutor() as threads:
        yield threads.submit
