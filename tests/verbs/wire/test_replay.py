# SPDX-License-Identifier: Apache-2.0
"""A recording that is played is the same events, in their own time, or so many times faster."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from importlib import import_module
from typing import TYPE_CHECKING

import numpy as np
import pytest

from hopscope.live.wire.arrivals import Arrivals
from hopscope.live.wire.layout import ETHERTYPE
from hopscope.store.trace import Trace
from hopscope.verbs.wire.replay import Replay
from tests.lab.command import HOPSCOPE, complaint, environ, hopscope
from tests.live.wired import RECORDINGS, Sender, require_same, taken
from tests.waiting import eventually

if TYPE_CHECKING:
    from hopscope.lab import Namespace

_SO_RCVBUFFORCE = 33


@pytest.mark.parametrize("speed", [1.0, 8.0])
def test_events_come_in_their_own_time_or_faster(speed: float, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    with Trace(RECORDINGS / "tcp-rx") as trace:
        times = np.sort(trace.columns("SELECT time_ns FROM packets")["time_ns"])
        started_ns = trace.metadata.started_ns
    had = 0
    with Replay(RECORDINGS / "tcp-rx", speed, 3.0) as replay:
        while not replay.ended:
            rows = [columns for table, columns in replay.read() if table == "packets"]
            had += sum(len(columns["time_ns"]) for columns in rows)
            until_ns = started_ns + max(now_s - 1003.0, 0) * speed * 1e9
            assert had == np.searchsorted(times, min(until_ns, replay.now_ns()))
            assert replay.now_ns() == pytest.approx(until_ns, abs=1) or replay.ended
            now_s += 0.01
    assert had == len(times)


def test_events_that_are_due_come_in_parts_however_many_there_are_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    replays = import_module("hopscope.verbs.wire.replay")
    monkeypatch.setattr(replays, "_MOST_ROWS", 3)
    had, most = [], 0
    with Replay(RECORDINGS / "tcp-rx", 1e6, 0.0) as replay:
        while not replay.ended:
            rows = [columns["time_ns"] for table, columns in replay.read() if table == "packets"]
            had += [time for each in rows for time in each.tolist()]
            most = max([most, *map(len, rows)])
    with Trace(RECORDINGS / "tcp-rx") as trace:
        times = np.sort(trace.columns("SELECT time_ns FROM packets")["time_ns"])
    assert had == times.tolist()
    assert most <= max(3, *np.unique(times, return_counts=True)[1])


@pytest.mark.root
def test_what_is_played_is_what_was_recorded(quiet: Namespace) -> None:
    words = ("wire", str(RECORDINGS / "events"), "--full", "--speed=50", "--wait=4")
    child = quiet.popen([*HOPSCOPE, *words], stderr=subprocess.PIPE, env=environ(), text=True)
    eventually(lambda: "hop0" in {name for _, name in quiet.call(socket.if_nameindex)}, "no interface")
    frames = []
    with quiet.call(socket.socket, socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHERTYPE)) as packets:
        packets.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 8 << 20)
        packets.settimeout(0.2)
        while child.poll() is None:
            with contextlib.suppress(TimeoutError, OSError):
                frames.append(packets.recv(2000))
    sender, arrivals = Sender("events"), Arrivals()
    _, said = child.communicate()
    assert child.returncode == 0, said
    assert f"{len(sender.frames):,} events sent to hop0" in said
    found = taken(arrivals, [frames])
    assert (arrivals.lost, arrivals.twice, arrivals.not_understood) == (0, 0, 0)
    # The flow is that of the packet, also where its headers were not looked at.
    for rows in (sender.rows, found):
        del rows["packets"]["flow"]
    require_same(sender.rows, found)


def test_what_does_not_go_together_is_refused() -> None:
    assert "--port=53 is about what is recorded" in complaint(hopscope("wire", RECORDINGS / "udp", "--port=53"), 2)
    assert "--speed and --wait are about a recording" in complaint(hopscope("wire", "--speed=2"), 2)
    with pytest.raises(Exception, match="several hosts"), Replay(RECORDINGS / "two-hosts", 1, 0):
        pass
