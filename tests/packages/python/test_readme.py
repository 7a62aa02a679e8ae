"""Runs all code and commands of the package's README, as it came with the wheel."""

import importlib.metadata
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = importlib.metadata.metadata("lockwheel").get_payload()


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


CODE = blocks("python")


def test_page_has_code():
    assert len(CODE) >= 10


@pytest.mark.parametrize("code", CODE, ids=range(1, len(CODE) + 1))
def test_code_of_the_page_passes(code, pytester):
    tests = code.count("\ndef test_")
    if tests == 0:
        exec(compile(code, "README.md", "exec"), {})
    else:
        pytester.makepyfile(code)
        outcomes = pytester.runpytest("-p", "no:cacheprovider", "--strict-markers").parseoutcomes()
        assert outcomes.keys() == {"passed"} and outcomes["passed"] >= tests


def test_commands_of_the_page_install_the_wheel(tmp_path):
    build, *commands = blocks("sh")
    assert build == 'OUT=/tmp/lockwheel\npackages/build "$OUT" python\n'
    requirements = Path(__file__).with_name("requirements.txt").read_text().splitlines()
    requirements = [each for each in requirements if each.startswith(("pytest==", "redis=="))]
    environment = {**os.environ, "PATH": f"{tmp_path / 'venv' / 'bin'}:{os.environ['PATH']}"}

    def run(command, **options):
        subprocess.run(command, cwd=tmp_path, env=environment, check=True, **options)

    run([sys.executable, "-m", "venv", "venv"])
    run(["pip", "install", "--quiet", "--disable-pip-version-check", *requirements])
    (tmp_path / "test_invoice.py").write_text(CODE[0])
    for command in commands:
        run(["sh", "-e", "-c", command])
