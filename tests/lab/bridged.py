# SPDX-License-Identifier: Apache-2.0
"""Any number of hosts on one bridge, each a namespace with a real sshd, and one more who asks them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hopscope.lab import Namespace
from hopscope.lab.netlink import add_addresses, add_bridge, add_neighbours, add_veth, wait_local, wait_up
from tests.lab.sshd import Sshd, client

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import ExitStack
    from pathlib import Path


class Bridged:
    """Hosts by name, whose device is eth0.

    Attributes
    ----------
    spaces
        Their namespaces, and behind them that of who asks.
    servers
        By name.
    ssh
        The command line that reaches them by name.
    """

    def __init__(self, stack: ExitStack, folder: Path, names: Sequence[str]) -> None:
        switch = stack.enter_context(Namespace())
        self.spaces = [stack.enter_context(Namespace()) for _ in (*names, "client")]
        macs = []
        for number, space in enumerate(self.spaces):
            switch.call(add_veth, f"p{number}", "eth0", space.pid, 1500)
            macs.append(space.call(add_addresses, "eth0", [self.address(number)]))
        switch.call(add_bridge, "br0", [f"p{number}" for number in range(len(self.spaces))])
        for number, space in enumerate(self.spaces):
            for other, mac in enumerate(macs):
                if other != number:
                    space.call(add_neighbours, "eth0", mac, [self.address(other)])
            space.call(wait_up, "eth0")
            space.call(wait_local, [self.address(number)])
        self.servers = {
            name: stack.enter_context(Sshd(self.spaces[number], folder / name, address=self.address(number)))
            for number, name in enumerate(names)
        }
        (folder / "client").mkdir()
        self.ssh = client(folder / "client", self.servers, self.spaces[-1])

    @staticmethod
    def address(number: int) -> str:
        return f"10.9.0.{number + 1}"
