# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import leftovers
from cli.command import attached, ended, eventually, hopscope, links, programs, start, wait_gone

if TYPE_CHECKING:
    import subprocess

pytestmark = pytest.mark.root
OWN_NETWORK = Path("/proc/self/ns/net").stat().st_ino


def namespaces() -> set[int]:
    """Return the network namespaces of the processes below this one."""
    found = set()
    for pid in leftovers.descendants():
        try:
            found.add(Path(f"/proc/{pid}/ns/net").stat().st_ino)
        except OSError:
            continue  # it ended meanwhile
    return found - {OWN_NETWORK}


def all_namespaces() -> set[int]:
    """Return the network namespaces of all threads of this machine."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/task/[0-9]*/ns/net"):
        try:
            found.add(path.stat().st_ino)
        except OSError:
            continue
    return found


def measuring(*args: object) -> subprocess.Popen[str]:
    """Start it, and return when programs are attached and all traffic runs."""
    child = start("demo", *args)
    eventually(lambda: attached(child) and len(leftovers.descendants()) >= 7, "the demo does not start")
    return child


def test_demo_measures_what_it_says_and_explains_it() -> None:
    done = hopscope("demo", "--duration", 2)
    assert (done.returncode, done.stderr) == (0, "")
    text = " ".join(done.stdout.split())
    assert "for 2 seconds" in text
    assert re.search(r"rx\.tcp_total +[\d,]+", done.stdout)
    assert re.search(r"TCP: [\d,]+ segments were read, half of them within ", text)
    # 100 datagrams a second, whose reader sleeps: most of their time is the wait for it.
    assert re.search(r"UDP: \d+ datagrams were read, half of them within \d+\.\d+ms of the driver", text)
    assert re.search(r"% of that time is rx\.udp_wake: ", text)
    assert leftovers.descendants() == {}


def test_two_demos_at_once_are_apart() -> None:
    both = [start("demo", "--duration", 1) for _ in range(2)]
    for child in both:
        code, out, err = ended(child)
        assert (code, err) == (0, "")
        assert "UDP: " in out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL, signal.SIGHUP])
def test_nothing_stays_behind_whatever_ends_it(number: signal.Signals) -> None:
    devices = {path.name for path in Path("/sys/class/net").iterdir()}
    child = measuring("--duration", 60)
    held = links(child), programs(child)
    networks = namespaces()
    assert len(networks) == 2
    assert all(held)
    child.send_signal(number)
    code, out, err = ended(child)
    expected = 0 if number in {signal.SIGINT, signal.SIGTERM} else -number
    assert (code, err) == (expected, "")
    assert ("UDP: " in out) == (expected == 0)
    wait_gone(*held)
    eventually(lambda: not leftovers.descendants(), "processes are left")
    eventually(lambda: not networks & all_namespaces(), "namespaces are left")
    assert {path.name for path in Path("/sys/class/net").iterdir()} <= devices


@pytest.mark.parametrize("processes", [1, 2, 3, 4, 5, 6])
def test_ctrl_c_while_it_starts_is_quiet(processes: int) -> None:
    child = start("demo", "--duration", 60)
    eventually(lambda: len(leftovers.descendants()) > processes, "the demo does not start")
    child.send_signal(signal.SIGINT)
    code, _, err = ended(child)
    assert (code, err.strip()) in {(0, ""), (130, "")}
    eventually(lambda: not leftovers.descendants(), "processes are left")
