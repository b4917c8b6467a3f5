# SPDX-License-Identifier: Apache-2.0
"""The protocols' counters of a namespace, by the names that nstat gives them (``net/ipv4/proc.c``)."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final

from hopscope.errors import FormatError
from hopscope.kernel.counters.text import NET, lines_of, numbers, read, words

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hopscope.kernel.counters.text import Said

# A text that ends before one of these is only the beginning of one.
_OF_SNMP: Final = ("Ip", "Icmp", "Tcp", "Udp")
_OF_NETSTAT: Final = ("TcpExt", "IpExt")
_OF_SNMP6: Final = ("Ip6InReceives", "Icmp6InMsgs", "Udp6InDatagrams")


def snmp() -> Iterator[Said]:
    """Return the counters of ``/proc/net/snmp``."""
    return parse_pairs(read(f"{NET}/snmp"), _OF_SNMP)


def netstat() -> Iterator[Said]:
    """Return the counters of ``/proc/net/netstat``."""
    return parse_pairs(read(f"{NET}/netstat"), _OF_NETSTAT)


def snmp6() -> Iterator[Said]:
    """Return the counters of ``/proc/net/snmp6``."""
    return parse_lines(read(f"{NET}/snmp6"), _OF_SNMP6)


def parse_lines(text: bytes, names: Sequence[str]) -> Iterator[Said]:
    """Yield what lines of a name and a value say.

    Parameters
    ----------
    text
        Such as a line ``Udp6InDatagrams 1009``.
    names
        Those that must be there.

    Raises
    ------
    FormatError
        It is laid out in another way, or cut off.
    """
    seen = set()
    for line in lines_of(text):
        said = words(line)
        if len(said) != 2:
            raise FormatError(f"{line[:40]!r} is not a name and a value")
        (value,) = numbers(said[1].encode())
        seen.add(said[0])
        yield "", said[0], value
    _require(names, seen)


def parse_pairs(text: bytes, groups: Sequence[str]) -> Iterator[Said]:
    """Yield what pairs of lines say, of which the first has the names and the second the values.

    Parameters
    ----------
    text
        Such as a line ``Udp: InDatagrams NoPorts`` and a line ``Udp: 1009 0``.
    groups
        Beginnings of lines that must be there.

    Raises
    ------
    FormatError
        It is laid out in another way, or cut off.
    """
    lines = lines_of(text)
    if len(lines) % 2:
        raise FormatError("a line of names has no line of values")
    seen = set()
    for header, row in zip(lines[::2], lines[1::2], strict=True):
        group, names = _names(header)
        begin, colon, values = row.partition(b": ")
        if not colon or begin != group.encode():
            raise FormatError(f"the values of {group} do not follow its names")
        found = numbers(values)
        if len(found) != len(names):
            raise FormatError(f"{group} has {len(names)} names and {len(found)} values")
        seen.add(group)
        for name, value in zip(names, found, strict=True):
            yield "", name, value
    _require(groups, seen)


@functools.lru_cache(maxsize=256)
def _names(header: bytes) -> tuple[str, tuple[str, ...]]:
    """Return what a line of names begins with, and its names as nstat has them: the same line for all namespaces."""
    group, colon, names = header.partition(b": ")
    if not colon or len(words(group)) != 1:
        raise FormatError(f"{header[:40]!r} is not a line of names")
    prefix = group.decode()
    return prefix, tuple(prefix + name for name in words(names))


def _require(expected: Sequence[str], seen: set[str]) -> None:
    if missing := set(expected) - seen:
        raise FormatError(f"it has no {' and no '.join(sorted(missing))}")
