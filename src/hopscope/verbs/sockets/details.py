# SPDX-License-Identifier: Apache-2.0
"""All that is known of each socket, with names written out; what is 0 is left out, as ss does."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from hopscope.kernel.sockets.tcp_info import BY_COLUMN, CA_STATES, OPTIONS
from hopscope.term import format as fmt
from hopscope.verbs.sockets.json import sockets_to_json
from hopscope.verbs.sockets.table import heading, notes, process_names, sign_lines, socket_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.term.json_lines import Json
    from hopscope.term.terminal import Terminal
    from hopscope.verbs.sockets.report import SocketReport

_INDENT: Final = "  "
_PREFERRED: Final = ("uid", "inode", "cookie", "netns", "cgroup", "interface")
_LEFT_TO_OTHERS: Final = {"state", "options", "ca_state", "snd_wscale", "rcv_wscale"}
_WSCALE: Final = 4
_GAIN: Final = 256


def render_details(report: SocketReport, terminal: Terminal, limit: int | None) -> str:
    """Return a paragraph a socket; 0: all sockets."""
    lines = heading(report, terminal)
    narrow = replace(terminal, width=terminal.width - len(_INDENT))
    shown = report.head(limit)
    names, processes = socket_names(shown), process_names(shown)
    for index, socket in enumerate(sockets_to_json(shown)):
        lines += ["", *_title(names[index], processes[index], terminal)]
        lines += [terminal.paint(text, "warn") for text in sign_lines(shown, index, terminal)]
        for topic, words in _topics(socket, terminal):
            if words:
                lines += [f"{_INDENT}{line}" for line in narrow.fold(f"{topic}: {', '.join(words)}")]
    if len(report) > len(shown):
        lines += ["", *terminal.fold(f"and {len(report) - len(shown):,} more (--limit)")]
    return "\n".join(lines + notes(report, terminal))


def _title(name: str, process: str, terminal: Terminal) -> list[str]:
    return [terminal.paint(line, "bold") for line in terminal.fold(f"{name}  {process}")]


def _topics(socket: Json, terminal: Terminal) -> Iterator[tuple[str, list[str]]]:
    yield "socket", [f"{name} {socket[name]}" for name in _PREFERRED if socket[name] is not None]
    yield "processes", [f"{each['comm']} pid {each['pid']} fd {each['fd']}" for each in socket["processes"]]
    yield "options", list(_options(socket))
    yield "queues", list(_queues(socket))
    if socket["timer"]:
        timer = socket["timer"]
        left = _scaled("expires_ms", timer["expires_ms"], terminal)
        yield "timer", [timer["name"], f"expires in {left}", f"{timer['retransmits']} retransmits"]
    yield "memory", _named(socket["memory"] or {}, terminal)
    yield "congestion control", list(_congestion(socket, terminal))
    yield "interval", _named({name: value for name, value in (socket["change"] or {}).items() if value}, terminal)
    yield "tcp", list(_tcp(socket, terminal))


def _options(socket: Json) -> Iterator[str]:
    for name in ("mark", "tos", "tclass", "class_id", "v6only", "ulp"):
        if socket[name]:
            yield f"{name} {socket[name]}"
    yield from socket["socket_options"] or ()
    shutdown = socket["shutdown"] or 0
    if shutdown & 1:
        yield "shut down for reading"
    if shutdown & 2:
        yield "shut down for writing"


def _queues(socket: Json) -> Iterator[str]:
    for name in ("receive_queue_bytes", "send_queue_bytes", "accept_queue", "backlog"):
        if socket[name] is not None:
            yield f"{_words(name)} {socket[name]:,}"


def _congestion(socket: Json, terminal: Terminal) -> Iterator[str]:
    if socket["congestion"]:
        yield socket["congestion"]
    info = dict(socket["congestion_info"] or {})
    info.pop("kind", None)
    if bandwidth := info.pop("bw_lo", 0) | info.pop("bw_hi", 0) << 32:
        yield f"bandwidth {fmt.rate(bandwidth * 8)}bit/s"
    for name, value in info.items():
        if not value:
            continue
        yield f"{_words(name)} {value / _GAIN:.3g}" if name.endswith("_gain") else _one(name, value, terminal)


def _tcp(socket: Json, terminal: Terminal) -> Iterator[str]:
    tcp: dict[str, Any] = socket["tcp"] or {}
    if not tcp:
        return
    bits = tcp["options"]
    yield from (name for bit, name in enumerate(OPTIONS) if bits >> bit & 1 and name != "wscale")
    if bits & _WSCALE:
        yield f"window scale {tcp['snd_wscale']},{tcp['rcv_wscale']}"
    state = tcp["ca_state"]
    yield f"congestion state {CA_STATES[state] if state < len(CA_STATES) else state}"
    if socket["rtt_inflation"]:
        yield f"rtt {fmt.rate(socket['rtt_inflation'])}x of min"
    for name in ("rwnd_limited", "sndbuf_limited"):
        if tcp.get(f"{name}_us") and tcp["busy_time_us"]:
            yield f"{_words(name)} {fmt.part(tcp[f'{name}_us'] / tcp['busy_time_us'])} of the busy time"
    if tcp["rtt_us"] and tcp["snd_cwnd"]:
        yield f"cwnd allows {fmt.rate(tcp['snd_cwnd'] * tcp['snd_mss_bytes'] * 8e6 / tcp['rtt_us'])}bit/s"
    yield from _named(
        {name: value for name, value in tcp.items() if name not in _LEFT_TO_OTHERS},
        terminal,
    )


def _named(values: dict[str, Any], terminal: Terminal) -> list[str]:
    return [_one(name, value, terminal) for name, value in values.items() if value]


def _one(name: str, value: float, terminal: Terminal) -> str:
    field = BY_COLUMN.get(name)
    label = field.name if field else name
    for unit in ("_bytes_per_s", "_bytes", "_us", "_ms"):
        label = label.removesuffix(unit)
    return f"{_words(label)} {_scaled(name, value, terminal)}"


def _scaled(name: str, value: float, terminal: Terminal) -> str:
    if name.endswith("_us"):
        return fmt.time(value * 1e3, unicode=terminal.unicode)
    if name.endswith("_ms"):
        return fmt.time(value * 1e6, unicode=terminal.unicode)
    if name.endswith("_per_s"):
        return f"{fmt.rate(value * 8)}bit/s"
    if name.endswith("_share"):
        return fmt.part(value)
    return f"{value:,} B" if "bytes" in name else f"{value:,}"


def _words(name: str) -> str:
    return name.replace("_", " ")
