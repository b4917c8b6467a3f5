# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from hopscope.errors import UsageError
from hopscope.store.trace import Trace
from hopscope.trace.selection import Selection
from hopscope.verbs.report.hops import hop_times
from hopscope.verbs.report.messages import messages
from hopscope.verbs.report.network import network
from tests.lab.joined import JoinedTrace
from tests.lab.small_trace import small
from tests.lab.traces import UDP
from tests.shared import first

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from hopscope.model.report import Report

SENT, CAME = ("tx.queue", "tx.start"), ("rx.driver", "rx.core", "rx.l4")
MS = 1_000_000
DATA = 24


def rows(found: Report) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Return (from, to, protocol; None for all flows) → row."""
    names = [column.name for column in found.columns]
    every = [dict(zip(names, row, strict=True)) for row in found.rows()]
    return {(row["from_host"], row["to_host"], row["protocol"]): row for row in every}


def report(joined: JoinedTrace, folder: Path, chosen: Selection | None = None) -> dict[tuple[Any, ...], dict[str, Any]]:
    with Trace(joined.write(folder / "trace")) as trace:
        return rows(network(trace, chosen or Selection()))


def datagrams(
    joined: JoinedTrace, seqs: Iterable[int], lost: Iterable[int] = (), *, took_ns: int = 20_000, step: int = MS
) -> None:
    """Let a send datagrams of these numbers to b, one a step; those at the places in `lost` do not come."""
    flow, gone = joined.made.flow("10.0.0.1:4000", "10.0.0.2:53", UDP), set(lost)
    for place, seq in enumerate(seqs):
        at, told = 200 * MS + place * step, {"flow": flow, "seq": seq, "len_bytes": 142, "header_bytes": 42}
        joined.pass_on(0, SENT, at, skb=0x1000 + place % 7 * 256, **told)
        if place not in gone:
            joined.pass_on(1, CAME, at + 1_000 + took_ns, skb=0x2000 + place % 5 * 256, **told)


def test_datagrams_that_did_not_come_were_lost_between(tmp_path: Path) -> None:
    joined = JoinedTrace()
    datagrams(joined, (65536 * 7 + number for number in range(101)), lost=range(3, 71, 4))
    row = report(joined, tmp_path)["a", "b", "udp"]
    assert (row["sent"], row["lost"], row["lost_bytes"], row["unsure"]) == (101, 17, 1700, 0)
    assert (row["first_lost_ns"], row["last_lost_ns"]) == (203 * MS + 1_000, 267 * MS + 1_000)
    assert (row["matched"], row["max_ns"], row["bound_ns"]) == (84, 20_000, 500)


def test_datagrams_that_are_alike_come_in_order(tmp_path: Path) -> None:
    joined = JoinedTrace()
    datagrams(joined, [0] * 11, took_ns=30_000, step=10_000)
    row = report(joined, tmp_path)["a", "b", "udp"]
    assert (row["sent"], row["lost"], row["matched"], row["max_ns"]) == (11, 0, 11, 30_000)


def test_which_of_those_that_are_alike_was_lost_is_not_guessed(tmp_path: Path) -> None:
    joined = JoinedTrace()
    datagrams(joined, [0] * 13, lost=[4, 5, 9], took_ns=30_000, step=10_000)
    folder = joined.write(tmp_path / "trace")
    with Trace(folder) as trace:
        row = rows(network(trace, Selection()))["a", "b", "udp"]
        told = messages(trace, Selection())
    assert (row["sent"], row["lost"], row["matched"]) == (13, 3, 0)
    assert {"indistinguishable from others" in str(text) for text in told.column("missing")} == {True}
    assert any(note.startswith("13 datagrams cannot be told apart") for note in told.notes)


def test_a_hash_that_one_end_does_not_know_is_no_difference(tmp_path: Path) -> None:
    joined = JoinedTrace()
    flow = joined.made.flow("10.0.0.1:4000", "10.0.0.2:53", UDP)
    for number in range(7):
        at, told = 200 * MS + number * MS, {"flow": flow, "len_bytes": 142, "header_bytes": 42}
        joined.pass_on(0, SENT, at, skb=0x1000, seq=number, **told)
        joined.pass_on(1, CAME, at + 9_000, skb=0x2000, seq=number + 65536 * 77, **told)
    row = report(joined, tmp_path)["a", "b", "udp"]
    assert (row["sent"], row["lost"], row["matched"]) == (7, 0, 7)


def test_what_the_receiver_could_not_see_is_not_lost(tmp_path: Path) -> None:
    joined = JoinedTrace()
    datagrams(joined, (65536 + number for number in range(1000)), lost=[10, *range(300, 500), 600, 700])
    joined.absent(1, 500 * MS, 700 * MS)
    joined.made.lose(800 * MS - 1000, 800 * MS + 2000, cpu=1024)
    with Trace(joined.write(tmp_path / "trace")) as trace:
        row = rows(network(trace, Selection()))["a", "b", "udp"]
        told = messages(trace, Selection())
    assert (row["lost"], row["unsure"]) == (2, 201)
    reasons = Counter(str(text).rpartition("rx.driver: ")[2].partition(";")[0] for text in told.column("missing"))
    assert reasons["host not recorded at that time"] == 200
    assert reasons["lost between a and b"] == 2
    assert reasons["events were lost"] >= 1


def stream(joined: JoinedTrace, sent: list[tuple[int, int]], came: list[tuple[int, int]]) -> None:
    """Let a send ranges of bytes, one a ms, and b receive ranges of them, each 50 µs after it was sent last."""
    flow = joined.made.flow("10.0.0.1:4000", "10.0.0.2:80")
    for place, (start, end) in enumerate(sent):
        told = {"flow": flow, "seq": start, "tcp_flags": DATA, "len_bytes": end - start + 66, "header_bytes": 66}
        joined.pass_on(0, SENT, 200 * MS + place * MS, skb=0x1000 + place * 256, **told)
    for place, (start, end) in enumerate(came):
        last = max(number for number, each in enumerate(sent) if each[0] <= start < each[1])
        told = {"flow": flow, "seq": start, "tcp_flags": DATA, "len_bytes": end - start + 66, "header_bytes": 66}
        joined.pass_on(1, CAME, 200 * MS + last * MS + 51_000 + place, skb=0x9000 + place * 256, **told)


def test_bytes_of_tcp_are_compared_however_they_are_cut(tmp_path: Path) -> None:
    joined = JoinedTrace()
    # What the device cuts in three, of which the second is lost and sent again; then two that are merged.
    sent = [(1000, 4000), (4000, 5000), (2000, 3000), (5000, 6000), (6000, 7000)]
    came = [(1000, 2000), (3000, 4000), (4000, 5000), (2000, 3000), (5000, 7000)]
    stream(joined, sent, came)
    row = report(joined, tmp_path)["a", "b", "tcp"]
    assert (row["sent"], row["sent_bytes"], row["lost"], row["lost_bytes"], row["again"]) == (5, 7000, 1, 1000, 1)
    assert row["first_lost_ns"] == row["last_lost_ns"] == 200 * MS + 1_000


def test_what_came_after_it_was_sent_again_is_lost_in_the_part_before(tmp_path: Path) -> None:
    joined = JoinedTrace()
    first, second = (1000, 2000), (2000, 3000)
    stream(joined, [first, second, second], [first, second])
    before = report(joined, tmp_path / "before", Selection(until_s=0.202))["a", "b", "tcp"]
    after = report(joined, tmp_path / "after", Selection(from_s=0.202))["a", "b", "tcp"]
    assert [before[name] for name in ("sent", "lost", "again", "matched")] == [2, 1, 0, 1]
    assert [after[name] for name in ("sent", "lost", "again", "matched")] == [1, 0, 1, 0]


def test_what_is_sent_again_for_nothing_is_not_lost(tmp_path: Path) -> None:
    joined = JoinedTrace()
    ranges = [(1000, 2000), (2000, 3000)]
    stream(joined, [*ranges, *ranges], [*ranges, *ranges])
    row = report(joined, tmp_path)["a", "b", "tcp"]
    assert (row["sent"], row["lost"], row["lost_bytes"], row["again"]) == (4, 0, 0, 2)


@pytest.mark.parametrize("wrong_ns", first([400, 0, -400]))
def test_a_time_within_the_bound_is_not_said(wrong_ns: int, tmp_path: Path) -> None:
    joined = JoinedTrace(bound_ns=500, wrong_ns=wrong_ns)
    flow = joined.made.flow("10.0.0.1:4000", "10.0.0.2:53", UDP)
    for number, took_ns in ((1, 100), (2, 1_000)):
        at, told = 200 * MS * number, {"flow": flow, "seq": number, "len_bytes": 142, "header_bytes": 42}
        joined.pass_on(0, SENT, at, skb=0x1000, **told)
        joined.pass_on(1, CAME, at + 1_000 + took_ns, skb=0x2000, **told)
    with Trace(joined.write(tmp_path / "trace")) as trace:
        told = messages(trace, Selection())
        hops = hop_times(trace, Selection())
    seen = sorted(zip(told.column("begin_ns"), told.column("network_ns"), told.column("missing"), strict=True))
    short, long = seen
    assert short[1] is None
    assert "network: order within the clocks' bound" in short[2]
    assert long[1] == 1_000 + wrong_ns
    assert "within the clocks' bound" not in long[2]
    # No time of the receiver's is thrown away, and none comes before the sender's.
    for name in ("rx_driver_ns", "rx_core_ns", "rx_l4_ns"):
        assert all(isinstance(at, int) and at >= 1_000 for at in told.column(name))
    assert set(told.column("network_bound_ns")) == {500}
    between = dict(zip(hops.column("hop"), hops.column("bound_ns"), strict=True))
    assert between["tx.start → rx.driver (network)"] == 500


def test_what_lies_too_far_before_is_another(tmp_path: Path) -> None:
    joined = JoinedTrace(bound_ns=500, wrong_ns=-400_000)
    stream(joined, [(1000, 2000)], [(1000, 2000)])
    for point, seq in (("tx.send", 1000), ("tx.sent", 2000)):
        columns = {"flow": joined.made.flow("10.0.0.1:4000", "10.0.0.2:80"), "protocol": 6, "len_bytes": 1000}
        joined.socket(0, point, 200 * MS - 2_000 + (seq == 2000) * 9_000, tid=7, sock=7, seq=seq, **columns)
    flow = joined.made.flow("10.0.0.1:4000", "10.0.0.2:80")
    joined.socket(1, "rx.read", 201 * MS, tid=9, sock=8, seq=2000, flow=flow, protocol=6)
    with Trace(joined.write(tmp_path / "trace")) as trace:
        told = messages(trace, Selection())
    assert told.column("network_ns") == [None] or told.column("tx_start_ns") == [None]
    assert all(at is None or at >= 0 for name in ("rx_driver_ns", "rx_read_ns") for at in told.column(name))


def test_a_router_is_a_host_on_the_way(tmp_path: Path) -> None:
    joined = JoinedTrace(count=3)
    before = joined.made.flow("10.0.0.1:4000", "10.0.9.9:53", UDP)
    after = joined.made.flow("10.0.8.8:4000", "10.0.0.2:53", UDP)
    inner = joined.made.device("in0", 2), joined.made.device("out0", 3)
    for number in range(11):
        at, told = 200 * MS + number * MS, {"seq": 65536 * 9 + number, "len_bytes": 142, "header_bytes": 42}
        joined.pass_on(0, SENT, at, skb=0x1000, flow=before, **told)
        if number != 5:
            skb = 0x2000 + number * 256
            joined.pass_on(1, ("rx.driver", "rx.core"), at + 30_000, skb=skb, flow=before, **told, **inner[0])
            joined.pass_on(1, SENT, at + 40_000, skb=skb, flow=after, **told, **inner[1])
        if number not in {5, 7, 8}:
            joined.pass_on(2, CAME, at + 90_000, skb=0x3000, flow=after, **told)
    with Trace(joined.write(tmp_path / "trace")) as trace:
        found = rows(network(trace, Selection()))
        told = messages(trace, Selection())
    assert (found["a", "b", "udp"]["sent"], found["a", "b", "udp"]["lost"]) == (11, 1)
    assert (found["b", "c", "udp"]["sent"], found["b", "c", "udp"]["lost"]) == (10, 2)
    arrived = [name for name in told.column("receiver_host") if name == "c"]
    assert len(arrived) >= 8
    assert told.column("network_ns").count(89_000) == 8


def test_one_host_has_no_network(tmp_path: Path) -> None:
    with Trace(small().write(tmp_path / "trace")) as trace, pytest.raises(UsageError, match="contains only one host"):
        network(trace, Selection())
