# SPDX-License-Identifier: Apache-2.0
"""`report tls` of made-up calls: which socket is whose, and what is not known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hopscope.bpf.layout import HopPoint
from hopscope.store.trace import Trace
from hopscope.trace.selection import Selection
from hopscope.verbs.report.tls import summary, tls
from tests.lab.traces import MadeTrace

if TYPE_CHECKING:
    from pathlib import Path


def test_what_a_thread_does_within_a_call_is_of_the_call(tmp_path: Path) -> None:
    made = MadeTrace()
    tid, other = made.thread(7, "server", 7), made.thread(8, "other", 8)
    out, back = made.flow("10.0.0.1:443", "10.0.0.2:40000"), made.flow("10.0.0.2:40000", "10.0.0.1:443")
    second = made.flow("10.0.0.1:443", "10.0.0.3:40000")

    def call(thread: int, begin: int, end: int, number: int) -> None:
        made.socket("call.enter", begin, tid=thread, value=number)
        if end:
            made.socket("call.exit", end, tid=thread, value=number)

    # Two system calls, of which one has an error; then what another thread does, and what comes after the end.
    call(tid, 1_100, 1_200, 1)
    made.socket("tx.sent", 1_150, tid=tid, sock=1, flow=out, len_bytes=522)
    call(tid, 1_300, 1_350, 1)
    made.socket("tx.sent", 1_340, tid=tid, sock=1, flow=out, len_bytes=-11)
    made.socket("tx.sent", 1_400, tid=other, sock=2, flow=second, len_bytes=9)
    made.socket("tls.write", 2_000, tid=tid, sock=77, value=1_000, len_bytes=500)
    made.socket("tx.sent", 2_100, tid=tid, sock=2, flow=second, len_bytes=3)
    # A read sends besides, and has a system call whose end is lost.
    call(tid, 3_100, 0, 0)
    made.socket("tx.sent", 3_150, tid=tid, sock=1, flow=out, len_bytes=24)
    made.socket("rx.received", 3_200, tid=tid, sock=1, flow=back, len_bytes=40)
    made.socket("tls.read", 3_500, tid=tid, sock=77, value=500, len_bytes=18)
    # What was there already; a call about two sockets; one that fails.
    made.socket("tls.read", 4_100, tid=tid, sock=77, value=100, len_bytes=5)
    made.socket("tx.sent", 5_010, tid=tid, sock=1, flow=out, len_bytes=30)
    made.socket("tx.sent", 5_020, tid=tid, sock=2, flow=second, len_bytes=31)
    made.socket("tls.write", 5_100, tid=tid, sock=77, value=100, len_bytes=8)
    made.socket("tls.write", 6_100, tid=tid, sock=77, value=100, len_bytes=-1)
    with Trace(made.write(tmp_path / "trace")) as trace:
        report = tls(trace, Selection())
        names = ("at_ns", "call", "plain_bytes", "socket_bytes", "duration_ns", "library_ns", "calls", "flow", "result")
        assert list(zip(*map(report.column, names), strict=True)) == [
            (1_000, "write", 500, 522, 1_000, 850, 2, out, 500),
            (3_000, "read", 18, 40, 500, None, 1, back, 18),
            (4_000, "read", 5, 0, 100, 100, 0, None, 5),
            (5_000, "write", 8, 61, 100, 100, 0, None, 8),
            (6_000, "write", None, 0, 100, 100, 0, None, -1),
        ]
        assert report.notes == []
        assert tls(trace, Selection(), slowest=True, limit=2).column("at_ns") == [1_000, 3_000]
        assert tls(trace, Selection(addresses=("10.0.0.2",))).column("at_ns") == [1_000, 3_000]
        assert not tls(trace, Selection(processes=("other",))).column("at_ns")
        summed = summary(trace, Selection())
        names = ("process", "call", "calls", "failed", "plain_bytes", "socket_bytes", "sum_ns", "library_ns")
        assert list(zip(*map(summed.column, names), strict=True)) == [
            ("server (7)", "write", 3, 1, 508, 583, 1_200, 1_050),
            ("server (7)", "read", 2, 0, 23, 40, 600, 100),
        ]


def test_a_goroutine_has_its_sockets_and_a_call_within_one_is_part_of_it(tmp_path: Path) -> None:
    made = MadeTrace()
    first, second = made.thread(7, "go", 7), made.thread(8, "go", 7)
    out, back = made.flow("10.0.0.1:443", "10.0.0.2:40000"), made.flow("10.0.0.2:40000", "10.0.0.1:443")
    # It began on one thread at 1,000, and ended on the other one, where another goroutine sends meanwhile.
    sent, received = (int(point) for point in (HopPoint.HOP_POINT_TX_SENT, HopPoint.HOP_POINT_RX_RECEIVED))
    made.socket("tls.socket", 1_100, tid=first, sock=77, value=received, seq=3, flow=back, len_bytes=-11)
    made.socket("tx.sent", 1_200, tid=second, sock=1, flow=out, len_bytes=9)
    made.socket("tls.socket", 1_300, tid=second, sock=77, value=received, seq=3, flow=back, len_bytes=40)
    made.socket("tls.socket", 1_350, tid=second, sock=77, value=sent, seq=4, flow=out, len_bytes=50)
    made.socket("tls.read", 2_000, tid=second, sock=77, value=1_000, seq=3, len_bytes=18)
    # gnutls_record_send calls gnutls_record_send2; and one for another connection, which is within it.
    made.socket("tx.sent", 3_100, tid=first, sock=1, flow=out, len_bytes=30)
    made.socket("tls.write", 3_200, tid=first, sock=5, value=150, len_bytes=8)
    made.socket("tls.write", 3_300, tid=first, sock=6, value=100, len_bytes=1)
    made.socket("tls.write", 3_400, tid=first, sock=5, value=400, len_bytes=8)
    with Trace(made.write(tmp_path / "trace")) as trace:
        report = tls(trace, Selection())
        names = ("at_ns", "call", "plain_bytes", "socket_bytes", "library_ns", "calls", "flow")
        assert list(zip(*map(report.column, names), strict=True)) == [
            (1_000, "read", 18, 40, None, None, back),
            (3_000, "write", 8, 30, 400, 0, out),
            (3_200, "write", 1, 0, 100, 0, None),
        ]


def test_of_a_goroutine_no_bytes_are_known_where_the_kernel_does_not_tell_its_sockets(tmp_path: Path) -> None:
    made = MadeTrace()
    tid = made.thread(7, "go", 7)
    made.socket("tls.read", 2_000, tid=tid, sock=77, value=1_000, seq=3, len_bytes=18)
    with Trace(made.write(tmp_path / "trace")) as trace:
        assert tls(trace, Selection()).column("socket_bytes") == [None]


def test_a_trace_that_lacks_something_says_so(tmp_path: Path) -> None:
    with Trace(MadeTrace().write(tmp_path / "empty")) as trace:
        assert tls(trace, Selection()).notes == [
            "the trace has no calls of TLS libraries: record with `--library auto`"
        ]
    made = MadeTrace()
    made.plan = [
        {"point": name, "status": "unavailable", "reason": "no BTF"} for name in ("call.exit", "tx.sent", "rx.received")
    ]
    made.socket("tls.read", 2_000, tid=7, value=500, len_bytes=18)
    with Trace(made.write(tmp_path / "less")) as trace:
        report = tls(trace, Selection())
        assert [report.column(name) for name in ("socket_bytes", "library_ns", "calls", "flow")] == [[None]] * 4
        assert report.notes[0] == "call.exit not attached: no BTF"
