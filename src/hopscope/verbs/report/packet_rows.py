# SPDX-License-Identifier: Apache-2.0
"""Packets' trees as a report: a row an event."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.model.report import Column, Report, of_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hopscope.model.report import Value
    from hopscope.trace.packets.tree import PacketTree

COLUMNS: Final = (
    Column("packet", "number", "its number in the trace", "packet"),
    Column("of_packet", "number", "of a clone or segment, the packet that it is of", "of"),
    Column("kind", "text", "packet, clone, segment; around: what ran around the packet", "kind"),
    Column("skb", "number", "address", "skb"),
    Column("flow_name", "text", "source > destination; several if its headers were changed on the way", "flow"),
    Column("time_ns", "number", "when, CLOCK_MONOTONIC", "time"),
    Column("offset_ns", "number", "since the packet was seen first; before that below 0", "offset"),
    Column("cpu", "number", "where", "CPU"),
    Column("point", "text", "the probe point", "point"),
    Column("depth", "number", "how many devices deep", "depth"),
    Column("interface", "text", "the device", "interface"),
    Column("thread", "text", "name and number of the thread that ran", "thread"),
    Column("says", "text", "the rest", "says"),
)


def packet_rows(trees: Sequence[PacketTree], *, left_out: int = 0, notes: Sequence[str] = ()) -> Report:
    """Return a row for each event of the packets and of their clones and segments."""
    rows = [row for tree in trees for row in _rows(tree, tree)]
    return of_rows("packets", COLUMNS, rows, left_out=left_out, notes=notes)


def _rows(tree: PacketTree, root: PacketTree) -> Iterator[list[Value]]:
    for event in tree.events:
        yield [
            tree.packet,
            None if tree is root else root.packet,
            tree.kind if event.of_packet else "around",
            tree.skb,
            ", ".join(tree.flow) or None,
            event.time_ns,
            event.time_ns - root.begins_ns,
            event.cpu,
            event.point,
            event.depth,
            event.device or None,
            event.thread or None,
            event.says,
        ]
    for kin in tree.kin:
        yield from _rows(kin, root)
