# SPDX-License-Identifier: Apache-2.0
"""Recordings follow what TCP Fast Open sends in the SYN, and name the calls of MPTCP as not followed."""

from __future__ import annotations

import contextlib
import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.lab.command import hopscope, start
from tests.lab.measure import ping
from tests.lab.opening import fast_open_listener, mptcp_pair, send_fast_open
from tests.waiting import TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hopscope.lab import Lab

pytestmark = pytest.mark.root

_CONNECTIONS = 3
_WAYS = ("sendto", "connect", "nonblocking")
# Of the path of a message that left in the SYN; the socket that gets it is made of the same packet.
_SEEN = ("tx_queue_ns", "tx_start_ns", "rx_driver_ns", "rx_core_ns", "rx_l4_ns", "rx_read_ns", "rx_received_ns")


@contextlib.contextmanager
def recorded(lab: Lab, folder: Path) -> Iterator[None]:
    """Record the lab while the body runs."""
    only = (f"--netns={each.inode}" for each in (lab.client, lab.server))
    recorder = start("record", "-o", folder, "-P", "messages", "--counters", 0, *only)
    while not (folder / "hopscope.json").exists():
        assert recorder.poll() is None, recorder.communicate()
        time.sleep(0.02)
    yield
    recorder.send_signal(2)
    _, said = recorder.communicate(timeout=TIMEOUT_S)
    assert recorder.returncode == 0, said
    assert "none lost" in said


def messages(folder: Path) -> list[dict[str, Any]]:
    done = hopscope("report", "messages", "--json", "--limit", "0", folder)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_messages_in_a_syn_are_sent_leave_and_are_read(lab: Lab, tmp_path: Path) -> None:
    with fast_open_listener(lab) as listener, recorded(lab, tmp_path / "trace"):
        for how in _WAYS:
            for _ in range(_CONNECTIONS):
                send_fast_open(lab, listener, how, [bytes(100), bytes(50)])
    rows = messages(tmp_path / "trace")
    assert sorted(row["len_bytes"] for row in rows) == [50] * 9 + [100] * 9
    unseen = [(row["len_bytes"], name) for row in rows for name in _SEEN if row[name] is None]
    assert unseen == []


def test_calls_of_mptcp_are_named_as_not_followed(lab: Lab, tmp_path: Path) -> None:
    with recorded(lab, tmp_path / "trace"), mptcp_pair(lab) as (sender, receiver):
        ping(sender, receiver, _CONNECTIONS)
    for words in (("report", "messages"), ("report", "requests"), ("explain",)):
        done = hopscope(*words, tmp_path / "trace")
        said = " ".join((done.stdout + done.stderr).split())
        assert "3 send calls and 3 receive calls on MPTCP sockets, which are not among the messages" in said
        assert "sent anything" not in said
        assert "no answered requests" not in said
