# SPDX-License-Identifier: Apache-2.0
"""``hopscope report`` on a recording of traffic whose packets and drops are counted."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from hopscope.lab import Lab
from hopscope.lab.veth import CLIENT_IPV4, SERVER_IPV4
from hopscope.store.trace import Trace
from tests.lab.command import hopscope, objects, only

if TYPE_CHECKING:
    from pathlib import Path

    from tests.lab.command import Json

pytestmark = pytest.mark.root
RULED, CLOSED, MESSAGES = 1009, 101, 23
_RULED_PORT, _CLOSED_PORT, _ECHO_PORT = 7777, 7778, 7779
_CHAIN = "add chain ip t in { type filter hook input priority 0; }"
_SEND = f"""
import socket
datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range({RULED}):
    datagrams.sendto(b"x", ("{SERVER_IPV4}", {_RULED_PORT}))
for _ in range({CLOSED}):
    datagrams.sendto(b"x", ("{SERVER_IPV4}", {_CLOSED_PORT}))
with socket.create_connection(("{SERVER_IPV4}", {_ECHO_PORT})) as stream:
    for _ in range({MESSAGES}):
        stream.sendall(b"request")
        assert stream.recv(100) == b"reply"
"""
_ECHO = f"""
import socket
with socket.create_server(("{SERVER_IPV4}", {_ECHO_PORT})) as listening:
    print("ready", flush=True)
    with listening.accept()[0] as stream:
        while stream.recv(100):
            stream.sendall(b"reply")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recording."""
    made = tmp_path_factory.mktemp("counted") / "trace"
    with Lab() as kept_lab:
        kept_lab.server.run(["nft", f"add table ip t; {_CHAIN}; add rule ip t in udp dport {_RULED_PORT} drop"])
        with kept_lab.server.popen([sys.executable, "-c", _ECHO], stdout=subprocess.PIPE, text=True) as echo:
            try:
                assert echo.stdout is not None
                assert echo.stdout.readline() == "ready\n"
                inside = ["nsenter", f"--net=/proc/{kept_lab.client.pid}/ns/net", sys.executable, "-c", _SEND]
                profiles = ("-P", "messages", "-P", "drops", "-P", "cpu")
                done = hopscope("record", "-o", made, *profiles, "--stacks", *only(kept_lab), "--", *inside)
            finally:
                echo.kill()
    assert done.returncode == 0, done.stderr
    with Trace(made) as trace:
        assert trace.rows("SELECT count(*) FROM losses") == [(0,)]
    return made


def report(folder: Path, *arguments: object) -> list[Json]:
    done = hopscope("report", *arguments, "--json", folder)
    assert done.returncode == 0, done.stderr
    return objects(done.stdout)


def test_drops_are_those_that_were_made(folder: Path) -> None:
    rows = [row for row in report(folder, "drops") if row["flow_name"].startswith(f"{CLIENT_IPV4}:")]
    found = {
        (row["reason"], row["location"].partition("+")[0], row["flow_name"].rpartition(":")[2]): row["drops"]
        for row in rows
    }
    assert found[("NETFILTER_DROP", "nft_do_chain", str(_RULED_PORT))] == RULED
    assert sum(drops for (reason, *_, port), drops in found.items() if port == str(_CLOSED_PORT)) == CLOSED
    stacked = report(folder, "drops", "--stacks", "--port", _RULED_PORT)
    assert sum(row["drops"] for row in stacked) == RULED
    assert all(row["stack"].startswith(("kfree_skb", "sk_skb_reason_drop", "nft_do_chain")) for row in stacked)


@pytest.mark.parametrize(("port", "count"), [(_RULED_PORT, RULED), (_CLOSED_PORT, CLOSED)])
def test_each_dropped_datagram_is_one_packet_from_its_queue_to_its_drop(folder: Path, port: int, count: int) -> None:
    hops = {row["hop"]: row["count"] for row in report(folder, "hops", "--port", port)}
    assert {hop: hops[hop] for hop in ("tx.queue → tx.start", "tx.start → tx.driver", "rx.driver → rx.core")} == {
        "tx.queue → tx.start": count,
        "tx.start → tx.driver": count,
        "rx.driver → rx.core": count,
    }
    assert sum(number for hop, number in hops.items() if hop.endswith("→ skb.drop")) == count
    received = report(folder, "netdev-times", "--rx", "--port", port)
    assert [row["instead"] for row in received] == ["dropped"] * count
    assert all(row["softirq_ns"] is not None and row["copy_ns"] is None for row in received)


def test_requests_and_replies_are_read_by_their_processes(folder: Path) -> None:
    hops = report(folder, "hops", "--by", "process", "--port", _ECHO_PORT)
    copied = [row for row in hops if row["to_point"] == "rx.copy"]
    assert len({row["process"] for row in copied}) == 2
    assert [row["count"] for row in copied] == [MESSAGES] * 2
    assert all(row["max_ns"] > 0 for row in hops)


def test_trees_of_requests_go_from_the_queue_to_the_copy(folder: Path) -> None:
    events = report(folder, "packets", "--port", _ECHO_PORT, "--limit", 0)
    packets: dict[int, list[Json]] = {}
    for event in events:
        if event["kind"] == "packet":
            packets.setdefault(event["packet"], []).append(event)
    # Where it was read on another CPU than it came in, its release is an event, too.
    read = [each for each in packets.values() if "rx.copy" in {event["point"] for event in each[-2:]}]
    assert len(read) == 2 * MESSAGES
    assert all(each[0]["point"] == "tx.queue" for each in read)
    assert all(event["offset_ns"] >= 0 for each in read for event in each)
    around = {event["point"] for event in events if event["kind"] == "around"}
    assert {"softirq.enter", "napi.poll", "rx.ready", "sched.wake", "sched.switch"} <= around


def test_events_are_all_of_the_tables(folder: Path) -> None:
    done = hopscope("report", "events", folder)
    with Trace(folder) as trace:
        counts = [trace.rows(f"SELECT count(*) FROM {table}")[0][0] for table in ("packets", "sockets", "cpu")]
    times = [float(line.split(maxsplit=1)[0]) for line in done.stdout.splitlines()]
    assert len(times) == sum(counts)
    assert times == sorted(times)
