# SPDX-License-Identifier: Apache-2.0
"""The service: its processes, its forms, what the service manager is told, and what stays when something goes."""

from __future__ import annotations

import os
import re
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hopscope.lab import Lab
from hopscope.verbs.serve.exposition import OPENMETRICS, PROTOBUF, TEXT
from tests.lab.command import complaint, hopscope, only, programs, start
from tests.lab.measure import ping, udp_pair, way
from tests.leftovers import held_by
from tests.verbs.serve.receiver import receiving
from tests.verbs.serve.served import serving
from tests.waiting import TIMEOUT_S, eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.verbs.serve.served import Served

pytestmark = pytest.mark.root
PAGE = Path(__file__).resolve().parents[3] / "docs" / "serve.md"
WANTS_BOTH = (
    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited{},"
    "text/plain;version=0.0.4{}"
)


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving("--collect=check", "--collect=sockets", "-i", "0.2") as made:
        yield made


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        (None, TEXT),
        ("*/*", TEXT),
        (WANTS_BOTH.format("", ";q=0.5"), PROTOBUF),
        (WANTS_BOTH.format(";q=0.5", ";q=0.6"), TEXT),
        (WANTS_BOTH.format(";q=x", ""), TEXT),
        ("application/vnd.google.protobuf;proto=other;encoding=delimited", TEXT),
        ("application/openmetrics-text;version=1.0.0,text/plain;q=0.5", OPENMETRICS),
        ("application/openmetrics-text;version=2.0.0,text/plain;q=0.5", TEXT),
        (f"application/openmetrics-text,{WANTS_BOTH.format(';q=0.9', '')}", TEXT),
    ],
)
def test_the_client_chooses_the_form(served: Served, accept: str | None, form: str) -> None:
    status, headers, _ = served.get(**({"Accept": accept} if accept else {}))
    assert (status, headers["content-type"], headers["vary"]) == (200, form, "Accept")


def test_only_its_own_paths_are_there_and_only_by_its_own_name(served: Served) -> None:
    assert [served.get(path)[0] for path in ("/healthz", "/readyz", "/", "/metrics/x")] == [200, 200, 404, 404]
    assert served.get(Host="evil.example")[0] == 400


def test_what_talks_to_the_network_has_no_rights_and_what_is_not_asked_for_is_not_attached(served: Served) -> None:
    statuses = [dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
                     if ":\t" in line) for pid in served.children()]  # fmt: skip
    measures, serves = statuses
    assert (measures["Uid"].split()[1], serves["Uid"].split()[1] != "0") == ("0", True)
    assert {int(serves[name], 16) for name in ("CapPrm", "CapEff", "CapBnd", "CapAmb")} == {0}
    assert (serves["NoNewPrivs"], serves["Seccomp"]) == ("1", "2")
    assert held_by(served.children()) == set() == programs(served.child)
    names = {name for name, _ in served.samples()}
    assert "hopscope_sockets" in names
    assert not any(name.startswith(("hopscope_receive", "hopscope_cpu", "hopscope_dropped")) for name in names)


def test_the_service_manager_is_told(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(60)
        config = tmp_path / "serve.toml"
        config.write_text("collect = ['check']\ninterval = 0.2\n")
        with serving(f"--config={config}", NOTIFY_SOCKET=str(tmp_path / "notify")) as served:
            first = manager.recv(4096).decode().splitlines()
            assert first == ["WATCHDOG=1", "READY=1", f"MAINPID={served.child.pid}"]
            assert manager.recv(4096) == b"WATCHDOG=1"
        while (last := manager.recv(4096)) == b"WATCHDOG=1":
            pass
        assert last == b"STOPPING=1"


def test_it_reads_its_configuration_again(tmp_path: Path) -> None:
    config = tmp_path / "serve.toml"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    config.write_text("collect = ['check']\ninterval = 0.2\n")
    with serving(f"--config={config}", f"--listen=127.0.0.1:{port}") as served:
        assert ("hopscope_collector_up", 'collector="check"') in served.samples()
        before = served.children()
        config.write_text("collect = ['sockets']\ninterval = 0.2\n")
        served.child.send_signal(signal.SIGHUP)
        eventually(lambda: len(now := served.children()) == 2 and not set(now) & set(before))
        eventually(served.is_ready)
        assert ("hopscope_collector_up", 'collector="sockets"') in served.samples()
        assert ("hopscope_collector_up", 'collector="check"') not in served.samples()


def test_counts_stay_when_an_interface_goes() -> None:
    with Lab() as lab, serving(*only(lab), "--collect=rx", "--group-by=interface", "-i", "0.2") as served:
        with udp_pair(way(lab, "veth-4")) as pair:
            assert ping(*pair, 101) == 101
        count = "hopscope_receive_hop_seconds_count"
        group = 'hop="rx.udp_total",unit="packet",interface="server0",namespace="'
        eventually(lambda: any(key[0] == count and key[1].startswith(group) for key in served.samples()))
        before = served.samples()
        (series,) = (key for key in before if key[0] == count and key[1].startswith(group))
        assert before[series] == 101
        assert not re.search(r"\d", series[1].removeprefix(group))  # no PID
        lab.server.run(["ip", "link", "del", "server0"])
        at_s = before["hopscope_measured_timestamp_seconds", ""]
        eventually(lambda: served.samples()["hopscope_measured_timestamp_seconds", ""] > at_s + 0.5)
        after = served.samples()
        assert after[series] == 101
        counters = [key for key in before if key[0].endswith(("_total", "_count", "_bucket", "_sum"))]
        assert [key for key in counters if after[key] < before[key]] == []


def test_where_the_budget_is_enough_counts_are_exact_and_it_says_so() -> None:
    with Lab() as lab, serving(*only(lab), "--collect=rx", "--budget=100", "-i", "0.2") as served:
        with udp_pair(way(lab, "veth-4")) as pair:
            assert ping(*pair, 23) == 23
        count = ("hopscope_receive_hop_seconds_count", 'hop="rx.udp_total",unit="packet"')
        found = eventually(lambda: (now := served.samples()).get(count) == 23 and now)
    assert found["hopscope_receive_slices_total", ""] == 0
    measured = [found[f"hopscope_receive_{name}_seconds_total", ""] for name in ("represented", "open", "followed")]
    assert measured[0] == pytest.approx(measured[1]) == pytest.approx(measured[2])
    assert measured[0] > 0


def test_it_has_a_budget_unless_there_is_to_be_none(tmp_path: Path) -> None:
    config = tmp_path / "serve.toml"
    config.write_text('collect = ["rx"]\nbudget = "none"\n')
    config.chmod(0o600)
    budgets = []
    for words in (["--collect=rx"], ["--config", config]):
        with serving(*words, measures_all=False) as served:
            budgets.append(("hopscope_receive_represented_seconds_total", "") in served.samples())
    assert budgets == [True, False]


def test_the_page_names_every_metric() -> None:
    with (
        receiving() as receiver,
        serving("-i", "0.5", "--budget=100", "--flight=1", f"--otlp={receiver.url}") as served,
    ):
        text = served.get()[2].decode()
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \|", PAGE.read_text(), re.MULTILINE)
    # After two readings, and not with a budget.
    eventually_there = {"hopscope_findings", "hopscope_finding_places", "hopscope_checks"}
    eventually_there |= {"hopscope_receive_packets_total", "hopscope_cpu_runs_total"}
    shown = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE))
    assert {name: kind for name, kind in rows if name not in eventually_there or name in shown} == shown


def test_what_cannot_be_measured_is_one_sentence() -> None:
    done = hopscope("serve", "--listen=127.0.0.1:0", "--collect=rx", "--netns=none")
    assert "none" in complaint(done, 2)


@pytest.mark.parametrize("process", ["measures", "serves metrics"])
def test_without_one_of_its_processes_it_ends(process: str) -> None:
    child = start("serve", "--listen=127.0.0.1:0", "--collect=check", start_new_session=True)
    assert child.stdout
    assert child.stderr
    child.stdout.readline()
    folder = Path(f"/proc/{child.pid}/task/{child.pid}/children")
    os.kill(int(folder.read_text().split()[process == "serves metrics"]), signal.SIGKILL)
    assert child.wait(TIMEOUT_S) == 1
    said = "was killed by SIGKILL (perhaps for want of memory: see `dmesg`). Start `hopscope serve` again"
    assert child.stderr.read() == f"hopscope: The process that {process} {said}\n"
