# SPDX-License-Identifier: Apache-2.0
"""``hopscope record --flight``: what is written, when, and what ends it."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from hopscope.lab.veth import SERVER_IPV4
from hopscope.store.trace import Trace
from tests.lab.command import complaint, ended, hopscope, links, only, start
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from hopscope.lab import Lab

pytestmark = pytest.mark.root
# Nobody listens there.
_PORT = 7778


def sending(kept_lab: Lab, count: int, pause_s: float = 0) -> list[str]:
    """Return the words of a program that sends datagrams, which are all dropped, and goes on for long."""
    code = f"""
import socket, time
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
time.sleep({pause_s})
for _ in range({count}):
    try:
        sender.sendto(b"x", ("{SERVER_IPV4}", {_PORT}))
    except OSError:
        pass
print("sent", flush=True)
time.sleep(20)
"""
    return ["nsenter", f"--net=/proc/{kept_lab.client.pid}/ns/net", sys.executable, "-c", code]


def test_drop_ends_it_with_what_came_before(kept_lab: Lab, tmp_path: Path) -> None:
    folder = tmp_path / "trace"
    done = hopscope(
        *("record", "-o", folder, "--flight", 5, "--trigger", "drop", *only(kept_lab)),
        "--",
        *sending(kept_lab, 3, pause_s=0.3),
    )
    assert done.returncode == 0, done.stderr
    assert "trigger: drop" in done.stderr.splitlines()
    with Trace(folder) as trace:
        assert trace.metadata.options["trigger"] == "drop"
        assert trace.metadata.state == "complete"
        ((sent, dropped),) = trace.rows(
            "SELECT count(*) FILTER (name = 'tx.queue'), count(*) FILTER (name = 'skb.drop')"
            " FROM packets JOIN points USING (point)"
        )
    assert sent >= dropped >= 1


@pytest.mark.parametrize("number", [signal.SIGQUIT, signal.SIGINT, signal.SIGTERM])
def test_signal_writes_what_is_kept(kept_lab: Lab, tmp_path: Path, number: signal.Signals) -> None:
    folder = tmp_path / "trace"
    child = start("record", "-o", folder, "--flight", 60, *only(kept_lab))
    eventually(lambda: len(links(child)) > 8 and (folder / "hopscope.json").exists(), "it does not record")
    with kept_lab.client.popen(sending(kept_lab, 7)[2:], stdout=subprocess.PIPE, text=True) as sender:
        assert sender.stdout.readline() == "sent\n"
        child.send_signal(number)
        code, _, said = ended(child)
        sender.kill()
    assert code == 0, said
    with Trace(folder) as trace:
        assert trace.metadata.state == "complete"
        assert trace.rows("SELECT count(*) FROM drops") == [(7,)]


def test_trigger_without_flight_is_one_sentence(tmp_path: Path) -> None:
    assert "--flight" in complaint(hopscope("record", "-o", tmp_path / "t", "--trigger", "drop"), 2)


def test_wrong_trigger_is_one_sentence(tmp_path: Path) -> None:
    done = hopscope("record", "-o", tmp_path / "t", "--flight", 1, "--trigger", "dropped")
    assert "dropped is not a trigger" in complaint(done, 2)
    assert not (tmp_path / "t").exists()
