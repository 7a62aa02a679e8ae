"""The choice of the server program: named by a variable, carried, or on the PATH."""

import os
import platform
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import lockwheel

STARTS = "import lockwheel; lockwheel.start().stop(); print(lockwheel.program())"


def test_package_carries_the_program():
    carried = Path(lockwheel.__file__).parent / "bin" / "lockwheel"
    assert lockwheel.program() == str(carried)


def test_variable_names_another_program(monkeypatch, tmp_path):
    mark = tmp_path / "mark"
    another = tmp_path / "another"
    another.write_text(f"#!/bin/sh\n: > '{mark}'\nexec '{lockwheel.program()}' \"$@\"\n")
    another.chmod(0o755)
    monkeypatch.setenv("LOCKWHEEL_BINARY", str(another))
    assert lockwheel.program() == str(another)
    with lockwheel.start() as server:
        assert server.call("PING") == "PONG"
    assert mark.exists()


def test_variable_must_name_an_executable(monkeypatch, tmp_path):
    file = tmp_path / "file"
    file.touch()
    for named in (tmp_path / "nothing", file):
        monkeypatch.setenv("LOCKWHEEL_BINARY", str(named))
        with pytest.raises(lockwheel.ProgramNotFound, match="LOCKWHEEL_BINARY names") as missing:
            lockwheel.start()
        assert str(named) in str(missing.value)


def test_program_of_another_system_fails_the_start(monkeypatch, tmp_path):
    another = tmp_path / "another"
    another.write_bytes(b"\x7fELF of another machine")
    another.chmod(0o755)
    monkeypatch.setenv("LOCKWHEEL_BINARY", str(another))
    with pytest.raises(lockwheel.StartError, match="another cannot be run: Exec format error"):
        lockwheel.start()


@pytest.fixture
def starts_without_a_carried_program(tmp_path):
    """Starts a server with a copy of the package that carries no program."""
    package = Path(lockwheel.__file__).parent
    shutil.copytree(package, tmp_path / "lockwheel", ignore=shutil.ignore_patterns("bin"))

    def starts(path):
        environment = {**os.environ, "PYTHONPATH": str(tmp_path), "PATH": str(path)}
        command = [sys.executable, "-c", STARTS]
        return subprocess.run(command, env=environment, capture_output=True, text=True)

    return starts


def test_program_on_the_path_is_used(starts_without_a_carried_program, tmp_path):
    folder = tmp_path / "path"
    folder.mkdir()
    (folder / "lockwheel").symlink_to(lockwheel.program())
    done = starts_without_a_carried_program(folder)
    assert (done.returncode, done.stdout) == (0, f"{folder / 'lockwheel'}\n")


def test_missing_program_is_an_error_with_advice(starts_without_a_carried_program, tmp_path):
    done = starts_without_a_carried_program(tmp_path)
    assert done.returncode == 1
    assert f"no lockwheel for {platform.system()} on {platform.machine()}" in done.stderr
    assert "set LOCKWHEEL_BINARY to its path" in done.stderr


def test_wheel_is_typed_and_has_a_platform_tag():
    package = Path(lockwheel.__file__).parent
    assert (package / "py.typed").exists()
    metadata = next(package.parent.glob("lockwheel-*.dist-info"))
    wheel = (metadata / "WHEEL").read_text()
    assert "Root-Is-Purelib: false" in wheel
    assert "Tag: py3-none-any" not in wheel
    assert (metadata / "licenses" / "LICENSE-MIT").exists()
    printed = subprocess.run([lockwheel.program(), "--version"], capture_output=True, text=True)
    assert f"lockwheel={version('lockwheel')}" in printed.stdout.split()


def test_package_imports_no_other_package():
    code = "import sys, lockwheel; lockwheel.start().stop()\n"
    code += "print([name for name in sys.modules if name.startswith(('redis', 'pytest'))])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")
