# SPDX-License-Identifier: Apache-2.0
"""Every figure of real sockets against ss and /proc/net in the same instant."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest

from hopscope.kernel.sockets.address import ends
from hopscope.kernel.sockets.sock_diag import Request
from hopscope.kernel.sockets.table import BBR, TCP, TIMERS, UDP, UDPLITE, Seen, Sockets, cookies, has
from hopscope.lab import Lab, Namespace
from hopscope.verbs.sockets.owners import SocketOwners
from hopscope.verbs.sockets.report import state_name
from tests.kernel.sockets.ss_lines import names, ss
from tests.kernel.sockets.tools import Connected, by_name, listening, made, read

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kernel.sockets.ss_lines import Line

pytestmark = pytest.mark.root


@pytest.fixture
def lab() -> Iterator[Lab]:
    """Make a network anew for each test: what another had opened is there for a minute after it was closed."""
    with Lab() as made:
        yield made


@pytest.fixture
def connected(lab: Lab) -> Iterator[Connected]:
    with contextlib.ExitStack() as stack:
        yield Connected(lab, stack)


def quiet(namespace: Namespace, *options: str, requests: list[Request]) -> tuple[Sockets, list[Line], Sockets]:
    """Return what we see, what ss sees, and what we see, with nothing in between that figures could tell of."""
    passing = {name for name, _ in TIMES.values()}
    for _ in range(50):
        before, theirs, after = (
            read(namespace, requests=requests),
            ss(namespace, *options),
            read(namespace, requests=requests),
        )
        order = [np.argsort(cookies(each.rows)) for each in (before, after)]
        # The kernel takes memory back when it likes, also from sockets that rest.
        kept = [
            [
                each.rows["memory"][at].tolist(),
                *(
                    each.rows["tcp"][name][at].tolist()
                    for name in each.rows["tcp"].dtype.names or ()
                    if name not in passing
                ),
            ]
            for each, at in zip((before, after), order, strict=True)
        ]
        if kept[0] == kept[1] and len(before) == len(theirs):
            return before, theirs, after
        time.sleep(0.1)
    pytest.fail("the sockets do not come to rest")


def milliseconds(text: str) -> float:
    """Return what print_ms_timer of ss prints: ``1.234ms``, ``12sec``, ``1min12sec``."""
    found = re.fullmatch(r"(?:(\d+)min)?(?:([\d.]+)sec)?(?:([\d.]+)ms)?", text)
    assert found, text
    minutes, seconds, ms = (float(part or 0) for part in found.groups())
    return minutes * 60_000 + seconds * 1000 + ms


def shown(value: float) -> str:
    return f"{value:g}"


def compare_tcp(line: Line, sockets: Sockets, row: int) -> int:
    """Compare all that ss prints of tcp_info and return how many figures that were."""
    info = {name: int(sockets.rows["tcp"][name][row]) for name in sockets.rows["tcp"].dtype.names or ()}
    wscale = info["bits_6"]
    ratio = {name: info[name] / 1000 for name in ("rto", "rtt", "rttvar", "ato", "rcv_rtt", "min_rtt")}
    plain = {
        "mss": "snd_mss", "pmtu": "pmtu", "rcvmss": "rcv_mss", "advmss": "advmss", "cwnd": "snd_cwnd",
        "bytes_sent": "bytes_sent", "bytes_retrans": "bytes_retrans", "bytes_acked": "bytes_acked",
        "bytes_received": "bytes_received", "segs_out": "segs_out", "segs_in": "segs_in",
        "data_segs_out": "data_segs_out", "data_segs_in": "data_segs_in", "delivered": "delivered",
        "delivered_ce": "delivered_ce", "unacked": "unacked", "dsack_dups": "dsack_dups", "lost": "lost",
        "sacked": "sacked", "reord_seen": "reord_seen", "rcv_space": "rcv_space", "rcv_ssthresh": "rcv_ssthresh",
        "notsent": "notsent_bytes", "rcv_ooopack": "rcv_ooopack", "snd_wnd": "snd_wnd", "rcv_wnd": "rcv_wnd",
        "rehash": "rehash", "backoff": "backoff",
    }  # fmt: skip
    expected: dict[str, str] = {theirs: str(info[ours]) for theirs, ours in plain.items()}
    expected |= {
        "wscale": f"{wscale & 15},{wscale >> 4}",
        "rto": shown(ratio["rto"]),
        "rtt": f"{shown(ratio['rtt'])}/{shown(ratio['rttvar'])}",
        "ato": shown(ratio["ato"]),
        "rcv_rtt": shown(ratio["rcv_rtt"]),
        "minrtt": shown(ratio["min_rtt"]),
        "ssthresh": str(info["snd_ssthresh"]),
        "reordering": str(info["reordering"]),
        "retrans": f"{info['retrans']}/{info['total_retrans']}",
        "pacing_rate": f"{info['pacing_rate'] * 8}bps",
        "delivery_rate": f"{info['delivery_rate'] * 8}bps",
    }
    compared = 0
    for name, value in expected.items():
        if name in line:
            assert line[name] == value, (name, line["rest"])
            compared += 1
    options = {
        name for bit, name in enumerate(("ts", "sack", "", "ecn", "ecnseen", "fastopen")) if info["options"] >> bit & 1
    }
    app_limited = {"app_limited"} if info["bits_7"] & 1 else set()
    assert line["flags"] == (options - {""}) | app_limited | {sockets.rows["cong"][row].decode()}
    return compared


def compare_common(line: Line, sockets: Sockets, row: int) -> None:
    message, memory = sockets.rows["message"][row], sockets.rows["memory"][row]
    assert line["state"] == state_name(int(message["state"]))
    assert (line["recv-q"], line["send-q"]) == (message["rqueue"], message["wqueue"])
    assert int(line.get("uid", 0)) == message["uid"]
    assert int(line.get("ino", 0)) == message["inode"]
    assert int(line["sk"], 16) == cookies(sockets.rows)[row]
    assert [int(each) for each in re.findall(r"\d+", line["skmem"])] == list(memory)


@pytest.mark.usefixtures("connected")
def test_every_figure_of_connections_is_that_of_ss(lab: Lab) -> None:
    options = ("-t", "-i", "-m", "-o", "-a")
    for namespace in (lab.client, lab.server):
        before, theirs, after = quiet(namespace, *options, requests=[Request(TCP)])
        rows, later = by_name(before), by_name(after)
        assert len(rows) == len(theirs) > 6
        compared = 0
        for line in theirs:
            name = line["local"], line["peer"]
            row = rows[name]
            compare_common(line, before, row)
            compared += compare_tcp(line, before, row)
            compare_times(line, before.rows["tcp"][row], after.rows["tcp"][later[name]])
            compare_timer(line, before.rows["message"][row], after.rows["message"][later[name]])
        assert compared > 25 * 6


TIMES = {
    "lastsnd": ("last_data_sent", 1), "lastrcv": ("last_data_recv", 1), "lastack": ("last_ack_recv", 1),
    "busy": ("busy_time", 1000), "rwnd_limited": ("rwnd_limited", 1000), "sndbuf_limited": ("sndbuf_limited", 1000),
}  # fmt: skip


def compare_times(line: Line, before: np.void, after: np.void) -> None:
    """Compare what goes on with time: it is between both of ours."""
    for theirs, (ours, unit) in TIMES.items():
        if theirs in line:
            value = int(re.match(r"\d+", line[theirs])[0])
            assert before[ours] // unit <= value <= after[ours] // unit, theirs


def compare_timer(line: Line, before: np.void, after: np.void) -> None:
    if not before["timer"] or before["timer"] != after["timer"]:
        return
    assert "timer" in line
    kind, expires, retrans = line["timer"].strip("()").split(",")
    assert kind == TIMERS[before["timer"]]
    assert int(retrans) == before["retrans"]
    if after["expires_ms"] <= before["expires_ms"]:  # it was not set anew
        # ss cuts off what is less than a second, or than a millisecond.
        assert int(after["expires_ms"]) - 1000 <= milliseconds(expires) <= before["expires_ms"]


@pytest.mark.usefixtures("connected")
def test_bbr_tells_of_its_model(lab: Lab) -> None:
    ours, theirs, _ = quiet(lab.client, "-t", "-i", "-m", "-a", requests=[Request(TCP)])
    rows = by_name(ours)
    compared = 0
    for line in theirs:
        row = rows[line["local"], line["peer"]]
        told = "bbr" in line
        assert told == bool(has(ours.rows, Seen.BBRINFO)[row])
        if told:
            bbr = np.frombuffer(ours.rows["control"][row].tobytes(), BBR)
            found = dict(re.findall(r"(\w+):([\d.]+)", line["bbr"]))
            assert float(found["bw"]) == (int(bbr["bw_lo"][0]) | int(bbr["bw_hi"][0]) << 32) * 8
            assert found["mrtt"] == shown(bbr["min_rtt_us"][0] / 1000)
            assert found.get("pacing_gain", "0") == shown(bbr["pacing_gain"][0] / 256)
            assert found.get("cwnd_gain", "0") == shown(bbr["cwnd_gain"][0] / 256)
            compared += 1
    assert compared >= 3


@pytest.mark.usefixtures("connected")
def test_owners_are_those_of_ss(lab: Lab) -> None:
    ours = read(lab.client, requests=[Request(TCP)])
    rows = by_name(ours)
    inodes = ours.rows["message"]["inode"]
    owners = SocketOwners().of(inodes.tolist())
    theirs = ss(lab.client, "-t", "-p", "-a")
    assert len(theirs) == len(rows)
    for line in theirs:
        expected = {(int(pid), int(fd)) for pid, fd in re.findall(r"pid=(\d+),fd=(\d+)", line["users"])}
        found = owners[int(inodes[rows[line["local"], line["peer"]]])]
        assert {(owner.pid, owner.fd) for owner in found} == expected
        assert (os.getpid(), found[0].comm) in {(owner.pid, owner.comm) for owner in found}


def test_listener_tells_its_queue_and_its_backlog(lab: Lab) -> None:
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(listening(lab.server, "10.77.0.2", 4100, backlog=7))
        for _ in range(3):
            stack.enter_context(made(lab.client, socket.AF_INET, socket.SOCK_STREAM)).connect(listener.getsockname())
        sockets = read(lab.server)
        row = sockets.rows["message"][by_name(sockets)["10.77.0.2:4100", "0.0.0.0:*"]]
        assert (row["rqueue"], row["wqueue"]) == (3, 7)
        (line,) = ss(lab.server, "-t", "-l", "sport", "=", ":4100")
        assert (line["recv-q"], line["send-q"]) == (3, 7)


def test_udp_sockets_are_those_of_ss(lab: Lab) -> None:
    with contextlib.ExitStack() as stack:
        for bound in (("10.77.0.2", 4200), ("0.0.0.0", 4201)):  # noqa: S104 # in a namespace of its own
            stack.enter_context(made(lab.server, socket.AF_INET, socket.SOCK_DGRAM, *bound))
        v6 = stack.enter_context(made(lab.server, socket.AF_INET6, socket.SOCK_DGRAM))
        v6.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        v6.bind(("::", 4202))
        stack.enter_context(made(lab.server, socket.AF_INET6, socket.SOCK_DGRAM, "::", 4203))
        to = stack.enter_context(made(lab.client, socket.AF_INET, socket.SOCK_DGRAM, "10.77.0.1", 4204))
        to.connect(("10.77.0.2", 4200))
        for _ in range(23):
            to.send(bytes(100))
        for namespace, expected in ((lab.server, 4), (lab.client, 1)):
            before, theirs, _ = quiet(namespace, "-u", "-m", "-a", requests=[Request(UDP)])
            rows = by_name(before)
            assert len(rows) == len(theirs) == expected
            for line in theirs:
                compare_common(line, before, rows[line["local"], line["peer"]])
        sockets = read(lab.server)
        row = by_name(sockets)["10.77.0.2:4200", "0.0.0.0:*"]
        assert sockets.rows["message"]["rqueue"][row] == sockets.rows["memory"]["rmem_alloc"][row] > 23 * 100


def test_udp_lite_is_seen_where_the_kernel_has_it(lab: Lab) -> None:
    try:
        sock = made(lab.client, socket.AF_INET, socket.SOCK_DGRAM, "10.77.0.1", 4300, protocol=UDPLITE)
    except OSError as error:
        pytest.skip(f"this kernel has no UDP-Lite: {error.strerror}")
    with sock:
        sockets = read(lab.client)
        row = by_name(sockets)["10.77.0.1:4300", "0.0.0.0:*"]
        assert sockets.rows["protocol"][row] == UDPLITE


def test_link_local_address_has_its_interface() -> None:
    with Namespace() as namespace:
        device = namespace.run(["ip", "link", "add", "name", "dummy7", "type", "bridge"], check=True)
        assert device.returncode == 0
        namespace.run(["ip", "addr", "add", "fe80::7/64", "dev", "dummy7", "nodad"], check=True)
        namespace.run(["ip", "link", "set", "dummy7", "up"], check=True)
        index = namespace.call(socket.if_nametoindex, "dummy7")
        with listening(namespace, "fe80::7", 4400, 0, index, family=socket.AF_INET6):
            sockets = read(namespace)
            assert set(by_name(sockets)) == {("[fe80::7]%dummy7:4400", "[::]:*")} == names(namespace, "-t", "-l")


@pytest.mark.usefixtures("connected")
def test_addresses_are_written_as_by_ss(lab: Lab) -> None:
    for namespace in (lab.client, lab.server):
        assert set(by_name(read(namespace))) == names(namespace, "-t", "-a") | names(namespace, "-u", "-a")


def test_marks_and_classes_are_told(lab: Lab) -> None:
    so_mark = 36
    with made(lab.client, socket.AF_INET6, socket.SOCK_STREAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, so_mark, 0x1234)
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 0x20)
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, 0x40)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, 5)
        sock.bind(("fd77::1", 4500))
        sock.listen()
        sockets = read(lab.client)
        (row,) = sockets.rows[ends_with(sockets, ":4500")]
        assert (row["mark"], row["tos"], row["tclass"], row["class_id"]) == (0x1234, 0x20, 0x40, 5)
        assert row["cgroup_id"] > 0
        assert has(sockets.rows, Seen.SOCKOPT).all()


def ends_with(sockets: Sockets, port: str) -> list[int]:
    return [row for row, name in enumerate(ends(sockets, "local")) if name.endswith(port)]


@pytest.mark.usefixtures("connected")
def test_there_are_as_many_as_in_proc(lab: Lab) -> None:
    for namespace in (lab.client, lab.server):
        sockets = read(namespace, requests=[Request(TCP)])
        lines = namespace.run(
            ["sh", "-c", "tail -qn +2 /proc/net/tcp /proc/net/tcp6"], capture_output=True, text=True
        ).stdout.splitlines()
        assert len(sockets) == len(lines)
        inodes = sorted(int(line.split()[9]) for line in lines)
        assert inodes == sorted(sockets.rows["message"]["inode"].tolist())
