# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import leftovers
from tests.lab.command import attached, ended, hopscope, links, programs, start, wait_gone, waits
from tests.waiting import eventually

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


def datagrams_read() -> int:
    """Return how many datagrams were read in the namespaces of the processes below this one, by the kernel's count."""
    found = {}
    for pid in leftovers.descendants():
        try:
            network = Path(f"/proc/{pid}/ns/net").stat().st_ino
            names, numbers = (
                line.split()
                for line in Path(f"/proc/{pid}/net/snmp").read_text().splitlines()
                if line.startswith("Udp:")
            )
        except OSError:
            continue  # it ended meanwhile
        found[network] = int(numbers[names.index("InDatagrams")])
    return sum(count for network, count in found.items() if network != OWN_NETWORK)


def starting(*args: object) -> subprocess.Popen[str]:
    """Start it, and return when all its processes run."""
    child = start("demo", *args)
    eventually(lambda: len(leftovers.descendants()) >= 7, "the demo does not start")
    return child


def measuring(*args: object) -> subprocess.Popen[str]:
    """Start it, and return when datagrams were read since all programs are attached."""
    child = starting(*args)
    eventually(lambda: attached(child) and waits(child), "it does not measure")
    before = datagrams_read()
    eventually(lambda: datagrams_read() > before + 2, "no datagram is read")
    return child


@pytest.mark.slow
def test_demo_measures_what_it_says_and_explains_it() -> None:
    done = hopscope("demo", "--duration", 5)
    assert (done.returncode, done.stderr) == (0, "")
    text = " ".join(done.stdout.split())
    assert "for 5 seconds" in text
    assert re.search(r"rx\.tcp_total +[\d,]+", done.stdout)
    assert re.search(r"TCP: [\d,]+ segments were read, half of them within ", text)
    # 100 datagrams a second, whose reader sleeps: most of their time is the wait for it.
    found = re.search(r"UDP: \d+ datagrams were read, half of them within ([\d.]+)(ms|s) after the driver", text)
    assert found
    assert float(found[1]) * {"ms": 1, "s": 1000}[found[2]] >= 5
    assert re.search(r"% of that time is rx\.udp_wake: ", text)
    assert leftovers.descendants() == {}


@pytest.mark.slow
def test_traffic_goes_on_however_long_it_takes_to_attach() -> None:
    child = starting("--duration", 1)
    os.kill(child.pid, signal.SIGSTOP)
    before = datagrams_read()
    time.sleep(8)  # more than it lasted once: a second, and five
    os.kill(child.pid, signal.SIGCONT)
    assert datagrams_read() > before
    code, out, err = ended(child)
    assert (code, err) == (0, "")
    assert "UDP: " in out


@pytest.mark.slow
def test_two_demos_at_once_are_apart() -> None:
    both = [start("demo", "--duration", 4) for _ in range(2)]
    for child in both:
        code, out, err = ended(child)
        assert (code, err) == (0, "")
        assert "UDP: " in out


@pytest.mark.slow
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
    expected = -number if number == signal.SIGKILL else 0
    assert (code, err) == (expected, "")
    assert ("UDP: " in out) == (expected == 0)
    wait_gone(*held)
    eventually(lambda: not leftovers.descendants(), "processes are left")
    eventually(lambda: not networks & all_namespaces(), "namespaces are left")
    assert {path.name for path in Path("/sys/class/net").iterdir()} <= devices


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2, 3, 4, 5, 6])
def test_ctrl_c_while_it_starts_is_quiet(processes: int) -> None:
    child = start("demo", "--duration", 60)
    eventually(lambda: len(leftovers.descendants()) > processes, "the demo does not start")
    child.send_signal(signal.SIGINT)
    code, _, err = ended(child)
    assert (code, err.strip()) in {(0, ""), (130, "")}
    eventually(lambda: not leftovers.descendants(), "processes are left")
