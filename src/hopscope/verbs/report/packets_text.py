# SPDX-License-Identifier: Apache-2.0
"""Packets as trees: their paths through the kernel with the time of each step, and clones and segments below."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.term import format as fmt
from hopscope.term.terminal import pad

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hopscope.term.terminal import Terminal
    from hopscope.trace.packets.tree import Event, PacketTree

_INDENT: Final = 2
_CPU_WIDTH: Final = 3
_POINT_WIDTH: Final = 18
_DEVICE_WIDTH: Final = 8
_THREAD_WIDTH: Final = 13


class _Cpus:
    """Names of CPUs, padded to the same width."""

    def __init__(self, names: Mapping[int, str]) -> None:
        self._names = names
        self._width = max([_CPU_WIDTH, *map(len, names.values())])

    def cell(self, cpu: int) -> str:
        return self._names.get(cpu, str(cpu)).rjust(self._width)


def render_trees(
    trees: Sequence[PacketTree], started_ns: int, terminal: Terminal, cpus: Mapping[int, str] | None = None
) -> list[str]:
    """Return the lines of all packets, separated by blank lines.

    Parameters
    ----------
    trees
        In the order of output.
    started_ns
        Beginning of the recording; times of packets are relative to it.
    cpus
        Names of CPUs; by default their numbers.
    """
    names = _Cpus(cpus or {})
    lines: list[str] = []
    for tree in trees:
        lines += ([""] if lines else []) + _heading(tree, started_ns, terminal) + _tree(tree, tree, 0, terminal, names)
    return lines


def _heading(tree: PacketTree, started_ns: int, terminal: Terminal) -> list[str]:
    length = fmt.time(tree.ends_ns - tree.begins_ns, unicode=terminal.unicode)
    at_s = (tree.begins_ns - started_ns) / 1e9
    text = f"{' then '.join(tree.flow) or 'no IP'}  {tree.len_bytes:,} bytes  {length}  at {at_s:.6f} s"
    return [terminal.paint(line, "bold") for line in terminal.fold(text)]


def _tree(tree: PacketTree, root: PacketTree, depth: int, terminal: Terminal, cpus: _Cpus) -> list[str]:
    lines = []
    before: int | None = None
    for event in tree.events:
        lines.append(_line(event, root, before, depth, terminal, cpus=cpus))
        before = event.time_ns
    lines += [
        terminal.paint(line, "warn")
        for remark in tree.remarks
        for line in terminal.fold(" " * (20 + _INDENT * depth) + remark, indent=20 + _INDENT * depth)
    ]
    for kin in tree.kin:
        skb = f"{kin.skb & (1 << 64) - 1:x}"
        lines.append(terminal.text(" " * (20 + _INDENT * depth) + f"{kin.kind} {skb}  {kin.len_bytes:,} bytes"))
        lines += _tree(kin, root, depth + 1, terminal, cpus)
    return lines


def _line(  # noqa: PLR0913 # what it is of, where it stands, how it is shown
    event: Event, root: PacketTree, before_ns: int | None, depth: int, terminal: Terminal, *, cpus: _Cpus
) -> str:
    offset_ns = event.time_ns - root.begins_ns
    sign = "-" if offset_ns < 0 else " "
    offset = sign + fmt.time(abs(offset_ns), unicode=terminal.unicode)
    step = "" if before_ns is None else "+" + fmt.time(event.time_ns - before_ns, unicode=terminal.unicode)
    point = " " * _INDENT * (depth + event.depth) + event.point
    device = _cell(event.device, _DEVICE_WIDTH, terminal)
    thread = _cell(event.thread, _THREAD_WIDTH, terminal)
    text = f"{offset:>7} {step:>7} {cpus.cell(event.cpu)} {pad(point, _POINT_WIDTH)} {device} {thread} {event.says}"
    text = terminal.cut(text.rstrip(), terminal.width)
    return text if event.of_packet else terminal.paint(text, "dim")


def _cell(text: str, width: int, terminal: Terminal) -> str:
    return pad(terminal.cut(text, width), width)
