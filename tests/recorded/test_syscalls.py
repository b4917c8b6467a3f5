# SPDX-License-Identifier: Apache-2.0
"""The filter of each machine type, run over all of its system calls, as the kernel's headers number them."""

from __future__ import annotations

import errno
import re
import struct
import termios
from pathlib import Path
from typing import Final

import pytest

from hopscope.recorded.syscalls import ARCHITECTURES, NUMBERS, program

# As linux-libc-dev has them; all newer machine types share the numbers of asm-generic.
_HEADERS: Final = {"x86_64": "x86_64-linux-gnu/asm/unistd_64.h", "aarch64": "asm-generic/unistd.h"}
_ALLOWED, _EPERM, _ENOSYS = 0x7FFF_0000, 0x0005_0000 | errno.EPERM, 0x0005_0000 | errno.ENOSYS
_CLONE_NEWUSER: Final = 0x1000_0000
_CLONE_THREAD: Final = 0x1_0000


def outcome(code: bytes, architecture: int, number: int, *arguments: int) -> int:
    """Run classic BPF as `seccomp_check_filter` allows it, and return what it returns."""
    words = struct.pack("<IIQ6Q", number, architecture, 0, *arguments, *[0] * (6 - len(arguments)))
    lines = list(struct.iter_unpack("=HBBI", code))
    at = value = 0
    while True:
        does, yes, no, operand = lines[at]
        at += 1
        if does == 0x06:
            return int(operand)
        if does == 0x20:
            value = struct.unpack_from("<I", words, operand)[0]
        elif does == 0x54:
            value &= operand
        else:
            held = {0x15: value == operand, 0x35: value >= operand, 0x45: bool(value & operand)}[does]
            at += yes if held else no


@pytest.mark.parametrize("machine", NUMBERS)
def test_the_filter_refuses_these_calls_alone(machine: str) -> None:
    header = Path("/usr/include") / _HEADERS[machine]
    if not header.exists():
        pytest.skip(f"{header} is not installed (linux-libc-dev)")
    found = re.findall(r"^#define __NR(?:3264)?_(\w+) (\d+)$", header.read_text(), re.MULTILINE)
    numbers = {name: int(number) for name, number in found}
    code, architecture = program(machine), ARCHITECTURES[machine]
    refused = {name for name, number in numbers.items() if outcome(code, architecture, number) != _ALLOWED}
    assert refused == NUMBERS[machine].keys() - {"seccomp", "clone", "ioctl"}
    assert outcome(code, architecture, numbers["clone3"]) == _ENOSYS
    assert outcome(code, architecture, numbers["clone"], _CLONE_THREAD) == _ALLOWED
    assert outcome(code, architecture, numbers["clone"], _CLONE_THREAD | _CLONE_NEWUSER) == _EPERM
    assert outcome(code, architecture, numbers["ioctl"], 0, termios.TIOCGWINSZ) == _ALLOWED
    assert outcome(code, architecture, numbers["ioctl"], 0, termios.TIOCSTI) == _EPERM
    assert outcome(code, architecture, numbers["ioctl"], 0, termios.TIOCLINUX) == _EPERM
    assert outcome(code, architecture, numbers["socketpair"], 1, 0o2000001) == _ALLOWED
    assert outcome(code, architecture, numbers["socketpair"], 1, 0o2000002) == _EPERM


@pytest.mark.parametrize("machine", NUMBERS)
def test_calls_of_another_machine_type_are_refused(machine: str) -> None:
    header = Path("/usr/include/linux/elf-em.h")
    if not header.exists():
        pytest.skip(f"{header} is not installed (linux-libc-dev)")
    elf = re.search(rf"^#define EM_{machine.upper()}\s+(\d+)", header.read_text(), re.MULTILINE)
    assert elf
    code, architecture = program(machine), 0xC000_0000 | int(elf[1])  # of 64 bits, little-endian
    assert outcome(code, architecture, 0) == _ALLOWED
    assert outcome(code, architecture & 0x7FFF_FFFF, 0) == _EPERM
    assert outcome(code, 0x4000_0003, 0) == _EPERM  # i386
    assert outcome(code, architecture, 0x4000_0000) == _EPERM  # x32
