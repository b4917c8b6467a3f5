# SPDX-License-Identifier: Apache-2.0
"""A message as a waterfall of the layers that held it, where it was seen by ``rx`` or ``tx``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.model.cause import BY_NAME
from hopscope.model.message import SentMessage
from hopscope.term import format as fmt
from hopscope.term.terminal import pad

if TYPE_CHECKING:
    from hopscope.model.message import Message
    from hopscope.term.terminal import Terminal

_NAME: Final = 22
_TIME: Final = 7
_LEAST_BAR: Final = 8


def layer_lines(message: Message, terminal: Terminal) -> list[str]:
    """Return a sentence on what held the message longest, and a bar for each layer, in the order of the path."""
    layers, total_ns = message.layers(), message.total_ns or 1
    width = max(terminal.width - _NAME - _TIME - 2, _LEAST_BAR)
    mark = "█" if terminal.unicode else "#"
    lines, after_ns = [*terminal.fold(_sentence(message, terminal)), ""], 0
    for name, held_ns in layers.items():
        begin = min(round(after_ns / total_ns * width), width - 1)
        end = min(max(round((after_ns + held_ns) / total_ns * width), begin + 1), width)
        time = fmt.time(held_ns, unicode=terminal.unicode).rjust(_TIME)
        lines.append(f"{pad(terminal.cut(name, _NAME), _NAME)} {time} {' ' * begin}{mark * (end - begin)}")
        after_ns += held_ns
    return lines


def _sentence(message: Message, terminal: Terminal) -> str:
    total = fmt.time(message.total_ns, unicode=terminal.unicode)
    size = fmt.plural(message.len_bytes, "byte")
    retransmits = message.retransmits if isinstance(message, SentMessage) else 0
    again = f", {fmt.plural(retransmits, 'retransmission')}" if retransmits else ""
    start = f"{total}, {size}{again}"
    if (blame := message.blame()) is None:
        return f"{start}."
    name, held_ns = blame
    why = f": {BY_NAME[name].meaning}" if name in BY_NAME else ""
    return f"{start}; most of it, {fmt.time(held_ns, unicode=terminal.unicode)}, in {name}{why}."
