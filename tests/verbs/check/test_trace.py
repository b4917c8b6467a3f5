# SPDX-License-Identifier: Apache-2.0
"""``hopscope check TRACE``: what was wrong while it was recorded."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from hopscope.lab.veth import SERVER_IPV4
from hopscope.model.counters.readings import Readings
from tests.lab.command import complaint, hopscope, objects, only
from tests.lab.counter_traces import written

if TYPE_CHECKING:
    from pathlib import Path

    from hopscope.lab import Lab

LOST = 211
# How many datagrams fit depends on the kernel's sizes.
_OVERFLOW = f"""
import socket
receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
receiver.bind(("{SERVER_IPV4}", 0))
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sender.connect(receiver.getsockname())
drops = lambda: sum(int(line.split()[-1]) for line in list(open("/proc/net/udp"))[1:])
while drops() < {LOST}:
    sender.send(bytes(1000))
"""


@pytest.mark.root
def test_what_was_lost_while_recording_is_found_with_its_count(kept_lab: Lab, tmp_path: Path) -> None:
    folder = tmp_path / "trace"
    inside = ["nsenter", f"--net=/proc/{kept_lab.server.pid}/ns/net", sys.executable, "-c", _OVERFLOW]
    assert hopscope("record", "-o", folder, "-P", "drops", *only(kept_lab), "--", *inside).returncode == 0
    done = hopscope("check", "--json", "--severity", "warning", folder)
    assert done.returncode in {3, 4}
    (found,) = [each for each in objects(done.stdout) if each.get("id", "").startswith("udp-")]
    assert found["id"] == "udp-receive-buffer"
    assert [each["by"] for each in found["evidence"] if each["counter"] == "UdpRcvbufErrors"] == [LOST]


def test_a_trace_without_counters_says_how_to_have_them(tmp_path: Path) -> None:
    done = hopscope("check", written(tmp_path / "t", [Readings(1, 2, {})]))
    assert complaint(done, 2).startswith(f"{tmp_path / 't'} has only one reading of the counters, but two are needed. ")


@pytest.mark.parametrize("option", [("-d", 3), ("--netns", "host")])
def test_what_was_recorded_cannot_be_chosen_anew(tmp_path: Path, option: tuple[object, ...]) -> None:
    done = hopscope("check", *option, tmp_path)
    assert "cannot be combined with a TRACE, which covers what was recorded" in complaint(done, 2)
