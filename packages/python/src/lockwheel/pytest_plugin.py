"""The pytest plugin: the fixtures `lockwheel` and `lockwheel_factory`, and the marker `lockwheel`.

Each test has its own servers, so tests may run in any order and in parallel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Protocol

import pytest

from lockwheel._errors import CheckError, LockwheelError
from lockwheel._server import Server, start

_ENTRIES_SHOWN = 30

_MARKER = (
    "lockwheel(frozen=False, clock_start=None, lock_keys=[], ignored_lock_keys=[], options=[], "
    "check=[]): how the servers of a test are started, and the checks that run when the test has "
    "passed, such as no-lock-held"
)

_SERVERS = "_lockwheel_servers"
_FAILED_CHECK = "_lockwheel_failed_check"


class Factory(Protocol):
    """Starts a server that stops with the test."""

    def __call__(
        self,
        *,
        frozen: bool | None = None,
        clock_start: datetime | None = None,
        lock_keys: Sequence[str] | None = None,
        ignored_lock_keys: Sequence[str] | None = None,
        options: Sequence[str] | None = None,
    ) -> Server: ...


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _MARKER)


@pytest.fixture
def lockwheel_factory(request: pytest.FixtureRequest) -> Iterator[Factory]:
    """Starts servers for this test: ``lockwheel_factory(frozen=True, options=[...])``. It accepts
    what the marker does, except checks, and the marker gives the defaults."""
    servers: list[Server] = []
    setattr(request.node, _SERVERS, servers)
    marked = _marked(request.node)
    del marked["check"]

    def factory(**given: Any) -> Server:
        server = start(**marked | {name: it for name, it in given.items() if it is not None})
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
    for server in getattr(item, _SERVERS, []):
        for check in _marked(item)["check"]:
            failed = _failed_check(server, check)
            if failed is not None:
                setattr(item, _FAILED_CHECK, failed)
                pytest.fail(str(failed), pytrace=False)


def _failed_check(server: Server, check: str) -> CheckError | None:
    # What is raised while an exception is handled is reported with that exception.
    try:
        server.journal.check(check)
    except CheckError as failed:
        return failed
    return None


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Adds the journals of the servers to the report of a failed test. The failure of a check has
    the entries of its server already, and pytest's summary shows only its first line."""
    outcome = yield
    report = outcome.get_result()
    if report.when == "call" and report.failed:
        raised = None if call.excinfo is None else call.excinfo.value
        failed = getattr(item, _FAILED_CHECK, raised)
        shown = None
        if isinstance(failed, CheckError):
            shown = failed.journal
            _shorten_summary(report)
        for server in getattr(item, _SERVERS, []):
            if server.journal is shown:
                continue
            report.sections.append((f"lockwheel at port {server.port}", _story(server)))


def _shorten_summary(report: pytest.TestReport) -> None:
    # With the variable CI set, pytest's summary shows every line of a message.
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None:
        crash.message = crash.message.partition("\n")[0]


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
        "lock_keys": [],
        "ignored_lock_keys": [],
        "options": [],
        "check": [],
    }
    for marker in reversed(list(item.iter_markers("lockwheel"))):
        unknown = marker.kwargs.keys() - arguments.keys()
        if marker.args or unknown:
            wrong = sorted(unknown) or [repr(argument) for argument in marker.args]
            raise pytest.UsageError(f"unknown argument {wrong[0]} of the marker {_MARKER}")
        arguments.update(marker.kwargs)
    return arguments
