# SPDX-License-Identifier: Apache-2.0
"""A limit of memory, by a cgroup of version 1 or 2."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from hopscope.kernel.host import read_mounts
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def memory_limited(limit_bytes: int) -> Iterator[tuple[str, ...]]:
    """Yield the words of a program that starts another one in a cgroup with this limit; nothing where there is none."""
    hierarchy = _with_memory()
    if hierarchy is None:
        yield ()
        return
    group = hierarchy / f"chaos-{os.getpid()}"
    group.mkdir()
    try:
        name = next(each for each in ("memory.max", "memory.limit_in_bytes") if (group / each).exists())
        (group / name).write_text(str(limit_bytes))
        yield "sh", "-c", f'echo $$ >{group}/cgroup.procs && exec "$@"', "sh"
    finally:
        eventually(lambda: not (group / "cgroup.procs").read_text(), "processes stay in the cgroup")
        group.rmdir()


def _with_memory() -> Path | None:
    """Return the root of a hierarchy that limits memory, None if there is none."""
    for mount in read_mounts():
        root = Path(mount.point)
        if mount.kind in {"cgroup", "cgroup2"} and any(root.glob("memory.limit_in_bytes")):
            return root
        if mount.kind == "cgroup2" and "memory" in (root / "cgroup.subtree_control").read_text().split():
            return root
    return None
