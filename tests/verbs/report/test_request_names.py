# SPDX-License-Identifier: Apache-2.0
"""Protocols, operations and statuses of requests: what the programs themselves logged, and made-up traces."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from hopscope.lab import Lab
from hopscope.lab.veth import SERVER_IPV4
from hopscope.store.trace import Trace
from hopscope.trace.selection import Selection
from hopscope.verbs.report.requests import requests
from tests.lab import router
from tests.lab.command import hopscope
from tests.lab.recorded_hosts import pair
from tests.lab.traces import STARTED_NS, TCP, UDP, MadeTrace, points
from tests.verbs.report.test_requests import Connection

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hopscope.lab import Namespace
    from hopscope.model.report import Report

Row = tuple[str, str | None, str | None]


def recorded(folder: Path, *names: str) -> tuple[dict[str, tuple[int, list[list[str]]]], list[dict[str, Any]]]:
    """Record programs that speak; return what they logged, and what the report has, in order of time."""
    speakers = (sys.executable, "-m", "tests.lab.protocols", *names)
    done = hopscope("record", "--netns", "self", "--bytes", 512, "-o", folder / "trace", "--", *speakers)
    check(done.returncode, done.stderr)
    assert "none lost" in done.stderr + done.stdout
    shown = hopscope("report", "requests", "--limit", 0, "--json", folder / "trace")
    rows = sorted(map(json.loads, shown.stdout.splitlines()), key=lambda row: row["begin_ns"])
    return json.loads(done.stdout.splitlines()[-1]), rows


def check(code: int, said: str) -> None:
    """Fail unless it was recorded; without what is in pages there is nothing to compare."""
    assert code == 0, said
    if "in pages" in said:
        pytest.skip("this kernel does not let programs read what packets have in pages")


def of_port(rows: list[dict[str, Any]], port: int) -> list[Row]:
    to = f":{port}"
    return [(row["protocol"], row["operation"], row["status"]) for row in rows if row["flow_name"].endswith(to)]


@pytest.mark.root
def test_requests_are_those_that_the_servers_logged(tmp_path: Path) -> None:
    said, rows = recorded(tmp_path, "http1", "http2", "grpc", "dns", "dns_tcp")
    expected: dict[str, list[Row]] = {
        name: [(name, operation, status) for operation, status in log] for name, (_, log) in said.items()
    }
    # curl waits for a "100 Continue", which is an answer, and its body is the next turn.
    protocol, operation, status = expected["http1"].pop()
    expected["http1"] += [(protocol, operation, "100"), (protocol, None, status)]
    expected["dns"] = [("dns", *each[1:]) for each in expected.pop("dns") + expected.pop("dns_tcp")]
    # Both ends of gRPC have more to tell each other: a call that this crosses is not matched, and counted as such.
    calls = [row for row in of_port(rows, said["grpc"][0]) if row[1] not in {None, "/hopscope.Test/First"}]
    left = iter(expected.pop("grpc"))
    assert all(row in left for row in calls)
    words = ("report", "requests", "-g", "operation", "--port", said["grpc"][0], tmp_path / "trace")
    overlapping = re.search(r"not matched: (\d+) on \d+ connection", " ".join(hopscope(*words).stdout.split()))
    assert 0 <= len(said["grpc"][1]) - len(calls) <= (int(overlapping[1]) if overlapping else 0)
    for name, wanted in expected.items():
        found = of_port(rows, said[name][0])
        assert [row for row in found if row[1] or name != "http2"] == wanted
    grouped = map(json.loads, hopscope(*words, "--json").stdout.splitlines())
    counts = Counter(operation or "-" for _, operation, _ in of_port(rows, said["grpc"][0]))
    assert {row["operation"]: row["count"] for row in grouped} == counts
    with Trace(tmp_path / "trace") as trace:
        ((longest, differing),) = trace.rows(
            "SELECT max(length(data)), coalesce(sum(CASE WHEN length(data) <> 2 * least(len_bytes, 512) THEN 1 END), 0)"
            " FROM payloads"
        )
    assert (longest, differing) == (1024, 0)
    assert "passwords" in hopscope("report", "summary", tmp_path / "trace").stdout
    assert (tmp_path / "trace" / "payloads").stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in (tmp_path / "trace" / "payloads").iterdir()} == {0o600}


@pytest.mark.root
@pytest.mark.slow
def test_commands_are_those_that_databases_logged(tmp_path: Path) -> None:
    said, rows = recorded(tmp_path, "redis", "postgresql")
    redis, postgresql = (of_port(rows, said[name][0]) for name in ("redis", "postgresql"))
    assert redis == [("redis", operation, status) for operation, status in said["redis"][1]]
    connecting = [row for row in postgresql if row[1] in {"SSLRequest", "startup"}]
    assert {row[2] for row in connecting} == {"N", "OK"}
    assert [row for row in postgresql if row not in connecting] == [
        ("postgresql", operation, status) for operation, status in said["postgresql"][1]
    ]


# Two connections with two requests each; half of them are for what there is not.
SERVER = """
import sys
from http.server import SimpleHTTPRequestHandler
from socketserver import TCPServer

SimpleHTTPRequestHandler.protocol_version = "HTTP/1.1"
with TCPServer((sys.argv[1], 8000), SimpleHTTPRequestHandler) as server:
    print(server.server_address[1], flush=True)
    server.serve_forever()
"""
CLIENT = """
import sys
from http.client import HTTPConnection

for path in ("/", "/none?x=1"):
    connection = HTTPConnection(sys.argv[1], int(sys.argv[2]), timeout=30)
    for _ in range(2):
        connection.request("GET", path)
        connection.getresponse().read()
    connection.close()
"""


@contextlib.contextmanager
def serving(namespace: Namespace, address: str) -> Iterator[None]:
    """Run a server there, at port 8000."""
    with namespace.popen([sys.executable, "-c", SERVER, address], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline().strip() == "8000"
            yield
        finally:
            server.kill()


def asking(namespace: Namespace, address: str, port: int) -> list[object]:
    """Return the words of a client there."""
    return ["timeout", 60, "nsenter", "-t", namespace.pid, "-n", sys.executable, "-c", CLIENT, address, port]


def operations(trace: Path) -> dict[tuple[str, str], int]:
    rows = map(json.loads, hopscope("report", "requests", "--limit", 0, "--json", trace).stdout.splitlines())
    return Counter((row["operation"], row["status"]) for row in rows)


ASKED = {("GET /", "200"): 2, ("GET /none", "404"): 2}


@pytest.mark.root
@pytest.mark.slow
def test_of_a_server_alone_the_first_request_of_a_connection_is_known(tmp_path: Path) -> None:
    with Lab() as lab, serving(lab.server, SERVER_IPV4):
        words = ("--netns", lab.server.inode, "--bytes", 256, "-o", tmp_path / "trace")
        done = hopscope("record", *words, "--", *asking(lab.client, SERVER_IPV4, 8000))
    check(done.returncode, done.stderr)
    assert operations(tmp_path / "trace") == ASKED


@pytest.mark.root
@pytest.mark.slow
def test_translated_addresses_do_not_matter(tmp_path: Path) -> None:
    rules = (
        "table ip t { chain out { type nat hook postrouting priority 100; oifname out0 masquerade; };"
        f" chain in {{ type nat hook prerouting priority -100; tcp dport 80 dnat to {router.SERVER}:8000; }}; }}\n"
    )
    with router.routed() as (client, between, server), serving(server, router.SERVER):
        if refused := router.load_rules(between, rules):
            pytest.skip(f"no NAT here: {refused}")
        words = (f"--netns={each.inode}" for each in (client, between, server))
        recording = ("record", *words, "--bytes", 256, "-o", tmp_path / "trace")
        done = hopscope(*recording, "--", *asking(client, router.ROUTER, 80))
    check(done.returncode, done.stderr)
    assert operations(tmp_path / "trace") == ASKED


@pytest.mark.root
@pytest.mark.slow
def test_requests_between_two_hosts_are_named(tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    with pair(tmp_path / "keys") as hosts, serving(hosts.lab.server, SERVER_IPV4):
        client = asking(hosts.lab.client, SERVER_IPV4, 8000)
        code, said = hosts.record(tmp_path / "trace", "--port", 8000, "--bytes", 256, "--", *client)
    check(code, said)
    assert operations(tmp_path / "trace") == ASKED


# ---- made-up traces ----


def carry(made: MadeTrace, flow: int, at: int, seq: int, data: tuple[bytes, int]) -> None:
    """Put down a packet with these data, of which so many bytes were kept."""
    carried, kept = data
    own = {"flow": flow, "seq": seq, "tcp_flags": 24}
    made.packet("tx.queue", at, skb=at, header_bytes=52, len_bytes=52 + len(carried), **own)
    point = points()["tx.queue"]
    own_data = {"len_bytes": len(carried), "data": carried[:kept].hex()}
    made.add("payloads", time_ns=STARTED_NS + at, point=point, flow=flow, seq=seq, **own_data)


def report(made: MadeTrace, folder: Path, *, by: str | None = None) -> Report:
    with Trace(made.write(folder / "trace")) as trace:
        return requests(trace, Selection(), by=by)


def ask(
    connection: Connection, at: int, *pieces: bytes, answer: bytes = b"HTTP/1.1 200 OK\r\n\r\n", kept: int = 512
) -> None:
    """Put down a request in several packets, and its answer."""
    start = connection.places.get((connection.forth, "tx"), 1_000)
    back = connection.places.get((connection.back, "tx"), 1_000)
    connection.ask(at, request=sum(map(len, pieces)), answer=len(answer))
    for number, piece in enumerate(pieces):
        carry(connection.made, connection.forth, at + 3_000 + number, start, (piece, kept))
        start += len(piece)
    carry(connection.made, connection.back, at + 75_000, back, (answer, kept))


def names(found: Report) -> list[Row]:
    columns = [found.column(name) for name in ("begin_ns", "protocol", "operation", "status")]
    return [row[1:] for row in sorted(zip(*columns, strict=True))]  # type: ignore[misc]


def test_a_request_in_several_packets_is_put_together(tmp_path: Path) -> None:
    made = MadeTrace()
    connection = Connection(made)
    ask(connection, 1_000_000, b"GE", b"T /path?x H", b"TTP/1.1\r\n", b"\r\n")
    ask(connection, 2_000_000, b"PUT /other HTTP/1.1\r\n", answer=b"HTTP/1.1 500 \r\n\r\n")
    ask(connection, 3_000_000, b"GET /" + bytes(100), answer=b"no HTTP")
    assert names(report(made, tmp_path)) == [
        ("http1", "GET /path", "200"), ("http1", "PUT /other", "500"), ("tcp", None, None),
    ]  # fmt: skip
    grouped = report(made, tmp_path / "again", by="operation")
    assert grouped.column("operation") == ["-", "GET /path", "PUT /other"]
    assert grouped.column("p50_ns") == [100_000] * 3
    assert [report(made, tmp_path / by, by=by).column(by) for by in ("protocol", "status")] == [
        ["http1", "tcp"], ["-", "200", "500"],
    ]  # fmt: skip


def test_a_name_is_one_line_that_can_be_printed(tmp_path: Path) -> None:
    made = MadeTrace()
    ask(Connection(made), 1_000_000, b"GET /\x9b31m\x85x HTTP/1.1\r\n\r\n")
    assert names(report(made, tmp_path)) == [("http1", "GET /?31m?x", "200")]


def test_a_request_that_begins_within_a_packet_is_found(tmp_path: Path) -> None:
    """TCP may send two turns in one packet, if the first one has to be sent again."""
    made = MadeTrace()
    connection = Connection(made)
    asked = [b"GET /a HTTP/1.1\r\n\r\n", b"GET /b HTTP/1.1\r\n\r\n"]
    for number, data in enumerate(asked):
        connection.ask(1_000_000 * (number + 1), request=len(data), answer=10)
    carry(made, connection.forth, 2_003_000, 1_000, (b"".join(asked), 512))
    assert names(report(made, tmp_path)) == [("http1", "GET /a", None), ("http1", "GET /b", None)]


def test_what_was_not_kept_is_not_guessed(tmp_path: Path) -> None:
    made = MadeTrace()
    connection = Connection(made)
    ask(connection, 1_000_000, b"GET /a HTT", b"P/1.1\r\n\r\n", kept=9)
    # Of the second packet nothing is known, and the third one follows it.
    ask(connection, 2_000_000, b"GET /b HTT", b"P/1.1\r\n", b"\r\nGET /c HTTP/1.1\r\n\r\n", kept=512)
    made.rows["payloads"] = [row for row in made.rows["payloads"] if row["data"] != b"P/1.1\r\n".hex()]
    assert names(report(made, tmp_path)) == [("tcp", None, None), ("http1", "GET /b", "200")]


@pytest.mark.parametrize(("lost", "expected"), [(0, "POST /a, …"), (1, None)])
def test_a_connection_whose_first_bytes_were_lost_does_not_begin_with_the_next(
    tmp_path: Path, lost: int, expected: str | None
) -> None:
    made = MadeTrace()
    connection = Connection(made)  # of which the server alone was recorded
    for flow, flags in ((connection.forth, 2), (connection.back, 18)):
        own = {"flow": flow, "seq": 999, "tcp_flags": flags}
        made.packet("tx.queue", 900_000, skb=flags, header_bytes=52, len_bytes=52, **own)
    asked = [b"POST /a HTTP/1.1\r\n\r\n", b"GET /b HTTP/1.1\r\n\r\n"]
    for number, data in enumerate(asked):
        carry(made, connection.forth, 1_000_000 + number, 1_000 + number * len(asked[0]), (data, 512))
    del made.rows["payloads"][:lost]
    answer = b"HTTP/1.1 200 OK\r\n\r\n"
    connection.read(1_020_000, len(asked[0] + asked[1]))
    connection.write(1_050_000, len(answer), back=True)
    carry(made, connection.back, 1_055_000, 1_000, (answer, 512))
    assert names(report(made, tmp_path)) == [("http1", expected, "200")]


def test_without_contents_nothing_is_named(tmp_path: Path) -> None:
    made = MadeTrace()
    Connection(made).ask(1_000_000)
    found = report(made, tmp_path)
    assert found.column("protocol") == ["tcp"]
    assert not {"operation", "status"} & {column.name for column in found.columns}
    (note,) = report(made, tmp_path / "again", by="status").notes
    assert "--bytes" in note


@pytest.mark.parametrize("data", ["zz", "4", "\0", ""])
def test_a_damaged_column_is_no_content(tmp_path: Path, data: str) -> None:
    made = MadeTrace()
    ask(Connection(made), 1_000_000, b"GET / HTTP/1.1\r\n\r\n")
    for row in made.rows["payloads"]:
        row["data"] = data
    assert names(report(made, tmp_path)) == [("tcp", None, None)]


def test_datagrams_have_no_stream(tmp_path: Path) -> None:
    made = MadeTrace()
    assert made.flow("10.0.0.1:40000", "10.0.0.2:53", UDP) != made.flow("10.0.0.1:40000", "10.0.0.2:53", TCP)
    made.add("payloads", time_ns=STARTED_NS, point=points()["tx.queue"], flow=1, data="00")
    assert not len(report(made, tmp_path))
