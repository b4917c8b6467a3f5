# SPDX-License-Identifier: Apache-2.0
"""Filters in pcap's language, run in the kernel: they want what libpcap and tcpdump want."""

from __future__ import annotations

import re
import signal
import socket
import struct
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import build_bpf
from hopscope.errors import KernelError, UsageError
from hopscope.kernel import pcap
from hopscope.kernel.pcap import compile_filter, functions
from hopscope.lab import Lab
from hopscope.libbpf import BpfObject
from tests.lab.measure import TIMEOUT_S, NetworkPath, tcp_pair, udp_pair, wait_at_rest, way
from tests.libbpf.judge import PACKET_BYTES, Packet, judged_by_libpcap, judged_in_kernel, loaded

if TYPE_CHECKING:
    from collections.abc import Iterator

BPF = Path(__file__).parent / "bpf"
JUDGE = Path(__file__).parents[1] / "libbpf" / "bpf" / "pcap.bpf.c"

PORTS = [53, 80, 443, 8080]
HOSTS = ["10.0.0.1", "10.0.0.2", "192.168.1.1", "224.0.0.5"]
HOSTS6 = ["fd00::1", "fd00::2", "ff02::1"]
PROTOCOLS = [socket.IPPROTO_TCP, socket.IPPROTO_UDP, socket.IPPROTO_ICMP, socket.IPPROTO_SCTP, 58, 44, 0, 47]

ports = st.sampled_from(PORTS)
sides = st.sampled_from(["", "src ", "dst ", "src and dst "])
loads = st.builds(
    "{}[{}:{}] {} {}".format,
    st.sampled_from(["ip", "ip6", "tcp", "udp", "icmp"]),
    st.sampled_from(["0", "1", "2", "5", "6", "9", "12", "13", "20", "100", "ip[0] & 0xf", "len - 4"]),
    st.sampled_from([1, 2, 4]),
    st.sampled_from(["=", "!=", ">", "<=", "& 0x1f !="]),
    st.sampled_from([0, 2, 17, 80, 0x4500, 0x0A000001]),
)
atoms = st.one_of(
    st.sampled_from(
        [
            *("tcp", "udp", "icmp", "icmp6", "ip", "ip6", "sctp", "ip proto 47", "ip6 proto 17", "ip multicast"),
            *(
                "ip6 multicast",
                "ip[6:2] & 0x1fff = 0",
                "tcp[tcpflags] & (tcp-syn|tcp-fin) != 0",
                "greater 60",
                "less 41",
            ),
            *("((ip[2:2] - ((ip[0] & 0xf) << 2)) - ((tcp[12] & 0xf0) >> 2)) != 0", "icmp[icmptype] = icmp-echo"),
            *("tcp[((tcp[12] & 0xf0) >> 2):4] = 0x47455420", "net 10.0.0.0/8", "ip6 net fd00::/16", "len % 3 = 1"),
            *("tcp portrange 50-443", "net 192.168.0.0/16"),
        ]
    ),
    st.builds("{}port {}".format, sides, ports),
    st.builds("{}host {}".format, sides, st.sampled_from(HOSTS + HOSTS6)),
    loads,
)
expressions = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.builds("not ({})".format, inner),
        st.builds("({}) {} ({})".format, inner, st.sampled_from(["and", "or"]), inner),
    ),
    max_leaves=5,
)


@st.composite
def packets(draw: st.DrawFn) -> Packet:
    """A packet of IP, or nearly one."""
    protocol = draw(st.sampled_from(PROTOCOLS))
    data_offset = draw(st.integers(5, 8))
    l4 = struct.pack("!HHIIBB", draw(ports), draw(ports), 7, 9, data_offset << 4, draw(st.integers(0, 63)))
    body = l4 + draw(st.one_of(st.just(b"GET / HTTP/1.1"), st.binary(max_size=60)))
    if draw(st.booleans()):
        words, fragment = draw(st.sampled_from([5, 5, 5, 6, 15])), draw(st.sampled_from([0, 0, 0x2000, 0x0010]))
        source, destination = (socket.inet_aton(draw(st.sampled_from(HOSTS))) for _ in range(2))
        length = 4 * words + len(body)
        head = struct.pack("!BBHHHBBH", 0x40 | words, 0, length, 7, fragment, 64, protocol, 0)
        whole = head + source + destination + bytes(4 * words - 20) + body
    else:
        source, destination = (socket.inet_pton(socket.AF_INET6, draw(st.sampled_from(HOSTS6))) for _ in range(2))
        whole = struct.pack("!IHBB", 6 << 28, len(body), protocol, 64) + source + destination + body
    whole = draw(st.sampled_from([whole, whole, whole, draw(st.binary(max_size=80))]))[:PACKET_BYTES]
    return Packet(whole[: draw(st.one_of(st.just(PACKET_BYTES), st.integers(0, len(whole))))], len(whole))


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("bpf") / "pcap.bpf.o"
    build_bpf.compile_object(JUDGE, target, build_bpf.host_arch())
    return target


@pytest.mark.slow
@pytest.mark.root
@settings(max_examples=300)
@given(expression=expressions, asked=st.lists(packets(), min_size=1, max_size=30))
def test_every_expression_wants_what_libpcap_wants(judge: Path, expression: str, asked: list[Packet]) -> None:
    try:
        program = compile_filter(expression)
    except UsageError as error:
        assume("rejects all packets" not in str(error))
        raise
    with loaded(judge, program) as bpf:
        assert judged_in_kernel(bpf, asked) == judged_by_libpcap(program, asked)


@pytest.mark.root
def test_a_filter_of_many_hosts_has_room(judge: Path) -> None:
    hosts = [f"10.1.{number // 200}.{number % 200 + 1}" for number in range(499)]
    program = compile_filter(" or ".join(f"src host {host}" for host in hosts))
    with loaded(judge, program) as bpf:
        asked = [
            Packet(struct.pack("!B11x4s4x", 0x45, socket.inet_aton(host)), 20)
            for host in ["10.1.0.1", hosts[-1], "10.1.9.9", "10.0.0.1"]
        ]
        assert judged_in_kernel(bpf, asked) == [True, True, False, False]


def test_an_expression_that_is_wrong_is_said_in_a_sentence() -> None:
    with pytest.raises(UsageError, match=r"'tcp prot 80' is not a valid packet filter: .*syntax error"):
        compile_filter("tcp prot 80")
    with pytest.raises(UsageError, match="Ethernet"):
        compile_filter("ether host 00:11:22:33:44:55")


def test_a_loop_is_said_to_be_none_that_can_be_run() -> None:
    (translated,) = functions("ip protochain 6").values()
    with pytest.raises(UsageError, match="The filter has a loop"):
        translated(1 << 14)


def test_without_libpcap_the_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pcap, "LIBRARY", "libpcap-that-there-is-not.so")
    pcap.library.cache_clear()
    with pytest.raises(KernelError, match=r"apt-get install libpcap0\.8"):
        compile_filter("tcp")
    pcap.library.cache_clear()


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab() as made:
        yield made


def traffic(lab: Lab) -> None:
    """Send datagrams and TCP over IPv4 and IPv6, in numbers that are prime."""
    for name, datagrams, messages in (("veth-4", 211, 23), ("veth-6", 101, 13)):
        path = way(lab, name)
        with udp_pair(path) as (sender, receiver):
            for number in range(datagrams):
                sender.send(struct.pack("!I", number) * 25)
                receiver.recv(200)
        with tcp_pair(path) as (client, server):
            for number in range(messages):
                client.sendall(struct.pack("!I", number) * 10)
                server.recv(40, socket.MSG_WAITALL)
    wait_at_rest(lab.client, lab.server)


@pytest.mark.root
@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("udp", 211 + 101),
        ("ip and udp", 211),
        ("ip6 and udp and dst host fd77::2", 101),
        ("udp[8:4] = 97", 1),  # for pcap, of IPv4 alone
        ("tcp[tcpflags] & tcp-syn != 0", 1),
        ("tcp and src host 10.77.0.1", None),
        ("not udp", None),
        ("src net 10.0.0.0/8 and tcp and ((ip[2:2] - ((ip[0] & 0xf) << 2)) - ((tcp[12] & 0xf0) >> 2)) = 40", 23),
    ],
)
def test_tcpdump_counts_as_many(tmp_path: Path, lab: Lab, expression: str, expected: int | None) -> None:
    target = tmp_path / "pcap_count.bpf.o"
    build_bpf.compile_object(BPF / "pcap_count.bpf.c", target, build_bpf.host_arch())
    path: NetworkPath = way(lab, "veth-4")
    expression = f"({expression}) and (dst host 10.77.0.2 or dst host fd77::2)"
    with BpfObject.open(target, functions(expression)) as bpf:
        bpf.set_const("cfg_pcap", 1)
        bpf.set_const("ifindex", path.receiver.call(socket.if_nametoindex, path.ifname))
        bpf.set_const("netns", path.receiver.inode)
        bpf.load()
        argv = ["tcpdump", "-p", "-n", "-i", path.ifname, "-w", "/dev/null", expression]
        tcpdump = path.receiver.popen(argv, stderr=subprocess.PIPE, text=True)
        assert "listening on" in tcpdump.stderr.readline()
        bpf.programs["count"].attach()
        traffic(lab)
        tcpdump.send_signal(signal.SIGINT)
        _, words = tcpdump.communicate(timeout=TIMEOUT_S)
        seen, wanted = (int(bpf.data(".bss")[name]) for name in ("seen", "wanted"))
    (passed,) = re.findall(r"(\d+) packets? received by filter", words)
    assert wanted == int(passed)
    assert wanted == expected or expected is None
    assert 0 < wanted < seen
