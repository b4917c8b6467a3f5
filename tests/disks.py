# SPDX-License-Identifier: Apache-2.0
"""Disks that are soon full."""

from __future__ import annotations

import contextlib
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextlib.contextmanager
def small_disk(folder: Path, size_kib: int) -> Iterator[Path]:
    """Yield a folder, which is made, that is a disk of its own (root)."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_kib}k", "none", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def leave_inodes(disk: Path, number: int) -> None:
    """Have a disk of :func:`small_disk` take so many more files."""
    used = sum(1 for _ in disk.rglob("*"))
    subprocess.run(["mount", "-o", f"remount,nr_inodes={used + number}", str(disk)], check=True)
