# SPDX-License-Identifier: Apache-2.0
"""Both sides in this process, over lo: what they say, and what they refuse."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from contextlib import ExitStack
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hopscope.clock import exchange
from hopscope.clock.change import Change
from hopscope.clock.exchange import Endpoint
from hopscope.clock.offline import smooth
from hopscope.clock.pair import Pair, _Matcher
from hopscope.clock.peer import Peer
from hopscope.clock.probe import SIZE_BYTES, Kind, Refusal, Session, packet
from hopscope.clock.remote import Remote
from hopscope.clock.samples import Samples
from hopscope.errors import FormatError, HopscopeError
from tests.clock.lines import line, opener
from tests.stamping import stamping
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LO = "127.0.0.1"
PATIENCE_S = 30.0
SESSION = Session(b"8 bytes!", b"thirty-two bytes of a secret key")


class Stranger:
    """Plays the other side by hand."""

    def __init__(self) -> None:
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.bind((LO, 0))
        own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        own.bind((LO, 0))
        self.address = own.getsockname()
        self.endpoint = Endpoint(own, self.sock.getsockname(), SESSION, role=0)
        self._answers = 0

    def send(self, *packets: bytes) -> None:
        for data in packets:
            self.sock.sendto(data, self.address)
        self.take(len(packets))

    def take(self, count: int) -> None:
        """Have the endpoint keep or refuse so many packets more, which the kernel delivers in its own time."""
        count += self._taken()

        def all_taken() -> bool:
            self.endpoint.pump()
            return self._taken() >= count

        eventually(all_taken, "packets do not arrive")

    def _taken(self) -> int:
        refused = self.endpoint._gate.refused
        # Over the rate are answers that it did not give, to what it has kept.
        return len(self.endpoint._received) + refused.total() - refused[Refusal.OVER_RATE]

    def answers(self) -> int:
        """Return how many answers have come: as many as the endpoint says that it sent, and any beside them."""
        self.sock.settimeout(PATIENCE_S)
        while self._answers < self.endpoint._next:
            self.sock.recv(100)
            self._answers += 1
        self.sock.settimeout(0)
        with contextlib.suppress(BlockingIOError):
            while True:
                self.sock.recv(100)
                self._answers += 1
        return self._answers


@pytest.fixture
def stranger() -> Iterator[Stranger]:
    made = Stranger()
    with made.sock, made.endpoint, stamping():
        yield made


def probe(number: int) -> bytes:
    return packet(SESSION, 1, Kind.PROBE, number)


@pytest.fixture(params=[LO, "::1"], ids=["4", "6"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    with ExitStack() as stack:
        stack.enter_context(stamping())
        opened = opener(stack)
        yield Pair(*(Remote(opened(), request.param, name) for name in ("one", "two")))


def test_both_directions_are_stamped_and_say_the_truth(pair: Pair) -> None:
    every = [pair.window(4, 2) for _ in range(2)]

    def all_there() -> Samples | None:
        samples = Samples.joined(every)
        if len(samples.there) + len(samples.back) == 16:
            return samples
        every.append(pair.window(0))  # what is late counts in a later one
        return None

    samples = eventually(all_there, "packets of the windows are missing")
    assert (len(samples.there), len(samples.back)) == (8, 8)
    assert (pair.lost, pair.windows_set, dict(pair.refused)) == (0, 0, {})
    assert (samples.there.received_ns > samples.there.sent_ns - samples.bound_ns).all()
    assert (samples.back.received_ns > samples.back.sent_ns - samples.bound_ns).all()
    curve = smooth(samples)
    converted = curve.convert(samples.there.sent_ns)
    assert (np.abs(converted.times_ns - samples.there.sent_ns) <= converted.bound_ns).all()


def stamped(pair: Pair, count: int, train: int) -> Samples:
    """Return a window with packets both ways: one that takes its time is in a later window."""
    for _ in range(100):
        samples = pair.window(count, train)
        if len(samples.there) and len(samples.back):
            return samples
        time.sleep(0.1)
    pytest.fail(f"no stamps: {dict(pair.refused)}, {pair.lost}, {pair.windows_set}")


def test_stamps_are_of_the_clock_of_traces(pair: Pair) -> None:
    before_ns = _monotonic_ns()
    samples = stamped(pair, 2, 1)
    assert before_ns - samples.bound_ns <= samples.there.sent_ns.min()
    assert samples.back.received_ns.max() <= _monotonic_ns() + samples.bound_ns


def test_sides_take_turns_and_keep_the_rate(pair: Pair) -> None:
    began_s, there, back = time.monotonic(), 0, 0
    for _ in range(20):  # a side that stood still for a second may send as if it had been silent
        samples = pair.window(30, 15)
        there, back = there + len(samples.there), back + len(samples.back)
        if pair.refused["over_rate"]:
            break
    assert pair.refused["over_rate"] > 0
    assert 30 <= max(there, back) <= 30 + 30 * (time.monotonic() - began_s)


class Far:
    """Between two peers on lo: each packet takes its time."""

    def __init__(self, one: Remote, other: Remote, delay_s: float) -> None:
        self._delay_s = delay_s
        self._ends = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
        for end in self._ends:
            end.bind((LO, 0))
            end.settimeout(0.005)
        self._to = [(LO, one.port), (LO, other.port)]
        # Each of the peers is told that the other one is at our end.
        one.port, other.port = self._ends[1].getsockname()[1], self._ends[0].getsockname()[1]
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._carry, args=(way,)) for way in (0, 1)]
        for thread in self._threads:
            thread.start()

    def _carry(self, way: int) -> None:
        waiting: list[tuple[float, bytes]] = []
        while not self._over.is_set():
            with contextlib.suppress(TimeoutError):
                data = self._ends[way].recv(100)
                waiting.append((time.monotonic() + self._delay_s, data))
            while waiting and waiting[0][0] <= time.monotonic():
                self._ends[1 - way].sendto(waiting.pop(0)[1], self._to[1 - way])

    def close(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()
        for end in self._ends:
            end.close()


def test_packets_that_are_on_their_way_for_longer_than_a_window_takes_count() -> None:
    with ExitStack() as stack:
        opened = opener(stack)
        sides = [Remote(opened(), LO, name) for name in ("one", "two")]
        far = Far(*sides, delay_s=0.12)
        stack.callback(far.close)
        pair = Pair(*sides)
        parts = []
        enough = False
        while not enough:
            parts.append(pair.window(4, 2))
            time.sleep(0.3)
            samples = Samples.joined(parts)
            enough = min(len(samples.there), len(samples.back), pair.answered) >= 12
    curve = smooth(samples)
    converted = curve.convert(curve.at_ns)
    assert (np.abs(converted.times_ns - curve.at_ns) <= converted.bound_ns).all()
    assert converted.bound_ns.min() >= 0.12e9


def test_packets_of_others_are_refused_counted_and_not_answered(stranger: Stranger) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.sendto(probe(0), stranger.address)
        stranger.take(1)
    garbled = bytearray(probe(0))
    garbled[-1] ^= 1
    stranger.send(bytes(garbled), b"", bytes(SIZE_BYTES + 1), bytes(65_000), packet(SESSION, 0, Kind.PROBE, 0))
    assert stranger.answers() == 0
    harvest = stranger.endpoint.harvest()
    assert harvest.refused == {"foreign": 1, "garbled": 1, "size": 3, "reflected": 1}
    assert not harvest.received


def test_duplicates_are_answered_once(stranger: Stranger) -> None:
    stranger.send(probe(0), probe(0), probe(2), probe(1))
    assert stranger.answers() == 2
    harvest = stranger.endpoint.harvest()
    assert [stamped.number for stamped in harvest.received] == [0, 2]
    assert len(harvest.sent) == 2
    assert harvest.refused == {"duplicate": 1, "reordered": 1}


def test_a_flood_of_probes_is_answered_no_faster_than_the_rate(
    stranger: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = time.monotonic()
    monkeypatch.setattr(exchange, "time", SimpleNamespace(monotonic=lambda: now_s))
    stranger.send(*(probe(number) for number in range(100)))
    assert stranger.answers() == 30  # two bursts
    now_s += 0.5
    stranger.send(*(probe(number) for number in range(100, 200)))
    assert stranger.answers() == 30 + 15
    assert stranger.endpoint.harvest().refused == {"over_rate": 200 - 45}


def test_without_replies_a_burst_ends(stranger: Stranger) -> None:
    assert stranger.endpoint.burst(4, 2) == 0
    assert len(stranger.endpoint.harvest().sent) == 4


def test_stamps_are_thrown_away_when_the_clock_was_set_meanwhile(
    stranger: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    stranger.send(probe(0))
    monkeypatch.setattr(stranger.endpoint._clock, "was_set", lambda: True)
    harvest = stranger.endpoint.harvest()
    assert harvest.was_set
    assert (harvest.sent, harvest.received, harvest.lost) == ([], [], 2)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ({"do": "format the disk"}, "no command"),
        ({}, "no command"),
        ({"do": "burst"}, "not met its peer"),
        ({"do": "take"}, "not met its peer"),
        ({"do": "open"}, "missing or wrong"),
        ({"do": "open", "address": "203.0.113.7"}, "nothing to bind to"),
        ({"do": "meet", "peer": [LO, 9], "token": "", "key": "", "role": 0}, "not open"),
    ],
)
def test_what_cannot_be_done_is_said(command: dict[str, Any], words: str) -> None:
    assert words in Peer().do(command)["error"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"token": "zz"},
        {"token": "00"},
        {"key": None},
        {"role": 2},
        {"peer": [LO]},
        {"peer": [LO, 70_000]},
        {"peer": ["localhost", 9]},
        {"role": 1e400},
        {"peer": None},
    ],
)
def test_a_wrong_field_is_said_and_the_right_one_still_works(wrong: dict[str, Any]) -> None:
    right = {"peer": [LO, 9], "token": SESSION.token.hex(), "key": SESSION.key.hex(), "role": 0}
    peer = Peer()
    try:
        assert "port" in peer.do({"do": "open", "address": LO})
        assert "error" in peer.do({"do": "meet", **right, **wrong})
        assert peer.do({"do": "meet", **right}) == {}
        assert "error" in peer.do({"do": "burst", "count": 10**6})
        assert "error" in peer.do({"do": "burst", "train": 0})
    finally:
        peer.close()


class Scripted:
    """A line to a peer that answers what it likes."""

    def __init__(self, **answers: object) -> None:
        self._answers = answers

    def send(self, message: Mapping[str, Any]) -> None:
        self._asked = message["do"]

    def receive(self, _timeout_s: float | None = None) -> dict[str, Any]:
        usual = OPENED if self._asked == "open" else HARVEST
        return {**usual, **self._answers}

    def close(self) -> None:
        pass


OPENED: dict[str, Any] = {"port": 9, "host": "x", "bound_ns": 0}
CLOCK: dict[str, Any] = {
    "at_ns": 1,
    "rate": 0.0,
    "synchronized": True,
    "max_error_ns": 0,
    "estimated_error_ns": 0,
    "tai_offset_s": 37,
    "to_monotonic": [-5, 0],
    "phcs": [],
}
HARVEST: dict[str, Any] = {
    "sent": [],
    "received": [],
    "bound_ns": 0,
    "was_set": False,
    "lost": 0,
    "refused": {},
    "answered": 0,
    "clock": CLOCK,
    "nic_sent": [],
    "nic_received": [],
    "nic_bound_ns": 0,
}


def scripted(**answers: object) -> Remote:
    return Remote(Scripted(**answers), LO)


@pytest.mark.parametrize(
    "wrong",
    [
        {"sent": 1},
        {"sent": [[1]]},
        {"sent": [[1, "2"]]},
        {"sent": [[1, 1 << 70]]},
        {"sent": [[1, 1.5]]},
        {"received": [[0, 0]] * 5000},
        {"lost": None},
        {"refused": []},
        {"refused": {"because": 1}},
        {"bound_ns": True},
        {"nic_sent": None},
        {"nic_received": [[1]]},
        {"nic_bound_ns": 0.5},
        {"clock": None},
        {"clock": {**CLOCK, "rate": "fast"}},
        {"clock": {**CLOCK, "rate": float("nan")}},
        {"clock": {**CLOCK, "at_ns": 0.5}},
        {"clock": {**CLOCK, "to_monotonic": [1]}},
        {"clock": {**CLOCK, "to_monotonic": [1, None]}},
        {"clock": {**CLOCK, "phcs": None}},
        {"clock": {**CLOCK, "phcs": [["ptp0", 1, 2]]}},
        {"clock": {**CLOCK, "phcs": [["ptp0", 1, 2, "3"]]}},
        {"clock": {**CLOCK, "phcs": [["ptp0", 1, 2, 3]] * 99}},
    ],
)
def test_a_peer_that_answers_nonsense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(FormatError):
        Pair(scripted(), scripted(**wrong)).window()


FOUR = {"nic_sent": [[1, 1_000], [2, 2_000]], "nic_received": [[1, 1_500], [2, 2_500]], "nic_bound_ns": 300}


def test_stamps_of_nics_are_used_where_both_have_them_both_ways() -> None:
    samples = Pair(scripted(**FOUR), scripted(**FOUR)).window()
    assert samples.by_nics
    assert samples.there.sent_ns.tolist() == [1_000, 2_000]
    assert samples.back.received_ns.tolist() == [1_500, 2_500]
    assert samples.bound_ns == 10 + 300 + 300


@pytest.mark.parametrize("missing", [{"nic_sent": []}, {"nic_received": []}, {"nic_received": [[9, 1_500]]}])
@pytest.mark.parametrize("side", [0, 1])
def test_one_kind_of_stamp_that_is_missing_leaves_the_kernels(missing: dict[str, Any], side: int) -> None:
    software = {"sent": [[3, 100]], "received": [[3, 900]], "bound_ns": 7}
    answers = [{**software, **FOUR}, {**software, **FOUR}]
    answers[side] |= missing
    samples = Pair(*(scripted(**answer) for answer in answers)).window()
    assert not samples.by_nics
    assert (samples.there.sent_ns.tolist(), samples.back.received_ns.tolist()) == ([100], [900])
    assert samples.bound_ns == 10 + 7 + 7


def test_a_peer_that_could_not_says_why() -> None:
    with pytest.raises(HopscopeError, match=r"127\.0\.0\.1: no way\?\[2J"):
        scripted(error="no way\x1b[2J")


def test_a_peer_that_has_gone_is_said() -> None:
    ours, theirs = line()
    theirs.close()
    with pytest.raises(HopscopeError, match=r"far ended the comparison"):
        Remote(ours, LO, "far")


def test_a_peer_that_hangs_is_not_waited_for_for_ever() -> None:
    ours, _theirs = line()
    with pytest.raises(HopscopeError, match=r"far did not answer for 0\.05 s"):
        Remote(ours, LO, "far", answer_s=0.05)


def test_a_packet_that_is_late_counts_in_a_later_window_and_one_that_never_comes_is_lost() -> None:
    matcher = _Matcher()
    assert len(matcher.match({0: 10, 1: 20}, {0: 15})) == 1
    assert len(matcher.match({}, {1: 90})) == 1
    assert matcher.take_lost() == 0
    matcher.match({2: 30}, {})
    matcher.match({200: 300}, {200: 310})
    assert matcher.take_lost() == 1
    assert len(matcher.match({}, {2: 40})) == 0


def test_what_somebody_does_to_a_clock_is_told_between_two_windows() -> None:
    answers = dict(HARVEST)
    pair = Pair(scripted(), Remote(_Changing(answers), LO))
    pair.window()
    assert pair.changes == (None, None)
    answers["clock"] = {**CLOCK, "at_ns": 7, "rate": 5e-7, "to_monotonic": [-1005, 0]}
    pair.window()
    assert pair.changes == (None, Change(1, 7, 5e-7, 1000))
    pair.window()
    assert pair.changes == (None, None)


class _Changing(Scripted):
    """What it answers can be changed."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self._answers = answers


def _monotonic_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)
