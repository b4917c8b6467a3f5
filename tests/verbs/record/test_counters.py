# SPDX-License-Identifier: Apache-2.0
"""``hopscope record --counters``: what the kernel counted meanwhile is in the trace."""

from __future__ import annotations

import socket
import sys
import time
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from hopscope.kernel.counters.reader import CounterReader
from hopscope.lab.veth import SERVER_IPV4
from hopscope.store.meta import Metadata
from hopscope.store.trace import Trace
from hopscope.store.writer import TraceWriter
from hopscope.trace.recorded_counters import first_and_last, times
from hopscope.verbs.record.counters import CounterLog
from tests.lab.command import hopscope, objects, only
from tests.lab.counter_traces import counted
from tests.verbs.record.test_command import sending

if TYPE_CHECKING:
    from pathlib import Path

    from hopscope.lab import Lab
    from hopscope.trace.recorded_counters import Columns

pytestmark = pytest.mark.root


def test_what_was_sent_is_counted_to_the_last_datagram(kept_lab: Lab, tmp_path: Path) -> None:
    folder = tmp_path / "trace"
    done = hopscope("record", "-o", folder, *only(kept_lab), "--", *sending(kept_lab, 1009))
    assert done.returncode == 0, done.stderr
    rows = objects(hopscope("report", "counters", "--json", folder).stdout)
    found = {row["name"]: row["count"] for row in rows if (row["netns"] or "").startswith(f"{kept_lab.server.pid} ")}
    assert {name: found[name] for name in ("UdpInDatagrams", "UdpOutDatagrams", "IpInReceives", "IpOutRequests")} == {
        "UdpInDatagrams": 1009, "UdpOutDatagrams": 1009, "IpInReceives": 1009, "IpOutRequests": 1009,
    }  # fmt: skip
    with Trace(folder) as trace:
        first, last = first_and_last(trace)
        assert counted(first, last, kept_lab.server.inode, "snmp")["UdpInDatagrams"] == 1009
        assert kept_lab.client.inode in last.namespaces
        assert first.words, "settings are read, too"
        assert last.words == first.words


def test_readings_are_as_often_as_asked_for(kept_lab: Lab, tmp_path: Path) -> None:
    folder = tmp_path / "trace"
    command = [sys.executable, "-c", "import time; time.sleep(2)"]
    hopscope("record", "-o", folder, "--counters", 0.5, *only(kept_lab), "--", *command)
    with Trace(folder) as trace:
        began = [begin for begin, _ in times(trace)]
        gaps = [after - before for before, after in pairwise(began)]
    assert len(began) >= 2  # on a busy machine it is rarer than asked for
    assert all(gap >= 450_000_000 for gap in gaps[:-1])  # the last one comes when it ends


def test_they_can_be_left_out(kept_lab: Lab, tmp_path: Path) -> None:
    folder = tmp_path / "trace"
    done = hopscope("record", "-o", folder, "--counters", 0, *only(kept_lab), "--", *sending(kept_lab, 3))
    assert done.returncode == 0, done.stderr
    with Trace(folder) as trace:
        assert times(trace) == []
    said = hopscope("report", "counters", folder)
    assert said.returncode == 0
    assert "counters were not recorded" in said.stdout


def test_a_flight_recorder_has_counters_from_its_first_to_its_last(kept_lab: Lab, tmp_path: Path) -> None:
    folder = tmp_path / "trace"
    done = hopscope(
        "record", "-o", folder, "--flight", 1, "--counters", 0.2, *only(kept_lab), "--", *sending(kept_lab, 7)
    )
    assert done.returncode == 0, done.stderr
    with Trace(folder) as trace:
        assert 2 <= len(times(trace)) <= 62  # fewer than asked for where the machine is busy
        first, last = first_and_last(trace)
        assert kept_lab.server.inode in last.namespaces
        assert last.words == first.words


def test_of_a_flight_recorder_only_the_last_seconds_count(kept_lab: Lab, tmp_path: Path) -> None:
    """Of one source alone, so that reading takes no time to speak of."""
    found: list[tuple[str, Columns]] = []
    stamps: list[tuple[int, int]] = []

    def send(count: int) -> None:
        for _ in range(count):
            before_ns = time.monotonic_ns()
            sock.send(b"x")
            sock.recv(1)
            stamps.append((before_ns, time.monotonic_ns()))

    with (
        kept_lab.server.call(socket.socket, socket.AF_INET, socket.SOCK_DGRAM) as sock,
        CounterReader([kept_lab.server.inode], ["snmp"]) as reader,
    ):
        sock.bind((SERVER_IPV4, 0))
        sock.connect(sock.getsockname())
        log = CounterLog(reader, found.extend, 0.05, last_s=0.5)
        log.start()
        send(7)
        time.sleep(2)
        assert not found, "nothing is handed out before the end"
        send(1)
        log.finish()
    with TraceWriter(tmp_path / "trace", Metadata("1", 0, 0, {})) as writer:
        for table, columns in found:
            writer.append(table, columns)
    with Trace(tmp_path / "trace") as trace:
        (begin_ns, until_ns), *later = times(trace)
        first, last = first_and_last(trace)
    assert all(begin >= later[-1][0] - 500_000_000 for begin, _ in later)
    # The first says what was counted before those seconds: on a busy machine it may be an old one.
    least = sum(before > until_ns for before, _ in stamps)
    most = sum(after > begin_ns for _, after in stamps)
    assert least <= counted(first, last, kept_lab.server.inode, "snmp")["UdpInDatagrams"] <= most


def test_a_negative_interval_is_refused() -> None:
    done = hopscope("record", "--counters", -1)
    assert done.returncode == 2
    assert "--counters" in done.stderr
