"""Derives the wheel's tag from the program in it: the systems that the program runs on."""

from __future__ import annotations

import re
import struct
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PROGRAM = Path("src", "lockwheel", "bin", "lockwheel")

# The oldest systems that a wheel is tagged for. pip reads these tags since 2019.
GLIBC_MIN = (2, 17)
MUSL_MIN = (1, 1)

ELF_MACHINES = {62: "x86_64", 183: "aarch64"}
MACH_O_MACHINES = {0x01000007: "x86_64", 0x0100000C: "arm64"}

PT_LOAD, PT_DYNAMIC, PT_INTERP = 1, 2, 3
DT_NEEDED, DT_STRTAB, DT_VERNEED, DT_VERNEEDNUM = 1, 5, 0x6FFFFFFE, 0x6FFFFFFF
LC_VERSION_MIN_MACOSX, LC_BUILD_VERSION = 0x24, 0x32


class WheelTag(BuildHookInterface):
    """Tags the wheel for any Python 3 on the systems of the program."""

    def initialize(self, version, build_data):
        program = Path(self.root, PROGRAM).read_bytes()
        build_data["pure_python"] = False
        build_data["tag"] = "py3-none-" + platform_tag(program)


def platform_tag(program: bytes) -> str:
    """The platform tag of a wheel that contains this executable."""
    if program.startswith(b"\x7fELF\x02\x01"):
        return _Elf(program).platform_tag()
    if program.startswith(b"\xcf\xfa\xed\xfe"):
        return _mach_o_tag(program)
    raise ValueError("the program is neither a 64-bit little-endian ELF file nor Mach-O")


class _Elf:
    """An ELF file of 64 bits, little-endian."""

    def __init__(self, program: bytes):
        self.program = program
        (machine,) = struct.unpack_from("<H", program, 18)
        if machine not in ELF_MACHINES:
            raise ValueError(f"there is no wheel tag for ELF machine {machine}")
        self.machine = ELF_MACHINES[machine]
        (table,) = struct.unpack_from("<Q", program, 32)
        size, count = struct.unpack_from("<HH", program, 54)
        # Of each: type, offset, address and size in the file.
        self.segments = [
            struct.unpack_from("<I4xQQ8xQ", program, table + size * index) for index in range(count)
        ]
        self.dynamic = list(self._dynamic_entries())

    def platform_tag(self) -> str:
        interpreter = self._interpreter()
        if interpreter is None and not self._has(DT_NEEDED):
            # Statically linked: it needs neither glibc nor musl.
            return f"{self._manylinux(GLIBC_MIN)}.{self._musllinux(MUSL_MIN)}"
        if b"ld-musl" in (interpreter or b""):
            # musl has no symbol versions, so assume the musl that Rust links with, 1.2.
            return self._musllinux((1, 2))
        return self._manylinux(max([GLIBC_MIN, *self._glibc_versions()]))

    def _manylinux(self, glibc: tuple[int, int]) -> str:
        return f"manylinux_{glibc[0]}_{glibc[1]}_{self.machine}"

    def _musllinux(self, musl: tuple[int, int]) -> str:
        return f"musllinux_{musl[0]}_{musl[1]}_{self.machine}"

    def _interpreter(self) -> bytes | None:
        for kind, offset, _, size in self.segments:
            if kind == PT_INTERP:
                return self.program[offset : offset + size]
        return None

    def _dynamic_entries(self):
        for kind, offset, _, size in self.segments:
            if kind == PT_DYNAMIC:
                yield from struct.iter_unpack("<QQ", self.program[offset : offset + size])

    def _has(self, tag: int) -> bool:
        return any(found == tag for found, _ in self.dynamic)

    def _glibc_versions(self):
        """The versions of glibc symbols in the table of required versions (Elf64_Verneed)."""
        values = dict(self.dynamic)
        if DT_VERNEED not in values:
            return
        strings = self._offset(values[DT_STRTAB])
        need = self._offset(values[DT_VERNEED])
        for _ in range(values[DT_VERNEEDNUM]):
            count, first, following = struct.unpack_from("<2xH4xII", self.program, need)
            version = need + first
            for _ in range(count):
                name, next_version = struct.unpack_from("<8xII", self.program, version)
                yield from _glibc_version(self._string(strings + name))
                version += next_version
            need += following

    def _offset(self, address: int) -> int:
        for kind, offset, start, size in self.segments:
            if kind == PT_LOAD and start <= address < start + size:
                return address - start + offset
        raise ValueError(f"the address {address:#x} is not in the file")

    def _string(self, offset: int) -> bytes:
        return self.program[offset : self.program.index(b"\0", offset)]


def _glibc_version(name: bytes):
    if name == b"GLIBC_ABI_DT_RELR":
        # Relative relocations in their compact form, which glibc 2.36 was the first to read.
        yield (2, 36)
    version = re.fullmatch(rb"GLIBC_(\d+)\.(\d+)(\.\d+)?", name)
    if version:
        yield (int(version[1]), int(version[2]))


def _mach_o_tag(program: bytes) -> str:
    """The tag of the oldest macOS that a Mach-O file is built for."""
    machine, count = struct.unpack_from("<4xI8xI", program)
    if machine not in MACH_O_MACHINES:
        raise ValueError(f"there is no wheel tag for Mach-O machine {machine:#x}")
    command = 32
    for _ in range(count):
        kind, size = struct.unpack_from("<II", program, command)
        if kind in (LC_VERSION_MIN_MACOSX, LC_BUILD_VERSION):
            (version,) = struct.unpack_from(
                "<I", program, command + (12 if kind == LC_BUILD_VERSION else 8)
            )
            major, minor = version >> 16, version >> 8 & 0xFF
            if major >= 11 and minor > 0:
                # Since macOS 11 tags have no minor versions.
                major, minor = major + 1, 0
            return f"macosx_{major}_{minor}_{MACH_O_MACHINES[machine]}"
        command += size
    raise ValueError("the Mach-O file does not name the macOS that it is built for")
