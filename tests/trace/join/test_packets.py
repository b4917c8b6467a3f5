# SPDX-License-Identifier: Apache-2.0
"""Packets of applications on two hosts: only what is surely the same packet compares clocks."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopscope.store.trace import Trace
from hopscope.trace.join.packets import Seen, fewest, matched, received, sent
from tests.lab.traces import STARTED_NS, TCP, UDP, MadeTrace

if TYPE_CHECKING:
    from pathlib import Path

A, B = "10.0.0.1:40000", "10.0.0.2:80"
HEADER = 54
WRAP = 1 << 32


class Sender:
    """A host that sends, in the making."""

    def __init__(self) -> None:
        self.trace = MadeTrace()
        self.flow = self.trace.flow(A, B)
        self.datagrams = self.trace.flow(A, B, UDP)
        self.device = self.trace.device("eth0", 2)
        self._skb = 1

    def writes(self, at: int, seq: int) -> None:
        self.trace.socket("tx.send", at, sock=7, flow=self.flow, seq=seq % WRAP, protocol=TCP)

    def sends(self, at: int, seq: int, size: int, *, flags: int = 16, starts: bool = True) -> None:
        skb = self._skb
        self._skb += 1
        both = {"skb": skb, "head": skb, "len_bytes": HEADER + size, **self.device}
        header = {"header_bytes": HEADER, "flow": self.flow, "seq": seq % WRAP, "tcp_flags": flags}
        self.trace.packet("tx.queue", at, **both, **header)
        if starts:
            self.trace.packet("tx.start", at + 10, **both)

    def datagram(self, at: int, key: int, **device: int) -> None:
        skb = self._skb
        self._skb += 1
        both = {"skb": skb, "head": skb, "len_bytes": 100, **(device or self.device)}
        self.trace.packet("tx.queue", at, **both, header_bytes=42, flow=self.datagrams, seq=key)
        self.trace.packet("tx.start", at + 10, **both)

    def certain(self, folder: Path) -> list[tuple[int, int]]:
        """Return (seq, time since the start) of what is certain."""
        with Trace(self.trace.write(folder)) as trace:
            found = sent(trace, {self.flow, self.datagrams})
        return sorted(zip(found.seq.tolist(), (found.time_ns - STARTED_NS).tolist(), strict=True))


@pytest.fixture
def sender() -> Sender:
    return Sender()


def test_a_segment_counts_from_the_call_of_the_driver(sender: Sender, tmp_path: Path) -> None:
    sender.writes(100, 5000)
    sender.sends(200, 5000, 1000)
    sender.sends(300, 6000, 500)
    assert sender.certain(tmp_path / "t") == [(5000, 210), (6000, 310)]


def test_what_was_written_before_the_recording_may_have_been_sent_before(sender: Sender, tmp_path: Path) -> None:
    sender.sends(50, 4000, 1000)
    sender.writes(100, 5000)
    sender.sends(150, 4000, 1000)
    sender.sends(200, 5000, 1000)
    assert sender.certain(tmp_path / "t") == [(5000, 210)]


def test_a_connection_that_begins_needs_no_write(sender: Sender, tmp_path: Path) -> None:
    sender.sends(50, 4999, 0, flags=2)
    sender.sends(200, 5000, 1000)
    assert sender.certain(tmp_path / "t") == [(5000, 210)]


def test_retransmissions_are_left_out_however_they_are_cut(sender: Sender, tmp_path: Path) -> None:
    sender.writes(100, 5000)
    sender.sends(200, 5000, 3000)
    sender.sends(300, 6000, 1000)  # out of its middle: the receiver may have seen that byte first
    sender.sends(400, 5000, 3000)
    sender.sends(500, 8000, 1000)
    assert sender.certain(tmp_path / "t") == [(5000, 210), (8000, 510)]


def test_sequence_numbers_go_round(sender: Sender, tmp_path: Path) -> None:
    sender.writes(100, WRAP - 1000)
    sender.sends(200, WRAP - 1000, 1500)
    sender.sends(300, WRAP + 500, 1000)
    sender.sends(400, WRAP - 1000, 1500)
    assert sender.certain(tmp_path / "t") == [(500, 310), (WRAP - 1000, 210)]


def test_after_a_loss_nothing_is_certain_until_something_is_written(sender: Sender, tmp_path: Path) -> None:
    sender.writes(100, 5000)
    sender.sends(200, 5000, 1000)
    sender.trace.lose(250, 260)
    sender.sends(300, 6000, 1000)  # may be the second time
    sender.writes(400, 7000)
    sender.sends(500, 7000, 1000)
    assert sender.certain(tmp_path / "t") == [(5000, 210), (7000, 510)]


def test_a_loss_between_queue_and_driver_leaves_it_out(sender: Sender, tmp_path: Path) -> None:
    sender.writes(100, 5000)
    sender.sends(200, 5000, 1000)
    sender.trace.lose(204, 205)
    assert sender.certain(tmp_path / "t") == []


def test_what_the_driver_did_not_get_is_known_to_be_sent_nevertheless(sender: Sender, tmp_path: Path) -> None:
    # It was cut into segments, which have other addresses; what is sent of it later is not the first time.
    sender.writes(100, 5000)
    sender.sends(200, 5000, 3000, starts=False)
    sender.sends(300, 6000, 1000)
    assert sender.certain(tmp_path / "t") == []


def test_datagrams_with_a_key_of_their_own(sender: Sender, tmp_path: Path) -> None:
    sender.datagram(100, 65536 * 7 + 1)
    sender.datagram(200, 65536 * 7 + 2)
    sender.datagram(300, 65536 * 7 + 2)  # twice
    sender.datagram(400, 65536 * 7)  # no identification: it may be sent again alike
    sender.datagram(500, 9)  # of too few bytes for a hash
    assert sender.certain(tmp_path / "t") == [(65536 * 7 + 1, 110)]


def arrived(folder: Path, *keys: int) -> Seen:
    """Return what is known of datagrams with these keys that came in this order, 1 µs after the start and so on."""
    made = MadeTrace()
    own = {"flow": made.flow(A, B, UDP), "header_bytes": 42, "len_bytes": 100, **made.device("eth0", 2)}
    for number, key in enumerate(keys):
        made.packet("rx.driver", 1_000 * (1 + number), skb=1, seq=key, **own)
    with Trace(made.write(folder)) as trace:
        return received(trace, {own["flow"]})


def test_datagrams_without_identification_are_told_apart_by_the_one_before(sender: Sender, tmp_path: Path) -> None:
    hashes = [65536 * each for each in (7, 8, 9, 8, 9, 5, 6)]
    for number, key in enumerate(hashes):
        sender.datagram(100 * (1 + number), key)
    with Trace(sender.trace.write(tmp_path / "sent")) as trace:
        left = sent(trace, {sender.datagrams})
    assert sorted((left.time_ns - STARTED_NS).tolist()) == [210, 410, 610, 710]  # of 8 and then 9 there are two
    sent_ns, received_ns = matched(left, arrived(tmp_path / "all", *hashes))
    assert sorted(zip((sent_ns - STARTED_NS).tolist(), (received_ns - STARTED_NS - 10).tolist(), strict=True)) == [
        (210, 2_000), (410, 4_000), (610, 6_000), (710, 7_000)
    ]  # fmt: skip
    # Behind one that did not come, the next is not known; if the first 8 is lost, nobody takes the second for it.
    sent_ns, _ = matched(left, arrived(tmp_path / "some", *(hashes[:1] + hashes[2:])))
    assert sorted((sent_ns - STARTED_NS).tolist()) == [410, 610, 710]


def test_a_datagram_that_passes_a_bridge_left_when_the_first_device_had_it(sender: Sender, tmp_path: Path) -> None:
    sender.datagram(100, 65536 * 7 + 1)
    sender.datagram(150, 65536 * 7 + 1, ifindex=3, netns=1)
    assert sender.certain(tmp_path / "t") == [(65536 * 7 + 1, 110)]


def test_what_arrives_is_what_a_driver_handed_over_once(tmp_path: Path) -> None:
    made = MadeTrace()
    flow, device = made.flow(A, B), made.device("eth0", 2)
    header = {"flow": flow, "len_bytes": HEADER + 100, "header_bytes": HEADER, "tcp_flags": 16, **device}
    made.packet("rx.driver", 100, skb=1, seq=5000, **header)
    made.packet("rx.driver", 200, skb=2, seq=6000, **header)
    made.packet("rx.driver", 300, skb=3, seq=6000, **header)
    made.packet("rx.driver", 400, skb=4, seq=7000, **{**header, "len_bytes": HEADER})  # no data
    with Trace(made.write(tmp_path / "t")) as trace:
        found = received(trace, {flow})
        assert (found.seq.tolist(), (found.time_ns - STARTED_NS).tolist()) == ([5000], [100])
        assert len(received(trace, {flow + 1}).seq) == len(received(trace, set()).seq) == 0


def seen(*rows: tuple[int, int, int]) -> Seen:
    return Seen(*np.array(rows, np.int64).reshape(-1, 3).T)


def test_what_overtook_another_packet_of_its_flow_is_left_out() -> None:
    left = seen((1, 10, 100), (1, 20, 200), (1, 30, 300), (2, 10, 250))
    came = seen((1, 10, 1100), (1, 20, 1400), (1, 30, 1300), (2, 10, 1050), (3, 10, 0))
    sent_ns, received_ns = matched(left, came)
    assert sorted(zip(sent_ns.tolist(), received_ns.tolist(), strict=True)) == [(100, 1110), (200, 1410), (250, 1060)]


def test_of_each_ms_the_quickest_is_kept() -> None:
    ms = 1_000_000
    sent_ns, received_ns = np.array([5, ms - 1, ms, 3 * ms]), np.array([105, ms + 50, ms + 900, 3 * ms + 7])
    kept = fewest(sent_ns, received_ns)
    assert [column.tolist() for column in kept] == [[ms - 1, ms, 3 * ms], [ms + 50, ms + 900, 3 * ms + 7]]


def connection(seed: int) -> tuple[Sender, MadeTrace]:
    """Return what two hosts recorded of a connection whose packets are lost, doubled, cut anew, split and late.

    Either recording begins when it likes, and the sender's has gaps. Both have one clock.
    """
    chance = random.Random(seed)  # noqa: S311 # a test
    sender, receiver = Sender(), MadeTrace()
    receiver.flow(A, B)
    device = receiver.device("eth0", 2)
    begins = chance.randrange(0, 15_000), chance.randrange(0, 15_000)
    gaps = [(at, at + 300) for at in (chance.randrange(0, 40_000) for _ in range(3))]
    for gap in gaps:
        sender.trace.lose(*gap)

    def is_recorded(at: int) -> bool:
        return at >= begins[0] and not any(first <= at <= last for first, last in gaps)

    acknowledged = sent_up_to = written = chance.choice([5000, WRAP - 20_000])
    for at in range(0, 40_000, 100):
        if chance.random() < 0.5:
            if is_recorded(at):
                sender.writes(at, written)
            written += chance.randrange(1, 4) * 500
        again = chance.random() < 0.4
        first = chance.randrange(acknowledged, sent_up_to + 1, 500) if again else sent_up_to
        size = min(chance.randrange(1, 4) * 500, written - first)
        if size <= 0:
            continue
        if is_recorded(at + 10):
            sender.sends(at + 10, first, size)
        sent_up_to = max(sent_up_to, first + size)
        pieces = range(0, size, 500) if chance.random() < 0.5 else (0,)
        for place in (each for each in pieces if chance.random() < 0.7):
            came = at + 20 + chance.randrange(1, 300)
            if came >= begins[1]:
                header = {"flow": sender.flow, "header_bytes": HEADER, "tcp_flags": 16, "len_bytes": HEADER + 500}
                receiver.packet("rx.driver", came, skb=1, seq=(first + place) % WRAP, **header, **device)
        acknowledged = max(acknowledged, sent_up_to - 3000)
    return sender, receiver


# Each writes two traces.
@pytest.mark.slow
@settings(max_examples=30)
@given(st.integers(0, 1 << 32))
def test_nothing_arrives_before_it_left(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    sender, receiver = connection(seed)
    folder = tmp_path_factory.mktemp("traces")
    with Trace(sender.trace.write(folder / "a")) as here, Trace(receiver.write(folder / "b")) as there:
        sent_ns, received_ns = matched(sent(here, {sender.flow}), received(there, {sender.flow}))
    assert (received_ns >= sent_ns).all()
    assert len(sent_ns) > 10
