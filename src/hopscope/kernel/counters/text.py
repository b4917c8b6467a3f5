# SPDX-License-Identifier: Apache-2.0
"""Text files of the kernel: read whole, and taken apart without trusting them."""

from __future__ import annotations

import os
from typing import Final, TypeAlias

from hopscope.errors import FormatError

# Subject, name, and a number or a word.
Said: TypeAlias = tuple[str, str, int | str]

# Of the namespace that the calling thread is in; /proc/net would be that of the process's first thread.
NET: Final = "/proc/thread-self/net"

_BLOCK_BYTES: Final = 1 << 16
_SETTING_BYTES: Final = 1 << 12
# No counter has more than 64 bits.
_END: Final = 1 << 64
_MOST_DIGITS: Final = len(str(_END))
# CONFIG_NR_CPUS goes up to 8,192.
_MOST_CPUS: Final = 1 << 16


def read(path: str) -> bytes:
    """Return what a file of procfs or sysfs says.

    Raises
    ------
    OSError
        It is not there, or closed to us.
    """
    # A sequence file ends with an empty read, not with a short one.
    return _read(path, _BLOCK_BYTES, 1)


def read_setting(path: str, folder: int | None = None) -> bytes:
    """Return what a file below /proc/sys says; in half the time of `read`, and there are hundreds.

    Parameters
    ----------
    path
        Of the file.
    folder
        Descriptor of the folder that the path begins at.

    Raises
    ------
    OSError
        It is not there, or closed to us.
    """
    # fs/proc/proc_sysctl.c: a value is printed into the buffer of one read, as much as has room.
    return _read(path, _SETTING_BYTES, _SETTING_BYTES, folder)


def _read(path: str, block_bytes: int, least_bytes: int, folder: int | None = None) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
    try:
        text = part = os.read(fd, block_bytes)
        while len(part) >= least_bytes:
            part = os.read(fd, block_bytes)
            text += part
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None
    finally:
        os.close(fd)
    return text


def read_if_there(path: str) -> bytes | None:
    """Return what a file says, None where the kernel has none such (a protocol or a module that is not there).

    Raises
    ------
    OSError
        It is closed to us.
    """
    try:
        return read(path)
    except FileNotFoundError:
        return None


def lines_of(text: bytes) -> list[bytes]:
    """Return the lines of a text that ends with a line.

    Raises
    ------
    FormatError
        It is empty, or its last line is cut off.
    """
    lines = text.split(b"\n")
    if lines.pop():
        raise FormatError("its last line is cut off")
    if not lines:
        raise FormatError("it is empty")
    return lines


def words(line: bytes) -> list[str]:
    """Return the words of a line.

    Raises
    ------
    FormatError
        They are not UTF-8.
    """
    try:
        # Bytes know but the blanks that the kernel knows.
        return [word.decode() for word in line.split()]
    except UnicodeDecodeError:
        raise FormatError(f"{line[:40]!r} is not text") from None


def numbers(line: bytes) -> list[int]:
    """Return a line's decimal numbers, of which some may be negative.

    Raises
    ------
    FormatError
        Something else stands there.
    """
    # Python's own idea of a number has underscores and other digits in it.
    if not line.translate(None, b"0123456789- \t"):
        try:
            found = [int(word) for word in line.split()]
        except ValueError:  # a sign inside
            found = [_END]
        if not found or (min(found) >= -_END >> 1 and max(found) < _END):
            return found
    raise FormatError(f"{line[:40]!r} is not a line of numbers")


def number(word: bytes) -> int:
    """Return a decimal number that has no sign.

    Raises
    ------
    FormatError
        It is something else.
    """
    # Of thousands of digits Python makes no number at all.
    if not word.isdigit() or len(word) > _MOST_DIGITS or (value := int(word)) >= _END:
        raise FormatError(f"{word[:40]!r} is not a number")
    return value


def hexadecimals(line: bytes) -> list[int]:
    """Return a line's hexadecimal numbers.

    Raises
    ------
    FormatError
        Something else stands there.
    """
    found = [] if line.translate(None, b"0123456789abcdefABCDEF \t") else [int(word, 16) for word in line.split()]
    if not found or max(found) >= _END:
        raise FormatError(f"{line[:40]!r} is not a line of hexadecimal numbers")
    return found


def shown(name: bytes) -> str:
    """Return a name that somebody chose, such as an interface's: any bytes, and two that differ differ still."""
    return name.decode(errors="backslashreplace")


def cpus(which: str) -> list[int]:
    """Return the CPUs that are ``online`` or ``possible``.

    Raises
    ------
    OSError, FormatError
        The kernel's list cannot be read.
    """
    return parse_cpus(read(f"/sys/devices/system/cpu/{which}"))


def parse_cpus(text: bytes) -> list[int]:
    """Return the numbers of a list such as ``0-3,8``.

    Raises
    ------
    FormatError
        It is no such list.
    """
    found: list[int] = []
    for part in text.strip().split(b","):
        first, dash, last = part.partition(b"-")
        low = number(first)
        high = number(last) if dash else low
        if high < low or high > _MOST_CPUS or (found and low <= found[-1]):
            raise FormatError(f"{text[:40]!r} is not a list of CPUs")
        found += range(low, high + 1)
    return found
