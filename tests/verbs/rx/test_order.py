# SPDX-License-Identifier: Apache-2.0
"""TCP segments that arrive out of order, twice, or overlapping: which bytes waited for what."""

from __future__ import annotations

import contextlib
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hopscope.lab import Namespace
from hopscope.verbs.rx.collector import RxCollector
from hopscope.verbs.rx.options import RxOptions
from tests.lab.measure import MS, counts, discarded, histogram, limit
from tests.lab.packets import TcpFlag
from tests.lab.rawtcp import RawTcp, Tun

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.model.snapshot import Snapshot

pytestmark = pytest.mark.root


@dataclass
class Stage:
    """A raw client, the kernel's socket that it is connected to, and a collector for their namespace."""

    namespace: Namespace
    raw: RawTcp
    sock: socket.socket
    rx: RxCollector

    def read(self, len_bytes: int) -> bytes:
        had = b""
        while len(had) < len_bytes:
            had += self.sock.recv(len_bytes - len(had))
        return had


@contextlib.contextmanager
def stage(
    order: str = "apart", *, ipv6: bool = False, napi: bool = False, isn: int = 1_000, events: bool = False
) -> Iterator[Stage]:
    with contextlib.ExitStack() as stack:
        namespace = stack.enter_context(Namespace())
        tun = stack.enter_context(Tun(namespace, napi=napi))
        listener = stack.enter_context(
            namespace.call(socket.create_server, ("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
        )
        raw = stack.enter_context(RawTcp(tun, listener.getsockname()[1], ipv6=ipv6, isn=isn))
        sock = stack.enter_context(listener.accept()[0])
        limit(sock)
        rx = stack.enter_context(RxCollector(RxOptions(namespaces=[namespace.inode], order=order, events=events)))
        yield Stage(namespace, raw, sock, rx)


def hole_of_50_ms(at: Stage) -> tuple[Snapshot, int, int]:
    """Send segments 2 and 3, and 1 when 50 ms have passed.

    Returns
    -------
    tuple
        What was seen, the longest wait for the hole that there can be, and how long it took from its end to the read.
    """
    started_ns = time.monotonic_ns()
    at.raw.send_segment(100, b"b" * 100)
    at.raw.send_segment(200, b"c" * 100)
    time.sleep(0.05)
    ended_ns = time.monotonic_ns()
    at.raw.send_segment(0, b"a" * 100)
    at.raw.wait_acked(300)
    longest_ns = time.monotonic_ns() - started_ns
    assert at.read(300) == b"a" * 100 + b"b" * 100 + b"c" * 100
    return at.rx.interval(), longest_ns, time.monotonic_ns() - ended_ns


@pytest.mark.parametrize("isn", [1_000, 0xFFFFFF80], ids=["", "sequence wraps"])
@pytest.mark.parametrize("napi", [False, True], ids=["", "napi"])
@pytest.mark.parametrize("ipv6", [False, True], ids=["v4", "v6"])
def test_two_segments_wait_for_the_first(ipv6: bool, napi: bool, isn: int) -> None:  # noqa: FBT001 - parameters
    with stage(ipv6=ipv6, napi=napi, isn=isn) as at:
        snapshot, longest_ns, after_ns = hole_of_50_ms(at)
    order, total = (histogram(snapshot, f"rx.tcp_{hop}") for hop in ("order", "total"))
    assert counts(snapshot)["rx.tcp_queue"] == counts(snapshot)["rx.tcp_read"] == total.count == 3
    assert order.count == 2
    assert 2 * 50 * MS <= order.sum_ns <= 2 * longest_ns
    assert order.max_ns <= longest_ns
    # What is left of the total are the other hops: the wait for the hole is in none of them.
    rest_ns = sum(histogram(snapshot, f"rx.tcp_{hop}").sum_ns for hop in ("wake", "read"))
    assert order.sum_ns + rest_ns <= total.sum_ns
    assert rest_ns <= 3 * after_ns
    assert discarded(snapshot) == {}


@pytest.mark.parametrize("order", ["apart", "include", "exclude"])
def test_messages_that_wait_for_a_hole_say_so(order: str) -> None:
    with stage(order, events=True) as at:
        snapshot, _, _ = hole_of_50_ms(at)
        assert at.rx.messages is not None
        single = sorted(at.rx.messages.decode(at.rx.messages.read()), key=lambda each: each.end_byte)
    late = [each for each in single if "rx.tcp_order" in each.hops()]
    assert [each.end_byte for each in single] == ([100] if order == "exclude" else [100, 200, 300])
    assert [each.end_byte for each in late] == ([200, 300] if order == "apart" else [])
    assert sum(each.hops()["rx.tcp_order"] or 0 for each in late) == histogram(snapshot, "rx.tcp_order").sum_ns
    for each in single:
        assert sum(duration or 0 for duration in each.hops().values()) == each.total_ns


def test_the_wait_for_the_hole_can_be_part_of_the_read() -> None:
    with stage("include") as at:
        snapshot, _, _ = hole_of_50_ms(at)
    found = counts(snapshot)
    assert (found["rx.tcp_order"], found["rx.tcp_queue"], found["rx.tcp_read"], found["rx.tcp_total"]) == (0, 3, 3, 3)
    assert sum(histogram(snapshot, f"rx.tcp_{hop}").sum_ns for hop in ("wake", "read")) >= 2 * 50 * MS
    assert discarded(snapshot) == {}


def test_what_waited_for_a_hole_can_be_left_out() -> None:
    with stage("exclude") as at:
        snapshot, _, after_ns = hole_of_50_ms(at)
    found = counts(snapshot)
    assert (found["rx.tcp_order"], found["rx.tcp_queue"], found["rx.tcp_read"], found["rx.tcp_total"]) == (0, 3, 1, 1)
    assert histogram(snapshot, "rx.tcp_total").max_ns <= after_ns
    assert discarded(snapshot) == {("rx.tcp_read", "out_of_order"): 2}


def test_a_hole_that_opens_while_another_is_read_is_its_own() -> None:
    with stage() as at:
        for first in (0, 300, 600):
            at.raw.send_segment(first + 200, b"c" * 100)
            at.raw.send_segment(first + 100, b"b" * 100)
            at.raw.send_segment(first, b"a" * 100)
            assert at.read(300) == b"a" * 100 + b"b" * 100 + b"c" * 100
        snapshot = at.rx.interval()
    found = counts(snapshot)
    assert (found["rx.tcp_order"], found["rx.tcp_queue"], found["rx.tcp_read"]) == (6, 9, 9)
    assert discarded(snapshot) == {}


def test_reading_up_to_a_hole_leaves_the_rest_waiting() -> None:
    with stage() as at:
        at.raw.send_segment(0, b"a" * 100)
        at.raw.send_segment(200, b"c" * 100)
        assert at.read(100) == b"a" * 100
        first = at.rx.interval()
        at.raw.send_segment(100, b"b" * 100)
        assert at.read(200) == b"b" * 100 + b"c" * 100
        second = at.rx.interval()
    assert [counts(each)["rx.tcp_read"] for each in (first, second)] == [1, 2]
    assert [counts(each)["rx.tcp_order"] for each in (first, second)] == [0, 1]


def test_the_same_bytes_again_are_duplicates() -> None:
    with stage() as at:
        at.raw.send_segment(0, b"0123456789")
        at.raw.send_segment(0, b"0123456789")
        assert at.read(10) == b"0123456789"
        at.raw.send_segment(0, b"0123456789")
        at.raw.send_segment(5, b"56789")
        snapshot = at.rx.interval()
    found = counts(snapshot)
    assert (found["rx.tcp"] > 0, found["rx.tcp_queue"], found["rx.tcp_read"], found["rx.tcp_total"]) == (True, 1, 1, 1)
    assert discarded(snapshot) == {("rx.tcp_queue", "duplicate"): 3}


def test_a_segment_that_overlaps_counts_for_its_new_bytes() -> None:
    with stage() as at:
        at.raw.send_segment(0, b"0123456789")
        at.raw.send_segment(5, b"56789abcde")
        assert at.read(15) == b"0123456789abcde"
        snapshot = at.rx.interval()
    found = counts(snapshot)
    assert (found["rx.tcp_order"], found["rx.tcp_queue"], found["rx.tcp_read"]) == (0, 2, 2)
    assert discarded(snapshot) == {}


def test_the_same_bytes_again_behind_a_hole_are_duplicates() -> None:
    with stage() as at:
        at.raw.send_segment(100, b"b" * 100)
        at.raw.send_segment(100, b"b" * 100)
        at.raw.send_segment(0, b"a" * 100)
        assert at.read(200) == b"a" * 100 + b"b" * 100
        snapshot = at.rx.interval()
    found = counts(snapshot)
    assert (found["rx.tcp_order"], found["rx.tcp_read"], found["rx.tcp_total"]) == (1, 2, 2)
    assert discarded(snapshot) == {("rx.tcp_read", "duplicate"): 1}


@pytest.mark.parametrize("payload", [b"", b"last words"], ids=["bare", "with data"])
def test_a_fin_is_no_byte_of_data(payload: bytes) -> None:
    with stage() as at:
        at.raw.send_segment(0, b"0123456789")
        at.raw._send(10, TcpFlag.FIN | TcpFlag.PSH | TcpFlag.ACK, payload)
        assert at.read(10 + len(payload)) == b"0123456789" + payload
        assert at.sock.recv(10) == b""
        snapshot = at.rx.interval()
    found = counts(snapshot)
    expected = 1 + bool(payload)
    assert (found["rx.tcp_queue"], found["rx.tcp_read"], found["rx.tcp_total"]) == (expected, expected, expected)
    assert discarded(snapshot) == {}


def test_more_segments_than_are_remembered_share_their_samples() -> None:
    with stage() as at:
        for number in range(300):
            at.raw.send_segment(number, b"x")
        at.raw.wait_acked(300)
        assert at.read(300) == b"x" * 300
        snapshot = at.rx.interval()
    found = counts(snapshot)
    shared = discarded(snapshot)[("rx.tcp_read", "merged")]
    assert found["rx.tcp_queue"] == 300
    assert found["rx.tcp_read"] == found["rx.tcp_total"] == 300 - shared
    assert 0 < shared < 200


def test_a_segment_that_the_window_refused_does_not_count_as_read() -> None:
    with stage() as at:
        at.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        at.raw.listen_for(0.01)
        far = 10 << 20
        at.raw.send_segment(0, b"0123456789")
        at.raw.send_segment(far, b"beyond the window")
        at.raw.send_segment(10, b"abcde")
        assert at.read(15) == b"0123456789abcde"
        snapshot = at.rx.interval()
    found = counts(snapshot)
    assert (found["rx.tcp_order"], found["rx.tcp_read"], found["rx.tcp_total"]) == (0, 2, 2)


def refused_in_order(namespace: Namespace) -> int:
    """Return how many segments the kernel refused although they were next in order: there was no room."""
    names, values = namespace.call(tcp_ext)
    return sum(int(values[names.index(name)]) for name in ("TCPRcvQDrop", "TCPZeroWindowDrop"))


def tcp_ext() -> tuple[list[str], list[str]]:
    lines = Path("/proc/thread-self/net/netstat").read_text().splitlines()
    names, values = (line.split() for line in lines if line.startswith("TcpExt:"))
    return names, values


def test_a_segment_that_a_full_buffer_refused_counts_when_it_comes_again() -> None:
    with stage() as at:
        at.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        sent = 0
        at.raw.send_segment(0, bytes(1000))
        while not refused_in_order(at.namespace):
            sent += 1
            at.raw.send_segment(sent * 1000, bytes(1000))
        at.read(sent * 1000)
        before = at.rx.interval()
        again_ns = time.monotonic_ns()
        at.raw.send_segment(sent * 1000, bytes(1000))
        at.read(1000)
        snapshot = at.rx.interval()
        longest_ns = time.monotonic_ns() - again_ns
    assert counts(before)["rx.tcp_read"] == sent
    assert counts(snapshot)["rx.tcp_read"] == counts(snapshot)["rx.tcp_total"] == 1
    assert histogram(snapshot, "rx.tcp_total").max_ns <= longest_ns
