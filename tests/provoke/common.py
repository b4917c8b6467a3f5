# SPDX-License-Identifier: Apache-2.0
"""What provocations share: what they say of themselves, settings that are put back, rules, and packets that are wrong.

A provocation is a context manager that takes a lab and has made its trouble when it is entered: what is read of the
kernel in its body shows it. It has an end of its own, and leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import fcntl
import socket
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from hopscope.lab.veth import CLIENT_IFNAME, SERVER_IFNAME
from tests.lab.measure import tcp_pair, way
from tests.provoke.evidence import link

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import AbstractContextManager

    from hopscope.lab import Lab, Namespace

# How often each trouble is made, where it can be counted: a prime, so that it is no multiple of anything else.
TIMES: Final = 211
# Of the lab's network; nobody has it, so that nobody resets what is answered to it.
SILENT: Final = "10.77.0.99"
# struct linger, for SO_LINGER.
RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)


@dataclass(frozen=True)
class Provoked:
    """What was made to happen.

    Attributes
    ----------
    namespace
        Where it shows.
    counts
        What the kernel must have counted there, exactly, by nstat's names.
    readings
        The same of what nstat does not know, by source, subject and name of
        :class:`~hopscope.model.counters.readings.Key`; of a queueing discipline the subject without its handle.
    subject
        The interface, queue or socket that it is about, where there are several.
    """

    namespace: Namespace
    counts: Mapping[str, int] = field(default_factory=dict)
    readings: Mapping[tuple[str, str, str], int] = field(default_factory=dict)
    subject: str = ""


class Provocation(Protocol):
    """A kind of trouble."""

    def __call__(self, lab: Lab) -> AbstractContextManager[Provoked]: ...


@contextlib.contextmanager
def host_setting(name: str, value: int | str) -> Iterator[str]:
    """Change a setting that all namespaces share, yield what it was, and put that back.

    Who changes the same one meanwhile waits, or both would put the wrong value back.
    """
    path = Path("/proc/sys") / name.replace(".", "/")
    with path.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        before = path.read_text()
        try:
            path.write_text(f"{value}\n")
            yield before.strip()
        finally:
            path.write_text(before)


@contextlib.contextmanager
def rules(namespace: Namespace, hook: str, *lines: str, priority: int = 0, family: str = "inet") -> Iterator[None]:
    """Have rules of nftables in a chain of `hook` meanwhile."""
    body = "; ".join(lines)
    script = f"table {family} provoke {{ chain {hook} {{ type filter hook {hook} priority {priority}; {body}; }}; }}"
    namespace.run(["nft", "-f", "-"], input=script.encode(), check=True)
    try:
        yield
    finally:
        namespace.run(["nft", f"delete table {family} provoke"], check=True)


@contextlib.contextmanager
def raw_ipv4(namespace: Namespace) -> Iterator[socket.socket]:
    """Yield a socket that sends whole IPv4 packets; the kernel itself writes their header's checksum."""
    with namespace.call(socket.socket, socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as made:
        yield made


@contextlib.contextmanager
def wire(lab: Lab) -> Iterator[tuple[socket.socket, tuple[str, int, int, int, bytes]]]:
    """Yield a socket of the client that sends any bytes as IPv4, and the address that brings them to the server."""
    mac = bytes.fromhex(link(lab.server, SERVER_IFNAME)["address"].replace(":", ""))
    with lab.client.call(socket.socket, socket.AF_PACKET, socket.SOCK_DGRAM) as made:
        yield made, (CLIENT_IFNAME, 0x0800, 0, 0, mac)


@contextlib.contextmanager
def connected(lab: Lab) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Yield the ends of a connection to the server, the client's first; it is reset in the end.

    What would have to wait for answers after its close would keep a namespace in the kernel for minutes.
    """
    with tcp_pair(way(lab, "veth-4")) as ends:
        try:
            yield ends
        finally:
            for end in ends:
                if end.fileno() >= 0:
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
