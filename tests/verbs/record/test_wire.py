# SPDX-License-Identifier: Apache-2.0
"""What `hopscope wire` sends becomes a recording again in another network namespace, with exactly what is missing."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

import hopscope as api
from hopscope.lab import Namespace
from hopscope.lab.netlink import add_addresses, add_veth
from tests.lab.command import HOPSCOPE, complaint, environ, only, start
from tests.lab.measure import ping, udp_pair, way
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hopscope.lab import Lab

pytestmark = pytest.mark.root

DATAGRAMS = 40
EVENT = ("-e", "net:net_dev_queue")
OURS = "(SELECT flow FROM flows WHERE {port} IN (source_port, destination_port))"
PACKETS = "SELECT * EXCLUDE (time_ns, from_time_ns, flow, packet) FROM skb_lifetimes"
DROPS = "SELECT d.cpu, d.tid, d.skb, r.name FROM drops d JOIN reasons r ON r.reason = d.reason"
THREADS = "SELECT DISTINCT tid, pid, comm FROM threads WHERE tid IN"
# What both see of the datagrams, each at its own time; of drops, the function and its stack stay where they are.
QUERIES = (
    f"{PACKETS} WHERE life_flow IN {{ours}} ORDER BY time_ns",
    "SELECT * EXCLUDE time_ns FROM sockets WHERE flow IN {ours} ORDER BY time_ns",
    f"{DROPS} WHERE flow IN {{ours}} ORDER BY d.time_ns",
    f"{THREADS} (SELECT tid FROM sockets WHERE flow IN {{ours}}) ORDER BY ALL",
    "SELECT * FROM flows WHERE flow IN {ours} ORDER BY ALL",
    "SELECT * FROM devices WHERE name IN ('client0', 'server0') AND netns IN {namespaces} ORDER BY ALL",
    "SELECT * EXCLUDE time_ns FROM e_net_net_dev_queue WHERE name = 'client0' AND len = {len_bytes} ORDER BY time_ns",
)
LEN_BYTES = 777


@pytest.fixture
def collector(quiet: Namespace) -> Iterator[Namespace]:
    """Yield a namespace to whose device m1 the device m0 of another one sends."""
    with Namespace() as made:
        quiet.call(add_veth, "m0", "m1", made.pid, 1500)
        for namespace, name in ((quiet, "m0"), (made, "m1")):
            namespace.call(add_addresses, name, ())
        yield made


def unused(child: subprocess.Popen[str], words: str) -> None:
    assert child.stderr
    said = ""
    while words not in said:
        said = child.stderr.readline()
        assert said


def ended(child: subprocess.Popen[str]) -> str:
    child.send_signal(signal.SIGINT)
    _, said = child.communicate()
    assert child.returncode == 0, said
    return said


def test_a_recording_there_is_the_one_here(
    kept_lab: Lab, quiet: Namespace, collector: Namespace, tmp_path: Path
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    what = ("-P", "messages", "-P", "drops", *EVENT, *only(kept_lab))
    with taking(collector, there) as taker, sending(quiet, "--full", *what):
        redirected(quiet, "time_ns > 0")
        local = start("record", "-o", here, *what)
        for folder in (here, there):
            eventually((folder / "hopscope.json").exists, "never began")
        with udp_pair(way(kept_lab, "veth-4")) as pair:
            port = pair[1].getsockname()[1]
            assert ping(*pair, DATAGRAMS, LEN_BYTES) == DATAGRAMS
            closed = kept_lab.client.call(socket.socket, socket.AF_INET, socket.SOCK_DGRAM)
            with closed:
                closed.bind(("10.77.0.1", port))
                closed.sendto(b"nobody", ("10.77.0.2", 9))
        local.send_signal(signal.SIGINT)
        local.communicate()
    assert "none lost" in taker.said
    with api.open(here) as one, api.open(there) as other:
        for query in QUERIES:
            asked = query.format(
                ours=OURS.format(port=port),
                len_bytes=LEN_BYTES + 14 + 20 + 8,
                namespaces=(kept_lab.client.inode, kept_lab.server.inode),
            )
            assert other.sql(asked).rows() == one.sql(asked).rows() != [], query


def test_what_a_rule_on_the_way_does_not_select_is_lost(
    kept_lab: Lab, quiet: Namespace, collector: Namespace, tmp_path: Path
) -> None:
    points = ("--full", "--point", "rx.driver", "--point", "rx.core", *only(kept_lab))
    with taking(collector, tmp_path / "t") as taker, sending(quiet, *points) as sent:
        redirected(quiet, "point != rx.core")
        eventually((tmp_path / "t" / "hopscope.json").exists, "never began")
        with udp_pair(way(kept_lab, "veth-4")) as pair:
            assert ping(*pair, DATAGRAMS) == DATAGRAMS
    assert f"{2 * DATAGRAMS} events sent" in sent.said
    assert f"{DATAGRAMS} events in" in taker.said
    assert f"{DATAGRAMS} lost" in taker.said


def test_it_is_refused_what_it_cannot_do(quiet: Namespace) -> None:
    def record(*words: str) -> subprocess.CompletedProcess[str]:
        done: subprocess.CompletedProcess[str] = quiet.run(
            [*HOPSCOPE, "record", "--wire", *words], capture_output=True, text=True, env=environ()
        )
        return done

    assert "There is no interface none" in complaint(record("none"), 2)
    assert "--wire records what comes, and --port=5 is about" in complaint(record("lo", "--port", "5"), 2)
    with sending(quiet, "-P", "packets"):
        assert "do not have what a recording needs" in complaint(record("hop0"), 1)
    assert "No catalogue of events has come to lo" in complaint(record("lo", "-d", "0.1"), 1)


@dataclass
class Running:
    """A command, and what it has said in the end."""

    child: subprocess.Popen[str]
    said: str = ""


@contextlib.contextmanager
def running(namespace: Namespace, *words: object) -> Iterator[Running]:
    child = namespace.popen([*HOPSCOPE, *map(str, words)], stderr=subprocess.PIPE, env=environ(), text=True)
    found = Running(child)
    yield found
    child.send_signal(signal.SIGINT)
    _, found.said = child.communicate()
    assert child.returncode == 0, found.said


@contextlib.contextmanager
def sending(namespace: Namespace, *words: object) -> Iterator[Running]:
    with running(namespace, "wire", *words) as found:
        assert found.child.stderr
        while "Sending events" not in (line := found.child.stderr.readline()):
            assert line
        yield found


@contextlib.contextmanager
def taking(namespace: Namespace, folder: Path) -> Iterator[Running]:
    """Record what comes, until all of what was there before the end has come: each second, a catalogue does."""
    with running(namespace, "record", "--wire", "m1", "-o", folder) as found:
        yield found


def redirected(namespace: Namespace, condition: str) -> None:
    """Send the frames that a condition selects to the collector."""
    words = ("--apply", "--matcher", "bpf", "--action", "redirect m0", condition)
    done = namespace.run([*HOPSCOPE, "wire", "match", *words], capture_output=True, text=True, env=environ())
    if done.returncode:
        pytest.skip(f"this kernel lacks bpf or mirred: {done.stderr.strip()}")
