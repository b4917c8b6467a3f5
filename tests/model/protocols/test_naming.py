# SPDX-License-Identifier: Apache-2.0
"""What requests are called, by bytes as programs send them, however few of them were recorded."""

from __future__ import annotations

import struct
import warnings
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from hypothesis import example, given
from hypothesis import strategies as st

from hopscope.model.protocols import http2, kafka
from hopscope.model.protocols.dns import dns_datagrams
from hopscope.model.protocols.http2 import Direction, Segment
from hopscope.model.protocols.naming import named
from hopscope.model.protocols.turn import CUT, Named, Turn

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it uses what newer Pythons do without
    from kafka.protocol.api_key import ApiKey
    from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse, MetadataRequest, MetadataResponse

if TYPE_CHECKING:
    from collections.abc import Sequence


def whole(data: bytes) -> Turn:
    return Turn(data, len(data))


def message(kind: str, body: bytes) -> bytes:
    """Return a message of PostgreSQL."""
    return kind.encode() + struct.pack("!I", len(body) + 4) + body


def first(code: int, body: bytes = b"") -> bytes:
    return struct.pack("!II", len(body) + 8, code) + body


def query(name: str, kind: int, *, response: int | None = None, ident: int = 7) -> bytes:
    """Return a question of DNS, or the response to it with this code."""
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split(".") if label)
    flags = 0x0100 if response is None else 0x8180 | response
    return struct.pack("!HHHHHH", ident, flags, 1, 0, 0, 0) + labels + b"\0" + struct.pack("!HH", kind, 1)


def framed(data: bytes) -> bytes:
    return struct.pack("!H", len(data)) + data


def encoded(kind: Any, number: int, **fields: Any) -> bytes:  # noqa: ANN401 - of a package without types
    """Return a request or an answer of Kafka as a client of it encodes that."""
    made = kind(**fields)
    made.with_header(number, **({"client_id": "tester"} if made.is_request() else {}))
    return bytes(made.encode(header=True, framed=True))


READY = message("Z", b"I")
GET = b"GET /a?password=1 HTTP/1.1\r\nHost: x\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
SET = b"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$5\r\nvalue\r\n"
APIS = encoded(ApiVersionsRequest[3], 5, client_software_name="x", client_software_version="1")
METADATA = encoded(MetadataRequest[5], 9, topics=None, allow_auto_topic_creation=True)
SAID = encoded(MetadataResponse[5], 9, throttle_time_ms=0, brokers=[], cluster_id="x", controller_id=1, topics=[])
VERSIONS = encoded(ApiVersionsResponse[0], 5, error_code=35, api_keys=[])
HELLO = b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00"
SERVER_HELLO = b"\x16\x03\x03\x00\x05\x02\x00\x00\x01\x00"

KNOWN: list[tuple[bytes, bytes, Named]] = [
    (GET, OK, Named("http1", "GET /a", "200")),
    (GET, b"HTTP/1.1 100 Continue\r\n\r\n" + OK, Named("http1", "GET /a", "200")),
    (GET, b"HTTP/1.1 100 Continue\r\n\r\n", Named("http1", "GET /a", "100")),
    (GET, b"HTTP/1.1 101 Switching Protocols\r\n\r\nHTTP/1.1 500 ", Named("http1", "GET /a", "101")),
    (GET + GET, OK + OK, Named("http1", "GET /a, …", "200")),
    (b"POST / HTTP/1.1\r\nContent-Length: 99\r\n\r\n" + GET, OK, Named("http1", "POST /", "200")),
    (b"GET http://user:secret@host/b#x HTTP/1.0\n\n", b"", Named("http1", "GET /b")),
    (b"GET HTTP://user:secret@host/b HTTP/1.0\n\n", b"", Named("http1", "GET /b")),
    (b"GET /to/http://me:secret@host/b HTTP/1.0\n\n", OK, Named("http1", "GET /to/http://host/b", "200")),
    (b"GET http://host HTTP/1.0\n\n", b"", Named("http1", "GET /")),
    (b"CONNECT user@host:443 HTTP/1.1\r\n\r\n", OK, Named("http1", "CONNECT host:443", "200")),
    (b"OPTIONS * HTTP/1.1\r\n\r\n", OK, Named("http1", "OPTIONS *", "200")),
    (b"not HTTP", b"HTTP/1.1 400 Bad Request\r\n\r\n", Named("http1", None, "400")),
    (SET, b"+OK\r\n", Named("redis", "SET", "OK")),
    (b"*1\r\n$4\r\nping\r\n" * 2, b"+PONG\r\n", Named("redis", "PING, …", "OK")),
    (b"*2\r\n$3\r\nGET\r\n$1\r\nx\r\n", b"-WRONGTYPE Operation against\r\n", Named("redis", "GET", "WRONGTYPE")),
    (b"*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n", b"!21\r\nSYNTAX invalid syntax\r\n", Named("redis", "HELLO", "SYNTAX")),
    (b"*1\r\n$4\r\nPING\r\n", b">2\r\n+message\r\n", Named("redis", "PING")),
    (first(80877103), b"N", Named("postgresql", "SSLRequest", "N")),
    (first(3 << 16, b"user\0me\0\0"), message("R", bytes(4)) + READY, Named("postgresql", "startup", "OK")),
    (first(3 << 16, b"user\0me\0\0"), message("R", b"\0\0\0\x0a"), Named("postgresql", "startup")),
    (message("p", b"secret\0"), message("R", bytes(4)) + READY, Named("postgresql", "password", "OK")),
    (message("Q", b"/* x */ select 1\0"), message("C", b"SELECT 1\0") + READY, Named("postgresql", "SELECT", "OK")),
    (message("Q", b"/**/" * 99 + b"1\0"), READY, Named("postgresql", "Query", "OK")),
    (message("Q", b"SELEC\0"), message("E", b"SERROR\0C42601\0\0") + READY, Named("postgresql", "SELEC", "42601")),
    (message("Q", b";\0"), message("I", b"") + READY, Named("postgresql", "Query", "OK")),
    (
        message("P", b"s1\0UPDATE t SET a = 1\0\0\0") + message("S", b""),
        message("1", b"") + READY,
        Named("postgresql", "UPDATE", "OK"),
    ),
    (
        message("B", b"\0s1\0") + message("E", bytes(5)) + message("S", b""),
        message("2", b"") + message("C", b"UPDATE 7\0") + READY,
        Named("postgresql", "UPDATE", "OK"),
    ),
    (message("B", b"\0s1\0") + message("S", b""), message("2", b"") + READY, Named("postgresql", "Execute", "OK")),
    (
        framed(query("example.org", 28)),
        framed(query("example.org", 28, response=0)),
        Named("dns", "AAAA example.org", "NOERROR"),
    ),
    (framed(query(".", 65280)), framed(query(".", 65280, response=5)), Named("dns", "TYPE65280 .", "REFUSED")),
    (METADATA, SAID, Named("kafka", "Metadata")),
    (APIS, VERSIONS, Named("kafka", "ApiVersions", "35")),
    (METADATA + METADATA, SAID + SAID, Named("kafka", "Metadata, …")),
    (HELLO, SERVER_HELLO, Named("tls")),
    (b"\x17\x03\x03\x00\x01x", b"\x17\x03\x03\x00\x01y", Named("tls")),
]  # fmt: skip
UNKNOWN: list[tuple[bytes, bytes]] = [
    (b"", b""),
    (b"EHLO host\r\n", b"250 hello\r\n"),
    (b"GET / SIP/2.0\r\n", b"SIP/2.0 200 OK\r\n"),
    (SET, b"HELLO"),
    (b"*1\r\n$4\r\nP NG\r\n", b"+OK\r\n"),
    (message("Q", b"SELECT 1"), READY),
    (message("Q", b"SELECT 1\0") + b"x", READY),
    (message("Q", b"SELECT 1\0"), b"x"),
    (first(3 << 16, b"\0"), READY),
    (framed(query("example.org", 1)), framed(query("example.org", 1, response=0, ident=8))),
    (framed(query("example.org", 1)) + b"x", framed(query("example.org", 1, response=0))),
    (METADATA, SAID[:4] + b"\0\0\0\x0a" + SAID[8:]),
    (METADATA + b"x", SAID[:-1]),
    (b"\x17\x03\x03\x00\x01x", b""),
    (b"\x17\x03\x03\xff\xffx", b"\x17\x03\x03\x00\x01y"),
]


@pytest.mark.parametrize(("request_", "answer", "expected"), KNOWN)
def test_requests_are_named(request_: bytes, answer: bytes, expected: Named) -> None:
    assert named(whole(request_), whole(answer)) == expected


@pytest.mark.parametrize(("request_", "answer"), UNKNOWN)
def test_what_is_not_certain_is_not_named(request_: bytes, answer: bytes) -> None:
    assert named(whole(request_), whole(answer)) is None


@pytest.mark.parametrize(("request_", "answer", "expected"), KNOWN)
def test_of_fewer_bytes_nothing_else_is_said(request_: bytes, answer: bytes, expected: Named) -> None:
    """Whatever was recorded of both, what is said is what is right, or that it is not known."""
    for asked in range(len(request_) + 1):
        for said in {0, 1, 5, 9, 12, len(answer) // 2, len(answer) - 1, len(answer)}:
            found = named(Turn(request_[:asked], len(request_)), Turn(answer[:said], len(answer)))
            if found is None:
                continue
            assert found.protocol == expected.protocol
            assert found.status in {None, expected.status}
            if found.operation and found.operation.endswith(CUT) and not found.operation.endswith(", …"):
                assert (expected.operation or "").startswith(found.operation.removesuffix(CUT))
            else:
                # The tag of what was executed, or that another request followed, may not have been recorded.
                assert found.operation in {
                    None,
                    expected.operation,
                    (expected.operation or "").removesuffix(", …"),
                    "Execute",
                }


def test_datagrams_are_named_together() -> None:
    asked = [whole(query("example.org", kind, ident=kind)) for kind in (1, 28)]
    said = [whole(query("example.org", kind, ident=kind, response=3)) for kind in (28, 1)]
    assert dns_datagrams(asked, said) == Named("dns", "A example.org, …", "NXDOMAIN")
    # One that was sent again is the same question.
    assert dns_datagrams([asked[0]] * 2, said[1:]) == Named("dns", "A example.org", "NXDOMAIN")
    assert dns_datagrams(asked[:1], said) is None
    assert dns_datagrams(asked, [Turn(b"", None)]) is None
    cut = Turn(asked[0].data[:18], asked[0].len_bytes)
    assert dns_datagrams([cut], said[1:]) == Named("dns", None, "NXDOMAIN")


def test_apis_have_the_numbers_that_a_client_of_kafka_knows() -> None:
    numbers = {api.name: api.value for api in ApiKey}
    assert {name: number for number, name in enumerate(kafka._APIS)} == {
        name: number for name, number in numbers.items() if number < len(kafka._APIS)
    }


# ---- HTTP/2 ----


def spoken(
    *requests: Sequence[tuple[str, str]], answers: Sequence[Sequence[tuple[str, str]]]
) -> tuple[list[bytes], list[bytes]]:
    """Return what a client and a server send, a piece for each turn: all requests in a row, each with its answer."""
    client, server = H2Connection(), H2Connection(H2Configuration(client_side=False))
    client.initiate_connection()
    server.initiate_connection()
    asked, said = [], []
    for number, (fields, answer) in enumerate(zip(requests, answers, strict=True)):
        client.send_headers(2 * number + 1, fields, end_stream=False)
        client.send_data(2 * number + 1, bytes(3000), end_stream=True)
        asked.append(client.data_to_send())
        server.receive_data(asked[-1])
        server.send_headers(2 * number + 1, answer[:1] if len(answer) > 1 else answer)
        server.send_data(2 * number + 1, b"data")
        if len(answer) > 1:
            server.send_headers(2 * number + 1, answer[1:], end_stream=True)
        said.append(server.data_to_send())
        client.receive_data(said[-1])
    return asked, said


def asks(path: str, kind: str = "text/plain") -> list[tuple[str, str]]:
    return [(":method", "POST"), (":scheme", "http"), (":authority", "x"), (":path", path), ("content-type", kind)]


def segments(turns: Sequence[bytes], start: int, recorded: int = 1 << 16) -> list[Segment]:
    """Return turns as segments of 1,448 bytes, of each of which so many bytes were recorded."""
    data = b"".join(turns)
    places = range(0, len(data), 1448)
    return [Segment(start + at, len(data[at : at + 1448]), data[at : at + min(recorded, 1448)]) for at in places]


def of_turns(asked: Sequence[bytes], client: Sequence[Segment], server: Sequence[Segment]) -> list[Named]:
    ends = [client[0].start_byte, *(client[0].start_byte + end for end in accumulate(map(len, asked)))]
    ours, theirs = http2.client_direction(client, ends[0]), http2.server_direction(server, server[0].start_byte)
    return [http2.named(ours, theirs, *place) for place in pairwise(ends)]


ASKED, ANSWERED = spoken(
    asks("/a?secret=1"), asks("/a?secret=1"), asks("/s/M", "application/grpc"), asks("/s/M", "application/grpc+proto"),
    answers=[
        [(":status", "200")], [(":status", "404")],
        [(":status", "200"), ("grpc-status", "5"), ("grpc-message", "x")], [(":status", "200"), ("grpc-status", "0")],
    ],
)  # fmt: skip
NAMES = [
    Named("http2", "POST /a", "200"),
    Named("http2", "POST /a", "404"),
    Named("grpc", "/s/M", "NOT_FOUND"),
    Named("grpc", "/s/M", "OK"),
]


def test_streams_are_named() -> None:
    assert of_turns(ASKED, segments(ASKED, 1000), segments(ANSWERED, 2000)) == NAMES
    together = http2.named(http2.client_direction(segments(ASKED, 0), 0), Direction(), 0, 1 << 20)
    assert together == Named("http2", "POST /a, …")


def test_behind_a_gap_streams_are_not_known() -> None:
    """Header fields refer to earlier ones: those that were not recorded may have been any."""
    client = segments(ASKED, 1000)
    known = []
    for gap in range(1, len(client)):
        found = of_turns(ASKED, [*client[:gap], *client[gap + 1 :]], segments(ANSWERED, 2000))
        count = found.index(Named("http2")) if Named("http2") in found else len(found)
        assert found == [*NAMES[:count], *[Named("http2")] * (len(found) - count)]
        known.append(count)
    # Where only data are missing, all that follows is known.
    assert set(known) == {1, 2, 3, 4}


def test_answers_that_were_not_recorded_have_no_status() -> None:
    found = of_turns(ASKED, segments(ASKED, 1000), segments(ANSWERED, 2000, recorded=5))
    assert found == [name._replace(status=None) for name in NAMES]


# ---- whatever comes ----

BYTES = st.one_of(st.binary(max_size=600), st.sampled_from([data for case in KNOWN for data in case[:2]]))


def mutated(draw: st.DrawFn) -> bytes:
    data = bytearray(draw(BYTES) + draw(BYTES))
    for _ in range(draw(st.integers(0, 4))):
        if data:
            data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data[: draw(st.integers(0, len(data)))])


class Recorded(bytes):
    """Bytes of which none behind the last one may be asked for by its place."""

    def __getitem__(self, key: Any) -> Any:  # noqa: ANN401 - as of bytes
        assert isinstance(key, slice) or -len(self) <= key < len(self)
        return super().__getitem__(key)


STRANGE = st.composite(mutated)()


@given(STRANGE, STRANGE, st.none() | st.integers(0, 4000), st.none() | st.integers(0, 4000))
@example(b"B", b"1", None, None)
def test_no_bytes_end_in_an_error(request: bytes, answer: bytes, more: int | None, other: int | None) -> None:
    asked = Turn(Recorded(request), None if more is None else len(request) + more)
    said = Turn(Recorded(answer), None if other is None else len(answer) + other)
    for found in (named(asked, said), dns_datagrams([asked, said], [said])):
        assert found is None or isinstance(found.protocol, str)


@given(st.lists(st.tuples(st.integers(0, 3000), STRANGE), max_size=6), st.integers(0, 3000))
def test_no_segments_end_in_an_error(pieces: list[tuple[int, bytes]], start: int) -> None:
    parts = segments(ASKED, 0)
    parts += [Segment(place, len(data) + 3, data) for place, data in pieces]
    parts.sort()
    http2.named(http2.client_direction(parts, start), http2.server_direction(parts, start), 0, 4000)
