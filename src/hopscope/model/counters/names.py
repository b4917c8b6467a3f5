# SPDX-License-Identifier: Apache-2.0
"""What each counter counts and what it means when it moves: looked up in the tables ``counter_names_*.py``."""

from __future__ import annotations

import difflib
import fnmatch
from functools import cache
from typing import TYPE_CHECKING, Final

from hopscope.model.counters.explanation import Explanation, is_pattern, parse
from hopscope.model.counters.names_device import LINK, NEIGHBOUR, QDISC, SOFTNET
from hopscope.model.counters.names_host import CPU, INTERRUPT, MEMORY, PRESSURE, SOFTIRQ, TIMEKEEPING
from hopscope.model.counters.names_ip import ICMP, IP, ROUTE
from hopscope.model.counters.names_mptcp import MPTCP
from hopscope.model.counters.names_nic import ETHTOOL, QUEUE, QUEUES
from hopscope.model.counters.names_recovery import RECOVERY
from hopscope.model.counters.names_socket import CONNTRACK, NFT, SOCKET, SOCKSTAT, UDP, UDP_SOCKET
from hopscope.model.counters.names_tcp import TCP

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hopscope.model.counters.readings import Key

# Of nstat's names, which say themselves what they are of.
_PROTOCOLS: Final = IP + ICMP + TCP + RECOVERY + UDP + MPTCP

# Source → its table.
_TABLES: Final[Mapping[str, str]] = {
    "ethtool": ETHTOOL,
    "interrupt": INTERRUPT,
    "softirq": SOFTIRQ,
    "softnet": SOFTNET,
    "queue_stats": QUEUES,
    "link": LINK,
    "link_setting": LINK,
    "queue": QUEUE,
    "qdisc": QDISC,
    "class": QDISC,
    "neighbour": NEIGHBOUR,
    "route": ROUTE,
    "snmp": _PROTOCOLS,
    "snmp6": _PROTOCOLS,
    "netstat": _PROTOCOLS,
    "conntrack": CONNTRACK,
    "nft": NFT,
    "sockstat": SOCKSTAT,
    "socket": SOCKET,
    "udp_socket": UDP_SOCKET,
    "pressure": PRESSURE,
    "memory": MEMORY,
    "cpu": CPU,
    "timekeeping": TIMEKEEPING,
}

# In these the subject is what is counted, and the name is a CPU.
BY_SUBJECT: Final = frozenset({"interrupt", "softirq"})

# Those of a pair of which one is enough for somebody who looks a name up.
_TWINS: Final = frozenset({"class", "snmp6", "netstat", "link_setting"})

# Whose names nobody can list.
_OPEN: Final = ("snmp", "ethtool")

_NEAR_COUNT: Final = 3


@cache
def table(source: str) -> tuple[Explanation, ...]:
    """Return the entries for a source's names; none for one whose numbers are settings."""
    return parse(_TABLES[source]) if source in _TABLES else ()


def explained(key: Key) -> Explanation | None:
    """Return what is known of a counter; None where nothing is."""
    return _first(key.source, key.subject if key.source in BY_SUBJECT else key.name)


def find(wanted: str) -> list[tuple[str, str, Explanation]]:
    """Return (source, name, explanation) of what is called so, or as the shell's pattern says; case does not matter.

    A name without the kernel's group (``ListenDrops``) will do. Where nothing is called so but a family of NICs' or
    protocols' counters covers the name, it is found under the name that was asked for.
    """
    folded = wanted.lower()
    every = [
        (source, name, entry)
        for source in _TABLES
        if source not in _TWINS
        for entry in table(source)
        for name in entry.names
        if not is_pattern(name)
    ]
    named = [each for each in every if fnmatch.fnmatchcase(each[1].lower(), folded)]
    if named or _is_glob(wanted):
        return named
    # Drivers write in small letters; what is not is a protocol's, misspelt.
    families = ((source, _first(source, wanted)) for source in _OPEN if source == "snmp" or wanted.islower())
    return [each for each in every if _short(each[1]) == folded] or [
        (source, wanted, entry) for source, entry in families if entry
    ]


def near(wanted: str) -> list[str]:
    """Return names that somebody who wrote this may have meant, the likeliest first."""
    by_text = {text: name for name in _names() for text in (name.lower(), _short(name))}
    close = difflib.get_close_matches(wanted.lower(), by_text, n=2 * _NEAR_COUNT)
    return list(dict.fromkeys(by_text[text] for text in close))[:_NEAR_COUNT]


def names_of(source: str) -> list[str]:
    """Return the names that a table has by themselves, without those that stand for several."""
    return [name for entry in table(source) for name in entry.names if not is_pattern(name)]


def _is_glob(text: str) -> bool:
    return any(sign in text for sign in "*?[")


@cache
def _first(source: str, name: str) -> Explanation | None:
    return next((entry for entry in table(source) if entry.covers(name)), None)


@cache
def _names() -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for source in _TABLES for name in names_of(source)))


def _short(name: str) -> str:
    folded = name.lower()
    for prefix in ("mptcpext", "tcpext", "ipext"):
        folded = folded.removeprefix(prefix)
    return folded
