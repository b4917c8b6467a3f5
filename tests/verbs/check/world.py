# SPDX-License-Identifier: Apache-2.0
"""Readings that a test makes: what moved in five seconds, and what stands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hopscope.model.counters.readings import HOST, Key, Readings, Unread
from hopscope.model.counters.sources import SOURCES, kind_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NETNS: Final = 4026531840
SECONDS: Final = 5
# What each counter had counted before.
BEFORE: Final = 1000
Values = dict[str, int | str]


@dataclass(frozen=True)
class Case:
    """What makes an entry a finding, exactly.

    Attributes
    ----------
    id
        The entry's.
    values
        ``source:subject:name`` → by how much a counter moved, or what a gauge or setting is.
    sentence
        What is said then.
    below
        The least changes to `values` with which nothing is said.
    subject
        The finding's.
    shows
        Keys of `values` that are its evidence; if not given, all but settings of sysctl.
    fix
        The first command, if its figures depend on readings.
    """

    id: str
    values: Values
    sentence: str
    below: Values
    subject: str = ""
    shows: Sequence[str] | None = None
    fix: str = ""


def key(text: str, netns: int = NETNS) -> Key:
    source, subject, name = text.split(":", 2)
    of_host = SOURCES[source].scope == "host" or (source == "sysctl" and name in _OF_HOST)
    return Key(HOST if of_host else netns, source, subject.replace(";", ":"), name)


# As hopscope.kernel.counters.sysctl_names has it of those that appear here.
_OF_HOST: Final = frozenset({
    "net.core.netdev_max_backlog", "net.core.netdev_budget", "net.core.netdev_budget_usecs", "net.core.rmem_max",
    "net.core.wmem_max", "net.ipv4.tcp_mem", "net.ipv4.udp_mem", "net.ipv4.tcp_max_orphans", "net.core.busy_read",
    "net.ipv4.neigh.default.gc_thresh3", "net.ipv6.neigh.default.gc_thresh3",
})  # fmt: skip


def readings(values: Values, *, seconds: float = SECONDS, unread: Sequence[Unread] = ()) -> tuple[Readings, Readings]:
    """Return two readings between which counters moved by these values; gauges and settings stay as they are."""
    return of_keys({key(text): value for text, value in values.items()}, seconds=seconds, unread=unread)


def of_keys(
    values: Mapping[Key, int | str], *, seconds: float = SECONDS, unread: Sequence[Unread] = ()
) -> tuple[Readings, Readings]:
    """As :func:`readings`, of keys."""
    words = {each: value for each, value in values.items() if isinstance(value, str)}
    numbers = {each: value for each, value in values.items() if isinstance(value, int)}
    before = {each: BEFORE if kind_of(each) == "counter" else value for each, value in numbers.items()}
    now = {each: BEFORE + value if kind_of(each) == "counter" else value for each, value in numbers.items()}
    names = {each.netns: "host" for each in values if each.netns != HOST} | {NETNS: "host"}
    until_ns = round(seconds * 1e9)
    return Readings(0, 1, before, words, names), Readings(until_ns, until_ns + 1, now, words, names, unread)
