# SPDX-License-Identifier: Apache-2.0
"""Filters of ``record`` by process and cgroup: whose packets are whose, with other traffic beside them."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from hopscope.lab import Tbf, Workload, shape
from tests.lab.measure import NetworkPath, ping, udp_pair, way
from tests.shared import first
from tests.verbs.record.measure import covered, payload, recording
from tests.verbs.record.test_filters import PAIRS, data
from tests.verbs.rx.test_filters import cgroups, traffic
from tests.waiting import eventually

if TYPE_CHECKING:
    from hopscope.lab import Lab

pytestmark = pytest.mark.root


def sinks(path: NetworkPath, protocol: str) -> tuple[Workload, Workload]:
    words = (f"{protocol}-sink", "--bind", path.host)
    return Workload(path.receiver, *words), Workload(path.receiver, *words)


def send(path: NetworkPath, protocol: str, sink: Workload, messages: int) -> int:
    words = (path.host, sink.port, "--size", 100, "--count", messages, "--rate", 1000)
    with Workload(path.sender, f"{protocol}-send", *words) as sender:
        sender.result()
        return sender.pid


@pytest.mark.parametrize("protocol", PAIRS)
def test_pid_of_a_reader(kept_lab: Lab, protocol: str) -> None:
    path = way(kept_lab, "veth-4")
    wanted, other = sinks(path, protocol)
    with wanted, other, recording(None, pids=[wanted.pid]) as seen:
        for sink, messages in ((other, 69), *([(wanted, 23)] if protocol == "tcp" else [(wanted, 1), (wanted, 22)])):
            send(path, protocol, sink, messages)
            if messages == 1:
                eventually(lambda: len(seen.take().at("rx.received")) > 0)
        (wanted.result if protocol == "tcp" else wanted.stop)()
        seen.take()
    flows = seen.rows("flows")
    assert {port for name in ("source_port", "destination_port") for port in flows[name]} >= {wanted.port}
    for name in ("packets", "sockets"):
        for flow in set(seen.rows(name)["flow"]) - {0}:
            assert wanted.port in seen.ends(flow)
    got = seen.at("rx.received")
    assert got.where(got["len_bytes"] > 0)["len_bytes"].sum() == 2300
    if protocol == "udp":
        # It is not connected: whose the datagrams are is known by the port that it has read from.
        first_read = seen.at("rx.received").by_time()["time_ns"][0]
        arrived = seen.at("rx.core")
        assert len(arrived.where(arrived["time_ns"] > first_read)) >= 22
    else:
        # Whose a connection is shows with the first call on it, which reads all that has come by then.
        reads = got.where(got["len_bytes"] > 0).by_time()["len_bytes"]
        assert payload(data(seen, "rx.core")).sum() >= reads[1:].sum()


@pytest.mark.parametrize("protocol", PAIRS)
@pytest.mark.parametrize("profile", first(["messages", "packets", "tx"]))
def test_pid_of_a_sender(kept_lab: Lab, protocol: str, profile: str) -> None:
    path = way(kept_lab, "veth-4")
    script = (
        "import socket, sys\n"
        "sys.stdin.readline()\n"
        f"kind = socket.SOCK_{'STREAM' if protocol == 'tcp' else 'DGRAM'}\n"
        "sock = socket.socket(socket.AF_INET, kind)\n"
        "sock.connect((sys.argv[1], int(sys.argv[2])))\n"
        "for _ in range(23): sock.send(bytes(100))\n"
        "sys.stdin.readline()\n"
    )
    sink = Workload(path.receiver, f"{protocol}-sink", "--bind", path.host)
    child = path.sender.popen(
        [sys.executable, "-c", script, path.host, str(sink.port)], stdin=subprocess.PIPE, text=True, bufsize=1
    )
    with sink, child, udp_pair(path) as other, recording(None, profiles=[profile], pids=[child.pid]) as seen:
        assert child.stdin is not None
        assert ping(*other, 69) == 69
        child.stdin.write("\n")
        child.stdin.write("\n")
        child.wait(20)
        assert ping(*other, 69) == 69
        seen.take()
    packets = seen.at("tx.queue")
    assert {sink.port in seen.ends(flow) for flow in packets["flow"]} == {True}
    sent = packets.where(payload(packets) > 0)
    # TCP may send some bytes again.
    assert (covered(sent["seq"], payload(sent)) if protocol == "tcp" else payload(sent).sum()) == 2300
    assert set(seen.rows("sockets")["tid"]) <= {child.pid, *seen.at("rx.ready")["tid"], *seen.at("tcp.state")["tid"]}
    if protocol == "udp":
        assert len(packets) == len(seen.at("tx.start")) == len(seen.at("tx.driver")) == 23


@pytest.mark.parametrize("protocol", first(PAIRS))
def test_a_process_that_is_interrupted_is_not_whose_packets_these_are(kept_lab: Lab, protocol: str) -> None:
    path = way(kept_lab, "veth-4")
    with contextlib.ExitStack() as stack:
        spinners = [
            stack.enter_context(subprocess.Popen(["taskset", "-c", str(cpu), sys.executable, "-c", "while 1: pass"]))
            for cpu in sorted(os.sched_getaffinity(0))
        ]
        for spinner in spinners:
            stack.callback(spinner.kill)
        sink = stack.enter_context(Workload(path.receiver, f"{protocol}-sink", "--bind", path.host))
        seen = stack.enter_context(recording(None, pids=[spinner.pid for spinner in spinners]))
        # With a TBF the packets go, and arrive, when a timer says so: in the time of whoever runs.
        shape(path.sender, "client0", Tbf(2_000_000))
        stack.callback(path.sender.run, ["tc", "qdisc", "del", "dev", "client0", "root"])
        words = (path.host, sink.port, "--size", 1000, "--count", 211, "--rate", 2000)
        stack.enter_context(Workload(path.sender, f"{protocol}-send", *words)).result()
        seen.take()
    assert seen.counts() == {}


@pytest.mark.parametrize("protocol", first(PAIRS))
def test_name_of_the_process(kept_lab: Lab, protocol: str) -> None:
    path = way(kept_lab, "veth-4")
    with recording(None, comms=["wanted-name"]) as seen:
        traffic(path, protocol, 69, "--comm", "wanted-names")
        traffic(path, protocol, 23, "--comm", "wanted-name")
        traffic(path, protocol, 7)
        seen.take()
    got = seen.at("rx.received")
    assert got.where(got["len_bytes"] > 0)["len_bytes"].sum() == 2300
    assert {name for _, name in {seen.thread(tid, at) for tid, at in zip(got["tid"], got["time_ns"], strict=True)}} == {
        "wanted-name"
    }


@pytest.mark.parametrize("protocol", PAIRS)
def test_cgroup_and_those_below(kept_lab: Lab, protocol: str) -> None:
    path = way(kept_lab, "veth-4")
    with cgroups() as (wanted, child, other), recording(None, cgroups=[wanted.stat().st_ino]) as seen:
        traffic(path, protocol, 23, "--cgroup", wanted)
        traffic(path, protocol, 69, "--cgroup", other)
        traffic(path, protocol, 7, "--cgroup", child)
        seen.take()
    got = seen.at("rx.received")
    assert got.where(got["len_bytes"] > 0)["len_bytes"].sum() == 3000
    # The socket knows its cgroup whoever runs: the reader is told of each message.
    assert len(data(seen, "rx.core")) >= 30 - 2
    assert len({tuple(sorted(map(str, seen.ends(flow)))) for flow in set(seen.at("rx.core")["flow"])}) == 2


# Takes as many datagrams, and answers them all when it is told to.
ANSWERS = """
import socket, sys
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.setsockopt(socket.SOL_SOCKET, 33, 8 << 20)
sock.bind((sys.argv[1], 0))
print(sock.getsockname()[1], flush=True)
peers = [sock.recvfrom(10)[1] for _ in range(int(sys.argv[2]))]
print("all", flush=True)
sys.stdin.readline()
for peer in peers:
    sock.sendto(b"answer", peer)
print("done", flush=True)
"""


def test_many_flows_of_a_process(kept_lab: Lab) -> None:
    path, flows = way(kept_lab, "veth-4"), 1009
    argv = [sys.executable, "-c", ANSWERS, path.host, str(flows)]
    with contextlib.ExitStack() as stack:
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        child = stack.enter_context(path.receiver.popen(argv, **pipes))
        seen = stack.enter_context(recording(None, profiles=["packets"], pids=[os.getpid()]))
        port = int(child.stdout.readline())
        senders = []
        for _ in range(flows):
            sender = kept_lab.client.call(socket.socket, socket.AF_INET, socket.SOCK_DGRAM)
            senders.append(stack.enter_context(sender))
            sender.connect((path.host, port))
            sender.send(b"x")
        assert child.stdout.readline() == "all\n"
        there = seen.take().at("rx.core")
        seen.forget()
        # Nothing but what was known before says now whose these are.
        child.stdin.write("\n")
        child.stdin.close()
        assert child.stdout.readline() == "done\n"
        back = seen.take().at("rx.core")
        assert len(there) == len(there.having(flow=[seen.socket_flows(sender)[0] for sender in senders])) == flows
        assert len(back) == len(back.having(flow=[seen.socket_flows(sender)[1] for sender in senders])) == flows
