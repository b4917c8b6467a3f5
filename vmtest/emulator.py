# SPDX-License-Identifier: Apache-2.0
"""A QEMU whose machine has NICs: with a hardware clock (Intel's 82576, ``igb``, from 8.1 on), or to another guest.

This machine's own QEMU if it is new enough, otherwise that of another Debian suite with all that it is linked to,
unpacked, not installed. It then runs by its own loader and libraries; a script in front of it says where they are.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from vmtest import VmtestError, apt, setup

if TYPE_CHECKING:
    from collections.abc import Callable

SUITE: Final = "trixie"
PACKAGE: Final = "qemu-system-x86"
PROGRAM: Final = "qemu-system-x86_64"
_LIBRARIES: Final = "usr/lib/x86_64-linux-gnu"


@dataclass(frozen=True)
class Machine:
    """What a guest runs on besides what every guest has.

    Attributes
    ----------
    qemu
        The program.
    options, kernel_options
        For it and for the guest's kernel.
    modules
        To load in the guest.
    shared
        Folders that it may write to: where in the guest → here.
    """

    qemu: Path
    options: tuple[str, ...]
    kernel_options: tuple[str, ...]
    modules: tuple[str, ...]
    shared: tuple[tuple[str, Path], ...] = ()


def _nic(number: int, model: str) -> tuple[str, ...]:
    """Return a NIC at the hub that joins all of them. A card with virtual functions needs a PCIe port to itself."""
    return (
        *("-netdev", f"hubport,id=net{number},hubid=0"),
        *("-device", f"pcie-root-port,id=port{number},chassis={number}"),
        *("-device", f"{model},bus=port{number},netdev=net{number},mac=02:00:00:00:00:0{number},romfile="),
    )


# Two that stamp PTP's event messages, and one whose driver takes the order to stamp everything. The tests read a
# register of the card from user space.
NICS: Final = (*_nic(1, "igb"), *_nic(2, "igb"), *_nic(3, "e1000e"))
KERNEL_OPTIONS: Final = ("iomem=relaxed",)
MODULES: Final = ("igb", "e1000e")


def with_nics(cache: Path) -> Machine:
    """Return a machine with NICs, fetching a QEMU that has them if there is none here.

    Raises
    ------
    VmtestError
        The packages cannot be had, or what is in them does not run here.
    """
    return Machine(_qemu(cache, _has_nics, "igb"), NICS, KERNEL_OPTIONS, MODULES)


def with_cable(cache: Path, cable: Path, number: int, shared: dict[str, Path]) -> Machine:
    """Return one of two machines with a NIC each that are joined by a cable.

    Parameters
    ----------
    cable
        A folder for its ends, of which the paths must be short.
    number
        0 or 1.
    shared
        As in `Machine`.

    Raises
    ------
    VmtestError
        As `with_nics`.
    """
    ours, theirs = cable / f"end{number}", cable / f"end{1 - number}"
    options = (
        *("-netdev", f"dgram,id=cable,local.type=unix,local.path={ours},remote.type=unix,remote.path={theirs}"),
        *("-device", f"virtio-net-pci,netdev=cable,mac=02:00:00:00:01:0{number},romfile="),
    )
    return Machine(_qemu(cache, _has_cables, "dgram"), options, (), ("virtio_net",), tuple(shared.items()))


def _qemu(cache: Path, fits: Callable[[Path], bool], what: str) -> Path:
    """Return this machine's own QEMU if it fits, otherwise one that is fetched."""
    own = shutil.which(PROGRAM, path=setup.search_path())
    if own and fits(Path(own)):
        return Path(own)
    script = cache / "qemu" / PROGRAM
    if not script.exists():
        _fetch(cache / "qemu")
    if not fits(script):
        raise VmtestError(f"{script} does not run here, or has no {what}. Remove {script.parent} to fetch it anew")
    return script


def _has_nics(program: Path) -> bool:
    # Whether or not it has one, it ends with 0.
    asked = subprocess.run([program, "-device", "igb,help"], capture_output=True, text=True, check=False)
    return asked.stdout.startswith("igb options:")


def _has_cables(program: Path) -> bool:
    asked = subprocess.run([program, "-netdev", "help"], capture_output=True, text=True, check=False)
    return "dgram" in asked.stdout.split()


def _fetch(folder: Path) -> None:
    suite = apt.Suite(SUITE, folder / "apt")
    suite.update(apt.host_archives())
    with tempfile.TemporaryDirectory(dir=folder) as packages:
        for file in suite.download_with_dependencies(PACKAGE, Path(packages)):
            apt.run(("dpkg", "-x", str(file), str(folder / "tree")))
    script = folder / PROGRAM
    script.write_text(launcher(folder / "tree"))
    script.chmod(0o755)


def launcher(tree: Path) -> str:
    """Return the script that runs the QEMU in an unpacked tree."""
    libraries = tree / _LIBRARIES
    return (
        "#!/bin/sh\n"
        f"QEMU_MODULE_DIR='{libraries}/qemu' exec '{libraries}/ld-linux-x86-64.so.2' --library-path '{libraries}' "
        f"'{tree}/usr/bin/{PROGRAM}' -L '{tree}/usr/share/qemu' -L '{tree}/usr/share/seabios' \"$@\"\n"
    )
