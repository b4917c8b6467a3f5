# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from hopscope.errors import HopscopeError
from hopscope.lab import Lab, Tbf, Workload, shape
from hopscope.lab.pace import Ended, Summary
from hopscope.lab.veth import CLIENT_IFNAME, SERVER_IFNAME, SERVER_IPV4

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hopscope.lab import Namespace

    Eventually = Callable[[Callable[[], bool], str], None]

both_families = pytest.mark.parametrize("host", ["127.0.0.1", "::1"])


@pytest.mark.parametrize("reader", ["plain", "peek"])
@both_families
def test_23_datagrams_sent_23_read(host: str, reader: str) -> None:
    with (
        Workload(None, "udp-sink", "--bind", host, "--count", 23, "--reader", reader) as sink,
        Workload(None, "udp-send", host, sink.port, "--count", 23, "--size", 100, "--rate", 1000) as source,
    ):
        sent, read = source.result(), sink.result()
    assert (sent.messages, sent.len_bytes, sent.ended) == (23, 2300, Ended.COUNT)
    assert (read.messages, read.len_bytes, read.ended) == (23, 2300, Ended.COUNT)
    assert read.peeks == (23 if reader == "peek" else 0)


@pytest.mark.parametrize("name", ["tcp-send", "tcp-rr"])
def test_sender_reads_three_stamps_of_each_of_its_messages(name: str) -> None:
    server = "tcp-echo" if name == "tcp-rr" else "tcp-sink"
    with (
        Workload(None, server, "--size", 100) as sink,
        Workload(
            None, name, "127.0.0.1", sink.port, "--count", 23, "--size", 100, "--rate", 1000, "--stamped"
        ) as source,
    ):
        sent = source.result()
    assert sent.messages == 23
    assert sent.stamps >= 3 * 23  # what has to be sent again is stamped again


def test_sender_that_was_not_told_asks_for_no_stamps() -> None:
    with (
        Workload(None, "tcp-sink") as sink,
        Workload(None, "tcp-send", "127.0.0.1", sink.port, "--count", 23, "--size", 100) as source,
    ):
        assert source.result().stamps == 0


@pytest.mark.root  # a receive buffer beyond the sysctl's limit
@both_families
def test_every_datagram_of_a_flood_has_its_size(host: str) -> None:
    with (
        Workload(None, "udp-sink", "--bind", host, "--count", 1000, "--rcvbuf", 8_000_000) as sink,
        Workload(None, "udp-send", host, sink.port, "--count", 1000, "--size", 64) as source,
    ):
        assert source.result().messages == 1000
        read = sink.result()
    assert (read.messages, read.len_bytes) == (1000, 64_000)


@pytest.mark.parametrize("reader", ["plain", "peek", "splice"])
@both_families
def test_23_messages_sent_one_by_one_are_23_reads(host: str, reader: str) -> None:
    with (
        Workload(None, "tcp-sink", "--bind", host, "--reader", reader) as sink,
        Workload(None, "tcp-send", host, sink.port, "--count", 23, "--size", 100, "--rate", 50) as source,
    ):
        sent, read = source.result(), sink.result()
    assert (sent.messages, sent.len_bytes, sent.ended) == (23, 2300, Ended.COUNT)
    assert (read.len_bytes, read.ended) == (2300, Ended.EOF)
    # TCP may join messages when the reader is late, never split one of 100 bytes.
    assert 1 <= read.messages <= 23
    assert read.peeks == (read.messages if reader == "peek" else 0)


@pytest.mark.root
@pytest.mark.alone
def test_paced_messages_whose_turns_are_late_are_packets_of_their_own() -> None:
    with Lab() as lab:
        # One packet may be under way at first, and all turns have come long before it is acknowledged.
        lab.client.run(["ip", "route", "change", "10.77.0.0/24", "dev", CLIENT_IFNAME, "initcwnd", "1"], check=True)
        shape(lab.server, SERVER_IFNAME, Tbf(rate_bit_s=50_000, burst_bytes=200))
        words = ("--count", 23, "--size", 100, "--rate", 1e6)
        with (
            Workload(lab.server, "tcp-sink", "--bind", SERVER_IPV4) as sink,
            Workload(lab.client, "tcp-send", SERVER_IPV4, sink.port, *words) as source,
        ):
            assert source.result().messages == 23
            sink.result()
        lines = lab.client.call(Path("/proc/thread-self/net/snmp").read_text).splitlines()
    names, values = (line.split() for line in lines if line.startswith("Tcp:"))
    # And two of the handshake. The end is in the last message's packet if that still waits when the sender closes.
    assert int(values[names.index("OutSegs")]) >= 23 + 2


@pytest.mark.parametrize("reader", ["plain", "splice"])
def test_a_stream_arrives_whole(reader: str) -> None:
    with (
        Workload(None, "tcp-sink", "--reader", reader) as sink,
        Workload(None, "tcp-send", "127.0.0.1", sink.port, "--count", 64) as source,
    ):
        assert source.result().len_bytes == 64 << 20
        assert sink.result().len_bytes == 64 << 20


def test_a_sink_takes_several_connections() -> None:
    with Workload(None, "tcp-sink", "--connections", 3) as sink:
        for _ in range(3):
            with Workload(None, "tcp-send", "127.0.0.1", sink.port, "--count", 1, "--size", 10) as source:
                source.result()
        assert sink.result().len_bytes == 30


@both_families
def test_each_request_has_a_reply(host: str) -> None:
    sizes = ("--size", 100, "--reply-size", 3000)
    with (
        Workload(None, "tcp-echo", "--bind", host, *sizes) as server,
        Workload(None, "tcp-rr", host, server.port, "--count", 23, *sizes) as client,
    ):
        asked, answered = client.result(), server.result()
    assert (asked.messages, answered.messages) == (23, 23)
    assert (asked.len_bytes, answered.len_bytes) == (2300, 2300)
    assert 0 < asked.rtt_p50_ns <= asked.rtt_p99_ns <= asked.rtt_max_ns


def test_a_sleeping_reader_sleeps_before_each_read() -> None:
    with (
        Workload(None, "udp-sink", "--count", 5, "--sleep-ms", 20) as sink,
        Workload(None, "udp-send", "127.0.0.1", sink.port, "--count", 5, "--rate", 1000) as source,
    ):
        source.result()
        # A lower bound: four sleeps lie between the first and the last read.
        assert sink.result().duration_s >= 4 * 0.020


def test_a_sleeping_reader_is_late_also_after_a_pause() -> None:
    with (
        Workload(None, "udp-sink", "--count", 1, "--sleep-ms", 300) as sink,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client,
    ):
        time.sleep(0.6)  # a reader that slept first would now wait in recv, and be in time
        sent_s = time.monotonic()
        client.sendto(b"x", ("127.0.0.1", sink.port))
        assert sink.result().messages == 1
        assert time.monotonic() - sent_s >= 0.3


def test_stop_ends_a_server_with_its_summary(eventually: Eventually) -> None:
    with Workload(None, "udp-sink") as sink, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.sendto(b"xyz", ("127.0.0.1", sink.port))
        client.sendto(b"", ("127.0.0.1", sink.port))
        eventually(lambda: not queued_bytes(sink.port), "the datagrams are not read")
        summary = sink.stop()
    assert (summary.messages, summary.len_bytes, summary.ended) == (2, 3, Ended.SIGNAL)


def queued_bytes(port: int) -> int:
    lines = (line.split() for line in Path("/proc/net/udp").read_text().splitlines()[1:])
    (queues,) = (fields[4] for fields in lines if fields[1].endswith(f":{port:04X}"))
    return int(queues.split(":")[1], 16)


def test_a_client_ends_at_its_duration() -> None:
    with (
        Workload(None, "tcp-sink") as sink,
        Workload(None, "tcp-send", "127.0.0.1", sink.port, "--duration", 0.2, "--rate", 50) as source,
    ):
        assert source.result().ended is Ended.DURATION


@pytest.mark.parametrize("name", ["tcp-sink", "udp-sink", "tcp-echo"])
def test_the_limit_ends_a_server_that_nobody_talks_to(name: str) -> None:
    with (
        Workload(None, name, "--limit", 0.1) as server,
        pytest.raises(HopscopeError, match=r'status 1: .*"ended": "limit"'),
    ):
        server.result()


def test_the_limit_ends_a_client_that_is_stuck() -> None:
    # Nobody accepts or reads: the stream fills the buffers and stands.
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        Workload(None, "tcp-send", "127.0.0.1", listener.getsockname()[1], "--limit", 0.5) as source,
        pytest.raises(HopscopeError, match=r'status 1: .*"ended": "limit"'),
    ):
        source.result()


def test_a_workload_that_blocks_for_good_is_killed_after_its_limit() -> None:
    with Workload(None, "udp-sink", "--limit", 0.1, "--count", 1, "--sleep-ms", 60_000) as sink:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.sendto(b"x", ("127.0.0.1", sink.port))
        with pytest.raises(HopscopeError, match=f"status -{signal.SIGALRM.value}:"):
            sink.result()


def test_leaving_kills_what_still_runs() -> None:
    with Workload(None, "udp-sink") as sink:
        pass
    assert not Path(f"/proc/{sink.pid}").exists()
    sink.kill()


class AlreadyOver:
    """In place of a namespace: a server that has said all it says before anybody listens to it."""

    @staticmethod
    def popen(_argv: list[str], **options: Any) -> subprocess.Popen[bytes]:  # noqa: ANN401 - as of Popen
        summary = json.dumps(asdict(Summary(23, 100, 1.0, Ended.COUNT)))
        child = subprocess.Popen(["printf", "%s\\n", "ready 5", summary], **options)
        child.wait()
        return child


def test_a_summary_that_comes_at_once_is_not_lost() -> None:
    with Workload(cast("Namespace", AlreadyOver()), "udp-sink") as sink:
        assert sink.port == 5
        assert sink.result().messages == 23


def test_a_client_without_a_server_says_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with Workload(None, "tcp-send", "127.0.0.1", port) as source, pytest.raises(HopscopeError, match="refused"):
        source.result()


def test_a_server_that_cannot_bind_says_so() -> None:
    with pytest.raises(HopscopeError, match=r"did not start: .*assign requested address"):
        Workload(None, "tcp-sink", "--bind", "192.0.2.1")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("udp-sink", "--reader", "splice"), "cannot be spliced"),
        (("udp-sink", "--count", 0), "0 is not above 0"),
        (("tcp-sink", "--limit", "inf"), "inf is not above 0 and finite"),
    ],
)
def test_bad_options_are_refused(arguments: tuple[str | int, ...], words: str) -> None:
    with pytest.raises(HopscopeError, match=words):
        Workload(None, *arguments)


def test_a_workload_has_the_name_that_it_was_given() -> None:
    with Workload(None, "udp-sink", "--comm", "patient-reader") as sink:
        assert Path(f"/proc/{sink.pid}/comm").read_text() == "patient-reader\n"


@pytest.fixture
def cgroup(tmp_path: Path, eventually: Eventually) -> Iterator[Path]:
    subprocess.run(["mount", "-t", "cgroup2", "none", tmp_path], check=True)
    with contextlib.ExitStack() as stack:
        stack.callback(lambda: subprocess.run(["umount", tmp_path], check=True))
        path = tmp_path / f"hopscope-test-{os.getpid()}"
        path.mkdir()
        stack.callback(path.rmdir)
        yield path
        eventually(lambda: not (path / "cgroup.procs").read_text(), "the process does not end")


@pytest.mark.root
def test_a_workload_is_in_the_cgroup_that_it_was_given(cgroup: Path) -> None:
    with Workload(None, "udp-sink", "--cgroup", cgroup) as sink:
        assert (cgroup / "cgroup.procs").read_text() == f"{sink.pid}\n"
