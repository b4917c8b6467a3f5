# SPDX-License-Identifier: Apache-2.0
"""The capabilities that loading and attaching BPF programs takes, others that show more, and which this process has."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

# include/uapi/linux/capability.h
_BITS: Final = {
    "CAP_DAC_READ_SEARCH": 2,
    "CAP_KILL": 5,
    "CAP_SETGID": 6,
    "CAP_SETUID": 7,
    "CAP_NET_ADMIN": 12,
    "CAP_NET_RAW": 13,
    "CAP_SYS_PTRACE": 19,
    "CAP_SYS_ADMIN": 21,
    "CAP_SYSLOG": 34,
    "CAP_PERFMON": 38,
    "CAP_BPF": 39,
}
NEEDED: Final = ("CAP_BPF", "CAP_PERFMON", "CAP_NET_ADMIN")
# The kernel takes it for any of the three (bpf_token_capable, perfmon_capable).
STANDS_FOR_ALL: Final = "CAP_SYS_ADMIN"

_STATUS: Final = Path("/proc/self/status")


def held_capabilities(status: Path = _STATUS) -> set[str]:
    """Return which of the capabilities that hopscope knows of this process has in effect.

    Raises
    ------
    OSError
        The file cannot be read.
    """
    line = next(line for line in status.read_text().splitlines() if line.startswith("CapEff:"))
    effective = int(line.split()[1], 16)
    return {name for name, bit in _BITS.items() if effective >> bit & 1}


def missing_capabilities(needed: Sequence[str] = NEEDED, status: Path = _STATUS) -> list[str]:
    """Return those of `needed`, which are of :data:`NEEDED`, that this process lacks, and that nothing stands for.

    Raises
    ------
    OSError
        The file cannot be read.
    """
    held = held_capabilities(status)
    return [] if STANDS_FOR_ALL in held else [name for name in needed if name not in held]
