"""The command `lockwheel`, which runs the program in the package."""

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import lockwheel

SCRIPT = [str(Path(sysconfig.get_path("scripts"), "lockwheel"))]
MODULE = [sys.executable, "-m", "lockwheel"]

each_command = pytest.mark.parametrize("command", [SCRIPT, MODULE], ids=["script", "module"])


def run(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, **options)


@each_command
def test_command_has_the_version_of_the_program(command):
    program = run(lockwheel.program(), "--version")
    assert "lockwheel=" in program.stdout
    assert run(*command, "--version").stdout == program.stdout


@each_command
def test_run_passes_the_exit_status(command):
    done = run(*command, "run", "--", "sh", "-c", "echo $REDIS_URL; exit 7")
    assert done.returncode == 7
    assert done.stdout.startswith("redis://127.0.0.1:")


@each_command
def test_signals_reach_the_program(command):
    # The shell prints the id of its parent, which is the process that the test started.
    script = "echo $PPID; kill -TERM $PPID; read _"
    options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([*command, "run", "--", "sh", "-c", script], **options) as process:
        assert process.stdout.read() == f"{process.pid}\n"
        assert process.wait() != 0


@each_command
def test_compat_checks_a_server(command, lockwheel):
    done = run(*command, "compat", lockwheel.url, "--only", "SET NX refuses")
    assert done.returncode == 0, done.stdout + done.stderr


def test_command_of_a_package_without_a_program_is_an_error(tmp_path):
    package = Path(lockwheel.__file__).parent
    shutil.copytree(package, tmp_path / "lockwheel", ignore=shutil.ignore_patterns("bin"))
    done = run(*MODULE, "--version", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("lockwheel: this package carries no program")
