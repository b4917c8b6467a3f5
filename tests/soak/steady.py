# SPDX-License-Identifier: Apache-2.0
"""Whether processes take more and more: memory and descriptors of each, looked at all the time."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.leftovers import read_all

if TYPE_CHECKING:
    from collections.abc import Sequence

_MIB: Final = 1 << 20
# The memory of a process at rest goes up and down by so much: a share of it, and bytes.
_SHARE: Final = 0.02
_BYTES: Final = 3 * _MIB
# Buffers, and tables of names until old ones are forgotten, still fill in the first minutes: bytes, times seconds.
_FILLS: Final = 40 * _MIB * 60
# Some more there may be where other namespaces of this machine are looked at.
_DESCRIPTORS: Final = 8
_QUARTERS: Final = 4
# There are as many of them as namespaces on this machine, where others come and go.
_OF_NAMESPACES: Final = "link_type:\tnetfilter"


class Look(NamedTuple):
    """What a process has at a moment: resident memory, and descriptors but for links of netfilter."""

    rss_bytes: int
    descriptors: int

    @classmethod
    def at(cls, pid: int) -> Look:
        """Look at a process."""
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        open_ = [text for text in read_all(Path(f"/proc/{pid}/fdinfo")) if _OF_NAMESPACES not in text]
        return cls(pages * 4096, len(open_))


@dataclass
class Process:
    """A process and all looks at it, in equal distances."""

    pid: int
    name: str
    looks: list[Look] = field(default_factory=list)

    def look(self) -> None:
        """Look at it once more."""
        self.looks.append(Look.at(self.pid))

    def wrong(self, seconds: float) -> list[str]:
        """Return sentences on what grows, of a run of so many seconds."""
        return [f"{self.name}: {sentence}" for sentence in growing(self.looks, seconds)]

    def summary(self) -> str:
        """Return how it went, in a line."""
        (before, fds_before), (after, fds_after) = map(_figures, _quarters(self.looks))
        most = max(each.rss_bytes for each in self.looks)
        return (
            f"{self.name}: RSS {before / _MIB:.1f} MiB in the second quarter, {after / _MIB:.1f} in the last one, "
            f"{most / _MIB:.1f} at most; descriptors {fds_before} and {fds_after}"
        )


def growing(looks: Sequence[Look], seconds: float) -> list[str]:
    """Return sentences on what there is more of in the last quarter than in the second one."""
    (before, fds_before), (after, fds_after) = map(_figures, _quarters(looks))
    found = []
    if after > before * (1 + _SHARE) + _BYTES + _FILLS / seconds:
        found.append(f"memory grows from {before / _MIB:.1f} to {after / _MIB:.1f} MiB")
    if fds_after > fds_before + _DESCRIPTORS:
        found.append(f"descriptors grow from {fds_before} to {fds_after}")
    return found


def _quarters(looks: Sequence[Look]) -> tuple[Sequence[Look], Sequence[Look]]:
    """Return the second quarter and the last one: in the first one, tables and buffers fill."""
    size = len(looks) // _QUARTERS
    return looks[size : 2 * size], looks[-size:]


def _figures(looks: Sequence[Look]) -> tuple[float, int]:
    """Return the median of memory, and the least number of descriptors, some of which come and go."""
    return statistics.median(each.rss_bytes for each in looks), min(each.descriptors for each in looks)
