# SPDX-License-Identifier: Apache-2.0
"""Recordings within a budget: what each says of its own time, and what is not asked for together."""

from __future__ import annotations

import signal
import threading
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest

from hopscope.live.recorder.collector import Recorder
from hopscope.live.recorder.options import RecordOptions
from hopscope.store.fleet.raw import Raw
from hopscope.store.trace import Trace
from hopscope.verbs.record import slices
from hopscope.verbs.record.pipeline import Limits
from tests.lab.command import attached, complaint, hopscope, start
from tests.lab.measure import udp_pair, way
from tests.waiting import TIMEOUT_S, eventually

if TYPE_CHECKING:
    from pathlib import Path
    from socket import socket

    from hopscope.lab import Lab

pytestmark = pytest.mark.root
# The rings are read for the last time after all that is recorded came.
EDGE_NS = 2_000_000


def send_until(over: threading.Event, sender: socket, stamps: list[int]) -> None:
    """Send datagrams, and take down when."""
    while not over.wait(0.001):
        stamps.append(time.monotonic_ns())
        sender.send(b"x" * 100)


def of_lab(lab: Lab) -> RecordOptions:
    return RecordOptions(profiles=["messages"], namespaces=[lab.client.inode, lab.server.inode])


def test_each_recording_has_all_of_its_own_time(
    kept_lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(slices, "_MOST_S", 0.8)
    options = of_lab(kept_lab)
    stamps: list[int] = []
    over = threading.Event()
    with udp_pair(way(kept_lab, "veth-4")) as (sender, receiver):
        port = receiver.getsockname()[1]
        thread = threading.Thread(target=send_until, args=(over, sender, stamps))
        thread.start()
        slices.record_slices(
            Recorder(options), Raw(tmp_path), 100, Limits(4.0), mode=0o640, with_counters=True, command=()
        )
        over.set()
        thread.join()
    leaves, foreign = Raw(tmp_path).leaves()
    assert len(leaves) > 1
    assert foreign == []
    sent, whole_s, events = np.array(stamps), 0.0, 0
    before_ns = 0
    for leaf in leaves:
        with Trace(leaf.folder) as trace:
            assert trace.metadata.state == "complete"
            began_ns, ended_ns = trace.metadata.started_ns, trace.metadata.ended_ns
            assert ended_ns
            assert before_ns < began_ns  # one after the other
            before_ns, whole_s = ended_ns, whole_s + (ended_ns - began_ns) / 1e9
            queued = trace.columns(
                f"SELECT time_ns FROM packets JOIN (SELECT DISTINCT flow FROM flows WHERE destination_port = {port}) f"
                " USING (flow) JOIN points USING (point) WHERE name = 'tx.queue' ORDER BY time_ns"
            )["time_ns"]
            assert began_ns <= queued[0] <= queued[-1] <= ended_ns + EDGE_NS
            # Each is queued before the next one is sent: none is missing, and none that could have been is left out.
            of = np.searchsorted(sent, queued) - 1
            assert np.array_equal(of, np.arange(of[0], of[0] + len(of)))
            assert of[0] == 0 or sent[of[0] - 1] < began_ns
            assert sent[min(of[-1] + 2, len(sent) - 1)] > ended_ns - EDGE_NS
            assert leaf.folder.stat().st_mode & 0o777 == 0o750
            events += sum(trace.rows(f"SELECT count(*) FROM {table}")[0][0] for table in ("packets", "sockets", "cpu"))
    said = capsys.readouterr().err.splitlines()
    assert said[-1] == f"hopscope fleet report hops {tmp_path}"
    assert said[-2].startswith(f"{events:,} events in {len(leaves)} recordings, {whole_s:.1f} s of ")


def test_nothing_is_attached_while_it_waits(tmp_path: Path) -> None:
    # At once it may take 20 ms of CPU time, and a recording takes more.
    child = start("record", "--budget", 0.1, "--counters", 0, "-o", tmp_path)
    eventually(lambda: Raw(tmp_path).leaves()[0] if (tmp_path / "raw").exists() else [], "no recording is complete")
    eventually(lambda: not attached(child), "programs stay attached")
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=TIMEOUT_S)
    assert child.returncode == 0
    assert " in 1 recording, " in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "--budget makes many recordings, and needs a directory for them. Give one: -o DIR"),
        (["-o", "t", "--flight", 5], "--budget measures a part, which --flight cannot have"),
        (["-o", "t", "-e", "net:*"], "--budget measures a part, which --event cannot have"),
        (["-o", "t", "--wire", "lo"], "--budget measures a part, which --wire cannot have"),
    ],
)
def test_what_cannot_be_recorded_in_part(words: list[object], said: str) -> None:
    assert said in complaint(hopscope("record", "--budget", 1, *words), 2)
