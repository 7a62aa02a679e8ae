"""Shared fixtures: clients of the main server, and the report."""

import os
import uuid

import pytest
import redis
from redis import asyncio as redis_asyncio

import servers

pytest_plugins = ["report"]


def pytest_sessionstart():
    """Every server starts empty; what tests share on one they keep apart by the names of keys."""
    for url in {servers.MAIN, *os.environ["REDIS_SERVERS"].split(",")}:
        with redis.Redis.from_url(url) as client:
            client.flushall()


@pytest.fixture
def name():
    """A name that no other test uses."""
    return f"resource-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def client():
    """A client of the main server."""
    with redis.Redis.from_url(servers.MAIN) as client:
        yield client


@pytest.fixture
async def async_client():
    """The same for tasks."""
    async with redis_asyncio.Redis.from_url(servers.MAIN) as client:
        yield client
