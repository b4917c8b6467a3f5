# SPDX-License-Identifier: Apache-2.0
"""The screen in a real terminal over real traffic: tmux shows what a user sees."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import sys
from typing import TYPE_CHECKING

import pytest

from hopscope.lab import Lab
from hopscope.lab.veth import SERVER_IPV4
from hopscope.store.trace import Trace
from tests import leftovers
from tests.lab.command import HOPSCOPE
from tests.lab.tmux import Tmux
from tests.shared import first
from tests.waiting import eventually, state

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(not shutil.which("tmux"), reason="tmux shows what a terminal shows"),
]
DATAGRAMS = 23
PORT = 7777


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Tmux]:
    with contextlib.closing(Tmux(tmp_path)) as made:
        yield made


def start(terminal: Tmux, folder: Path, *words: object) -> int:
    """Start `top` in the terminal; return its process's number when all verbs are attached."""
    line = " ".join([*HOPSCOPE, "top", *map(str, words)])
    terminal.keys(f"sh -c 'echo $$ >{folder}/pid; exec {line}'", "Enter")
    eventually(lambda: re.search(r"findings +\w", terminal.text()) and "attached" not in terminal.text())
    return int((folder / "pid").read_text())


SEND = f"""
import socket
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
    one.bind(("{SERVER_IPV4}", {PORT}))
    for _ in range({DATAGRAMS}):
        one.sendto(b"x", ("{SERVER_IPV4}", {PORT}))
        one.recv(9)
"""


def test_it_shows_what_was_sent(terminal: Tmux, tmp_path: Path) -> None:
    with Lab() as lab:
        start(terminal, tmp_path, "-i", 3, "--port", PORT)
        terminal.until(r"rx +no packets")
        # The line of rx may be anywhere: the worst is the first.
        for _ in range(6):
            if re.search(r"(?m)^> rx", terminal.text()):
                break
            terminal.keys("Down")
        terminal.keys("Enter")
        shown_s = terminal.until(r"\+([\d.]+) s")[1]
        eventually(lambda: terminal.until(r"\+([\d.]+) s")[1] != shown_s)
        lab.server.run([sys.executable, "-c", SEND], check=True)
        terminal.until(rf"rx\.udp_total +{DATAGRAMS} ")
        # The groups of a hop, and the slowest messages of a group, which are measured only now.
        forever = SEND.replace(f"range({DATAGRAMS})", "iter(int, 1)")
        with lab.server.popen([sys.executable, "-c", forever]) as sender:
            terminal.keys("Enter")
            terminal.until("(?m)^> lo@")
            terminal.keys("Enter")
            terminal.until(rf"slowest messages of lo@(.*\n)*.*> {SERVER_IPV4}:{PORT}")
            sender.kill()
        terminal.keys("Space")
        terminal.until("paused")
        terminal.keys("q")
        eventually(lambda: not terminal.alternate(), "the alternate screen is left")


@pytest.mark.parametrize("number", first([signal.SIGKILL, signal.SIGTERM, signal.SIGHUP]))
def test_a_signal_leaves_terminal_and_kernel_as_before(terminal: Tmux, tmp_path: Path, number: int) -> None:
    settings = terminal.settings()
    pid = start(terminal, tmp_path)
    held = leftovers.held_by([pid])
    assert terminal.settings() != settings
    os.kill(pid, number)
    eventually(lambda: not state(pid), "it goes on")
    eventually(lambda: not terminal.alternate(), "the alternate screen is left")
    eventually(lambda: terminal.settings() == settings, "the settings are left")
    eventually(lambda: not {n for kind, n in held if kind == "prog"} & leftovers.bpf_ids("prog"), "programs are left")


def test_ctrl_z_and_ctrl_c(terminal: Tmux, tmp_path: Path) -> None:
    settings = terminal.settings()
    pid = start(terminal, tmp_path, "-i", 60)  # nothing new is drawn meanwhile
    terminal.keys("C-z")
    eventually(lambda: state(pid) == "T", "it is not stopped")
    eventually(lambda: not terminal.alternate(), "the alternate screen is left")
    terminal.keys("fg", "Enter")
    terminal.until("findings")
    eventually(terminal.alternate, "it does not come back")
    terminal.keys("C-c")
    eventually(lambda: not state(pid), "it goes on")
    eventually(lambda: terminal.settings() == settings, "the settings are left")
    assert not terminal.alternate()


def test_what_is_shown_can_be_narrowed_and_recorded(state_directory: Path, terminal: Tmux, tmp_path: Path) -> None:
    with Lab() as lab:
        start(terminal, tmp_path, "-i", 1)
        for typed, sentence in (("--port x", "is not a valid integer"), (f"--port {PORT}", f"only --port={PORT}")):
            terminal.keys("/", *typed, "Enter")
            terminal.until(sentence)
        terminal.until(r"rx +no packets")
        terminal.keys("r")
        terminal.until("recording; r ends it")
        folder = eventually(lambda: next(state_directory.glob("*/hopscope.json"), None), "it is not recorded").parent
        sent = 0
        while not re.search(r"rx +rx\.udp", terminal.text()):  # of the last interval alone
            lab.server.run([sys.executable, "-c", SEND], check=True)
            sent += DATAGRAMS
        terminal.keys("r")
        terminal.until("event")
    with Trace(folder) as trace:
        ports = set(trace.rows("SELECT source_port, destination_port FROM flows"))
        ((reads,),) = trace.rows("SELECT count(*) FROM sockets s JOIN points USING (point) WHERE name = 'rx.received'")
    assert all(PORT in pair for pair in ports)
    assert reads == sent
