# SPDX-License-Identifier: Apache-2.0
"""Single messages, a line each: when, whose, from where to where, how long in all and at each hop, and what is special.

Columns stand under their titles. Where the terminal is too narrow for all of them, they go on in further lines, each
indented. ``-`` is a hop that was not seen; a hop that the protocol does not have is blank.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from hopscope.model.message import SentMessage
from hopscope.term import format as fmt
from hopscope.term.terminal import columns, pad

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hopscope.model.message import Message
    from hopscope.model.slowest import Slowest
    from hopscope.term.terminal import Terminal

# After so many messages the titles are shown again.
TITLES_EVERY: Final = 25

_INDENT: Final = 2
_TIME: Final = "time UTC"
# Verb → title → the hops that stand under it.
_HOPS: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "tx": {
        "tcp/udp": ("tx.tcp", "tx.udp"),
        "sched": ("tx.sched",),
        "qdisc": ("tx.qdisc", "tx.udp_qdisc"),
        "driver": ("tx.driver", "tx.udp_driver"),
        "nic": ("tx.nic",),
        "ack": ("tx.ack",),
    },
    "rx": {
        "core": ("rx.core",),
        "ip": ("rx.ip",),
        "tcp/udp": ("rx.tcp", "rx.udp"),
        "queue": ("rx.tcp_queue", "rx.udp_queue"),
        "order": ("rx.tcp_order",),
        "asleep": ("rx.tcp_asleep", "rx.udp_asleep"),
        "runnable": ("rx.tcp_runnable", "rx.udp_runnable"),
        "read": ("rx.tcp_read", "rx.udp_read"),
    },
}
_UNFINISHED: Final = {"rx": "start not observed", "tx": "not acknowledged, or start not observed"}
_LEAST_FIGURE: Final = 6
_LEAST_NAMES: Final = {"process": 12, "flow": 33}


@dataclass(frozen=True, slots=True)
class Columns:
    """Widths of the columns that names stand in; they only grow, so that lines stay under each other."""

    verb: str
    process: int = _LEAST_NAMES["process"]
    flow: int = _LEAST_NAMES["flow"]
    # 0 where there is one host.
    host: int = 0

    @property
    def figures(self) -> dict[str, int]:
        """Title of a column of figures → its width."""
        return {title: max(_LEAST_FIGURE, len(title)) for title in ("length", "total", *_HOPS[self.verb])}

    @property
    def widths(self) -> dict[str, int]:
        """Title → width of the column, in the order in which they stand."""
        host = {"host": self.host} if self.host else {}
        return host | {_TIME: 15, "process": self.process, "flow": self.flow} | self.figures

    def fitting(self, messages: Sequence[Message], terminal: Terminal, host: str = "") -> Columns:
        """Return columns that these messages fit in as well, and the host that they are from."""
        process = max((columns(terminal.text(_process(message))) for message in messages), default=0)
        flow = max((columns(terminal.text(_flow(message))) for message in messages), default=0)
        return Columns(self.verb, max(self.process, process), max(self.flow, flow), max(self.host, columns(host)))


def titles(widths: Columns, terminal: Terminal) -> list[str]:
    """Return the lines above the messages."""
    cells = {name: name for name in widths.widths}
    return [terminal.paint(line, "dim") for line in _folded(cells, "", widths, terminal)]


def message_lines(  # noqa: PLR0913 # what to show, and how
    message: Message, offset_ns: int, widths: Columns, terminal: Terminal, *, more: str = "", host: str = ""
) -> list[str]:
    """Return a message as one line, or more where one is too short.

    Parameters
    ----------
    message
        What to show.
    offset_ns
        Wall clock minus CLOCK_MONOTONIC.
    widths
        That it fits in.
    terminal
        What can be shown.
    more
        Stands at the end.
    host
        Whose it is, where the columns have room for hosts.
    """
    hops = message.hops()
    cells = {"host": host} if widths.host else {}
    cells |= {
        _TIME: _clock(message.start_ns, offset_ns),
        "process": terminal.text(_process(message)),
        "flow": terminal.text(_flow(message)),
        "length": fmt.count(message.len_bytes),
        "total": fmt.time(message.total_ns, unicode=terminal.unicode),
    }
    for title, names in _HOPS[widths.verb].items():
        name = next((name for name in names if name in hops), None)
        cells[title] = fmt.time(hops[name], unicode=terminal.unicode) if name else ""
    remarks = terminal.text(
        "  ".join(filter(None, [more, *_remarks(message, more.partition(" ")[0], unicode=terminal.unicode)]))
    )
    return _folded(cells, remarks, widths, terminal)


def render_slowest(slowest: Slowest, verb: str, offset_ns: int, terminal: Terminal) -> str:
    """Return the slowest messages of a verb, with what held them, as lines without a line end after the last."""
    widths = Columns(verb).fitting(slowest.messages, terminal)
    lines = [line for text in _sentences(slowest, verb) for line in terminal.fold(text)]
    if slowest.messages:
        lines += titles(widths, terminal)
    for message in slowest.messages:
        lines += message_lines(message, offset_ns, widths, terminal, more=_held(message, unicode=terminal.unicode))
    return "\n".join(lines)


def _sentences(slowest: Slowest, verb: str) -> Iterator[str]:
    if slowest.messages:
        held = ", ".join(f"{layer} {count}" for layer, count in slowest.held().items())
        span = "the whole run" if slowest.kind == "total" else "this interval"
        yield f"slowest {len(slowest.messages)} of {fmt.plural(slowest.seen, 'message')} in {span}, held by: {held}"
    else:
        yield "No message was completed."
    if slowest.unfinished:
        yield f"without a total ({_UNFINISHED[verb]}): {slowest.unfinished:,}"


def _held(message: Message, *, unicode: bool) -> str:
    blame = message.blame()
    if blame is None:
        return ""
    layer, held_ns = blame
    return f"{layer} {fmt.time(held_ns, unicode=unicode)} of {fmt.time(message.total_ns, unicode=unicode)}"


def _clock(moment_ns: int | None, offset_ns: int) -> str:
    if moment_ns is None:
        return fmt.MISSING
    seconds, rest_ns = divmod(moment_ns + offset_ns, 10**9)
    return f"{datetime.fromtimestamp(seconds, UTC):%H:%M:%S}.{rest_ns // 1000:06}"


def _process(message: Message) -> str:
    return f"{message.pid} {message.comm}".rstrip()


def _flow(message: Message) -> str:
    return message.path or fmt.MISSING


def _remarks(message: Message, held: str, *, unicode: bool) -> Iterator[str]:
    """Iterate over what is special; `held` is said already."""
    yield from (remark for remark in message.remarks() if remark != held)
    if isinstance(message, SentMessage) and len(message.devices) > 1:
        yield _devices(message, unicode=unicode)
    if isinstance(message, SentMessage) and message.tcp:
        yield from _states(message.tcp, unicode=unicode)


def _states(tcp: Mapping[str, Mapping[str, int | str | None] | None], *, unicode: bool) -> Iterator[str]:
    """Iterate over ``cwnd=10/10/-/12``: fields, and their values at each stage."""
    for name in next((state for state in tcp.values() if state), ()):
        values = [state[name] if state else None for state in tcp.values()]
        yield f"{name.removesuffix('_ns').removesuffix('_bytes')}=" + "/".join(
            fmt.MISSING
            if value is None
            else fmt.time(value, unicode=unicode)
            if name.endswith("_ns") and isinstance(value, int)
            else str(value)
            for value in values
        )


def _devices(message: SentMessage, *, unicode: bool) -> str:
    """Return ``vxlan0+1.2µs eth0``: the devices, and how long it took from each to the next."""
    first, *later = message.devices
    text, before = first.name, first
    for device in later:
        text += f"+{fmt.time(max(device.after_ns - before.after_ns, 0), unicode=unicode)} {device.name}"
        before = device
    return text


def _folded(cells: dict[str, str], remarks: str, widths: Columns, terminal: Terminal) -> list[str]:
    """Put cells into as few lines as they fit in, always at the same places, and the remarks behind them."""
    width_of, numeric = widths.widths, widths.figures
    lines, line, used = [], "", 0
    for name, text in cells.items():
        width = width_of[name]
        if used and used + 1 + width > terminal.width:
            lines.append(line)
            line, used = " " * (_INDENT - 1), _INDENT - 1
        cell = text.rjust(width) if name in numeric else pad(text, width)
        line, used = (f"{line} {cell}", used + 1 + width) if line else (cell, width)
    if remarks and used + 2 + columns(remarks) <= terminal.width:
        return _trimmed([*lines, f"{line}  {remarks}"], terminal)
    extra = [" " * _INDENT + part for part in _wrapped(remarks, terminal.width - _INDENT)]
    return _trimmed([*lines, line, *extra], terminal)


def _trimmed(lines: Sequence[str], terminal: Terminal) -> list[str]:
    """Break what is too wide for a line of its own, such as a flow of IPv6 in 40 columns."""
    whole = []
    for line in lines:
        text = line.rstrip()
        indent = " " * (len(text) - len(text.lstrip()))
        if columns(text) <= terminal.width:
            whole.append(text)
        else:
            whole += [indent + part for part in _wrapped(text.strip(), terminal.width - len(indent))]
    return whole


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_on_hyphens=False)
