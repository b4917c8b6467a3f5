# SPDX-License-Identifier: Apache-2.0
"""Hosts that are namespaces, each joined to each other by a veth pair, with an agent in each."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from hopscope.agent.channel import Channel
from hopscope.agent.transport import Pipes
from hopscope.lab import Namespace
from hopscope.lab.netlink import add_addresses, add_neighbours, add_veth, wait_up
from hopscope.live.remote import clock

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

_MTU_BYTES: Final = 1500


class Hosts:
    """Some hosts with one clock: the true difference is 0.

    Parameters
    ----------
    count
        Of hosts.

    Attributes
    ----------
    namespaces
        One a host.
    links
        The numbers of both hosts of each pair.
    members
        One a host, for `Pairs`.
    """

    def __init__(self, count: int) -> None:
        with ExitStack() as stack:
            self.namespaces = [stack.enter_context(Namespace()) for _ in range(count)]
            self.links = list(itertools.combinations(range(count), 2))
            for host, namespace in enumerate(self.namespaces):
                _ip(namespace, "address", "add", self.address(host), "dev", "lo")
            for link in self.links:
                self._join(*link)
            channels = [stack.enter_context(agent(space, f"host{host}")) for host, space in enumerate(self.namespaces)]
            self.members = [clock.host(channel, self.address(host)) for host, channel in enumerate(channels)]
            self._cleanup = stack.pop_all()

    def __enter__(self) -> Self:
        """Return them."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove them."""
        self._cleanup.close()

    def _join(self, first: int, second: int) -> None:
        ends = [(first, second, self.ifname(first, second)), (second, first, self.ifname(second, first))]
        self.namespaces[first].call(add_veth, ends[0][2], ends[1][2], self.namespaces[second].pid, _MTU_BYTES)
        macs = [self.namespaces[here].call(add_addresses, ifname, []) for here, _, ifname in ends]
        for (here, there, ifname), mac in zip(ends, macs[::-1], strict=True):
            self.namespaces[here].call(add_neighbours, ifname, mac, [self.address(there)])
            _ip(self.namespaces[here], "route", "add", self.address(there), "dev", ifname, "src", self.address(here))
        for here, _, ifname in ends:
            self.namespaces[here].call(wait_up, ifname)

    @staticmethod
    def ifname(here: int, there: int) -> str:
        """Return the interface of a host that leads to another."""
        return f"h{here}to{there}"

    @staticmethod
    def address(host: int) -> str:
        """Return the address of a host."""
        return f"10.88.0.{host + 1}"


def agent(namespace: Namespace, name: str) -> Channel:
    """Start an agent in a namespace, and return the channel to it; the agent ends with it."""
    argv = [sys.executable, "-m", "hopscope", "agent"]
    child = namespace.popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin  # noqa: S101 - for the type checker
    assert child.stdout  # noqa: S101 - for the type checker
    with child.stdin, child.stdout:
        pipes = Pipes(os.dup(child.stdout.fileno()), os.dup(child.stdin.fileno()))
    return Channel(pipes, "client", name)


def _ip(namespace: Namespace, *words: str) -> None:
    namespace.run(["ip", *words], check=True)
