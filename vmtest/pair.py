# SPDX-License-Identifier: Apache-2.0
"""Two guests at once, with a NIC each and a cable between them: two hosts with a clock each.

One lets the other in by ssh, and ends when that one has. Both see a folder in which they tell each other what they do.
"""

from __future__ import annotations

import shlex
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

from vmtest import boot, emulator, suite

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vmtest.boot import Outcome
    from vmtest.kernels import Unpacked

DEFAULT: Final = ("6.12", "7.x")
SHARED: Final = "/run/pair"  # in the guests
ADDRESSES: Final = ("10.91.0.1", "10.91.0.2")
NAMES: Final = ("a", "b")
READY_FILE: Final = "ready"
DONE_FILE: Final = "done"
# The second one's console is of little use while the first one's tests go on, and waits for its end.
_LINGERING_S: Final = 60.0
_VARIABLE: Final = "HOPSCOPE_PAIR"


def run(
    kernels: Sequence[Unpacked], command: Sequence[str], folder: Path, cache: Path, *, timeout_s: float
) -> list[Outcome]:
    """Boot two kernels, run a command in the first, and wait until both are over.

    Parameters
    ----------
    kernels
        The first is host a, in which the command runs; the second is host b, with an sshd.
    command
        It finds in ``$HOPSCOPE_PAIR`` the folder that both see.
    folder
        What each leaves is in ``a`` and ``b`` below it, as :func:`vmtest.boot.boot` says; the folder of both is
        ``shared``.
    cache
        For a QEMU, where this machine's has no cables.
    timeout_s
        Seconds after which each is ended.

    Raises
    ------
    VmtestError
        They cannot be booted.
    """
    shared = folder / "shared"
    shared.mkdir(parents=True)
    serve = [sys.executable, "-m", "vmtest.pair_server", SHARED, ADDRESSES[1]]
    outcomes: dict[str, Outcome] = {}
    with tempfile.TemporaryDirectory(prefix="pair-") as cable:
        machines = [emulator.with_cable(cache, Path(cable), number, {SHARED: shared.resolve()}) for number in (0, 1)]

        def boot_one(number: int, words: Sequence[str]) -> None:
            name = NAMES[number]
            outcomes[name] = boot.boot(
                kernels[number],
                guest_commands(number, words),
                folder / name,
                timeout_s=timeout_s + number * _LINGERING_S,
                show=number == 0,
                machine=machines[number],
            )

        # A guest ends with the thread that started it: who interrupts this process need not wait for the second one.
        server = threading.Thread(target=boot_one, args=(1, serve), daemon=True)
        server.start()
        boot_one(0, command)
        (shared / DONE_FILE).touch()
        server.join()
    return [outcomes[name] for name in NAMES]


def guest_commands(number: int, command: Sequence[str]) -> str:
    """Return the shell script for a guest: the network, then the command."""
    network = f"""\
modprobe virtio_net
udevadm settle  # it renames what it finds
hostname {NAMES[number]}
nic=$(ls /sys/class/net | grep -vx lo)
ip link set lo up
ip address add {ADDRESSES[number]}/24 dev "$nic"
ip link set "$nic" up
export {_VARIABLE}={shlex.quote(SHARED)}
"""
    return network + suite.guest_commands(command, with_probes=False)
