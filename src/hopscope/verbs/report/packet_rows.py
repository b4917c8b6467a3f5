# SPDX-License-Identifier: Apache-2.0
"""Packet trees as a report with one row per event."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.model.report import Column, Report, of_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hopscope.model.report import Value
    from hopscope.trace.packets.tree import PacketTree

COLUMNS: Final = (
    Column("packet", "number", "number of the packet in the trace", "packet"),
    Column("of_packet", "number", "for a clone or segment: the packet it comes from", "of"),
    Column("kind", "text", "packet, clone, segment, or around (what the CPU did before and after)", "kind"),
    Column("skb", "number", "address", "skb"),
    Column("flow_name", "text", "source > destination; several if the headers were rewritten", "flow"),
    Column("time_ns", "number", "time, CLOCK_MONOTONIC", "time"),
    Column("offset_ns", "number", "time since the packet was first seen; negative before that", "offset"),
    Column("cpu", "number", "where", "CPU"),
    Column("point", "text", "the probe point", "point"),
    Column("depth", "number", "nesting of stacked devices", "depth"),
    Column("interface", "text", "the device", "interface"),
    Column("thread", "text", "name and number of the running thread", "thread"),
    Column("says", "text", "further details", "says"),
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
