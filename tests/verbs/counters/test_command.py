# SPDX-License-Identifier: Apache-2.0
"""``hopscope counters`` on traffic whose counts are known, against nstat and ip."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from hopscope.kernel.counters.reader import PER_NAMESPACE
from hopscope.lab import Lab, Namespace
from hopscope.lab.veth import CLIENT_IFNAME, SERVER_IFNAME, SERVER_IPV4
from tests.lab.command import assert_fits, complaint, ended, hopscope, objects, only, start
from tests.provoke.evidence import link, moved, nstat
from tests.waiting import TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.lab.command import Json

pytestmark = pytest.mark.root
SENT, CLOSED = 1009, 101
PORT, CLOSED_PORT = 7779, 7
_SO_RCVBUFFORCE = 33  # include/uapi/asm-generic/socket.h
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all")
PROTOCOLS = {"snmp", "snmp6", "netstat"}
# It ends when the last datagram is read, and answered; those to the closed port come first.
SEND = f"""
import socket
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range({CLOSED}):
    sender.sendto(b"x", ("{SERVER_IPV4}", {CLOSED_PORT}))
for _ in range({SENT}):
    sender.sendto(b"x", ("{SERVER_IPV4}", {PORT}))
sender.recv(1)
"""


@pytest.fixture(scope="module")
def kept_lab() -> Iterator[Lab]:
    with Lab() as made:
        yield made


@contextmanager
def reader(kept_lab: Lab) -> Iterator[None]:
    """Read so many datagrams, and answer the last."""

    def read(receiver: socket.socket) -> None:
        for left in reversed(range(SENT)):
            _, address = receiver.recvfrom(1)
            if not left:
                receiver.sendto(b"x", address)

    with kept_lab.server.call(socket.socket, socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 1 << 22)
        receiver.bind((SERVER_IPV4, PORT))
        receiver.settimeout(TIMEOUT_S)
        thread = threading.Thread(target=read, args=(receiver,))
        thread.start()
        yield
        thread.join()


def sending(kept_lab: Lab) -> list[str]:
    """Return the words of a command that sends, in the client's namespace."""
    return ["--", "nsenter", f"--net=/proc/{kept_lab.client.pid}/ns/net", sys.executable, "-c", SEND]


def counted(document: Json, netns: int, sources: set[str]) -> dict[str, int]:
    """Return what was counted in a namespace, by name."""
    rows = [row for row in document["rows"] if row["netns"] == netns and row["source"] in sources]
    return {row["name"]: row["count"] for row in rows if row["kind"] == "counter"}


def test_a_command_s_datagrams_are_counted_exactly_as_nstat_and_ip_have_them(kept_lab: Lab) -> None:
    ends = {kept_lab.client: CLIENT_IFNAME, kept_lab.server: SERVER_IFNAME}
    before = {end: (nstat(end), link(end, name)["stats64"]) for end, name in ends.items()}
    with reader(kept_lab):
        done = hopscope("counters", "--json", "-i", 0.1, *only(kept_lab), *sending(kept_lab))
    after = {end: (nstat(end), link(end, name)["stats64"]) for end, name in ends.items()}
    assert done.returncode == 0, done.stderr
    *intervals, total = objects(done.stdout)
    for each in (*intervals, total):
        assert_fits(each, "counters-1")
    for end in ends:
        found = counted(total, end.inode, PROTOCOLS)
        assert found == moved(before[end][0], after[end][0]), total["notes"]
        parts = [counted(each, end.inode, PROTOCOLS) for each in intervals]
        assert found == {name: sum(part.get(name, 0) for part in parts) for name in found}
    server = counted(total, kept_lab.server.inode, PROTOCOLS)
    assert (server["UdpInDatagrams"], server["UdpNoPorts"], server["UdpOutDatagrams"]) == (SENT, CLOSED, 1)
    assert server["IpInReceives"] == SENT + CLOSED
    assert counted(total, kept_lab.client.inode, PROTOCOLS)["UdpOutDatagrams"] == SENT + CLOSED


@pytest.mark.skipif("link" not in PER_NAMESPACE, reason="interfaces are not among the sources yet")
def test_devices_are_counted_as_ip_has_them(kept_lab: Lab) -> None:
    before = link(kept_lab.server, SERVER_IFNAME)["stats64"]
    with reader(kept_lab):
        done = hopscope("counters", "--json", "--layer", "device", *only(kept_lab), *sending(kept_lab))
    after = link(kept_lab.server, SERVER_IFNAME)["stats64"]
    *_, total = objects(done.stdout)
    assert {row["layer"] for row in total["rows"]} <= {"device"}
    found = counted(total, kept_lab.server.inode, {"link"})
    assert found["rx_packets"] == SENT + CLOSED == after["rx"]["packets"] - before["rx"]["packets"]
    assert found["rx_bytes"] == after["rx"]["bytes"] - before["rx"]["bytes"]
    assert found["tx_packets"] == after["tx"]["packets"] - before["tx"]["packets"]


def test_table_shows_only_what_the_command_moved(kept_lab: Lab) -> None:
    with reader(kept_lab):
        done = hopscope("counters", *only(kept_lab), "--layer", "udp", "--layer", "icmp", *sending(kept_lab))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert lines[0].startswith("counters  ")
    assert " total " in lines[0]
    assert any(line.startswith("while nsenter") for line in lines)
    assert sum("UdpInDatagrams" in line for line in lines) == 2  # of either side, and no table of intervals
    assert f"{SENT:,}" in next(line for line in lines if "UdpInDatagrams" in line and f"{SENT:,}" in line)
    assert next(line for line in lines if "UdpNoPorts" in line).startswith("~ ")
    # From the lower layer to the higher.
    assert lines.index(next(line for line in lines if line.startswith("icmp"))) < lines.index(
        next(line for line in lines if line.startswith("udp"))
    )


def test_intervals_are_shown_where_they_are_asked_for(kept_lab: Lab) -> None:
    # The command ends when its input does.
    with start("counters", *only(kept_lab), "--layer", "udp", "-i", 0.1, "--", "cat", stdin=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        seen = []
        while len(seen) < 3 and (line := child.stdout.readline()):
            seen += [line] * line.startswith("counters")
        child.stdin.close()
        rest = child.stdout.read()
        assert child.wait(TIMEOUT_S) == 0
    assert len(seen) == 3
    assert not any(" total " in heading for heading in seen)
    headings = [line for line in rest.splitlines() if line.startswith("counters")]
    assert [" total " in heading for heading in headings][-1]
    assert sum(" total " in heading for heading in headings) == 1
    assert "No counter increased." in rest


def test_exit_code_is_the_command_s(kept_lab: Lab) -> None:
    done = hopscope("counters", *only(kept_lab), "--layer", "udp", "--", "sh", "-c", "echo said; exit 7")
    assert done.returncode == 7
    assert done.stdout.startswith("said\n")
    assert hopscope("counters", *only(kept_lab), "--layer", "udp", "-d", 0.2).returncode == 0


def test_command_s_words_do_not_come_between_the_json(kept_lab: Lab) -> None:
    done = hopscope("counters", "--json", *only(kept_lab), "--layer", "udp", "--", "echo", "said")
    assert all(each["schema"] == "hopscope.counters/1" for each in objects(done.stdout))
    assert done.stderr == "said\n"


def test_everything_is_shown_where_it_is_asked_for(kept_lab: Lab) -> None:
    done = hopscope("counters", "--json", *only(kept_lab), "--all", "--name", "Udp*", "-d", 0.2)
    *_, total = objects(done.stdout)
    assert {row["name"] for row in total["rows"] if row["netns"] == kept_lab.client.inode} >= {
        "UdpMemErrors",
        "UdpNoPorts",
    }
    assert total["read"] == len(total["rows"])


def test_namespaces_that_come_and_go_are_said() -> None:
    with start("counters", "--json", "-i", 0.1, "--layer", "udp") as child:
        assert child.stdout is not None
        lines = child.stdout
        lines.readline()
        # One that gets the number of another test's, which ended in the same interval, is taken for that.
        for _ in range(20):
            with Namespace() as brief:
                inode, name = brief.inode, str(brief.pid)
                said = (note for _ in range(10) for note in json.loads(lines.readline())["notes"])
                if any(name in note for note in said):
                    break
        while not any(note.startswith("ended: ") for note in json.loads(lines.readline())["notes"]):
            pass
        child.send_signal(signal.SIGINT)
        code, out, err = ended(child)
    assert code == 0, err
    *_, total = objects(out)
    assert any(note.startswith("begun: ") for note in total["notes"])
    assert any(note.startswith("ended: ") for note in total["notes"])
    assert all(row["netns"] != inode or row["namespace"] for row in total["rows"])


def test_without_root_the_own_namespace_is_read_and_the_rest_is_said(kept_lab: Lab) -> None:
    done = hopscope("counters", "--json", "-d", 0.2, "--all", "--name", "UdpNoPorts", before=NOBODY)
    assert done.returncode == 0, done.stderr
    *_, total = objects(done.stdout)
    assert [row["netns"] for row in total["rows"]]
    assert kept_lab.client.inode not in {row["netns"] for row in total["rows"]}
    assert any(note.startswith("without CAP_SYS_ADMIN and CAP_SYS_PTRACE, ") for note in total["notes"])


def test_namespace_that_cannot_be_entered_is_said(kept_lab: Lab) -> None:
    done = hopscope(
        "counters",
        "-d",
        0.2,
        f"--netns={kept_lab.client.pid}",
        before=("setpriv", "--bounding-set=-sys_admin", "--inh-caps=-all"),
    )
    assert done.returncode == 0, done.stderr
    assert "cannot be entered" in " ".join(done.stdout.split())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (("--layer", "physical"), 2, "'physical' is not one of"),
        (("--name", "UdpNoPort"), 2, "Did you mean UdpNoPorts"),
        (("--name", "qqqqqq"), 2, "No counter matches qqqqqq"),
        (("--name", ""), 2, "--name is empty"),
        (("--netns", "nowhere"), 2, "No network namespace is named nowhere"),
        (("-i", "0"), 2, "'--interval'"),
        (("--", "/nonexistent"), 2, "cannot be started"),
        (("--json", "explain", "x"), 2, "explain must come before all options"),
        (("explain",), 2, "NAME"),
        (("explain", "TcpExtListenDropz"), 2, "Did you mean TcpExtListenDrops"),
    ],
)
def test_what_cannot_be_is_one_sentence(words: tuple[str, ...], code: int, sentence: str) -> None:
    assert sentence in complaint(hopscope("counters", *words), code)


def test_explanations_need_no_root() -> None:
    done = hopscope("counters", "explain", "tcptimeouts", "UdpNoPorts", before=NOBODY)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("TcpExtTCPTimeouts  tcp  (nstat -az)\n")
    assert "\n\nUdpNoPorts  udp  (nstat -az)\n" in done.stdout


@pytest.mark.slow
def test_explanations_as_json_fit_their_schema() -> None:
    done = hopscope("counters", "explain", "--json", "*")
    documents = objects(done.stdout)
    assert len(documents) > 600
    for each in documents:
        assert_fits(each, "counters.explain-1")


def test_what_is_known_is_said_though_not_all_is() -> None:
    done = hopscope("counters", "explain", "UdpNoPorts", "qqqqqq")
    assert done.stdout.startswith("UdpNoPorts")
    assert "named qqqqqq" in complaint(done, 2)


def test_stop_by_a_signal_shows_the_whole() -> None:
    with start("counters", "-i", 0.1, "--layer", "udp") as child:
        assert child.stdout is not None
        headings = 0
        while headings < 2 and (line := child.stdout.readline()):
            headings += line.startswith("counters")
        child.send_signal(signal.SIGINT)
        code, out, err = ended(child)
    assert (code, err) == (0, "")
    assert " total " in out
