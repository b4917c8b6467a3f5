# SPDX-License-Identifier: Apache-2.0
"""Sockets for programs: an object a line, first of the report and then of each socket or group.

``docs/json/hopscope.sockets-1.schema.json`` and its siblings describe them; :mod:`hopscope.verbs.sockets.schema` makes
those.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hopscope.kernel.sockets.address import addresses, device_names, ports
from hopscope.kernel.sockets.signs import rtt_inflation
from hopscope.kernel.sockets.table import BBR, DCTCP, MEMORY, PROTOCOLS, TIMERS, VEGAS, Seen, State, cookies, has
from hopscope.kernel.sockets.tcp_info import FIELDS, NONE
from hopscope.term.json_lines import VERSION, Json, iso
from hopscope.verbs.sockets.groups import NOT_KNOWN, cgroup_names, groups, namespace_names
from hopscope.verbs.sockets.report import state_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from hopscope.kernel.sockets.table import Rows
    from hopscope.verbs.sockets.report import SocketReport

# Bits of struct inet_diag_sockopt.
SOCKET_OPTIONS: Final = (
    "recverr", "is_icsk", "freebind", "hdrincl", "mc_loop", "transparent", "mc_all", "nodefrag",
    "bind_address_no_port", "recverr_rfc4884", "defer_connect",
)  # fmt: skip
CONTROL: Final = (("bbr", Seen.BBRINFO, BBR), ("vegas", Seen.VEGASINFO, VEGAS), ("dctcp", Seen.DCTCPINFO, DCTCP))
MEMORY_NAMES: Final = {name: name if name == "drops" else f"{name}_bytes" for name in MEMORY.names or ()}
_CHUNK: Final = 4096


def report_to_json(report: SocketReport) -> Json:
    """Return what is to be said of a whole report, as schema ``hopscope.sockets/1``."""
    sockets = report.sockets
    return {
        "schema": f"hopscope.sockets/{VERSION}",
        "kind": report.kind,
        "time": iso(report.started_ns),
        "interval_s": report.duration_s,
        "read_in_s": (sockets.until_ns - sockets.time_ns) / 1e9,
        "sockets": len(report),
        "read": report.read,
        "states": [
            {"protocol": protocol, "state": state, "sockets": count}
            for (protocol, state), count in report.states().most_common()
        ],
        "new": None if report.duration_s is None else report.new,
        "gone": None if report.duration_s is None else report.change.gone,
        "twice": sockets.twice,
        "interrupted": sockets.interrupted,
        "tcp_info_bytes": sockets.tcp_info_bytes,
        "namespaces": {str(inode): name for inode, name in sockets.namespaces.items()},
        "unread": [{"netns": each.netns, "reason": each.reason} for each in sockets.unread],
        "filters": dict(report.filters),
        "reader_cpu_percent": report.reader_cpu_percent,
        "notes": list(report.notes),
    }


def groups_to_json(report: SocketReport, by: Sequence[str], limit: int | None) -> Iterator[Json]:
    """Yield the groups, as schema ``hopscope.sockets.group/1``."""
    for each in groups(report, by)[: limit or None]:
        yield {
            "schema": f"hopscope.sockets.group/{VERSION}",
            "time": iso(report.started_ns),
            "interval_s": report.duration_s,
            "group": dict(each.group),
            "sockets": each.sockets,
            "in_trouble": each.in_trouble,
            "sent_bytes": each.sent_bytes,
            "received_bytes": each.received_bytes,
            "retransmitted": each.retransmitted,
            "data_segments": each.data_segments,
            "drops": each.drops,
            "rtt_us": each.rtt_us,
            "rtt_max_us": each.rtt_max_us,
            "rtt_inflation": each.rtt_inflation,
            "receive_queue_bytes": each.receive_queue_bytes,
            "send_queue_bytes": each.send_queue_bytes,
        }


def sockets_to_json(report: SocketReport) -> Iterator[Json]:
    """Yield the sockets, as schema ``hopscope.sockets.socket/1``."""
    for start in range(0, len(report), _CHUNK):
        yield from _chunk(report.take(np.arange(start, min(start + _CHUNK, len(report)))))


def _chunk(report: SocketReport) -> Iterator[Json]:
    columns = {name: make(report) for name, make in _COLUMNS.items()}
    head = {
        "schema": f"hopscope.sockets.socket/{VERSION}",
        "time": iso(report.started_ns),
        "interval_s": report.duration_s,
    }
    for values in zip(*columns.values(), strict=True):
        yield head | dict(zip(columns, values, strict=True))


def _message(name: str) -> Callable[[SocketReport], list[Any]]:
    return lambda report: report.sockets.rows["message"][name].tolist()


def _if_seen(attribute: Seen, name: str) -> Callable[[SocketReport], list[Any]]:
    def values(report: SocketReport) -> list[Any]:
        rows = report.sockets.rows
        return _or_null(rows[name].tolist(), has(rows, attribute))

    return values


def _text_if_seen(attribute: Seen, name: str) -> Callable[[SocketReport], list[Any]]:
    def values(report: SocketReport) -> list[Any]:
        rows = report.sockets.rows
        return _or_null([text.decode(errors="replace") for text in rows[name].tolist()], has(rows, attribute))

    return values


def _or_null(values: list[Any], known: NDArray[np.bool_]) -> list[Any]:
    return [value if there else None for value, there in zip(values, known.tolist(), strict=True)]


def _queues(report: SocketReport, *, listening: bool, name: str) -> list[int | None]:
    message = report.sockets.rows["message"]
    is_listener = (message["state"] == State.LISTEN) == listening
    return _or_null(message[name].tolist(), is_listener)


def _processes(report: SocketReport) -> list[list[Json]]:
    return [
        [owner._asdict() for owner in report.owners.get(inode, ())]
        for inode in report.sockets.rows["message"]["inode"].tolist()
    ]


def _timers(report: SocketReport) -> list[Json | None]:
    message = report.sockets.rows["message"]
    found: list[Json | None] = []
    for timer, expires_ms, retrans in zip(
        message["timer"].tolist(), message["expires_ms"].tolist(), message["retrans"].tolist(), strict=True
    ):
        name = TIMERS[timer] if timer < len(TIMERS) else "unknown"
        found.append({"name": name, "expires_ms": expires_ms, "retransmits": retrans} if timer else None)
    return found


def _options(report: SocketReport) -> list[list[str] | None]:
    rows = report.sockets.rows
    known: dict[int, list[str]] = {}
    texts = [
        known.setdefault(bits, [name for bit, name in enumerate(SOCKET_OPTIONS) if bits >> bit & 1])
        for bits in rows["sockopt"].tolist()
    ]
    return _or_null(texts, has(rows, Seen.SOCKOPT))


def _memory(report: SocketReport) -> list[Json | None]:
    rows = report.sockets.rows
    named = [dict(zip(MEMORY_NAMES.values(), values, strict=True)) for values in rows["memory"].tolist()]
    return _or_null(named, has(rows, Seen.SKMEMINFO))


def _control(report: SocketReport) -> list[Json | None]:
    """Return what the congestion control tells of itself."""
    rows = report.sockets.rows
    found: list[Json | None] = [None] * len(rows)
    for name, attribute, dtype in CONTROL:
        chosen = np.flatnonzero(has(rows, attribute))
        told = np.ascontiguousarray(rows["control"][chosen]).view(f"V{rows['control'].itemsize}")
        view = np.array([bytes(each)[: dtype.itemsize] for each in told.tolist()], f"V{dtype.itemsize}").view(dtype)
        for index, values in zip(chosen.tolist(), view.tolist(), strict=True):
            found[index] = {"kind": name} | dict(zip(dtype.names or (), values, strict=True))
    return found


def tcp_columns(rows: Rows, sent_bytes: int) -> dict[str, list[Any]]:
    """Return the fields of ``struct tcp_info`` as columns, those that this kernel does not send as None."""
    columns: dict[str, list[Any]] = {}
    info = rows["tcp"]
    for field in FIELDS:
        if field.offset + field.size > sent_bytes:
            columns[field.column] = [None] * len(rows)
        elif field.bits:
            low, width = field.bits
            columns[field.column] = (info[f"bits_{field.offset}"] >> low & ((1 << width) - 1)).tolist()
        else:
            values = info[field.name].tolist()
            none = NONE.get(field.column)
            columns[field.column] = values if none is None else [None if each == none else each for each in values]
    return columns


def _tcp(report: SocketReport) -> list[Json | None]:
    rows = report.sockets.rows
    columns = tcp_columns(rows, report.sockets.tcp_info_bytes)
    named = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return _or_null(named, has(rows, Seen.INFO))


def _signs(report: SocketReport) -> list[Json]:
    return [{sign.name: _digits(value) for sign, value in report.signs.of(index)} for index in range(len(report))]


def _changes(report: SocketReport) -> list[Json | None]:
    change = report.change
    if report.duration_s is None:
        return [None] * len(report)
    busy_us = change["busy_time"]
    columns: dict[str, Sequence[Any]] = {
        "new": change.new.tolist(),
        "sent_bytes": change.sent_bytes.astype(np.int64).tolist(),
        "received_bytes": change.received_bytes.astype(np.int64).tolist(),
        "sent_bytes_per_s": _numbers(change.sent_bytes / report.duration_s),
        "received_bytes_per_s": _numbers(change.received_bytes / report.duration_s),
        "retransmitted": change.counts["total_retrans"].tolist(),
        "data_segments_sent": change.counts["data_segs_out"].tolist(),
        "timeouts": change.counts["total_rto"].tolist(),
        "drops": change.counts["drops"].tolist(),
        "retransmit_share": _numbers(change.share("total_retrans", "data_segs_out")),
        "busy_share": _numbers(np.minimum(busy_us / (report.duration_s * 1e6), 1)),
        "rwnd_limited_share": _numbers(change.share("rwnd_limited", "busy_time")),
        "sndbuf_limited_share": _numbers(change.share("sndbuf_limited", "busy_time")),
    }
    named = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return _or_null(named, change.known)


def _numbers(values: NDArray[np.float64]) -> list[float | None]:
    return [None if math.isnan(value) else _digits(value) for value in values.tolist()]


def _digits(value: float) -> float:
    return float(f"{value:.6g}")


_COLUMNS: Final[Mapping[str, Callable[[SocketReport], Sequence[Any]]]] = {
    "protocol": lambda report: [
        PROTOCOLS.get(number, str(number)) for number in report.sockets.rows["protocol"].tolist()
    ],
    "family": lambda report: ["inet" if each == 2 else "inet6" for each in _message("family")(report)],
    "state": lambda report: [state_name(state) for state in _message("state")(report)],
    "local": lambda report: addresses(report.sockets.rows, "local"),
    "local_port": lambda report: ports(report.sockets.rows, "local").tolist(),
    "peer": lambda report: addresses(report.sockets.rows, "peer"),
    "peer_port": lambda report: ports(report.sockets.rows, "peer").tolist(),
    "interface": lambda report: [name or None for name in device_names(report.sockets.rows, report.sockets.devices)],
    "netns": namespace_names,
    "netns_inode": lambda report: report.sockets.rows["netns"].tolist(),
    "cookie": lambda report: cookies(report.sockets.rows).tolist(),
    "inode": _message("inode"),
    "uid": _message("uid"),
    "processes": _processes,
    "cgroup": lambda report: [None if name == NOT_KNOWN else name for name in cgroup_names(report)],
    "receive_queue_bytes": lambda report: _queues(report, listening=False, name="rqueue"),
    "send_queue_bytes": lambda report: _queues(report, listening=False, name="wqueue"),
    "accept_queue": lambda report: _queues(report, listening=True, name="rqueue"),
    "backlog": lambda report: _queues(report, listening=True, name="wqueue"),
    "timer": _timers,
    "mark": _if_seen(Seen.MARK, "mark"),
    "tos": _if_seen(Seen.TOS, "tos"),
    "tclass": _if_seen(Seen.TCLASS, "tclass"),
    "class_id": _if_seen(Seen.CLASS_ID, "class_id"),
    "v6only": _if_seen(Seen.SKV6ONLY, "v6only"),
    "shutdown": _if_seen(Seen.SHUTDOWN, "shutdown"),
    "socket_options": _options,
    "congestion": _text_if_seen(Seen.CONG, "cong"),
    "congestion_info": _control,
    "ulp": _text_if_seen(Seen.ULP_INFO, "ulp"),
    "memory": _memory,
    "rtt_inflation": lambda report: _numbers(rtt_inflation(report.sockets.rows)),
    "signs": _signs,
    "change": _changes,
    "tcp": _tcp,
}
