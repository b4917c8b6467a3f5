# SPDX-License-Identifier: Apache-2.0
"""What this machine must have to boot a kernel, and how it gets it."""

from __future__ import annotations

import os
import shutil
from typing import Final

from vmtest import VmtestError, apt

# Debian's name of a package -> a program that it brings. `file` tells virtme-ng the release of an image, busybox
# must be linked statically, for it runs before there is a root file system.
REQUIREMENTS: Final = {
    "qemu-system-x86": "qemu-system-x86_64",
    "busybox-static": "busybox",
    "cpio": "cpio",
    "kmod": "depmod",
    "udev": "udevadm",
    "file": "file",
}
_SYSTEM_FOLDERS: Final = "/usr/sbin:/sbin"


def search_path() -> str:
    """Return ``PATH`` with the folders in which Debian keeps the system's programs; a user's lacks them."""
    return f"{os.environ.get('PATH', os.defpath)}:{_SYSTEM_FOLDERS}"


def missing() -> list[str]:
    """Return the Debian packages that this machine lacks."""
    path = search_path()
    return [package for package, program in REQUIREMENTS.items() if shutil.which(program, path=path) is None]


def install() -> list[str]:
    """Install what is missing and return its names.

    Raises
    ------
    VmtestError
        Not root, or a package cannot be had.
    """
    wanted = missing()
    if wanted and os.geteuid() != 0:
        raise VmtestError(f"missing here: {', '.join(wanted)}. Run: sudo apt-get install {' '.join(wanted)}")
    if wanted:
        quiet = ("apt-get", "-o", "DPkg::Lock::Timeout=600", "-qq", "-y")
        apt.run((*quiet, "update"))
        environment = ("env", "DEBIAN_FRONTEND=noninteractive")
        apt.run((*environment, *quiet, "--no-install-recommends", "install", *wanted))
    return wanted
