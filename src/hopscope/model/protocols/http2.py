# SPDX-License-Identifier: Apache-2.0
"""HTTP/2 (RFC 9113) and gRPC on it: the header fields of each stream of a connection.

Header fields are compressed with a table that each block of them changes (HPACK, RFC 7541): they are known as long as
all blocks of a connection's direction were recorded. From the first gap on, they are not. Without the package
``hpack``, none are.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hopscope.model.protocols.turn import MORE, Named, number

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

NAME: Final = "http2"
GRPC: Final = "grpc"
PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HEAD_BYTES: Final = 9
_DATA, _HEADERS, _SETTINGS, _PUSH_PROMISE, _CONTINUATION = 0, 1, 4, 5, 9
_END_HEADERS, _PADDED, _PRIORITY = 0x4, 0x8, 0x20
_PRIORITY_BYTES: Final = 5
_STREAM_BITS: Final = 0x7FFFFFFF
_GRPC: Final = re.compile("application/grpc(?![a-z-])")
# https://github.com/grpc/grpc/blob/master/doc/statuscodes.md
_STATUSES: Final = (
    "OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
    "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED",
    "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
)  # fmt: skip


class Segment(NamedTuple):
    """The beginning of what a segment of a stream carried.

    Attributes
    ----------
    start_byte
        Place of its first byte in the stream.
    len_bytes
        Length of all that it carried.
    data
        What was recorded of it.
    """

    start_byte: int
    len_bytes: int
    data: bytes


@dataclass(slots=True)
class Direction:
    """What one end of a connection sent.

    Attributes
    ----------
    streams
        Number of a stream → its header fields, later ones instead of earlier ones of the same name.
    begins
        Place of a block of header fields → its stream.
    """

    streams: dict[int, dict[str, str]] = field(default_factory=dict)
    begins: dict[int, int] = field(default_factory=dict)


class _Frame(NamedTuple):
    start_byte: int
    kind: int
    flags: int
    stream: int
    body: bytes | None  # None: not all of it was recorded


def client_direction(segments: Sequence[Segment], start: int) -> Direction:
    """Return what a client sent, of which these segments are known, in their order; at `start` is the preface."""
    return _direction(_frames(_Reader(segments), start + len(PREFACE)))


def server_direction(segments: Sequence[Segment], start: int) -> Direction:
    """Return what its server sent, from `start` on; nothing if that is not how a server begins."""
    reader = _Reader(segments)
    frames = _frames(reader, start)
    first = next(frames, None)
    return Direction() if first is None or first.kind != _SETTINGS else _direction(frames)


def _direction(frames: Iterator[_Frame]) -> Direction:
    found = Direction()
    for frame_start, stream, fields in _blocks(frames):
        found.begins[frame_start] = stream
        found.streams.setdefault(stream, {}).update(fields)
    return found


def named(client: Direction, server: Direction, start_byte: int, end_byte: int) -> Named:
    """Return the request that the client sent between these places."""
    streams = list(dict.fromkeys(each for at, each in client.begins.items() if start_byte <= at < end_byte))
    if not streams:
        return Named(NAME)
    asked = client.streams[streams[0]]
    said = server.streams.get(streams[0], {})
    more = MORE if len(streams) > 1 else ""
    if _GRPC.match(asked.get("content-type", "")):
        return Named(GRPC, _path(asked) + more if ":path" in asked else None, _grpc_status(said))
    operation = f"{asked[':method']} {_path(asked)}{more}" if {":method", ":path"} <= asked.keys() else None
    return Named(NAME, operation, said.get(":status"))


def _path(fields: dict[str, str]) -> str:
    return fields[":path"].partition("?")[0]


def _grpc_status(fields: dict[str, str]) -> str | None:
    code = fields.get("grpc-status", "")
    if not re.fullmatch("[0-9]{1,3}", code):
        return None
    return _STATUSES[int(code)] if int(code) < len(_STATUSES) else code


class _Reader:
    """Reads a stream of which the beginnings of segments are known, forwards."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        self._segments = segments
        self._next = 0

    def read(self, start: int, size: int) -> bytes | None:
        """Return so many bytes from a place on; None if not all of them are known."""
        found = b""
        while self._next < len(self._segments) and _end(self._segments[self._next]) <= start:
            self._next += 1
        for index in range(self._next, len(self._segments)):
            segment = self._segments[index]
            if len(found) >= size or segment.start_byte > start + len(found):
                break
            found += segment.data[start + len(found) - segment.start_byte :][: size - len(found)]
        return found if len(found) == size else None


def _end(segment: Segment) -> int:
    return segment.start_byte + len(segment.data)


def _frames(reader: _Reader, at: int) -> Iterator[_Frame]:
    """Yield frames up to the first one whose head is not known."""
    while head := reader.read(at, _HEAD_BYTES):
        size, kind, flags = number(head, 0, 3) or 0, head[3], head[4]
        stream = (number(head, 5, 4) or 0) & _STREAM_BITS
        wanted = kind in {_HEADERS, _PUSH_PROMISE, _CONTINUATION}
        yield _Frame(at, kind, flags, stream, reader.read(at + _HEAD_BYTES, size) if wanted else None)
        at += _HEAD_BYTES + size


def _blocks(frames: Iterator[_Frame]) -> Iterator[tuple[int, int, dict[str, str]]]:
    """Yield place, stream and fields of each block of header fields, up to the first one that is not known."""
    decoder = _decoder()
    waiting: _Frame | None = None
    block = b""
    for frame in frames:
        if frame.kind not in {_HEADERS, _PUSH_PROMISE, _CONTINUATION}:
            continue
        if decoder is None or frame.body is None or frame.kind == _PUSH_PROMISE:
            return
        if frame.kind == _HEADERS:
            waiting, block = frame, _unpadded(frame)
        else:
            block += frame.body
        if frame.flags & _END_HEADERS:
            fields = _decoded(decoder, block)
            if waiting is None or fields is None:
                return
            yield waiting.start_byte, waiting.stream, fields
            waiting = None


def _unpadded(frame: _Frame) -> bytes:
    body = frame.body or b""
    if frame.flags & _PADDED:
        body = body[1 : max(len(body) - (number(body, 0, 1) or 0), 1)]
    return body[_PRIORITY_BYTES:] if frame.flags & _PRIORITY else body


def has_decoder() -> bool:
    """Return whether the package that decompresses header fields is installed."""
    return _decoder() is not None


def _decoder() -> Any:  # noqa: ANN401 # of a package that need not be there
    try:
        from hpack import Decoder  # noqa: PLC0415 # an extra
    except ImportError:
        return None
    return Decoder()


def _decoded(decoder: Any, block: bytes) -> dict[str, str] | None:  # noqa: ANN401 # as above
    """Return the fields of a block; None if it is damaged, or refers to what was not recorded."""
    from hpack import HPACKError  # noqa: PLC0415 # an extra

    try:
        fields = decoder.decode(block, raw=True)
    except HPACKError:
        return None
    return {bytes(name).decode("latin-1"): bytes(value).decode("latin-1") for name, value in fields}
