# SPDX-License-Identifier: Apache-2.0
"""Drops of which the number and the cause are known: each with its count, the kernel's reason, and its place."""

from __future__ import annotations

import contextlib
import ctypes
import re
import socket
import struct
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hopscope.lab import Lab, Tbf, shape
from hopscope.lab.veth import CLIENT_IPV4, SERVER_IPV4, SERVER_IPV6
from tests.lab.measure import limit, udp_pair, way
from tests.lab.packets import Datagram
from tests.shared import first
from tests.verbs.cpu.work import index_of
from tests.verbs.cpu.work_programs import attach_xdp, programs
from tests.verbs.record.measure import recording
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.lab import Namespace
    from tests.verbs.record.measure import Seen

pytestmark = pytest.mark.root

DROPPED = 1009
_SO_ATTACH_FILTER = 26
SNMP = Path("/proc/thread-self/net/snmp")


@pytest.fixture(scope="module")
def recorder(kept_lab: Lab) -> Iterator[Seen]:
    """To load the programs takes long: the tests of this module share a recorder, of drops alone."""
    with recording(kept_lab, profiles=["drops"], stacks=True) as seen:
        yield seen


@pytest.fixture
def sender(kept_lab: Lab) -> Iterator[socket.socket]:
    with kept_lab.client.call(socket.socket, socket.AF_INET, socket.SOCK_DGRAM) as made:
        yield made


@pytest.fixture
def raw(kept_lab: Lab) -> Iterator[socket.socket]:
    """A socket that sends whole IPv4 packets."""
    with kept_lab.client.call(socket.socket, socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as made:
        yield made


def drops(seen: Seen, **values: Any) -> Counter[tuple[str, str, str, int]]:  # noqa: ANN401 - of any column
    """Return the reason, function and device of drops, with the port that the packet was for."""
    rows = seen.take().rows("drops").having(**values)
    symbols = {
        int(a): str(n) for a, n in zip(*(seen.rows("symbols")[name] for name in ("address", "name")), strict=True)
    }
    devices = seen.rows("devices")
    named = {
        (int(i), int(n)): str(name)
        for i, n, name in zip(devices["ifindex"], devices["netns"], devices["name"], strict=True)
    }
    found: Counter[tuple[str, str, str, int]] = Counter()
    for reason, place, flow, ifindex, netns in zip(
        *(rows[name].tolist() for name in ("reason", "location", "flow", "ifindex", "netns")), strict=True
    ):
        port = int(seen.ends(flow)[3]) if flow else 0
        function = symbols[place].partition("+")[0].partition(".")[0]
        found[seen.metadata.reasons[reason], function, named.get((ifindex, netns), ""), port] += 1
    return found


def assert_dropped(seen: Seen, expected: int, reason: str, functions: str, port: int) -> None:
    """So many drops of this kind at the server, no others, a packet event for each, and stacks that lead there."""
    found = drops(seen)
    assert sum(found.values()) == expected, found
    for was, function, at, to in found:
        assert (was, at, to) == (reason, "server0", port)
        assert re.fullmatch(functions, function), function
    rows, packets = seen.rows("drops"), seen.at("skb.drop")
    keys = ("time_ns", "cpu", "skb", "tid", "flow")
    assert sorted(zip(*(rows[key] for key in keys), strict=True)) == sorted(
        zip(*(packets[key] for key in keys), strict=True)
    )
    for stack in set(rows["stack"]):
        places = set(rows.having(stack=stack)["location"])
        assert all(any(function_of(seen, place) in frame for frame in frames(seen, stack)) for place in places)
        # It begins with what the kernel called, rather than with what of ours it called then.
        assert re.match(r"(sk_skb_reason_drop|kfree_skb|__kfree_skb)", frames(seen, stack)[0])


def function_of(seen: Seen, address: int) -> str:
    symbols = seen.rows("symbols").having(address=address)
    return str(symbols["name"][0]).partition("+")[0]


def frames(seen: Seen, stack: int) -> list[str]:
    rows = seen.rows("stacks").having(stack=stack)
    assert rows["depth"].tolist() == list(range(len(rows)))
    return [function_of(seen, address) for address in rows["address"]]


@contextlib.contextmanager
def nft(namespace: Namespace, *rules: str) -> Iterator[None]:
    script = "add table ip t; add chain ip t in { type filter hook input priority 0; }"
    done = namespace.run(["nft", "; ".join([script, *rules])], capture_output=True, text=True)
    try:
        if done.returncode:
            pytest.skip(f"no such rule here: {done.stderr}")
        yield
    finally:
        namespace.run(["nft", "delete table ip t"], capture_output=True)


def snmp(namespace: Namespace, protocol: str, name: str) -> int:
    """Return what the kernel counted."""
    lines = [line.split() for line in namespace.call(SNMP.read_text).splitlines() if line.startswith(f"{protocol}:")]
    return int(lines[1][lines[0].index(name)])


def test_a_rule_of_nftables(seen: Seen, kept_lab: Lab, sender: socket.socket) -> None:
    with nft(kept_lab.server, "add rule ip t in udp dport 7777 counter drop"):
        for _ in range(DROPPED):
            sender.sendto(bytes(100), (SERVER_IPV4, 7777))
        said = kept_lab.server.run(["nft", "list table ip t"], capture_output=True, text=True).stdout
    assert f"counter packets {DROPPED} " in said
    assert_dropped(seen, DROPPED, "NETFILTER_DROP", "nft_do_chain|nf_hook_slow", 7777)


def test_a_rule_that_asks_conntrack(seen: Seen, kept_lab: Lab) -> None:
    with (
        nft(kept_lab.server, "add rule ip t in ct state invalid counter drop"),
        kept_lab.client.call(socket.socket, socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP) as tcp,
    ):
        # No connection has these: a reset that nobody waits for.
        for _ in range(23):
            tcp.sendto(struct.pack("!HHIIBBHHH", 7, 7779, 1, 1, 0x50, 4, 0, 0, 0), (SERVER_IPV4, 0))
        said = kept_lab.server.run(["nft", "list table ip t"], capture_output=True, text=True).stdout
    assert "counter packets 23 " in said
    assert_dropped(seen, 23, "NETFILTER_DROP", "nft_do_chain|nf_hook_slow", 7779)


@pytest.mark.parametrize("name", ["veth-4", "veth-6", "lo-4"])
def test_a_full_receive_buffer(seen: Seen, kept_lab: Lab, name: str) -> None:
    path = way(kept_lab, name)
    with udp_pair(path) as (sending, receiver):
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
        for _ in range(211):
            sending.send(bytes(1000))
        port, read = receiver.getsockname()[1], 0
        with contextlib.suppress(BlockingIOError):
            while True:
                receiver.recv(2000, socket.MSG_DONTWAIT)
                read += 1
    assert 0 < read < 211
    # It waits in no device's queue any more: there its device is unknown.
    found = drops(seen)
    assert sum(found.values()) == 211 - read
    assert {(reason, to) for reason, _, _, to in found} == {("SOCKET_RCVBUFF", port)}
    assert set(seen.at("skb.drop")["netns"]) <= {0, path.receiver.inode}


@pytest.mark.parametrize("host", [SERVER_IPV4, SERVER_IPV6])
def test_no_listener_for_datagrams(seen: Seen, kept_lab: Lab, host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with kept_lab.client.call(socket.socket, family, socket.SOCK_DGRAM) as sending:
        for _ in range(101):
            sending.sendto(bytes(100), (host, 7778))
    found = drops(seen.take())
    assert {key: count for key, count in found.items() if key[0] == "NO_SOCKET"} == {
        ("NO_SOCKET", "__udp6_lib_rcv" if ":" in host else "__udp4_lib_rcv", "server0", 7778): 101
    }
    # What is dropped besides are the errors that came back for a socket that did not ask.
    assert {key[3] for key in found if key[0] != "NO_SOCKET"} <= {0}


@pytest.mark.parametrize("host", [SERVER_IPV4, SERVER_IPV6])
def test_no_listener_for_connections(seen: Seen, kept_lab: Lab, host: str) -> None:
    for _ in range(23):
        with pytest.raises(ConnectionRefusedError):
            kept_lab.client.call(socket.create_connection, (host, 9), 20)
    found = drops(seen)
    place = "tcp_v6_rcv" if ":" in host else "tcp_v4_rcv"
    assert {key: count for key, count in found.items() if key[3] == 9} == {("NO_SOCKET", place, "server0", 9): 23}
    # The reset ends the socket that had asked: it is dropped as well.
    assert {key[0] for key in found if key[3] != 9} <= {"TCP_RESET", "NOT_SPECIFIED"}


def test_the_time_to_live_is_over(seen: Seen, kept_lab: Lab, sender: socket.socket) -> None:
    kept_lab.server.sysctl("net.ipv4.ip_forward", 1)
    kept_lab.client.run(["ip", "route", "replace", "10.99.0.0/24", "via", SERVER_IPV4], check=True)
    sender.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 1)
    for _ in range(23):
        sender.sendto(bytes(100), ("10.99.0.1", 7780))
    kept_lab.server.run(["ip", "route", "replace", "10.99.0.0/24", "dev", "lo"], check=True)
    for _ in range(23):
        sender.sendto(bytes(100), ("10.99.0.1", 7781))
    found = drops(seen)
    assert {key: count for key, count in found.items() if key[3] == 7781} == {
        ("IP_INHDR", "ip_forward", "server0", 7781): 23
    }
    # There was no route there and then.
    assert {key[2:]: count for key, count in found.items() if key[3] == 7780} == {("server0", 7780): 23}
    assert snmp(kept_lab.server, "Ip", "InHdrErrors") >= 23


def udp_packet(port: int, payload: bytes, *, source: str = CLIENT_IPV4, wrong: int = 0, fragment: int = 0) -> bytes:
    """Return an IPv4 packet; what is added to its UDP checksum makes it wrong."""
    ends = (source, 7), (SERVER_IPV4, port)
    return Datagram(*ends, payload, checksum_error=wrong, fragment=fragment).build()


def send_wrong(lab: Lab, raw: socket.socket, receiver: socket.socket) -> int:
    """Send 23 datagrams that are wrong and as many that are right; return the port."""
    limit(receiver)
    port = int(receiver.getsockname()[1])
    before = snmp(lab.server, "Udp", "InCsumErrors")
    for _ in range(23):
        raw.sendto(udp_packet(port, bytes(101), wrong=1), (SERVER_IPV4, 0))
        raw.sendto(udp_packet(port, b"right"), (SERVER_IPV4, 0))
        assert receiver.recv(200) == b"right"
    assert snmp(lab.server, "Udp", "InCsumErrors") - before == 23
    return port


def test_a_wrong_checksum(seen: Seen, kept_lab: Lab, raw: socket.socket) -> None:
    accept_all = struct.pack("=HBBI", 6, 0, 0, 0xFFFFFFFF)
    program = ctypes.create_string_buffer(accept_all)
    with kept_lab.server.call(socket.socket, socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind((SERVER_IPV4, 0))
        # For a filter the kernel looks at the sum before it queues, else when the bytes are copied.
        receiver.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HL", 1, ctypes.addressof(program)))
        port = send_wrong(kept_lab, raw, receiver)
    found = drops(seen)
    assert {(key[0], *key[2:]): count for key, count in found.items()} == {("UDP_CSUM", "server0", port): 23}


def test_a_wrong_checksum_that_shows_when_it_is_read(kept_lab: Lab, raw: socket.socket) -> None:
    with kept_lab.server.call(socket.socket, socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind((SERVER_IPV4, 0))
        with recording(None, profiles=["drops"], ports=[receiver.getsockname()[1]]) as seen:
            port = send_wrong(kept_lab, raw, receiver)
            # In the socket a packet is at no device.
            assert {(key[0], *key[2:]): count for key, count in drops(seen).items()} == {("UDP_CSUM", "", port): 23}


def test_a_full_queue(seen: Seen, kept_lab: Lab, sender: socket.socket) -> None:
    shape(kept_lab.client, "client0", Tbf(1_000_000, limit_bytes=10_000))
    try:
        sender.connect((SERVER_IPV4, 7782))
        for _ in range(211):
            with contextlib.suppress(OSError):  # the refusal that comes back, or the queue's
                sender.send(bytes(1000))
        eventually(lambda: "backlog 0b 0p" in statistics(kept_lab))
        (dropped,) = re.findall(r"dropped (\d+)", statistics(kept_lab))
    finally:
        kept_lab.client.run(["tc", "qdisc", "del", "dev", "client0", "root"])
    found = drops(seen)
    at_queue = {key: count for key, count in found.items() if key[2] == "client0"}
    assert sum(at_queue.values()) == int(dropped) > 100
    assert {(key[0], key[3]) for key in at_queue} == {("QDISC_DROP", 7782)}
    sent = sum(at_queue.values()) + found["NO_SOCKET", "__udp4_lib_rcv", "server0", 7782]
    assert sent <= 211


def statistics(lab: Lab) -> str:
    words = ["tc", "-s", "qdisc", "show", "dev", "client0", "root"]
    return str(lab.client.run(words, capture_output=True, text=True, check=True).stdout)


def test_a_fragment_whose_others_do_not_come(seen: Seen, kept_lab: Lab, raw: socket.socket) -> None:
    kept_lab.server.sysctl("net.ipv4.ipfrag_time", 1)
    more_fragments = 0x2000
    raw.sendto(udp_packet(7783, bytes(80), fragment=more_fragments), (SERVER_IPV4, 0))
    eventually(lambda: bool(seen.take().rows("drops")["skb"].size))
    assert_dropped(seen, 1, "FRAG_REASM_TIMEOUT", ".*", 7783)
    assert snmp(kept_lab.server, "Ip", "ReasmFails") >= 1


def test_a_source_that_cannot_be(seen: Seen, kept_lab: Lab, raw: socket.socket) -> None:
    kept_lab.server.sysctl("net.ipv4.conf.server0.rp_filter", 1)
    try:
        for _ in range(23):
            raw.sendto(udp_packet(7784, b"x", source="192.0.2.7"), (SERVER_IPV4, 0))
        for _ in range(19):
            raw.sendto(udp_packet(7785, b"x", source="127.0.0.7"), (SERVER_IPV4, 0))
    finally:
        kept_lab.server.sysctl("net.ipv4.conf.server0.rp_filter", 0)
    found = drops(seen)
    assert {(key[0], *key[2:]): count for key, count in found.items()} == {
        ("IP_RPFILTER", "server0", 7784): 23,
        ("IP_LOCALNET", "server0", 7785): 19,
    }


# XDP_FLAGS_SKB_MODE and XDP_FLAGS_DRV_MODE.
GENERIC, NATIVE = 2, 4


@pytest.fixture(scope="module")
def programs_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("programs")


@pytest.mark.parametrize(
    ("flags", "program", "point", "action"),
    first([
        (GENERIC, "give_up", "xdp.exception", 0), (NATIVE, "hand_on", "xdp.redirect", 4),
        (NATIVE, "give_up", "xdp.exception", 0), (GENERIC, "hand_on", "xdp.redirect", 4),
    ], 2),
)  # fmt: skip
def test_xdp(programs_folder: Path, flags: int, program: str, point: str, action: int) -> None:
    with (
        Lab(offloads={"gro": True}) as lab,
        udp_pair(way(lab, "veth-4")) as (sending, _),
        recording(None, profiles=["all"], interfaces=[(index_of(lab.server, "server0"), lab.server.inode)]) as seen,
        programs(programs_folder, target=index_of(lab.server, "lo")) as bpf,
    ):
        attach_xdp(lab.server, "server0", bpf.programs[program].fd, flags)
        for _ in range(23):
            sending.send(bytes(100))
        eventually(lambda: len(seen.take().at(point)) >= 23)
        events = seen.at(point)
    assert (len(events), set(events["value"])) == (23, {action})
    assert seen.devices(events) == {("server0", lab.server.inode)}
    assert len(set(events["subject"])) == 1
