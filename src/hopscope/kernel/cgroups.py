# SPDX-License-Identifier: Apache-2.0
"""The cgroups of processes (cgroups(7))."""

from __future__ import annotations

from pathlib import Path


def cpu_cgroup(pid: int) -> str:
    """Return the cgroup that limits a process's CPU time, as a path below the root of its hierarchy.

    It is that of the controller `cpu`, in version 1 or 2. Empty: the process has ended, or must not be looked at.
    """
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text(errors="replace").splitlines()
    except OSError:
        return ""
    groups = [(controllers.split(","), path) for _, controllers, path in (line.split(":", 2) for line in lines)]
    unified = next((path for controllers, path in groups if controllers == [""]), "")
    return next((path for controllers, path in groups if "cpu" in controllers), unified)
