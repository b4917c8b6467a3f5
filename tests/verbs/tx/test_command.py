# SPDX-License-Identifier: Apache-2.0
"""``hopscope tx`` on traffic whose answer is known: reports, options, and what is said when something is wrong."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from hopscope.lab import Workload
from hopscope.lab.veth import SERVER_IPV4
from tests.lab.command import (
    assert_fits,
    complaint,
    count_of,
    ended,
    hopscope,
    links,
    objects,
    only,
    programs,
    start,
    wait_gone,
    waits,
)
from tests.lab.measure import ping, udp_pair, way
from tests.shared import first
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from hopscope.lab import Lab

pytestmark = pytest.mark.root
DATAGRAMS = 23
FLOOD = 120_011
HOPS = ("tx.udp", "tx.udp_qdisc", "tx.udp_driver", "tx.udp_total")


def sending(kept_lab: Lab, port: int) -> list[str]:
    """Return the words of a command that sends datagrams through the lab."""
    words = (SERVER_IPV4, port, "--count", DATAGRAMS, "--size", 100, "--rate", 1000)
    client = [sys.executable, "-m", "hopscope.lab.traffic", "udp-send", *map(str, words)]
    return ["--", "nsenter", f"--net=/proc/{kept_lab.client.pid}/ns/net", *client]


@pytest.mark.parametrize("group", first([None, "process", "interface", "netns", "cgroup", "cpu"], 2))
def test_json_fits_the_schema_and_has_every_datagram(kept_lab: Lab, group: str | None) -> None:
    grouping = ["--group-by", group] if group else []
    with Workload(kept_lab.server, "udp-sink", "--bind", SERVER_IPV4) as sink:
        words = [*only(kept_lab), "--hooks=host", "--interval", 0.5, *grouping]
        done = hopscope("tx", "--json", *words, *sending(kept_lab, sink.port))
    assert done.returncode == 0, done.stderr
    *intervals, total = objects(done.stdout)
    assert intervals
    for each in (*intervals, total):
        assert_fits(each, "tx-1")
    assert {each["kind"] for each in intervals} == {"interval"}
    assert total["kind"] == "total"
    for hop in HOPS:
        assert count_of(total, hop) == sum(count_of(each, hop) for each in intervals) == DATAGRAMS
    assert total["discarded"] == []
    assert {name for row in total["hops"] for name in row["group"]} == ({group} if group else set())


def test_table_has_the_counts(kept_lab: Lab) -> None:
    with Workload(kept_lab.server, "udp-sink", "--bind", SERVER_IPV4) as sink:
        done = hopscope("tx", *only(kept_lab), "--protocol=udp", "--interval", 60, *sending(kept_lab, sink.port))
    assert done.returncode == 0, done.stderr
    rows = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines() if line.strip().startswith("tx.")}
    assert {DATAGRAMS} == {int(next(word for word in rows[hop] if word.isdigit())) for hop in HOPS}


def test_a_filter_says_what_it_leaves_out_and_sampling_how_much(kept_lab: Lab) -> None:
    done = hopscope("tx", *only(kept_lab), "--duration", 0.2)
    assert "--hooks host" in done.stdout
    with Workload(kept_lab.server, "udp-sink", "--bind", SERVER_IPV4) as sink:
        sampled = hopscope(
            "tx", *only(kept_lab), "--protocol=udp", "--sample", 8, "--interval", 60, *sending(kept_lab, sink.port)
        )
    assert f" of {DATAGRAMS} messages followed" in sampled.stdout


def test_exit_code_is_the_command_s(kept_lab: Lab) -> None:
    done = hopscope("tx", "--json", "-i", 600, *only(kept_lab), "--", "sh", "-c", "echo words; exit 7")
    assert done.returncode == 7
    assert done.stderr == "words\n"
    assert [each["kind"] for each in objects(done.stdout)] == ["interval", "total"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--hop", "tx.nope"], "No hop is named tx.nope. The hops are tx.tcp, "),
        (["--attach", "tx.udp=fentry:nope"], "tx.udp"),
        (["--attach", "tx.nope=fentry:nope"], "tx.nope"),
        (["--pid", "4194304"], "4194304"),
        (["--cgroup", "/nope"], "/nope"),
        (["--netns", "nope"], "nope"),
        (["--address", "nope"], "nope"),
        (["--histogram", "--json"], "--histogram and --json cannot be combined"),
        (["--hooks", "flow", "--protocol", "udp"], "No hop can be measured with these options"),
        (["--", "/nope"], "/nope cannot be started"),
    ],
)
def test_what_does_not_exist_is_one_sentence(args: list[str], said: str) -> None:
    done = hopscope("tx", "--duration", 0.1, *args)
    assert said in complaint(done, 2)
    assert done.stdout == ""


def test_no_rights_is_one_sentence_that_names_them() -> None:
    done = hopscope("tx", before=("setpriv", "--bounding-set=-all", "--inh-caps=-all"))
    assert "(missing: CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN). " in complaint(done, 77)
    assert done.stdout == ""


@pytest.mark.slow
def test_two_runs_at_once_see_the_same_and_one_that_is_killed_leaves_nothing(kept_lab: Lab) -> None:
    with udp_pair(way(kept_lab, "veth-4")) as (sender, reader):
        both = [start("tx", "--json", *only(kept_lab), "--hooks=host", "--interval", 0.2) for _ in range(2)]
        for child in both:
            assert child.stdout is not None
            child.stdout.readline()
        held = links(both[0]), programs(both[0])
        assert all(held)
        ping(sender, reader, DATAGRAMS)
        both[0].kill()
        both[0].wait()
        wait_gone(*held)
        ping(sender, reader, DATAGRAMS)
        both[1].terminate()
        code, out, err = ended(both[1])
    assert (code, err) == (0, "")
    total = objects(out)[-1]
    assert {count_of(total, hop) for hop in HOPS} == {2 * DATAGRAMS}, total


def test_a_reader_that_goes_away_ends_it_quietly() -> None:
    child = start("tx", "--json", "--interval", 0.1)
    assert child.stdout is not None
    assert child.stdout.readline()
    held = links(child), programs(child)
    child.stdout.close()
    eventually(lambda: child.poll() is not None, "it goes on without a reader")
    assert child.stderr is not None
    assert child.stderr.read() == ""
    wait_gone(*held)


def test_messages_that_take_too_long_to_print_are_counted_at_the_end(kept_lab: Lab, tmp_path: Path) -> None:
    flood = f"""
import socket
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sender.connect(("{SERVER_IPV4}", 9))
for _ in range({FLOOD}):
    try:
        sender.send(b"x")
    except ConnectionRefusedError:
        sender.send(b"x")
"""
    with (tmp_path / "out").open("w") as out:
        words = [*only(kept_lab), "--hooks=host", "--protocol=udp", "--interval", 600]
        child = start("tx", "--events", "--json", *words, stdout=out)
        eventually(lambda: waits(child), "never began")
        # Nothing of it is printed by the time that it is to end; one CPU's ring has room for all of it.
        child.send_signal(signal.SIGSTOP)
        subprocess.run(
            ["nsenter", f"--net=/proc/{kept_lab.server.pid}/ns/net", sys.executable, "-c", flood], check=True
        )
        child.send_signal(signal.SIGINT)
        child.send_signal(signal.SIGCONT)
        assert ended(child)[0] == 0
    *printed, last = (tmp_path / "out").read_text().splitlines()
    total = json.loads(last)
    assert total["kind"] == "total"
    assert 0 < total["lost"] < FLOOD
    assert len(printed) + total["lost"] == FLOOD
