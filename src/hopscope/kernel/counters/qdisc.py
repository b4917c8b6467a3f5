# SPDX-License-Identifier: Apache-2.0
"""Queueing disciplines and their classes: what they sent, dropped and hold (``tc -s qdisc``, ``tc -s class``)."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from hopscope.errors import FormatError
from hopscope.kernel.counters.link import Names
from hopscope.kernel.counters.qdisc_xstats import own_figures
from hopscope.kernel.netlink import NETLINK_ROUTE, Netlink, attributes, number, printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.kernel.counters.text import Said

# include/uapi/linux/rtnetlink.h, pkt_sched.h, gen_stats.h
RTM_GETQDISC: Final = 38
RTM_GETTCLASS: Final = 42
TCMSG: Final = struct.Struct("=BxxxiIII")
TCA_KIND: Final = 1
TCA_XSTATS: Final = 4
TCA_STATS2: Final = 7
TCA_STATS_BASIC: Final = 1
TCA_STATS_QUEUE: Final = 3
TCA_STATS_APP: Final = 4
TCA_STATS_PKT64: Final = 8
TC_H_ROOT: Final = 0xFFFFFFFF
_MINOR: Final = 0xFFFF
_BASIC: Final = struct.Struct("=QI")
_QUEUE: Final = struct.Struct("=5I")
_QUEUE_NAMES: Final = ("qlen", "backlog_bytes", "drops", "requeues", "overlimits")

# It has no queue, and counts nothing.
_NO_QUEUE: Final = "noqueue"
# These have no classes with figures, or one for each flow of the moment.
_NO_CLASSES: Final = frozenset({
    _NO_QUEUE, "bfifo", "cake", "choke", "clsact", "codel", "fq", "fq_codel", "fq_pie", "ingress", "pfifo",
    "pfifo_fast", "pfifo_head_drop", "pie", "sfq", "tbf",
})  # fmt: skip


class Queue(NamedTuple):
    """A qdisc or a class: on which interface, its kind, handle and parent, and what it counts."""

    ifindex: int
    kind: str
    handle: int
    parent: int
    figures: dict[str, int]


def qdiscs() -> Iterator[Said]:
    """Yield the figures of all queueing disciplines that tc shows, but for those without a queue."""
    with Netlink(NETLINK_ROUTE) as netlink:
        listed = netlink.dump(RTM_GETQDISC, TCMSG.pack(0, 0, 0, 0, 0))
    found = map(queue_of, (message.body for message in listed.messages))
    yield from _said((each, qdisc_name(each)) for each in found if each.kind != _NO_QUEUE)
    listed.check()


def classes() -> Iterator[Said]:
    """Yield the figures of the classes of queueing disciplines."""
    with Netlink(NETLINK_ROUTE) as netlink:
        listed = netlink.dump(RTM_GETQDISC, TCMSG.pack(0, 0, 0, 0, 0))
        found = map(queue_of, (message.body for message in listed.messages))
        # The kernel lists them of one interface at a time.
        for index in dict.fromkeys(each.ifindex for each in found if each.kind not in _NO_CLASSES):
            of_one = netlink.dump(RTM_GETTCLASS, TCMSG.pack(0, index, 0, 0, 0))
            listed.failure = listed.failure or of_one.failure
            inside = map(queue_of, (message.body for message in of_one.messages))
            yield from _said((each, class_name(each)) for each in inside if each.kind not in _NO_CLASSES)
    listed.check()


def queue_of(body: bytes) -> Queue:
    """Take apart one message of either listing.

    Raises
    ------
    FormatError
        It is cut off, or has no kind.
    """
    if len(body) < TCMSG.size:
        raise FormatError(f"a queueing discipline in {len(body)} bytes")
    _, index, handle, parent, _ = TCMSG.unpack_from(body)
    found = attributes(body[TCMSG.size :])
    kind = printable(found.get(TCA_KIND, b""))
    if not kind:
        raise FormatError("a queueing discipline without a kind")
    counted = attributes(found.get(TCA_STATS2, b""))
    figures = common_figures(counted)
    own = found.get(TCA_XSTATS, counted.get(TCA_STATS_APP, b""))
    # A figure of its own never hides one that all have.
    return Queue(index, kind, handle, parent, dict(own_figures(kind, own)) | figures)


def common_figures(counted: dict[int, bytes]) -> dict[str, int]:
    """Return what all kinds count, of the attributes in ``TCA_STATS2``."""
    figures = {}
    basic, queue = counted.get(TCA_STATS_BASIC, b""), counted.get(TCA_STATS_QUEUE, b"")
    if len(basic) >= _BASIC.size:
        figures["bytes"], figures["packets"] = _BASIC.unpack_from(basic)
    if TCA_STATS_PKT64 in counted:  # beside the 32 bits of it
        figures["packets"] = number(counted[TCA_STATS_PKT64])
    if len(queue) >= _QUEUE.size:
        figures |= zip(_QUEUE_NAMES, _QUEUE.unpack_from(queue), strict=True)
    return figures


def qdisc_name(queue: Queue) -> str:
    """Return kind and handle, for one that is not the root with its parent, as tc writes them."""
    name = f"{queue.kind} {queue.handle >> 16:x}:"
    return name if queue.parent == TC_H_ROOT else f"{name} parent {classid(queue.parent)}"


def class_name(queue: Queue) -> str:
    """Return kind and number of a class as tc writes them."""
    return f"{queue.kind} {classid(queue.handle)}"


def classid(handle: int) -> str:
    """Return the number of a class as tc writes it (``print_tc_classid``)."""
    if handle in {0, TC_H_ROOT}:
        return "root" if handle else "none"
    major, minor = f"{handle >> 16:x}", f"{handle & _MINOR:x}"
    return f"{major.lstrip('0')}:{minor.lstrip('0')}"


def _said(queues: Iterator[tuple[Queue, str]]) -> Iterator[Said]:
    names = Names()
    said: set[str] = set()
    for queue, name in queues:
        interface = names.of(queue.ifindex)
        subject = f"{interface} {name}"
        if interface and subject not in said:
            said.add(subject)
            yield from ((subject, figure, value) for figure, value in queue.figures.items())
