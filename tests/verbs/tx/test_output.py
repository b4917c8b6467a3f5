# SPDX-License-Identifier: Apache-2.0
"""``hopscope tx`` on traffic whose answer is known: single messages, the slowest ones, and distributions."""

from __future__ import annotations

import contextlib
import fcntl
import re
import socket
import sys
import termios
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

from hopscope.lab import Workload
from hopscope.lab.veth import SERVER_IPV4
from tests.lab.command import assert_fits, complaint, ended, hopscope, objects, only, start
from tests.waiting import TIMEOUT_S, eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hopscope.lab import Lab
    from tests.lab.command import Json

pytestmark = pytest.mark.root
MESSAGES = 23
TIMES = ("entry_ns", "handed_ns", "sched_ns", "driver_ns", "done_ns")


def inside(kept_lab: Lab, *arguments: object) -> list[str]:
    """Return the words of a command that runs a workload in the client's namespace."""
    client = [sys.executable, "-m", "hopscope.lab.traffic", *arguments]
    return ["--", "nsenter", f"--net=/proc/{kept_lab.client.pid}/ns/net", *map(str, client)]


@contextlib.contextmanager
def requests(kept_lab: Lab, count: int = MESSAGES) -> Iterator[list[str]]:
    """Yield a command that sends so many requests through the lab and waits for their replies."""
    with Workload(kept_lab.server, "tcp-echo", "--bind", SERVER_IPV4) as echo:
        yield inside(kept_lab, "tcp-rr", SERVER_IPV4, echo.port, "--count", count)


def of_schema(documents: list[Json], name: str) -> list[Json]:
    """Return the objects of a schema, which they fit."""
    found = [each for each in documents if each["schema"] == f"hopscope.{name}/1"]
    for each in found:
        assert_fits(each, f"{name}-1")
    return found


def histogram_of(total: Json, hop: str) -> Json:
    (row,) = [row for row in total["hops"] if row["hop"] == hop]
    return row


def test_events_are_a_line_a_message_and_one_table(kept_lab: Lab) -> None:
    with requests(kept_lab) as command:
        done = hopscope("tx", "--events", "--hooks", "host", "-i", 0.2, *only(kept_lab), *command, COLUMNS="140")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    events = [line for line in lines if " > " in line]
    assert len(events) == 2 * MESSAGES
    figure = r"[\d.]+(?:ns|µs|ms|s)"
    line = (
        rf"\d\d:\d\d:\d\d\.\d{{6}} \d+ \S+ +10\.77\.0\.\d:\d+ > 10\.77\.0\.\d:\d+ +64 +(?:{figure} +){{5}}- +{figure}"
    )
    assert [each for each in events if not re.match(line, each)] == []
    titles = [each for each in lines if each.startswith("time UTC")]
    assert len(titles) == 2  # one for each 25 messages
    (heading,) = [each for each in lines if each.startswith("tx  ")]
    assert " total " in heading
    assert lines.index(heading) > lines.index(events[-1])


def test_events_are_the_messages_of_the_histograms(kept_lab: Lab) -> None:
    began_s = time.time()
    with requests(kept_lab) as command:
        done = hopscope("tx", "--events", "--json", "--hooks", "host", *only(kept_lab), *command)
    documents = objects(done.stdout)
    messages = of_schema(documents, "tx.message")
    (total,) = [each for each in documents if each["schema"] == "hopscope.tx/1"]
    assert documents[-1] == total
    assert total["kind"] == "total"
    assert len(messages) == 2 * MESSAGES == histogram_of(total, "tx.total")["count"]
    for hop in ("tx.tcp", "tx.sched", "tx.qdisc", "tx.driver", "tx.ack"):
        assert sum(each["hops_ns"][hop] for each in messages) == histogram_of(total, hop)["sum_ns"], hop
    for each in messages:
        times = [each[name] for name in TIMES]
        assert times == sorted(times)
        assert sum(duration or 0 for duration in each["hops_ns"].values()) == each["total_ns"]
        sent_s = datetime.fromisoformat(each["time"]).replace(tzinfo=UTC).timestamp()
        assert began_s <= sent_s <= time.time()
        assert abs((each["entry_ns"] + each["clock_offset_ns"]) / 1e9 - sent_s) < 1e-5
        assert (each["protocol"], each["len_bytes"], each["retransmits"], each["aborted"]) == ("tcp", 64, 0, False)
        assert {each["local"], each["peer"]} == {"10.77.0.1", "10.77.0.2"}
    assert {each["devices"][0]["name"] for each in messages} == {"client0", "server0"}


def test_messages_have_the_fields_that_are_asked_for(kept_lab: Lab) -> None:
    with requests(kept_lab) as command:
        done = hopscope("tx", "--events", "--json", "--fields", "all", *only(kept_lab), *command)
    messages = of_schema(objects(done.stdout), "tx.message")
    assert len(messages) == 2 * MESSAGES
    for each in messages:
        # A request is a packet, which TCP counts once it has left.
        assert [state["in_flight"] for state in each["tcp"].values()][:3] == [0, 0, 0]
        assert all(state["cwnd"] > 0 and state["srtt_ns"] > 0 for state in each["tcp"].values())
    with requests(kept_lab) as command:
        done = hopscope("tx", "--slowest", 1, "-i", 60, "--fields", "cwnd,srtt_ns", *only(kept_lab), *command)
    assert re.search(r"cwnd=\d+/\d+/\d+/\d+\s+srtt=[\d.]+.s/", done.stdout)


def test_events_come_before_the_interval_is_over(kept_lab: Lab) -> None:
    with Workload(kept_lab.server, "tcp-echo", "--bind", SERVER_IPV4) as echo:
        sender = inside(kept_lab, "tcp-rr", SERVER_IPV4, echo.port, "--rate", 50)
        child = start("tx", "--events", "-i", 60, *only(kept_lab), *sender)
        assert child.stdout is not None
        assert child.stdout.readline().startswith("time UTC")
        child.terminate()
        ended(child)


def test_datagrams_have_their_own_hops(kept_lab: Lab) -> None:
    with Workload(kept_lab.server, "udp-sink", "--bind", SERVER_IPV4) as sink:
        sender = inside(kept_lab, "udp-send", SERVER_IPV4, sink.port, "--rate", 1000, "--count", MESSAGES)
        done = hopscope("tx", "--events", "--json", "--hooks", "host", "--protocol", "udp", *only(kept_lab), *sender)
    documents = objects(done.stdout)
    messages = of_schema(documents, "tx.message")
    assert len(messages) == MESSAGES
    for hop in ("tx.udp", "tx.udp_qdisc", "tx.udp_driver"):
        assert sum(each["hops_ns"][hop] for each in messages) == histogram_of(documents[-1], hop)["sum_ns"], hop
    assert all(set(each["hops_ns"]) == {"tx.udp", "tx.udp_qdisc", "tx.udp_driver"} for each in messages)
    assert {(each["protocol"], each["peer_port"]) for each in messages} == {("udp", sink.port)}


@pytest.mark.slow
def test_slowest_are_the_slowest_of_each_interval_and_of_all(kept_lab: Lab) -> None:
    with requests(kept_lab, 200) as command:
        done = hopscope("tx", "--slowest", 5, "--json", "-i", 0.2, *only(kept_lab), *command)
    documents = objects(done.stdout)
    slowest = of_schema(documents, "tx.slowest")
    snapshots = [each for each in documents if each["schema"] == "hopscope.tx/1"]
    assert [each["kind"] for each in slowest] == [each["kind"] for each in snapshots]
    assert [each["time"] for each in slowest] == [each["time"] for each in snapshots]
    *intervals, whole = slowest
    assert (whole["kind"], whole["asked"], whole["seen"], whole["unfinished"]) == ("total", 5, 400, 0)
    assert sum(each["seen"] for each in intervals) == 400
    found = [message["total_ns"] for message in whole["messages"]]
    assert len(found) == 5
    assert found == sorted(found, reverse=True)
    every = [message["total_ns"] for each in intervals for message in each["messages"]]
    assert found == sorted(every, reverse=True)[:5]
    assert found[0] == histogram_of(snapshots[-1], "tx.total")["max_ns"]
    assert sum(whole["held"].values()) == 5


@contextlib.contextmanager
def small_window(kept_lab: Lab) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Yield a sender with much room, and a receiver with little."""
    with (
        kept_lab.server.call(socket.socket) as listener,
        kept_lab.client.call(socket.socket) as sender,
    ):
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8_192)
        listener.bind((SERVER_IPV4, 0))
        listener.listen()
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        sender.settimeout(TIMEOUT_S)
        sender.connect(listener.getsockname())
        receiver, _ = listener.accept()
        with receiver:
            receiver.settimeout(TIMEOUT_S)
            yield sender, receiver


def unacknowledged_bytes(sock: socket.socket) -> int:
    """Return how much of what was sent the receiver's kernel has not acknowledged (SIOCOUTQ)."""
    return int.from_bytes(fcntl.ioctl(sock, termios.TIOCOUTQ, bytes(4)), sys.byteorder)


def test_receiver_that_does_not_read_is_blamed(kept_lab: Lab) -> None:
    with small_window(kept_lab) as (sender, receiver):
        child = start("tx", "--slowest", 3, "--json", "-i", 0.2, *only(kept_lab))
        assert child.stdout is not None
        child.stdout.readline()
        for _ in range(4):
            sender.send(bytes(32_768))
        time.sleep(0.4)
        left = 4 * 32_768
        while left:
            left -= len(receiver.recv(left))
        eventually(lambda: not unacknowledged_bytes(sender), "not all is acknowledged")
        child.terminate()
        _, out, _ = ended(child)
    whole = of_schema(objects(out), "tx.slowest")[-1]
    assert whole["seen"] >= 3, out
    assert whole["held"] == {"receiver-window": 3}, out
    for message in whole["messages"]:
        assert message["cause"] == "receiver-window"
        assert message["held_ns"] == message["hops_ns"]["tx.sched"] > 300_000_000
        assert message["len_bytes"] == 32_768


def test_one_interval_has_one_table_of_the_slowest(kept_lab: Lab) -> None:
    with requests(kept_lab) as command:
        done = hopscope("tx", "--slowest", 3, "-i", 60, *only(kept_lab), *command)
    lines = done.stdout.splitlines()
    assert len([line for line in lines if line.startswith("slowest 3 of 46 messages in this interval")]) == 1
    assert len([line for line in lines if line.startswith("tx  ")]) == 1
    assert "in the whole run" not in done.stdout


def test_cdf_is_shown_at_the_end_and_written(kept_lab: Lab, tmp_path: Path) -> None:
    picture = tmp_path / "run.svg"
    with requests(kept_lab) as command:
        done = hopscope("tx", "--cdf", "tx.sched,tx.ack", "--svg", picture, "-i", 60, *only(kept_lab), *command)
    assert (done.returncode, done.stderr) == (0, "")
    legend = [line for line in done.stdout.splitlines() if line[:3] in {"A  ", "B  "}]
    assert [line.partition(", ")[0] for line in legend] == ["A  tx.sched: 46 samples", "B  tx.ack: 46 samples"]
    assert "B against A: p50 is " in done.stdout
    texts = [element.text or "" for element in ET.parse(picture).getroot().iter("{http://www.w3.org/2000/svg}text")]  # noqa: S314 - our own
    assert [text for text in texts if text.startswith("tx.")] == [line[3:] for line in legend]


def test_cdf_has_a_curve_a_group(kept_lab: Lab) -> None:
    with requests(kept_lab) as command:
        done = hopscope("tx", "--cdf", "tx.ack", "-g", "netns", "-i", 60, *only(kept_lab), *command)
    legend = [line for line in done.stdout.splitlines() if re.match(r"[A-F]  tx\.ack \S+", line)]
    assert len([line for line in legend if ": 23 samples" in line]) == 2


@pytest.mark.slow
def test_events_of_a_run_can_be_compared_later(kept_lab: Lab, tmp_path: Path) -> None:
    recorded = tmp_path / "run.jsonl"
    with requests(kept_lab) as command:
        done = hopscope("tx", "--events", "--slowest", 3, "--json", *only(kept_lab), *command)
    recorded.write_text(done.stdout)
    assert hopscope("cdf", "tx.total", recorded).stdout.startswith("A  tx.total: 46 samples")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--cdf", "tx.nope"], "No hop is named tx.nope. The hops are tx.tcp, "),
        (["--cdf", "tx.ack", "--json"], "--cdf and --json cannot be combined. "),
        (["--cdf", "tx.ack", "--hop", "tx.sched"], "tx.ack is not among the hops of --hop. Add --hop tx.ack"),
        (["--svg", "/dev/null"], "--svg needs --cdf. "),
        (
            ["--cdf", "tx.ack", "--svg", "/nowhere/run.svg"],
            "Invalid value for '--svg': '/nowhere/run.svg' cannot be written: ",
        ),
        (["--fields", "all"], "--fields needs individual messages. Add --events or --slowest N"),
        (["--events", "--fields", "cwnd,rtt"], "There is no field 'rtt'. Fields: cwnd, ssthresh, "),
        (["--slowest", "0"], "Invalid value for '--slowest': 0 is not in the range 1<=x<=1000"),
    ],
)
def test_wrong_use_is_one_sentence(args: list[str], said: str) -> None:
    assert complaint(hopscope("tx", *args), 2).startswith(said)
