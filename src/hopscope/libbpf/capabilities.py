# SPDX-License-Identifier: Apache-2.0
"""The capabilities that loading and attaching BPF programs takes, and those that this process has."""

from __future__ import annotations

from pathlib import Path
from typing import Final

# include/uapi/linux/capability.h
_BITS: Final = {"CAP_NET_ADMIN": 12, "CAP_SYS_ADMIN": 21, "CAP_PERFMON": 38, "CAP_BPF": 39}
NEEDED: Final = ("CAP_BPF", "CAP_PERFMON", "CAP_NET_ADMIN")
# The kernel takes it for any of the three (bpf_token_capable, perfmon_capable).
STANDS_FOR_ALL: Final = "CAP_SYS_ADMIN"

_STATUS: Final = Path("/proc/self/status")


def held_capabilities(status: Path = _STATUS) -> set[str]:
    """Return which of :data:`NEEDED` and :data:`STANDS_FOR_ALL` this process has in effect.

    Raises
    ------
    OSError
        The file cannot be read.
    """
    line = next(line for line in status.read_text().splitlines() if line.startswith("CapEff:"))
    effective = int(line.split()[1], 16)
    return {name for name, bit in _BITS.items() if effective >> bit & 1}


def missing_capabilities(status: Path = _STATUS) -> list[str]:
    """Return those of :data:`NEEDED` that this process lacks, and that nothing stands for.

    Raises
    ------
    OSError
        The file cannot be read.
    """
    held = held_capabilities(status)
    return [] if STANDS_FOR_ALL in held else [name for name in NEEDED if name not in held]
