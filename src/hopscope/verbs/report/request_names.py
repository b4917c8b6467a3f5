# SPDX-License-Identifier: Apache-2.0
"""The protocol, the operation and the status of requests, by what was recorded of their contents."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from hopscope.gate import one_line
from hopscope.model.protocols import http2
from hopscope.model.protocols.dns import dns_datagrams
from hopscope.model.protocols.http2 import Direction, Segment
from hopscope.model.protocols.naming import named
from hopscope.model.protocols.turn import Named, Turn
from hopscope.trace.messages.contents import has_contents
from hopscope.trace.messages.segments import TCP

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from hopscope.store.trace import Trace

RELATIONS: Final = ("stream_contents", "first_bytes", "datagram_contents")
# Of a turn; parsers need no more.
_MOST_BYTES: Final = 1 << 14
_COLUMNS: Final = (
    "protocol", "forth", "back", "connection", "asked_byte", "answered_byte", "request_bytes", "answer_bytes",
    "requests", "answers",
)  # fmt: skip
_TRANSPORTS: Final = {TCP: "tcp"}


class _Exchange(NamedTuple):
    protocol: int
    forth: int
    back: int
    connection: int
    asked_byte: int
    answered_byte: int
    request_bytes: int | None
    answer_bytes: int | None
    requests: int | None
    answers: int | None


@dataclass(slots=True)
class _Stream:
    """What was recorded of one direction of a connection.

    Attributes
    ----------
    first_byte
        Its place; None: the connection began before the recording.
    """

    segments: list[Segment] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    first_byte: int | None = None

    def turn(self, end_byte: int, len_bytes: int | None) -> tuple[int | None, Turn]:
        """Return a turn that ends there, and its place; without a length it is the first of the connection."""
        start = self.first_byte if len_bytes is None else end_byte - len_bytes
        if start is None:
            return None, Turn(b"", None)
        data = b""
        for index in range(max(bisect_right(self.starts, start) - 1, 0), len(self.segments)):
            segment, at = self.segments[index], start + len(data)
            if segment.start_byte > at or at >= end_byte or len(data) >= _MOST_BYTES:
                break
            data += segment.data[at - segment.start_byte :][: _MOST_BYTES - len(data)]
        return start, Turn(data[: end_byte - start], end_byte - start)


def names(trace: Trace, rows: Mapping[str, NDArray[Any]], relation: str) -> dict[str, NDArray[Any]]:
    """Return the columns `protocol`, `operation` and `status` of answered exchanges, masked where they are not known.

    Parameters
    ----------
    trace
        With :data:`RELATIONS`, if contents were recorded.
    rows
        The exchanges, as the relation has them.
    relation
        From which these are; of others, no contents are read.
    """
    exchanges = [_Exchange(*row) for row in zip(*(_plain(rows[name]) for name in _COLUMNS), strict=True)]
    of_each: Sequence[Named | None] = [None] * len(exchanges)
    if exchanges and has_contents(trace):
        of_each = _named(trace, exchanges, relation)
    protocols = [
        found.protocol if found else _TRANSPORTS.get(exchange.protocol, "udp")
        for found, exchange in zip(of_each, exchanges, strict=True)
    ]
    return {
        "protocol": np.array(protocols, object),
        "operation": _masked([found and found.operation for found in of_each]),
        "status": _masked([found and found.status for found in of_each]),
    }


def _named(trace: Trace, exchanges: Sequence[_Exchange], relation: str) -> list[Named | None]:
    flows = f"SELECT forth FROM {relation} UNION SELECT back FROM {relation}"
    streams, datagrams = _streams(trace, flows), _datagrams(trace, flows)
    of_http2 = _http2(exchanges, streams)
    found: list[Named | None] = []
    for each in exchanges:
        if each.protocol != TCP:
            found.append(_of_datagrams(each, datagrams))
            continue
        start, request = _stream(streams, each.forth, each).turn(each.asked_byte, each.request_bytes)
        connection = of_http2.get((each.forth, each.connection))
        if connection and start is not None and start >= connection.start_byte:
            found.append(http2.named(connection.client, connection.server, start, each.asked_byte))
        else:
            _, answer = _stream(streams, each.back, each).turn(each.answered_byte, each.answer_bytes)
            found.append(named(request, answer))
    return found


class _Http2(NamedTuple):
    start_byte: int
    client: Direction
    server: Direction


def _http2(exchanges: Sequence[_Exchange], streams: Mapping[tuple[int, int], _Stream]) -> dict[tuple[int, int], _Http2]:
    """Return the connections on which a client began to speak HTTP/2."""
    found: dict[tuple[int, int], _Http2] = {}
    for each in sorted((each for each in exchanges if each.protocol == TCP), key=lambda each: each.asked_byte):
        key = each.forth, each.connection
        asked, said = _stream(streams, each.forth, each), _stream(streams, each.back, each)
        start = _preface(asked, each)
        if key in found or start is None:
            continue
        answered = said.first_byte
        if answered is None:
            answered, _ = said.turn(each.answered_byte, each.answer_bytes)
        server = Direction() if answered is None else http2.server_direction(said.segments, answered)
        found[key] = _Http2(start, http2.client_direction(asked.segments, start), server)
    return found


def _preface(asked: _Stream, each: _Exchange) -> int | None:
    """Return where a client begins to speak HTTP/2: with the connection, or after it was asked to with a turn."""
    start, request = asked.turn(each.asked_byte, each.request_bytes)
    if asked.first_byte is not None:
        _, first = asked.turn(asked.first_byte + len(http2.PREFACE), len(http2.PREFACE))
        if first.data == http2.PREFACE:
            return asked.first_byte
    return start if request.data.startswith(http2.PREFACE) else None


def _of_datagrams(each: _Exchange, datagrams: Mapping[tuple[int, int], Turn]) -> Named | None:
    if each.requests is None or each.answers is None:
        return None
    asked = range(each.asked_byte - each.requests + 1, each.asked_byte + 1)
    said = range(each.answered_byte - each.answers + 1, each.answered_byte + 1)
    nothing = Turn(b"", None)
    return dns_datagrams(
        [datagrams.get((each.forth, place), nothing) for place in asked],
        [datagrams.get((each.back, place), nothing) for place in said],
    )


def _streams(trace: Trace, flows: str) -> dict[tuple[int, int], _Stream]:
    found: dict[tuple[int, int], _Stream] = {}
    for flow, connection, start_byte, len_bytes, data in trace.rows(
        "SELECT flow, connection, start_byte, len_bytes, data FROM stream_contents"
        f" WHERE flow IN ({flows}) ORDER BY flow, connection, start_byte"
    ):
        stream = found.setdefault((flow, connection), _Stream())
        stream.segments.append(Segment(start_byte, len_bytes, _bytes(data)))
        stream.starts.append(start_byte)
    for flow, connection, start_byte in trace.rows("SELECT flow, connection, start_byte FROM first_bytes"):
        if (flow, connection) in found:
            found[flow, connection].first_byte = start_byte
    return found


def _datagrams(trace: Trace, flows: str) -> dict[tuple[int, int], Turn]:
    rows = trace.rows(f"SELECT flow, place, len_bytes, data FROM datagram_contents WHERE flow IN ({flows})")
    return {(flow, place): Turn(_bytes(data), len_bytes) for flow, place, len_bytes, data in rows}


def _stream(streams: Mapping[tuple[int, int], _Stream], flow: int, each: _Exchange) -> _Stream:
    return streams.get((flow, each.connection)) or _Stream()


def _bytes(data: str) -> bytes:
    """Return the bytes that a column has as text; nothing where a damaged recording has something else."""
    try:
        return bytes.fromhex(data or "")
    except ValueError:
        return b""


def _plain(column: NDArray[Any]) -> list[Any]:
    values: list[Any] = np.ma.MaskedArray(column).tolist()
    return values


def _masked(values: Sequence[str | None]) -> NDArray[Any]:
    """Return texts as other names are: on one line, without control characters."""
    array = np.array([one_line(value or "") for value in values], object)
    return np.ma.MaskedArray(array, [value is None for value in values])
