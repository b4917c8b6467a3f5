# SPDX-License-Identifier: Apache-2.0
"""Differences of counters that wrap, begin anew, or have no beginning."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopscope.kernel.sockets.change import baseline, change
from hopscope.kernel.sockets.table import ROW, TCP, Growing, Seen, Sockets, Unread, join

NETNS = 4_026_531_840


def sockets(*cookies: int, time_ns: int = 0, netns: int = NETNS, **counters: Any) -> Sockets:  # noqa: ANN401 # by column
    rows = np.zeros(len(cookies), ROW)
    rows["netns"], rows["protocol"], rows["seen"] = netns, TCP, Seen.INFO | Seen.SKMEMINFO
    rows["message"]["cookie"][:, 0] = [cookie & 0xFFFFFFFF for cookie in cookies]
    rows["message"]["cookie"][:, 1] = [cookie >> 32 for cookie in cookies]
    for name, values in counters.items():
        rows["memory" if name == "drops" else "tcp"][name] = values
    return Sockets(rows, time_ns, time_ns, 280, namespaces={NETNS: "host"})


def test_counters_of_32_bits_wrap() -> None:
    before = baseline(sockets(1, segs_out=2**32 - 5, drops=2**32 - 1, total_rto=65_535))
    found = change(sockets(1, segs_out=7, drops=3, total_rto=1, time_ns=10**9), before)
    assert found.counts["segs_out"][0] == 12
    assert found.counts["drops"][0] == 4
    assert found.counts["total_rto"][0] == 2
    assert found.seconds == 1.0


def test_socket_that_was_connected_anew_counts_from_0() -> None:
    before = baseline(sockets(1, bytes_acked=1000, bytes_sent=999, segs_out=50))
    found = change(sockets(1, bytes_acked=10, bytes_sent=9, segs_out=2), before)
    assert found.sent_bytes[0] == 9
    assert found.counts["segs_out"][0] == 2


def test_order_does_not_matter_and_cookies_are_64_bits() -> None:
    before = baseline(sockets(3 << 32 | 7, 7, 9, bytes_received=[100, 200, 300]))
    found = change(sockets(9, 7, 3 << 32 | 7, 8, bytes_received=[301, 202, 103, 5]), before)
    assert found.received_bytes.tolist() == [1, 2, 3, 5]
    assert found.new.tolist() == [False, False, False, True]
    assert found.gone == 0
    assert found.known.all()


def test_same_cookie_in_another_namespace_is_another_socket() -> None:
    before = baseline(sockets(7, bytes_received=100))
    found = change(sockets(7, netns=NETNS + 1, bytes_received=300), before)
    assert not found.known[0]  # that namespace was not read before
    assert found.received_bytes[0] == 0
    assert found.gone == 1


def test_namespace_that_could_not_be_read_before_has_no_differences() -> None:
    unread = Sockets(np.zeros(0, ROW), 0, 0, namespaces={NETNS: "host"}, unread=[Unread(NETNS, "no")])
    found = change(sockets(1, bytes_received=10**12), baseline(unread))
    assert not found.known[0]
    assert not found.new[0]
    assert found.received_bytes[0] == 0


def test_connection_without_counters_has_done_nothing() -> None:
    before = baseline(sockets(1, bytes_received=100, segs_in=3))
    after = sockets(1)
    after.rows["seen"] = 0  # as of time-wait and its like
    found = change(after, before)
    assert not found.new[0]
    assert found.gone == 0
    assert found.counts["segs_in"][0] == 0


def test_kernel_that_does_not_count_what_is_sent_says_what_was_acknowledged() -> None:
    old = sockets(1, bytes_acked=100)
    assert not change(old, None).sent_is_acked
    short = Sockets(old.rows, 0, 0, 192)
    assert change(short, None).sent_bytes[0] == 100


@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_share_is_a_part_or_unknown(part: int, whole: int) -> None:
    (share,) = change(sockets(1, rwnd_limited=part, busy_time=whole), None).share("rwnd_limited", "busy_time")
    if whole:
        assert share == pytest.approx(min(part / whole, 1))
    else:
        assert np.isnan(share)


def test_rows_grow_without_being_lost() -> None:
    growing = Growing()
    parts = [sockets(*range(start, start + 5)).rows for start in (0, 5, 10)]
    for part in parts:
        growing.append(part)
    assert len(growing) == 15
    growing.cut(12)
    taken = growing.taken()
    assert taken["message"]["cookie"][:, 0].tolist() == list(range(12))
    assert len(growing) == 0
    assert join(parts)["message"]["cookie"][:, 0].tolist() == list(range(15))
    assert len(join([])) == 0
