# SPDX-License-Identifier: Apache-2.0
"""Any number of hosts on one bridge, each a namespace with a real sshd; whoever asks them does so from the first."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NamedTuple

from cli.router import run
from hopscope.lab import Namespace
from hopscope.lab.sshd import Sshd, client

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Bridged(NamedTuple):
    """Hosts by name.

    Attributes
    ----------
    namespaces, addresses
        Of each.
    ssh
        The command line that reaches them by name.
    """

    namespaces: dict[str, Namespace]
    addresses: dict[str, str]
    ssh: str

    def inside(self, name: str) -> list[str]:
        """Return the words before a command that is to run on a host."""
        return ["nsenter", f"--net=/proc/{self.namespaces[name].pid}/ns/net"]


@contextlib.contextmanager
def bridged(folder: Path, names: str) -> Iterator[Bridged]:
    """Yield hosts, whose names are these letters."""
    with contextlib.ExitStack() as stack:
        middle = stack.enter_context(Namespace())
        run(middle, "ip link add bridge0 type bridge", "ip link set bridge0 up")
        namespaces, addresses, servers = {}, {}, {}
        for number, name in enumerate(names, 1):
            namespaces[name] = host = stack.enter_context(Namespace())
            addresses[name] = f"10.79.0.{number}"
            run(host, f"ip link add eth0 type veth peer name port-{name} netns {middle.pid}")
            run(middle, f"ip link set port-{name} master bridge0", f"ip link set port-{name} up")
            run(host, f"ip addr add {addresses[name]}/24 dev eth0", "ip link set eth0 up")
            servers[name] = stack.enter_context(Sshd(host, folder / name, address=addresses[name]))
        yield Bridged(namespaces, addresses, client(folder, servers, namespaces[names[0]]))
