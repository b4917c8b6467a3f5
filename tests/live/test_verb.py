# SPDX-License-Identifier: Apache-2.0
"""``rx``, ``tx``, ``cpu`` and ``drops`` on two hosts, each a namespace with a real sshd, on traffic that is known."""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
import time
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from hopscope import __version__
from hopscope.lab import Lab, Workload
from hopscope.lab.veth import CLIENT_IPV4, SERVER_IPV4
from tests.lab.command import assert_fits, complaint, count_of, ended, hopscope, objects, start
from tests.lab.sshd import Sshd, client
from tests.waiting import eventually

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

    from tests.lab.command import Json

pytestmark = pytest.mark.root
MESSAGES = 23
NO_CAPABILITIES = "setpriv --bounding-set=-all --inh-caps=-all"

AS_OLD = (
    "import sys, hopscope; hopscope.__version__ = '0.0.1'; sys.argv[1:] = ['agent']; "
    "from hopscope.__main__ import main; main()"
)
OLD = shlex.join([sys.executable, "-c", AS_OLD])


class Hosts(NamedTuple):
    """Two namespaces that are hosts ``a`` and ``b``; what is sent goes from a to b."""

    lab: Lab
    a: Sshd
    b: Sshd
    ssh: str

    def both(self, *more: object) -> list[object]:
        """Return options for both, each in its own namespace alone."""
        return ["--host", "a", "--host", "b", "--ssh", self.ssh, "--netns", "self", *more]

    def on_a(self, *words: object) -> list[str]:
        """Return the words of a command that runs a workload on a."""
        traffic = [sys.executable, "-m", "hopscope.lab.traffic", *words]
        return ["--", "nsenter", f"--net=/proc/{self.lab.client.pid}/ns/net", *map(str, traffic)]


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    folder = tmp_path_factory.mktemp("hosts")
    with (
        Lab() as lab,
        Sshd(lab.client, folder / "a", address=CLIENT_IPV4) as a,
        Sshd(lab.server, folder / "b", address=SERVER_IPV4) as b,
    ):
        yield Hosts(lab, a, b, client(folder, {"a": a, "b": b}, lab.client))


def of_host(documents: list[Json], host: str, verb: str) -> tuple[list[Json], Json]:
    """Return a host's intervals and its total, which fit their schema."""
    found = [each for each in documents if each["schema"] == f"hopscope.{verb}/1" and each["host"] == host]
    for each in found:
        assert_fits(each, f"{verb}-1")
    *intervals, total = found
    assert {each["kind"] for each in intervals} <= {"interval"}
    assert total["kind"] == "total"
    return intervals, total


def late(documents: list[Json], host: str) -> bool:
    """Tell whether a host's last results came too late for an interval: they are in its total alone."""
    last = [each for each in documents if each["kind"] == "interval" and each.get("host") == host][-1]
    return last["schema"] == "hopscope.absences/1"


def test_each_host_counts_its_own_and_the_sum_is_of_all(hosts: Hosts) -> None:
    with Workload(hosts.lab.server, "udp-sink", "--bind", SERVER_IPV4) as sink:
        send = hosts.on_a("udp-send", SERVER_IPV4, sink.port, "--rate", 40, "--count", MESSAGES)
        done = hopscope("rx", *hosts.both("--port", sink.port, "-i", 0.2, "--json"), *send)
    assert done.returncode == 0, done.stderr
    documents = objects(done.stdout)
    for host, count in {"a": 0, "b": MESSAGES}.items():
        intervals, total = of_host(documents, host, "rx")
        assert count_of(total, "rx.udp_total") == count
        assert late(documents, host) or sum(count_of(each, "rx.udp_total") for each in intervals) == count
        assert total["filters"] == {"netns": "self", "port": str(sink.port)}
    assert count_of(documents[-1], "rx.udp_total") == MESSAGES
    assert (documents[-1]["host"], documents[-1]["plan"]) == ("*", [])
    assert_fits(documents[-1], "rx-1")


def test_histograms_of_the_sum_are_the_sum_of_the_histograms(hosts: Hosts) -> None:
    with Workload(hosts.lab.server, "tcp-echo", "--bind", SERVER_IPV4) as echo:
        ask = hosts.on_a("tcp-rr", SERVER_IPV4, echo.port, "--count", MESSAGES)
        done = hopscope("rx", *hosts.both("--port", echo.port, "--json"), *ask)
    totals = [each for each in objects(done.stdout) if each["kind"] == "total"]
    assert [each["host"] for each in totals] == ["a", "b", "*"]
    for name in ("rx.core", "rx.tcp_total"):
        one, other, both = (next(row for row in each["hops"] if row["hop"] == name) for each in totals)
        assert one["count"] == other["count"] == MESSAGES
        assert (both["count"], both["sum_ns"]) == (2 * MESSAGES, one["sum_ns"] + other["sum_ns"])
        assert both["max_ns"] == max(one["max_ns"], other["max_ns"])
        expected: dict[float | None, int] = {}
        for bucket in one["buckets"] + other["buckets"]:
            expected[bucket["le_s"]] = expected.get(bucket["le_s"], 0) + bucket["count"]
        assert {bucket["le_s"]: bucket["count"] for bucket in both["buckets"]} == expected


@pytest.mark.parametrize(
    ("verb", "hop", "options"), [("rx", "rx.tcp_total", ()), ("tx", "tx.total", ("--hooks", "host"))]
)
def test_the_connections_to_the_hosts_are_not_counted_on_any_of_them(
    hosts: Hosts, verb: str, hop: str, options: tuple[str, ...]
) -> None:
    with Workload(hosts.lab.server, "tcp-echo", "--bind", SERVER_IPV4) as echo:
        # ssh's connections begin in a, and go to both.
        ask = hosts.on_a("tcp-rr", SERVER_IPV4, echo.port, "--count", MESSAGES)
        done = hopscope(verb, *hosts.both("-i", 0.1, "--json", *options), *ask)
    documents = objects(done.stdout)
    for host in ("a", "b"):
        _, total = of_host(documents, host, verb)
        assert count_of(total, hop) == MESSAGES


def test_a_connection_that_comes_anew_is_not_counted_either(hosts: Hosts) -> None:
    child = start("rx", *hosts.both("--json", "-i", 0.2))
    lines_until(child, ("a", "rx"), ("b", "rx"))
    for pid in hosts.b.sessions():
        os.kill(pid, signal.SIGKILL)
    lines_until(child, ("b", "absences"))
    lines_until(child, ("b", "rx"))
    lines_until(child, ("a", "rx"))  # by now a has been told
    steady = [lines_until(child, ("a", "rx"), ("b", "rx")) for _ in range(5)]
    child.send_signal(signal.SIGINT)
    code, _, _ = ended(child)
    assert code == 1  # something is missing
    for documents in steady:
        assert {count_of(each, "rx.tcp_total") for each in documents if each["schema"] == "hopscope.rx/1"} == {0}


def test_a_table_stands_under_its_hosts_name_and_the_sum_at_the_end(hosts: Hosts) -> None:
    with Workload(hosts.lab.server, "tcp-echo", "--bind", SERVER_IPV4) as echo:
        ask = hosts.on_a("tcp-rr", SERVER_IPV4, echo.port, "--count", MESSAGES)
        done = hopscope("rx", *hosts.both("--port", echo.port, "-i", 60), *ask)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()[1:]  # behind the command's own line
    headings = [line for line, below in pairwise(lines) if below.startswith("rx  ")]
    assert sorted(headings[:-1]) == ["a", "b"]  # who is late comes with the total, behind the other one
    assert headings[-1] == "all hosts"
    counts = [line.split()[1] for line in lines if line.startswith("rx.tcp_total")]
    assert counts == [str(MESSAGES), str(MESSAGES), str(2 * MESSAGES)]
    assert all(len(line) <= 80 for line in lines)


def test_one_table_of_all_hosts_has_them_below_each_other_at_each_hop(hosts: Hosts) -> None:
    with Workload(hosts.lab.server, "tcp-echo", "--bind", SERVER_IPV4) as echo:
        ask = hosts.on_a("tcp-rr", SERVER_IPV4, echo.port, "--count", MESSAGES)
        done = hopscope("rx", *hosts.both("--port", echo.port, "-i", 60, "--together"), *ask)
    rows = [line.split() for line in done.stdout.splitlines() if re.match(r"[ab] +rx\.", line)]
    # Where one was late, a table of all follows that of the other one.
    del rows[: max(number for number, row in enumerate(rows) if row[:2] == ["a", "rx.core"])]
    assert [row[:2] for row in rows[:4]] == [["a", "rx.core"], ["b", "rx.core"], ["a", "rx.ip"], ["b", "rx.ip"]]
    assert [row[2] for row in rows if row[1] == "rx.tcp_total"] == [str(MESSAGES)] * 2
    assert done.stdout.splitlines().count("all hosts") == 1


def test_messages_and_the_slowest_of_them_have_their_host_and_its_time(hosts: Hosts) -> None:
    began_s = time.time()
    with Workload(hosts.lab.server, "tcp-echo", "--bind", SERVER_IPV4) as echo:
        ask = hosts.on_a("tcp-rr", SERVER_IPV4, echo.port, "--count", MESSAGES)
        options = ("--port", echo.port, "--hooks", "host", "--events", "--slowest", 2, "--json")
        done = hopscope("tx", *hosts.both(*options), *ask)
    assert done.returncode == 0, done.stderr
    documents = objects(done.stdout)
    for host in ("a", "b"):
        messages = [each for each in documents if each["schema"] == "hopscope.tx.message/1" and each["host"] == host]
        _, total = of_host(documents, host, "tx")
        assert len(messages) == count_of(total, "tx.total") == MESSAGES
        (slowest,) = [
            each
            for each in documents
            if each["schema"] == "hopscope.tx.slowest/1" and (each["host"], each["kind"]) == (host, "total")
        ]
        assert slowest["seen"] == MESSAGES
        longest = sorted((each["total_ns"] for each in messages), reverse=True)[:2]
        assert [each["total_ns"] for each in slowest["messages"]] == longest
        for each in [*messages, *slowest["messages"]]:
            sent_s = datetime.fromisoformat(each["time"]).replace(tzinfo=UTC).timestamp()
            assert began_s <= sent_s <= time.time()
        for each in [*messages, slowest]:
            assert_fits(each, each["schema"].removeprefix("hopscope.").replace("/", "-"))


def test_lines_of_messages_begin_with_their_host(hosts: Hosts) -> None:
    with Workload(hosts.lab.server, "tcp-echo", "--bind", SERVER_IPV4) as echo:
        ask = hosts.on_a("tcp-rr", SERVER_IPV4, echo.port, "--count", MESSAGES)
        done = hopscope("rx", *hosts.both("--port", echo.port, "--events"), *ask, COLUMNS="160")
    lines = [line for line in done.stdout.splitlines() if " > " in line]
    assert sorted(line.split()[0] for line in lines) == ["a"] * MESSAGES + ["b"] * MESSAGES
    title = next(line for line in done.stdout.splitlines() if line.startswith("host "))
    assert {line.index(" > ") > title.index("flow") for line in lines} == {True}


def test_drops_are_told_apart_by_host_and_added_up(hosts: Hosts) -> None:
    code = f"""
import socket
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range({MESSAGES}):
    sender.sendto(b"x", ("{SERVER_IPV4}", 7778))
"""
    send = ["--", "nsenter", f"--net=/proc/{hosts.lab.client.pid}/ns/net", sys.executable, "-c", code]
    done = hopscope("drops", *hosts.both("--port", 7778, "-g", "reason", "--json"), *send)
    documents = objects(done.stdout)
    for host, rows in {"a": [], "b": [{"group": {"reason": "NO_SOCKET"}, "packets": MESSAGES}]}.items():
        intervals, total = of_host(documents, host, "drops")
        assert total["rows"] == rows
        assert late(documents, host) or sum(each["dropped"] for each in intervals) == total["dropped"]
    assert (documents[-1]["host"], documents[-1]["dropped"]) == ("*", MESSAGES)


def test_cpu_time_has_a_row_a_host_and_its_stacks_are_in_one_file(hosts: Hosts, tmp_path: Path) -> None:
    folded, flame = tmp_path / "folded", tmp_path / "flame.svg"
    with Workload(hosts.lab.server, "tcp-echo", "--bind", SERVER_IPV4) as echo:
        ask = hosts.on_a("tcp-rr", SERVER_IPV4, echo.port, "--count", 5_000)
        options = ["--host", "a", "--host", "b", "--ssh", hosts.ssh, "-F", 4999, "--folded", folded, "--flame", flame]
        done = hopscope("cpu", *options, "--json", *ask)
    assert done.returncode == 0, done.stderr
    documents = objects(done.stdout)
    for host in ("a", "b"):
        intervals, total = of_host(documents, host, "cpu")
        assert total["total"]["ns"] > 0
        assert late(documents, host) or sum(each["total"]["ns"] for each in intervals) == total["total"]["ns"]
        assert sum(row["ns"] for row in total["rows"]) == total["total"]["ns"]
    added = documents[-1]
    assert_fits(added, "cpu-1")
    assert [row["group"] for row in added["rows"]] in ([{"host": "a"}, {"host": "b"}], [{"host": "b"}, {"host": "a"}])
    assert sum(row["ns"] for row in added["rows"]) == added["total"]["ns"]
    assert sum(share["samples"] for share in added["breakdown"]) > 100
    stacks = [line.rpartition(" ") for line in folded.read_text().splitlines()]
    assert {stack.split(";")[1] for stack, _, _ in stacks} == {"a", "b"}
    assert sum(int(samples) for _, _, samples in stacks) == sum(share["samples"] for share in added["breakdown"])
    assert "tcp_sendmsg" in flame.read_text()


def test_command_runs_here_and_its_exit_code_is_ours(hosts: Hosts) -> None:
    done = hopscope("rx", *hosts.both("-i", 600), "--", "sh", "-c", "echo $PPID; exit 7")
    assert done.returncode == 7
    assert done.stdout.split()[0].isdecimal()


def test_plan_of_each_host_is_shown(hosts: Hosts) -> None:
    done = hopscope("rx", *hosts.both("--plan", "--hop", "rx.ip", "-d", 0.2))
    lines = done.stdout.splitlines()
    assert [lines[number - 1] for number, line in enumerate(lines) if line == "rx.driver"] == ["a", "b"]


# ---- what cannot be had ----


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--netns", "nosuch"], 2, "a: No network namespace is named nosuch. "),
        (["--remote-command", f"{NO_CAPABILITIES} hopscope agent"], 77, "a: "),
    ],
)
def test_what_a_host_refuses_is_one_sentence_with_its_name(
    hosts: Hosts, options: list[str], code: int, said: str
) -> None:
    done = hopscope("rx", "--host", "a", "--host", "b", "--ssh", hosts.ssh, "-d", 1, *options)
    assert complaint(done, code).startswith(said)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (OLD, f"The agent on {{}} is hopscope 0.0.1, this is {__version__}. Install the same version on both"),
        ("true", "{} sent no greeting"),
    ],
)
def test_hosts_without_an_agent_of_this_version_have_a_sentence_each(hosts: Hosts, command: str, said: str) -> None:
    done = hopscope("rx", "--host", "a", "--host", "b", "--ssh", hosts.ssh, "-d", 1, "--remote-command", command)
    assert done.returncode == 1
    # What a login shell of this machine has to say goes to standard error, too.
    lines = [line for line in done.stderr.splitlines() if line.startswith("hopscope: ")]
    assert lines == [f"hopscope: {said.format(name)}" for name in "ab"]
    assert done.stdout == ""


@pytest.mark.parametrize("verb", ["rx", "tx", "cpu", "drops"])
def test_options_for_hosts_need_hosts(verb: str) -> None:
    assert complaint(hopscope(verb, "--together"), 2) == "--together needs --host. Specify the hosts: --host HOST"


def test_what_does_not_go_together_is_refused_before_anybody_is_asked() -> None:
    hosts = ("--host", "nowhere.invalid")
    assert complaint(hopscope("rx", *hosts, "--together", "--json"), 2).startswith(
        "--together and --json cannot be combined"
    )
    assert complaint(hopscope("tx", *hosts, "--together", "--events"), 2).startswith("--together cannot be combined")
    assert complaint(hopscope("rx", *hosts, "--histogram", "--json"), 2).startswith(
        "--histogram and --json cannot be combined"
    )


# ---- hosts that are late, or gone ----


def line_with(child: subprocess.Popen[str], name: str) -> list[Json]:
    """Read objects until there has been one with a list of this name."""
    found: list[Json] = []
    assert child.stdout is not None
    for text in child.stdout:
        found += objects(text)
        if name in found[-1]:
            return found
    raise AssertionError(f"{name} never came")


def lines_until(child: subprocess.Popen[str], *wanted: tuple[str, str]) -> list[Json]:
    """Read objects until there has been one of each (host, schema)."""
    missing, found = set(wanted), []
    assert child.stdout is not None
    for text in child.stdout:
        found += objects(text)
        missing.discard((found[-1]["host"], found[-1]["schema"].split(".")[1].split("/")[0]))
        if not missing:
            return found
    raise AssertionError(f"{missing} never came")


def counted(documents: list[Json], host: str) -> int:
    """Return what the intervals of a host have counted."""
    mine = [each for each in documents if each["host"] == host and each["schema"] == "hopscope.rx/1"]
    return sum(count_of(each, "rx.core") for each in mine if each["kind"] == "interval")


def test_host_whose_agent_is_killed_is_missing_until_it_is_back(hosts: Hosts) -> None:
    with (
        Workload(hosts.lab.server, "tcp-echo", "--bind", SERVER_IPV4) as echo,
        Workload(hosts.lab.client, "tcp-rr", SERVER_IPV4, echo.port, "--rate", 100),
    ):
        child = start("rx", *hosts.both("--json", "-i", 0.2), start_new_session=True)
        before = lines_until(child, ("a", "rx"), ("b", "rx"))
        for pid in hosts.b.sessions():
            os.kill(pid, signal.SIGKILL)
        gone = lines_until(child, ("b", "absences"))
        while "no answer yet" in gone[-1]["absences"][0]["reason"]:  # late, before it was known to be gone
            gone += lines_until(child, ("b", "absences"))
        assert_fits(gone[-1], "absences-1")
        (absence,) = gone[-1]["absences"]
        assert absence["until"] is None
        assert "ended" in absence["reason"] or "failed" in absence["reason"]
        back = lines_until(child, ("a", "rx"), ("b", "rx"))
        os.killpg(child.pid, signal.SIGINT)  # as a terminal's Ctrl-C
        code, out, _ = ended(child)
    assert code == 1  # something is missing
    documents = [*before, *gone, *back, *objects(out)]
    for host in ("a", "b"):
        _, total = of_host(documents, host, "rx")
        assert count_of(total, "rx.core") >= counted(documents, host) > 0
        assert late(documents, host) or count_of(total, "rx.core") == counted(documents, host)
    whole = next(each for each in documents if each["schema"] == "hopscope.absences/1" and each["kind"] == "total")
    assert [each["from"] for each in whole["absences"]] == [absence["from"]]
    assert whole["absences"][0]["until"] > absence["from"]
    assert documents[-1]["host"] == "*"
    assert any(note.startswith("not in it: b missing from ") for note in documents[-1]["notes"])


def an_agent_of(child: subprocess.Popen[str]) -> int:
    """Return the process of one of a run's two local agents: which host's that is, nobody knows beforehand."""
    found: list[int] = []

    def all_there() -> bool:
        tasks = Path(f"/proc/{child.pid}/task").glob("*/children")
        found[:] = [int(word) for path in tasks for word in path.read_text(encoding="ascii").split()]
        return len(found) == 2

    eventually(all_there, "no agents")
    return found[0]


def test_host_that_is_late_holds_up_nobody_and_loses_nothing() -> None:
    hops = ("--hop", "rx.core", "--hop", "rx.ip")
    local = ("--host", "local,name=a", "--host", "local,name=b")
    child = start("rx", *local, *hops, "--json", "-i", 0.2)
    documents = lines_until(child, ("a", "rx"), ("b", "rx"))
    stopped = an_agent_of(child)
    os.kill(stopped, signal.SIGSTOP)
    try:
        missing = line_with(child, "absences")
        slow = missing[-1]["host"]
        missing += lines_until(child, ("b" if slow == "a" else "a", "rx"))
    finally:
        os.kill(stopped, signal.SIGCONT)
    assert "no answer yet" in next(each for each in missing if "absences" in each)["absences"][0]["reason"]
    documents += [*missing, *lines_until(child, (slow, "rx"))]
    child.send_signal(signal.SIGTERM)
    code, out, _ = ended(child)
    assert code == 0
    documents += objects(out)
    _, total = of_host(documents, slow, "rx")
    assert late(documents, slow) or count_of(total, "rx.core") == counted(documents, slow)
    assert not [each for each in documents if each["schema"] == "hopscope.absences/1" and each["kind"] == "total"]


def test_nothing_is_left_on_a_host_when_we_are_killed(hosts: Hosts) -> None:
    child = start("rx", *hosts.both("--json", "-i", 0.2))
    lines_until(child, ("a", "rx"), ("b", "rx"))
    child.kill()
    child.communicate()
    eventually(lambda: not hosts.a.sessions() and not hosts.b.sessions(), "agents are left")
