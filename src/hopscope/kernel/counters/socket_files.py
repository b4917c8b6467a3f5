# SPDX-License-Identifier: Apache-2.0
"""How many sockets there are and what they hold, and which UDP sockets dropped (``net/ipv4/proc.c``, ``udp.c``)."""

from __future__ import annotations

import ipaddress
import re
import sys
from typing import TYPE_CHECKING, Final

from hopscope.errors import FormatError
from hopscope.kernel.counters.text import NET, lines_of, number, numbers, read, read_if_there, words

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hopscope.kernel.counters.text import Said

# The last lines of the files.
_OF_SOCKSTAT: Final = ("TCP", "UDP", "FRAG")
_OF_SOCKSTAT6: Final = ("TCP6", "UDP6", "FRAG6")

_UDP_COLUMNS: Final = (b"local_address", b"inode", b"ref", b"pointer", b"drops")
# The heading has three columns that rows write as one with another.
_UDP_WORDS: Final = 13
_UDP_INODE: Final = 9
_ADDRESS: Final = re.compile(rb"([0-9A-F]{8}|[0-9A-F]{32}):([0-9A-F]{4})")


def sockstat() -> Iterator[Said]:
    """Yield the figures of ``/proc/net/sockstat`` and ``sockstat6``; memory of TCP and UDP is in pages."""
    yield from parse_sockstat(read(f"{NET}/sockstat"), _OF_SOCKSTAT)
    text = read_if_there(f"{NET}/sockstat6")
    if text is not None:
        yield from parse_sockstat(text, _OF_SOCKSTAT6)


def parse_sockstat(text: bytes, protocols: Sequence[str]) -> Iterator[Said]:
    """Yield what lines such as ``TCP: inuse 1 orphan 0`` say, the first as ``TCP.inuse``.

    Parameters
    ----------
    protocols
        Beginnings of lines that must be there.

    Raises
    ------
    FormatError
        It is laid out in another way, or cut off.
    """
    seen = set()
    for line in lines_of(text):
        protocol, colon, rest = line.partition(b":")
        said = words(rest)
        label = words(protocol)
        if not colon or len(label) != 1 or len(said) % 2:
            raise FormatError(f"{line[:40]!r} is not a protocol with names and values")
        seen.add(label[0])
        for name, value in zip(said[::2], said[1::2], strict=True):
            (level,) = numbers(value.encode())
            yield "", f"{label[0]}.{name}", level
    if missing := set(protocols) - seen:
        raise FormatError(f"it has no {' and no '.join(sorted(missing))}")


def udp_socket() -> Iterator[Said]:
    """Yield the drops of each UDP socket that has any, and of all how many sockets and drops there are.

    The sum is of the sockets that are open now, and so no counter: it falls when one is closed.
    """
    count = drops = 0
    found: dict[str, int] = {}
    for name in ("udp", "udp6"):
        text = read_if_there(f"{NET}/{name}")
        if text is None and name == "udp":
            text = read(f"{NET}/{name}")
        for subject, dropped in parse_udp(text) if text is not None else ():
            count += 1
            drops += dropped
            if dropped:
                # The kernel's own sockets may have no inode; those of one address are then one.
                found[subject] = found.get(subject, 0) + dropped
    yield "", "sockets", count
    yield "", "drops_of_open_sockets", drops
    for subject, dropped in found.items():
        yield subject, "drops", dropped


def parse_udp(text: bytes) -> Iterator[tuple[str, int]]:
    """Yield address, port and inode of each socket, and what it dropped.

    Parameters
    ----------
    text
        Of ``/proc/net/udp`` or ``udp6``.

    Raises
    ------
    FormatError
        It is laid out in another way, or cut off.
    """
    heading, *rows = lines_of(text)
    if not set(_UDP_COLUMNS) <= set(heading.split()) or heading.split()[-1] != _UDP_COLUMNS[-1]:
        raise FormatError("its columns are others")
    for row in rows:
        columns = row.split()
        if len(columns) != _UDP_WORDS:
            raise FormatError(f"{row[:40]!r} is not a socket")
        dropped = number(columns[-1])
        address = columns[1] if dropped else b""
        yield (f"{_address(address)} inode {number(columns[_UDP_INODE])}" if dropped else ""), dropped


def _address(text: bytes) -> str:
    """Return an address as people write it; the kernel prints each 32 bits as a number of its own."""
    found = _ADDRESS.fullmatch(text)
    if not found:
        raise FormatError(f"{text[:40]!r} is not an address")
    host, port = found[1], int(found[2], 16)
    values = [int(host[at : at + 8], 16) for at in range(0, len(host), 8)]
    address = ipaddress.ip_address(b"".join(value.to_bytes(4, sys.byteorder) for value in values))
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"
