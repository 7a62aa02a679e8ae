"""The pytest plugin: the fixtures `lockwheel` and `lockwheel_factory`, and the marker `lockwheel`.

Each test has its own servers, so tests may run in any order and in parallel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Protocol

import pytest

from lockwheel._errors import LockwheelError
from lockwheel._server import Server, start

_ENTRIES_SHOWN = 30

_MARKER = (
    "lockwheel(frozen=False, clock_start=None, options=[], check=[]): how the servers of a test are "
    "started, and the checks that run when the test has passed, such as no-lock-held"
)

_SERVERS = "_lockwheel_servers"


class Factory(Protocol):
    """Starts a server that stops with the test."""

    def __call__(
        self,
        *,
        frozen: bool | None = None,
        clock_start: datetime | None = None,
        options: Sequence[str] | None = None,
    ) -> Server: ...


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _MARKER)


@pytest.fixture
def lockwheel_factory(request: pytest.FixtureRequest) -> Iterator[Factory]:
    """Starts servers for this test: ``lockwheel_factory(frozen=True, clock_start=datetime(...),
    options=[...])``. The marker gives the defaults."""
    servers: list[Server] = []
    setattr(request.node, _SERVERS, servers)
    marked = _marked(request.node)

    def factory(
        *,
        frozen: bool | None = None,
        clock_start: datetime | None = None,
        options: Sequence[str] | None = None,
    ) -> Server:
        server = start(
            frozen=marked["frozen"] if frozen is None else frozen,
            clock_start=marked["clock_start"] if clock_start is None else clock_start,
            options=marked["options"] if options is None else options,
        )
        servers.append(server)
        return server

    yield factory
    for server in servers:
        server.stop()


@pytest.fixture
def lockwheel(lockwheel_factory: Factory) -> Server:
    """A server for this test."""
    return lockwheel_factory()


@pytest.hookimpl(trylast=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Runs the checks of the marker after a test that has passed."""
    try:
        for server in getattr(item, _SERVERS, []):
            for check in _marked(item)["check"]:
                server.journal.check(check)
    except AssertionError as broken:
        pytest.fail(str(broken), pytrace=False)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Adds the journals of the servers to the report of a failed test."""
    outcome = yield
    report = outcome.get_result()
    if report.when == "call" and report.failed:
        for server in getattr(item, _SERVERS, []):
            report.sections.append((f"lockwheel at port {server.port}", _story(server)))


def _story(server: Server) -> str:
    try:
        return server.journal.story(count=_ENTRIES_SHOWN)
    except (LockwheelError, OSError) as error:  # The test may have stopped the server.
        return f"  {error}"


def _marked(item: Any) -> dict[str, Any]:
    """The arguments of the markers; the nearest marker has priority."""
    arguments: dict[str, Any] = {
        "frozen": False,
        "clock_start": None,
        "options": [],
        "check": [],
    }
    for marker in reversed(list(item.iter_markers("lockwheel"))):
        unknown = marker.kwargs.keys() - arguments.keys()
        if marker.args or unknown:
            raise pytest.UsageError(f"unknown arguments of the marker: {_MARKER}")
        arguments.update(marker.kwargs)
    return arguments
