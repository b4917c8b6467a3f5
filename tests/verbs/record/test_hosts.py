# SPDX-License-Identifier: Apache-2.0
"""``hopscope record --host``: several hosts, each with a real sshd, recorded at once, and whatever ends that."""

from __future__ import annotations

import re
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from hopscope.store.hosts import PROBES, Hosts
from hopscope.store.trace import Trace
from tests import disks
from tests.lab.recorded_hosts import PORT, Pair, counted, kill, pair, parts, ports, stopped
from tests.lab.sshd import PORT as SSH
from tests.waiting import TIMEOUT_S, eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.root
END = re.compile(
    r"(?P<host>\S+)\s+(?P<events>[\d,]+) events in \d+\.\d s, (?P<lost>none|[\d,]+) lost; [\d.]+ [KMG]?i?B.*"
)


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with pair(tmp_path_factory.mktemp("hosts")) as made:
        yield made


def said_at_end(err: str, out: Path) -> dict[str, re.Match[str]]:
    """Return what was said of each host at the end, of which the last line is what to do with the recording."""
    *lines, next_step = err.splitlines()
    assert next_step == f"hopscope report summary {out}"
    return {match["host"]: match for match in map(END.fullmatch, lines) if match}


def test_a_command_is_recorded_on_both_hosts(hosts: Pair, tmp_path: Path) -> None:
    out = tmp_path / "out"
    code, err = hosts.record(out, "--", "sh", "-c", f"{subprocess.list2cmdline(hosts.sending(1009))}; exit 23")
    assert code == 23, err
    assert set(said_at_end(err, out)) == {"a", "b"}
    for point, host in (("tx.queue", "a"), ("tx.start", "a"), ("rx.driver", "b"), ("rx.core", "b"), ("skb.drop", "b")):
        assert counted(out / host, point) == 1009, point
    found = Hosts.read(out)
    assert found.state == "complete"
    assert [(host.name, host.target, host.parts, host.absences) for host in found.hosts] == [
        (name, name, [name], []) for name in ("a", "b")
    ]
    boots = set()
    for host in ("a", "b"):
        with Trace(out / host) as trace:
            assert trace.metadata.state == "complete"
            boots.add(trace.metadata.host["boot"])
            assert trace.metadata.options["filters"] == {"netns": "self"}
            ((namespaces,),) = trace.rows("SELECT list(DISTINCT netns) FROM packets WHERE netns <> 0")
            assert namespaces == [hosts.namespaces[host].inode]
    assert len(boots) == 1
    eventually(lambda: not hosts.agents("a") + hosts.agents("b"), "agents are left")


def test_nothing_of_ours_is_in_it_and_the_clocks_are_compared(hosts: Pair, tmp_path: Path) -> None:
    out = tmp_path / "out"
    child = hosts.begun(out)
    hosts.send(23)
    eventually(lambda: any((out / PROBES.name).glob("*.parquet")), "no probes")
    code, err = stopped(child)
    assert code == 0, err
    # ssh's connections begin in a: it is left out there, too, with the probes of both.
    for host in ("a", "b"):
        assert PORT in ports(out / host)
        with Trace(out / host) as trace:
            names = "coalesce(list(DISTINCT destination_port), [])"
            ((others,),) = trace.rows(f"SELECT {names} FROM flows WHERE protocol IN (6, 17) AND source_port <> 0")
        assert set(others) <= {PORT, 0}, host  # 0: of sockets that are not connected
    (found,) = Hosts.read(out).pairs
    assert (found.hosts, found.parts) == ((0, 1), (0, 0))


def test_the_connection_is_not_in_it_however_much_it_carries(hosts: Pair, tmp_path: Path) -> None:
    out = tmp_path / "out"
    flood = """
import os, socket
receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
receiver.bind(("127.0.0.1", 0))
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sender.connect(receiver.getsockname())
noise = os.urandom(1 << 20)
for number in range(2003):
    sender.send(noise[number:number + 8000])
    receiver.recv(8000)
"""
    inside = ["nsenter", f"--net=/proc/{hosts.lab.server.pid}/ns/net"]
    words = [*inside, "python3", "-c", flood]
    code, err = hosts.record(out, "--snap", 8192, "-P", "all", "--", *words, hosts=("b",))
    assert code == 0, err
    assert (out / "b" / "capture.pcapng").stat().st_size > 10 << 20
    assert SSH not in ports(out / "b")
    with Trace(out / "b") as trace:
        outside = trace.rows(
            "SELECT count(*) FROM packets JOIN devices USING (ifindex, netns) WHERE devices.name <> 'lo' AND flow <> 0 "
            "AND flow NOT IN (SELECT flow FROM flows WHERE protocol = 1 OR protocol = 58)"
        )
    assert outside == [(0,)]
    read = subprocess.run(
        ["tcpdump", "-nn", "-r", out / "b" / "capture.pcapng", "tcp"], capture_output=True, text=True, check=True
    )
    assert read.stdout == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_all_in_order(hosts: Pair, tmp_path: Path, number: signal.Signals) -> None:
    out = tmp_path / "out"
    child = hosts.begun(out)
    hosts.send(101)
    code, err = stopped(child, number)
    assert code == 0, err
    assert counted(out / "a", "tx.start") == counted(out / "b", "rx.core") == 101
    assert Hosts.read(out).state == "complete"
    eventually(lambda: not hosts.agents("a") + hosts.agents("b"), "agents are left")


@pytest.mark.parametrize("who", ["agent", "sshd"])
def test_a_host_that_is_lost_is_missing_for_a_while(hosts: Pair, tmp_path: Path, who: str) -> None:
    out = tmp_path / "out"
    child = hosts.begun(out)
    hosts.send(101)
    eventually(lambda: counted(out / "b", "rx.core") == 101, "not all of b is in files")
    kill(hosts.agents("b") if who == "agent" else hosts.sshd["b"].sessions())
    eventually(lambda: hosts.began(out, "b.2"), "b never came back")
    hosts.send(23)
    code, err = stopped(child)
    assert code == 1
    assert re.fullmatch(
        rf"hopscope: The recording is incomplete: b for \d+\.\d s \(.*\)\. {out}/hosts.json lists the times .*",
        err.splitlines()[-1],
    )
    assert parts(out) == {"a": ["a"], "b": ["b", "b.2"]}
    assert counted(out / "a", "tx.start") == 124
    assert (counted(out / "b", "rx.core"), counted(out / "b.2", "rx.core")) == (101, 23)
    (absence,) = Hosts.read(out).hosts[1].absences
    with Trace(out / "b") as first, Trace(out / "b.2") as second:
        assert first.warnings == ["the recorder was killed or is still running: the trace ends with the last full file"]
        assert second.warnings == []
        assert absence.until_ns == second.metadata.started_ns
        ((last_ns,),) = first.rows("SELECT max(time_ns) FROM packets")
        assert first.metadata.started_ns <= absence.from_ns < absence.until_ns
        assert last_ns < absence.until_ns
    assert absence.reason


def test_a_host_that_does_not_come_back(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pair(tmp_path) as hosts:
        child = hosts.begun(out)
        hosts.sshd["b"].close()
        eventually(lambda: Hosts.read(out).hosts[1].absences, "nobody noticed")
        hosts.send(101)
        code, err = stopped(child)
    assert code == 1
    assert "The recording is incomplete: b for " in err
    assert counted(out / "a", "tx.start") == 101
    (absence,) = Hosts.read(out).hosts[1].absences
    assert absence.until_ns is None


def test_who_records_is_killed(hosts: Pair, tmp_path: Path) -> None:
    out = tmp_path / "out"
    child = hosts.begun(out)
    hosts.send(101)
    eventually(lambda: counted(out / "a", "tx.start") == counted(out / "b", "rx.core") == 101, "not all is in files")
    child.kill()
    child.communicate()
    eventually(lambda: not hosts.agents("a") + hosts.agents("b"), "agents are left")
    assert Hosts.read(out).state == "recording"
    assert counted(out / "a", "tx.start") == counted(out / "b", "rx.core") == 101


def test_a_host_that_cannot_be_reached_leaves_nothing(hosts: Pair, tmp_path: Path) -> None:
    out = tmp_path / "out"
    code, err = hosts.record(out, hosts=("a", "nowhere"))
    assert code == 1
    assert err.splitlines()[-1].startswith("hopscope: ")
    assert "nowhere" in err.splitlines()[-1]
    assert not out.exists()
    eventually(lambda: not hosts.agents("a") + hosts.agents("b"), "agents are left")


def test_what_a_host_cannot_record_leaves_nothing(hosts: Pair, tmp_path: Path) -> None:
    out = tmp_path / "out"
    code, err = hosts.record(out, "--interface", "nope0")
    assert code == 2
    (sentence,) = err.splitlines()
    assert sentence.startswith("hopscope: a: No interface is named nope0.")
    assert not out.exists()


def test_a_folder_that_has_something_in_it_is_not_touched(hosts: Pair, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    code, err = hosts.record(tmp_path)
    assert (code, err.count("\n")) == (2, 1)
    assert "is not empty" in err
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_trigger_at_one_host_ends_all(hosts: Pair, tmp_path: Path) -> None:
    out = tmp_path / "out"
    child = hosts.begun(out, "--flight", 30, "--trigger", "drop")
    hosts.send(1)
    _, err = child.communicate(timeout=TIMEOUT_S)
    assert child.returncode == 0, err
    assert "b: trigger: drop" in err.splitlines()
    assert counted(out / "a", "tx.start") == counted(out / "b", "skb.drop") == 1


def test_a_full_disk_ends_all(hosts: Pair, tmp_path: Path) -> None:
    with disks.small_disk(tmp_path / "disk", 256) as disk:
        out = disk / "out"
        code, err = hosts.record(out, "-P", "all", "--", *hosts.sending(20011))
        assert code == 1
        assert "No space left on device. Free some space, or inodes (df -i); what was recorded" in err.splitlines()[-1]
        assert Hosts.read(out).state == "stopped: the disk is full"
        for host in ("a", "b"):
            with Trace(out / host) as trace:
                trace.rows("SELECT * FROM packets")
    eventually(lambda: not hosts.agents("a") + hosts.agents("b"), "agents are left")


def test_limits_end_all(hosts: Pair, tmp_path: Path) -> None:
    for name, options in (("time", ("-d", 0.3)), ("size", ("--max-size", 1, "-d", 1))):
        code, err = hosts.record(tmp_path / name, *options)
        assert code == 0, err
        assert set(said_at_end(err, tmp_path / name)) == {"a", "b"}


def test_this_host_without_ssh(hosts: Pair, tmp_path: Path) -> None:
    out = tmp_path / "out"
    code, err = hosts.record(out, "-d", 0.3, hosts=("local",))
    assert code == 0, err
    with Trace(out / "local") as trace:
        assert trace.warnings == []
        assert trace.metadata.host["name"]
