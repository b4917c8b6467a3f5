# SPDX-License-Identifier: Apache-2.0
"""The rights that attaching takes, and what cannot be seen without others."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hopscope.errors import KernelError, PrivilegeError
from hopscope.kernel.host import how_to_get, in_initial_namespace
from hopscope.libbpf import missing_capabilities
from hopscope.libbpf.capabilities import NEEDED, held_capabilities

if TYPE_CHECKING:
    from collections.abc import Sequence

# All that is needed where no program has to do with a device, a socket's options or netfilter.
TO_TRACE: Final = ("CAP_BPF", "CAP_PERFMON")


def require_rights(needed: Sequence[str] = NEEDED) -> None:
    """Return if this process may load and attach BPF programs, and has these capabilities for it.

    Raises
    ------
    PrivilegeError
        It may not; names the missing capabilities.
    KernelError
        It has another clock than the kernel: no time of an event could be compared with ours.
    """
    if not in_initial_namespace("user"):
        raise PrivilegeError(
            f"Attaching to the kernel requires {_listed(needed)} on the host; capabilities in a user namespace do not "
            "count",
            "Run hopscope as root on the host",
        )
    if _other_clock():
        raise KernelError(
            "The monotonic clock of this time namespace is not the kernel's, by which BPF programs tell the time",
            "Run hopscope outside of it",
        )
    missing = missing_capabilities(needed)
    if missing:
        raise PrivilegeError(
            f"Attaching to the kernel requires {_listed(needed)} (missing: {', '.join(missing)})",
            how_to_get(missing, os.geteuid()),
        )


def require_held(names: Sequence[str], what: str) -> None:
    """Return if this process has each of these capabilities; none stands for another one.

    Raises
    ------
    PrivilegeError
        It lacks some; says for `what` they are needed, and names them.
    """
    if missing := not_held(names):
        raise PrivilegeError(
            f"{what} requires {_listed(names)} (missing: {', '.join(missing)})", how_to_get(missing, os.geteuid())
        )


def not_held(names: Sequence[str]) -> list[str]:
    """Return those of these capabilities that this process lacks, whatever may stand for them."""
    held = held_capabilities()
    return [name for name in names if name not in held]


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _other_clock(offsets: Path = Path("/proc/self/timens_offsets")) -> bool:
    """Tell whether this process is in a time namespace whose monotonic clock has an offset (time_namespaces(7))."""
    try:
        lines = offsets.read_text().splitlines()
    except OSError:
        return False  # a kernel without such namespaces
    return any(line.split()[0] == "monotonic" and line.split()[1:] != ["0", "0"] for line in lines)


def unseen_namespaces() -> str:
    """Return a sentence on the network namespaces that this process may not look into; empty: there are none."""
    missing = not_held(("CAP_SYS_ADMIN", "CAP_SYS_PTRACE"))
    if not missing:
        return ""
    seen = "its own" if "CAP_SYS_ADMIN" in missing else "those that have a name or a process of its user"
    return f"without {' and '.join(missing)}, hopscope can enter no network namespace but {seen}"
