# SPDX-License-Identifier: Apache-2.0
"""What the kernel's counters, gauges and settings said at one moment: what collectors fill and analyses compare."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# The `netns` of what all namespaces share, such as CPUs.
HOST: Final = 0


class Key(NamedTuple):
    """What one reading is of.

    Attributes
    ----------
    netns
        Inode of the network namespace; :data:`HOST` for what all of them share.
    source
        Which interface of the kernel it was read from: a name of :data:`hopscope.model.counters.sources.SOURCES`.
    subject
        Which of several: ``eth0``, ``cpu 3``, ``eth0 fq_codel 8001:``; empty where there is but one.
    name
        As the tool calls it that people read it with: ``TcpExtTCPTimeouts`` (nstat), ``rx_dropped`` (ip).
    """

    netns: int
    source: str
    subject: str
    name: str


@dataclass(frozen=True, slots=True)
class Unread:
    """A source that could not be read, and why: one sentence without a full stop."""

    netns: int
    source: str
    reason: str


@dataclass(frozen=True, slots=True)
class Readings:
    """All that was read at one moment.

    Attributes
    ----------
    time_ns
        CLOCK_MONOTONIC, when the reading began.
    until_ns
        When it ended: what is in it was so at some time in between.
    numbers
        Counters, gauges, and settings that are numbers.
    words
        Settings that are words or lists, such as ``net.ipv4.tcp_rmem``.
    namespaces
        Names of the network namespaces that were read, by inode.
    unread
        What could not be read.
    """

    time_ns: int
    until_ns: int
    numbers: Mapping[Key, int]
    words: Mapping[Key, str] = field(default_factory=dict)
    namespaces: Mapping[int, str] = field(default_factory=dict)
    unread: Sequence[Unread] = ()


def signed(value: int) -> int:
    """Return the integer of 64 bits with a sign that has the bits of a counter, which has none."""
    return value - (1 << 64) if value >= 1 << 63 else value
