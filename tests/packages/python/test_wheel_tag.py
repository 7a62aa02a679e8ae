"""The wheel's tag is that of the program in it."""

import importlib.util
import platform
import re
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

import lockwheel

ROOT = Path(__file__).parents[3]
MACHINE = platform.machine()
STATIC = f"manylinux_2_17_{MACHINE}.musllinux_1_1_{MACHINE}"

on_linux = pytest.mark.skipif(platform.system() != "Linux", reason="it compiles for Linux")


@pytest.fixture(scope="module")
def platform_tag():
    """The function of the build hook."""
    spec = importlib.util.spec_from_file_location(
        "wheel_tag", ROOT / "packages" / "python" / "wheel_tag.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.platform_tag


@pytest.fixture
def compiled(tmp_path):
    """Compiles a program in C and returns its bytes."""

    def compiled(source, *options, compiler="cc"):
        file, program = tmp_path / "program.c", tmp_path / "program"
        file.write_text(source)
        subprocess.run([compiler, *options, "-o", str(program), str(file)], check=True)
        return program.read_bytes()

    return compiled


def newest_glibc(program):
    """The newest version in the file's names of glibc versions, and 2.17 at least."""
    found = re.findall(rb"\0GLIBC_(\d+)\.(\d+)", program)
    return max([(2, 17), *((int(major), int(minor)) for major, minor in found)])


@on_linux
@pytest.mark.parametrize("kind", ["-static", "-static-pie"])
def test_static_program_runs_with_every_c_library(platform_tag, compiled, kind):
    source = "void _start(void) { for (;;); }"
    assert platform_tag(compiled(source, "-nostdlib", "-fPIE", kind)) == STATIC


@on_linux
def test_dynamic_program_needs_its_newest_glibc_symbol(platform_tag, compiled):
    source = "#include <stdio.h>\nint main(void) { return puts(\"\") < 0; }"
    program = compiled(source)
    major, minor = newest_glibc(program)
    assert platform_tag(program) == f"manylinux_{major}_{minor}_{MACHINE}"


@on_linux
@pytest.mark.skipif(not shutil.which("musl-gcc"), reason="there is no musl-gcc")
def test_dynamic_musl_program_needs_musl(platform_tag, compiled):
    program = compiled("int main(void) { return 0; }", compiler="musl-gcc")
    assert platform_tag(program) == f"musllinux_1_2_{MACHINE}"


def mach_o(machine, *commands):
    header = struct.pack("<IIIIIIII", 0xFEEDFACF, machine, 0, 2, len(commands), 0, 0, 0)
    return header + b"".join(commands)


def build_version(major, minor):
    return struct.pack("<IIIIII", 0x32, 24, 1, major << 16 | minor << 8, 0, 0)


@pytest.mark.parametrize(
    ("program", "tag"),
    [
        (mach_o(0x0100000C, build_version(11, 0)), "macosx_11_0_arm64"),
        (mach_o(0x0100000C, build_version(12, 3)), "macosx_13_0_arm64"),
        (
            mach_o(0x01000007, struct.pack("<IIII", 0x1B, 16, 0, 0), build_version(10, 12)),
            "macosx_10_12_x86_64",
        ),
        (
            mach_o(0x01000007, struct.pack("<IIII", 0x24, 16, 10 << 16 | 13 << 8, 0)),
            "macosx_10_13_x86_64",
        ),
    ],
)
def test_macos_program_names_its_oldest_macos(platform_tag, program, tag):
    assert platform_tag(program) == tag


def test_anything_else_is_refused(platform_tag):
    for program in (b"#!/bin/sh\n", b"", mach_o(0x0100000C)):
        with pytest.raises(ValueError):
            platform_tag(program)


def test_installed_wheel_has_the_tag_of_its_program(platform_tag):
    metadata = next(Path(lockwheel.__file__).parents[1].glob("lockwheel-*.dist-info"))
    tags = re.findall(r"^Tag: py3-none-(.*)$", (metadata / "WHEEL").read_text(), re.MULTILINE)
    program = Path(lockwheel.program()).read_bytes()
    assert sorted(tags) == sorted(platform_tag(program).split("."))
