"""The report: a line for each test, appended to the file that SUITE_REPORT names.

A test's docstring is the behaviour that it proves; the module's `LIBRARY` names the
library: (displayed name, name of the installed distribution or None).
"""

import json
import os
from importlib import metadata

import pytest

_outcome = pytest.StashKey()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Keeps the worst outcome of the three phases of a test, and reports it after the last."""
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
    path = os.environ.get("SUITE_REPORT")
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
    if distribution is None:
        return ""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "not installed"
