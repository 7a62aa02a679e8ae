"""What every test stands on: clients of the main server, and the report.

A test's docstring is the behaviour that it proves; the module's `LIBRARY` says whose it is, as
(name shown, name of the installed distribution).
"""

import json
import os
import uuid
from importlib import metadata

import pytest
import redis
from redis import asyncio as redis_asyncio

import servers

_outcome = pytest.StashKey()


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


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Keeps the worst that a test's three phases gave, and tells the report at the last of them."""
    phase = yield
    outcome, reason = item.stash.get(_outcome, ("passed", None))
    if phase.failed:
        outcome, reason = "failed", str(call.excinfo.value) or call.excinfo.typename
    elif phase.skipped:
        outcome, reason = "skipped", call.excinfo.value.msg
    item.stash[_outcome] = outcome, reason
    if phase.when == "teardown":
        _report(item, outcome, reason)
    return phase


def _report(item, outcome, reason):
    path = os.environ.get("CLIENTS_REPORT")
    if not path:
        return
    library, distribution = item.module.LIBRARY
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    line = {
        "library": library,
        "version": _version(distribution),
        "behaviour": item.function.__doc__.format(**parameters),
        "outcome": outcome,
    }
    if reason is not None:
        line["reason"] = reason.splitlines()[0]
    with open(path, "a", encoding="utf-8") as report:
        report.write(json.dumps(line) + "\n")


def _version(distribution):
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "not installed"
