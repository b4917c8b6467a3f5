# SPDX-License-Identifier: Apache-2.0
"""Full rings, several recordings at once, and a sudden end."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest

from hopscope.live.recorder.collector import Recorder
from hopscope.live.recorder.options import RecordOptions
from tests.lab.measure import assert_killed_leaves_nothing, ping, tcp_pair, udp_pair, way
from tests.verbs.record.measure import Seen, recording
from tests.waiting import eventually

if TYPE_CHECKING:
    import socket

    from hopscope.lab import Lab

pytestmark = pytest.mark.root

HOLDER = """
import time
from hopscope.live.recorder.collector import Recorder
from hopscope.live.recorder.options import RecordOptions
with Recorder(RecordOptions(profiles=["all"])):
    print("attached", flush=True)
    time.sleep(60)
"""
POINTS = ("tx.queue", "tx.start", "rx.driver", "rx.core")


def test_what_a_full_ring_loses_is_counted(kept_lab: Lab) -> None:
    path = way(kept_lab, "veth-4")
    with udp_pair(path) as flow:
        options = RecordOptions(profiles=(), points=POINTS, ports=[flow[1].getsockname()[1]], ring_bytes=4096)
        with Recorder(options) as recorder:
            seen = Seen(recorder)
            # Flows, threads and devices are told of with the first: from there on there are events alone.
            assert ping(*flow, 7) == 7
            seen.forget()
            assert recorder.lost == 0
            before_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
            assert ping(*flow, 1009) == 1009
            after_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
            assert recorder.fullness() > 0.9
            seen.take()
            events, losses = len(seen.rows("packets")), seen.rows("losses")
            assert 0 < events < 1009
            assert events + recorder.lost == 1009 * len(POINTS)
            assert losses["lost"].sum() == recorder.lost
            assert len(set(losses["cpu"])) == len(losses) >= 1
            assert set(losses["cpu"]) <= set(seen.rows("packets")["cpu"])
            assert (losses["from_ns"] <= before_ns).all()
            assert (losses["until_ns"] >= after_ns).all()
            assert recorder.fullness() < 0.1
            # What was read makes room again, and nothing is said a second time.
            seen.forget()
            lost = recorder.lost
            assert ping(*flow, 7) == 7
            assert seen.take().counts() == dict.fromkeys(POINTS, 7)
            assert recorder.lost == lost
            assert len(seen.rows("losses")) == len(losses)


def test_a_drop_has_its_time_though_its_packet_was_lost(kept_lab: Lab) -> None:
    with udp_pair(way(kept_lab, "veth-4")) as flow:
        port = flow[1].getsockname()[1]
        flow[1].close()
        # 4096 bytes have room for 63 records of 64: a drop has two, so that the last one's packet or itself is lost.
        options = RecordOptions(profiles=("drops",), ports=[port], ring_bytes=4096)
        with Recorder(options) as recorder:
            seen = Seen(recorder)
            for _ in range(211):
                try:
                    flow[0].send(b"x")
                except ConnectionRefusedError:
                    flow[0].send(b"x")
            seen.take()
            assert recorder.lost > 0
            times = seen.rows("drops")["time_ns"]
            assert len(times)
            assert (times > 0).all()


def test_two_recordings_at_once_both_see_everything(kept_lab: Lab) -> None:
    path = way(kept_lab, "lo-6")
    with udp_pair(path) as udp, tcp_pair(path) as tcp, recording(kept_lab) as first:
        with recording(None, ports=[udp[1].getsockname()[1]]) as second:
            assert ping(*udp, 211) + ping(*tcp, 23) == 234
            counts = second.take().counts()
            assert {counts[point] for point in ("tx.queue", "tx.start", "tx.driver", "rx.driver", "rx.core")} == {211}
        assert ping(*udp, 23) == 23
        flow = first.take().flow_of(udp[0])
    assert first.counts(flow=flow)["rx.driver"] == first.counts(flow=flow)["tx.queue"] == 234


def test_all_that_happens_since_the_start_is_recorded_on_every_cpu(kept_lab: Lab) -> None:
    sent: list[int] = []  # since when each may have been on its way
    done = threading.Event()

    def send(flow: tuple[socket.socket, socket.socket], cpu: int) -> None:
        os.sched_setaffinity(0, {cpu})
        while not done.is_set():
            before_ns = time.monotonic_ns()
            assert ping(*flow, 1) == 1
            sent.append(before_ns)
            time.sleep(0.0005)

    path = way(kept_lab, "veth-4")
    with contextlib.ExitStack() as stack:
        flows = [stack.enter_context(udp_pair(path)) for _ in os.sched_getaffinity(0)]
        stack.callback(done.set)
        threads = [
            threading.Thread(target=send, args=each)
            for each in zip(flows, sorted(os.sched_getaffinity(0)), strict=True)
        ]
        for thread in threads:
            thread.start()
        with recording(kept_lab, profiles=(), points=("tx.queue",)) as seen:
            started_ns = seen.recorder.started_ns
            eventually(lambda: sum(before_ns >= started_ns for before_ns in list(sent)) > 7)
            done.set()
            for thread in threads:
                thread.join()
            times = seen.take().rows("packets")["time_ns"]
    assert (times >= started_ns).all()
    late = sum(before_ns >= started_ns for before_ns in sent)
    # Of each CPU, one may have been on its way when it began.
    assert late > 7
    assert late <= len(times) <= late + len(flows)


def test_events_before_the_start_are_no_loss_and_none_is_seen_twice(kept_lab: Lab) -> None:
    with udp_pair(way(kept_lab, "veth-4")) as flow:
        assert ping(*flow, 211) == 211
        with recording(kept_lab) as seen:
            started_ns = seen.recorder.started_ns
            seen.take()
            for _ in range(23):
                assert ping(*flow, 7) == 7
                seen.take()
            packets = seen.at("rx.driver")
    assert len(packets) == 7 * 23
    assert (packets["time_ns"] >= started_ns).all()
    assert len(np.unique(packets["time_ns"])) == 7 * 23


def test_a_killed_recording_leaves_nothing_attached() -> None:
    assert_killed_leaves_nothing(HOLDER)
