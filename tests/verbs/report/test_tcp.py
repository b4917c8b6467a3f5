# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

from hopscope.store.trace import Trace
from hopscope.term.tcp_svg import render_connection
from hopscope.trace.selection import Selection
from hopscope.verbs.report.tcp import connections, history, picture
from tests.lab.traces import NETNS, STARTED_NS, MadeTrace, points

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CONGESTION_WINDOW, RECEIVER_WINDOW = 3, 4
SYN_SENT, ESTABLISHED = 2, 1
NOT_SET = 0x7FFFFFFF
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def trace(tmp_path: Path) -> Iterator[Trace]:
    """Two connections of the same ports one after the other; of the first, sequence numbers begin anew."""
    made = MadeTrace()
    flow = made.flow("10.0.0.1:40000", "10.0.0.2:80")

    def probe(at: int, una: int, **columns: int) -> None:
        known = {"snd_nxt": una, "snd_cwnd": 10, "ssthresh": NOT_SET, "srtt_us": 200, "snd_wnd": 64_000}
        made.add(
            "tcp",
            **{"time_ns": STARTED_NS + at, "point": points()["tcp.probe"], "netns": NETNS, "flow": flow}
            | {"snd_una": una, "rcv_wnd": 65_536}
            | known
            | columns,
        )

    def limit(at: int, kind: int) -> None:
        made.socket("tx.limit", at, flow=flow, value=kind, protocol=6, netns=NETNS)

    for at in (1_000, 50_000):
        made.socket("tcp.state", at, flow=flow, value=SYN_SENT * 256 + ESTABLISHED, protocol=6, netns=NETNS)
    probe(2_000, (1 << 32) - 1_000, srtt_us=0)
    probe(3_000, 500, snd_nxt=2_500, in_flight=2, snd_cwnd=12)
    limit(3_500, CONGESTION_WINDOW)
    made.packet("tcp.retransmit", 4_000, skb=1, flow=flow, netns=NETNS)
    probe(4_500, 400)  # another CPU's, which was behind
    limit(5_000, RECEIVER_WINDOW)
    probe(9_000, 3_500, snd_cwnd=6, ssthresh=6, srtt_us=400, snd_wnd=0, state=3)
    made.packet("tcp.retransmit", 60_000, skb=2, flow=flow, netns=NETNS)
    probe(55_000, 77_000_000)
    probe(61_000, 77_000_010)
    with Trace(made.write(tmp_path / "trace")) as opened:
        yield opened


def test_a_connection_is_a_row_with_what_limited_it(trace: Trace) -> None:
    report = connections(trace, Selection())
    first, second = (dict(zip([column.name for column in report.columns], row, strict=True)) for row in report.rows())
    assert first == {
        "flow_name": "10.0.0.1:40000 > 10.0.0.2:80", "netns": NETNS, "states": 4, "acked_bytes": 4_500,
        "retransmits": 1, "srtt_min_ns": 200_000, "srtt_mean_ns": 266_667, "srtt_max_ns": 400_000,
        "cwnd_max": 12, "cwnd": 6, "ssthresh": 6, "in_flight_max": 2, "snd_wnd_min_bytes": 0,
        "rcv_wnd_min_bytes": 65_536, "limit": "receiver-window", "limited_ns": 4_000, "first_ns": 2_000,
        "last_ns": 9_000, "flow": second["flow"],
    }  # fmt: skip
    assert (second["acked_bytes"], second["retransmits"], second["ssthresh"]) == (10, 1, None)
    # What held the first one had not ended: the last is of the second, too, as far as anybody knows.
    assert (second["limit"], second["limited_ns"]) == ("receiver-window", 6_000)
    assert connections(trace, Selection(), limit=1).left_out == 1


def test_its_history_is_a_row_a_state(trace: Trace) -> None:
    report = history(trace, Selection(from_s=2e-6, until_s=1e-5))
    names = ("at_ns", "acked_bytes", "unacked_bytes", "srtt_ns", "limit")
    assert list(zip(*map(report.column, names), strict=True)) == [
        (2_000, 0, 0, None, None),
        (3_000, 1_500, 2_000, 200_000, None),
        (4_500, 1_400, 0, 200_000, "congestion-window"),
        (9_000, 4_500, 0, 400_000, "receiver-window"),
    ]  # fmt: skip
    assert report.column("state") == ["open", "open", "open", "recovery"]


def test_its_picture_has_the_values_that_hold_at_each_time(trace: Trace) -> None:
    drawn = picture(trace, Selection())
    assert drawn
    lines = {line.name: line.values.tolist() for line in (*drawn.sequence, *drawn.packets, *drawn.delays_ns)}
    assert drawn.times_s.tolist() == [2e-6, 3e-6, 4.5e-6, 9e-6]
    assert lines["acknowledged"] == [0, 1_500, 1_400, 4_500]
    assert lines["sent"] == [0, 3_500, 1_400, 4_500]
    assert lines["end of the peer's window"] == [64_000, 65_500, 65_400, 4_500]
    assert lines["congestion window"] == [10, 12, 10, 6]
    assert lines["srtt"][1:] == [200_000, 200_000, 400_000]
    assert math.isnan(lines["srtt"][0])
    assert drawn.spans == [("congestion-window", 3.5e-6, 5e-6), ("receiver-window", 5e-6, 9e-6)]
    assert drawn.resent_s == [4e-6]
    hints = [each.text for each in ET.fromstring(render_connection(drawn)).iter(f"{SVG}title")]  # noqa: S314 # ours
    assert "0.000005 s to 0.000009 s: receiver-window" in hints
    assert "0.000009 s: end of the peer's window 4,500, sent 4,500, acknowledged 4,500" in hints
    assert picture(trace, Selection(ports=(9,))) is None


def test_a_trace_without_states_says_how_to_have_them(tmp_path: Path) -> None:
    with Trace(MadeTrace().write(tmp_path / "trace")) as trace:
        assert "record with `-P tcp`" in connections(trace, Selection()).notes[0]
