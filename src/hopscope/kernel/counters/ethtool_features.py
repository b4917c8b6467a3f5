# SPDX-License-Identifier: Apache-2.0
"""Offloads and other features of interfaces, in the words of ``ethtool -k``."""

from __future__ import annotations

import fnmatch
import functools
import struct
import sys
from typing import TYPE_CHECKING, Final, NamedTuple

from hopscope.errors import FormatError
from hopscope.kernel.counters.ethtool_settings import FAMILY, each_interface, request
from hopscope.kernel.netlink import Generic, attribute, attributes, each_attribute, nested, number, printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hopscope.kernel.counters.ethtool_settings import Found, Values
    from hopscope.kernel.counters.text import Said

# include/uapi/linux/ethtool_netlink.h, ethtool.h
ETHTOOL_MSG_STRSET_GET: Final = 1
ETHTOOL_MSG_FEATURES_GET: Final = 11
ETHTOOL_A_STRSET_STRINGSETS: Final = 2
ETHTOOL_A_STRINGSETS_STRINGSET: Final = 1
ETHTOOL_A_STRINGSET_ID: Final = 1
ETHTOOL_A_STRINGSET_STRINGS: Final = 3
ETHTOOL_A_STRINGS_STRING: Final = 1
ETHTOOL_A_STRING_INDEX: Final = 1
ETHTOOL_A_STRING_VALUE: Final = 2
ETHTOOL_A_FEATURES_HW: Final = 2
ETHTOOL_A_FEATURES_WANTED: Final = 3
ETHTOOL_A_FEATURES_ACTIVE: Final = 4
ETHTOOL_A_FEATURES_NOCHANGE: Final = 5
ETHTOOL_A_BITSET_VALUE: Final = 4
ETH_SS_FEATURES: Final = 4

# What ethtool called them before the kernel had names for them; some stand for several.
_OLD_NAMES: Final = {
    "rx-checksum": "rx-checksumming",
    "tx-checksum-*": "tx-checksumming",
    "tx-scatter-gather*": "scatter-gather",
    "tx-tcp*-segmentation": "tcp-segmentation-offload",
    "tx-udp-fragmentation": "udp-fragmentation-offload",
    "tx-generic-segmentation": "generic-segmentation-offload",
    "rx-gro": "generic-receive-offload",
    "rx-lro": "large-receive-offload",
    "rx-vlan-hw-parse": "rx-vlan-offload",
    "tx-vlan-hw-insert": "tx-vlan-offload",
    "rx-ntuple-filter": "ntuple-filters",
    "rx-hashing": "receive-hashing",
}


class Bits(NamedTuple):
    """A bit for each feature: what somebody may change, wants, has, and nobody may change."""

    changeable: int
    wanted: int
    active: int
    fixed: int


def features() -> Iterator[Said]:
    """Yield all features of all interfaces."""
    with Generic(FAMILY) as netlink:
        which = attribute(ETHTOOL_A_STRINGSET_ID, struct.pack("=I", ETH_SS_FEATURES))
        question = nested(ETHTOOL_A_STRSET_STRINGSETS, nested(ETHTOOL_A_STRINGSETS_STRINGSET, which))
        answer = netlink.ask_command(ETHTOOL_MSG_STRSET_GET, request() + question)
        known = _features_of(b"" if answer is None else answer.body)
        yield from each_interface(netlink, ETHTOOL_MSG_FEATURES_GET, known.values)


class Features:
    """Tells the features of interfaces by bits.

    Parameters
    ----------
    names
        Of the bits, empty for those that are none.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._old = {
            old: [bit for bit, name in enumerate(names) if fnmatch.fnmatchcase(name, pattern)]
            for pattern, old in _OLD_NAMES.items()
        }
        # Most interfaces of a host have the same.
        self._told: dict[Bits, list[tuple[str, str]]] = {}

    def values(self, found: Found) -> Values:
        """Yield each feature of an interface in words, of the attributes of its message."""
        bits = Bits(
            bitset(found.get(ETHTOOL_A_FEATURES_HW, b"")),
            bitset(found.get(ETHTOOL_A_FEATURES_WANTED, b"")),
            bitset(found.get(ETHTOOL_A_FEATURES_ACTIVE, b"")),
            bitset(found.get(ETHTOOL_A_FEATURES_NOCHANGE, b"")),
        )
        if bits not in self._told:
            self._told[bits] = list(self._words(bits))
        return iter(self._told[bits])

    def _words(self, bits: Bits) -> Iterator[tuple[str, str]]:
        renamed = {}
        for old, members in self._old.items():
            if len(members) == 1:
                renamed[members[0]] = old
            elif members:
                yield old, "on" if any(bits.active >> bit & 1 for bit in members) else "off"
        for bit, name in enumerate(self._names):
            if name:
                yield renamed.get(bit, name), word(bits, bit)


# A kernel has the same features all the time, and in each namespace.
@functools.lru_cache(maxsize=2)
def _features_of(body: bytes) -> Features:
    return Features(feature_names(body))


def word(bits: Bits, bit: int) -> str:
    """Return whether a feature is on, and whether that is for good or not what was asked for."""
    changeable, wanted, active, fixed = (each >> bit & 1 for each in bits)
    state = "on" if active else "off"
    if fixed or not changeable:
        return f"{state} [fixed]"
    return state if active == wanted else f"{state} [requested {'on' if wanted else 'off'}]"


def bitset(value: bytes) -> int:
    """Return the bits of a bitset in its compact form, words of 32 bits each."""
    data = attributes(value).get(ETHTOOL_A_BITSET_VALUE, b"")
    if len(data) % 4:
        raise FormatError(f"a set of bits in {len(data)} bytes")
    words = [data[at : at + 4] for at in range(0, len(data), 4)]
    return sum(int.from_bytes(each, sys.byteorder) << 32 * place for place, each in enumerate(words))


def feature_names(body: bytes) -> list[str]:
    """Return the names in an answer to ``ETHTOOL_MSG_STRSET_GET``, by bit.

    Raises
    ------
    FormatError
        It is cut off, or numbers a string beyond all that there can be.
    """
    names: dict[int, str] = {}
    for _, strings in each_attribute(attributes(body).get(ETHTOOL_A_STRSET_STRINGSETS, b"")):
        found = attributes(strings)
        if number(found.get(ETHTOOL_A_STRINGSET_ID, b"")) == ETH_SS_FEATURES:
            for _, each in each_attribute(found.get(ETHTOOL_A_STRINGSET_STRINGS, b"")):
                string = attributes(each)
                bit = number(string.get(ETHTOOL_A_STRING_INDEX, b""))
                names[bit] = printable(string.get(ETHTOOL_A_STRING_VALUE, b""))
    if max(names, default=0) > len(body):
        raise FormatError("features are numbered beyond what there can be")
    return [names.get(bit, "") for bit in range(max(names, default=-1) + 1)]
