# SPDX-License-Identifier: Apache-2.0
"""What offloads that are off could save at most: by the settings of the interfaces that moved packets, and the samples.

All of the time that the CPU took for what an offload does is what it could save at most. What GRO and GSO would save is
work that is spread over the whole stack, and is not known from samples: they are named without a figure.
"""

from __future__ import annotations

import contextlib
import fnmatch
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from hopscope.errors import HopscopeError
from hopscope.kernel import netns
from hopscope.kernel.counters.ethtool_features import features
from hopscope.live.labels import NamespaceNames

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from hopscope.model.breakdown import Share

_DEVICES: Final = Path("/proc/thread-self/net/dev")
# Of a line of it, behind the name: packets received, and sent.
_PACKETS: Final = (1, 9)
_RECEIVED, _SENT = 0, 1
# More interfaces are not listed.
_LISTED: Final = 4


class _Offload(NamedTuple):
    """A feature: its members, whom it concerns, and the category of what it saves; empty: it has none."""

    name: str
    members: str
    direction: int
    category: tuple[str, str] | None


_OFFLOADS: Final = (
    _Offload("rx-checksumming", "rx-checksumming", _RECEIVED, ("checksum", "")),
    _Offload("tx-checksumming", "tx-checksum-*", _SENT, ("checksum", "")),
    _Offload("tcp-segmentation-offload", "tx-tcp*-segmentation", _SENT, ("transmit_core", "segment")),
    _Offload("generic-receive-offload", "generic-receive-offload", _RECEIVED, None),
    _Offload("generic-segmentation-offload", "generic-segmentation-offload", _SENT, None),
)
_TITLES: Final = {("checksum", ""): "checksum", ("transmit_core", "segment"): "segmentation"}

# By inode of the namespace and interface: packets received, and sent.
Moved = dict[tuple[int, str], tuple[int, int]]


def moved() -> Moved:
    """Return how many packets each interface has moved, in all network namespaces that can be entered."""
    found: Moved = {}
    for inode, each in netns.namespaces().items():
        with contextlib.suppress(OSError):
            lines = netns.inside(each, _DEVICES.read_text).splitlines()[2:]
            for name, _, figures in (line.partition(":") for line in lines):
                received, sent = (int(figures.split()[place]) for place in _PACKETS)
                found[inode, name.strip()] = received, sent
    return found


def sentences(before: Moved, after: Moved, shares: Iterable[Share], whole_ns: int) -> list[str]:
    """Return what offloads could save, as a sentence; none if all that would be of use are on, or it is not known.

    Parameters
    ----------
    before, after
        Of :func:`moved`.
    shares
        Of the time between.
    whole_ns
        All of that time.
    """
    off = _off(before, after)
    spent: defaultdict[tuple[str, str], int] = defaultdict(int)
    for share in shares:
        spent[share.category, share.detail] += share.ns
    known = []
    for category, title in _TITLES.items():
        concerned = [
            f"{each.name} on {off[each.name]}" for each in _OFFLOADS if each.category == category and off[each.name]
        ]
        if concerned and spent[category] and whole_ns:
            known.append(f"{title} {spent[category] / whole_ns:.1%} ({', '.join(concerned)})")
    unknown = [f"{each.name} on {off[each.name]}" for each in _OFFLOADS if not each.category and off[each.name]]
    said = []
    if known:
        said.append(f"offloads that are off could save at most, of the CPU time of networking: {'; '.join(known)}")
    if unknown:
        said.append(f"also off, and what they would save is not known: {', '.join(unknown)}")
    return [". ".join(each[0].upper() + each[1:] for each in said)] if said else []


def _off(before: Moved, after: Moved) -> Mapping[str, str]:
    """Return the offloads that are off and can be switched on, with the interfaces they concern, busiest first."""
    busy = {
        key: tuple(now - then for now, then in zip(figures, before.get(key, (0, 0)), strict=True))
        for key, figures in after.items()
    }
    names = NamespaceNames()
    known = netns.namespaces()
    found: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
    for inode in dict.fromkeys(inode for (inode, _), packets in busy.items() if any(packets)):
        for interface, settings in _settings(known.get(inode)):
            packets = busy.get((inode, interface), (0, 0))
            namespace = names.name(inode)
            shown = interface if namespace == "host" else f"{interface}@{namespace}"
            for each in _OFFLOADS:
                if packets[each.direction] and _can_be_on(settings, each):
                    found[each.name].append((-packets[each.direction], shown))
    return defaultdict(str, {name: _listed([shown for _, shown in sorted(each)]) for name, each in found.items()})


def _settings(where: netns.Namespace | None) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the features of each interface of a namespace; nothing of those that cannot be asked."""
    found: defaultdict[str, dict[str, str]] = defaultdict(dict)
    if where:
        with contextlib.suppress(OSError, HopscopeError):
            for interface, name, value in netns.inside(where, lambda: list(features())):
                found[interface][name] = str(value)
    yield from found.items()


def _can_be_on(settings: Mapping[str, str], offload: _Offload) -> bool:
    if not settings.get(offload.name, "").startswith("off"):
        return False
    members = [value for name, value in settings.items() if fnmatch.fnmatchcase(name, offload.members)]
    return any(value.startswith("off") and "[fixed]" not in value for value in members)


def _listed(interfaces: list[str]) -> str:
    more = len(interfaces) - _LISTED
    listed = ", ".join(interfaces[:_LISTED])
    return f"{listed} and {more} more" if more > 0 else listed
