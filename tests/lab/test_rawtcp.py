# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hopscope.errors import HopscopeError, KernelError
from hopscope.lab import Namespace
from tests.lab.packets import Segment, TcpFlag, build
from tests.lab.rawtcp import KERNEL_IPV4, RAW_IPV4, RawTcp, Tun

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.root


class Pair:
    """A raw client and the kernel's socket that it is connected to."""

    def __init__(self, namespace: Namespace, tun: Tun, raw: RawTcp, sock: socket.socket) -> None:
        self.namespace, self.tun, self.raw, self.sock = namespace, tun, raw, sock

    def readable(self) -> bytes:
        try:
            return self.sock.recv(65_536, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return b""


@contextlib.contextmanager
def connected(*, ipv6: bool = False, napi: bool = False, isn: int = 1_000) -> Iterator[Pair]:
    with contextlib.ExitStack() as stack:
        namespace = stack.enter_context(Namespace())
        tun = stack.enter_context(Tun(namespace, napi=napi))
        listener = stack.enter_context(
            namespace.call(socket.create_server, ("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
        )
        raw = stack.enter_context(RawTcp(tun, listener.getsockname()[1], ipv6=ipv6, isn=isn))
        sock, _ = listener.accept()
        yield Pair(namespace, tun, raw, stack.enter_context(sock))


def counter(table: str, group: str, name: str) -> int:
    lines = Path(f"/proc/thread-self/net/{table}").read_text().splitlines()
    names, values = (line.split() for line in lines if line.startswith(f"{group}:"))
    return int(values[names.index(name)])


@pytest.fixture(params=[(False, False), (True, False), (False, True), (True, True)], ids=["v4", "v6", "v4n", "v6n"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    ipv6, napi = request.param
    with connected(ipv6=ipv6, napi=napi) as made:
        yield made


def test_later_segments_wait_for_the_first(pair: Pair) -> None:
    pair.raw.send_segment(100, b"b" * 100)
    pair.raw.send_segment(200, b"c" * 100)
    pair.raw.listen_for(0.05)
    assert pair.readable() == b""
    assert pair.raw.acks == [0, 0]
    pair.raw.send_segment(0, b"a" * 100)
    pair.raw.wait_acked(300)
    assert pair.readable() == b"a" * 100 + b"b" * 100 + b"c" * 100
    assert pair.namespace.call(counter, "netstat", "TcpExt", "TCPOFOQueue") == 2


def test_duplicates_and_overlaps_are_delivered_once(pair: Pair) -> None:
    pair.raw.send_segment(0, b"0123456789")
    pair.raw.send_segment(0, b"0123456789")
    pair.raw.send_segment(5, b"56789abcde")
    pair.raw.wait_acked(15)
    assert pair.readable() == b"0123456789abcde"


def test_every_segment_was_taken_as_valid(pair: Pair) -> None:
    for number in range(23):
        pair.raw.send_segment(number * 7, b"1234567")
    pair.raw.wait_acked(23 * 7)
    assert pair.readable() == b"1234567" * 23
    assert pair.namespace.call(counter, "snmp", "Tcp", "InCsumErrors") == 0
    assert pair.namespace.call(counter, "snmp", "Tcp", "InErrs") == 0


def test_fin_ends_the_stream_of_each_side(pair: Pair) -> None:
    pair.raw.send_segment(0, b"request")
    pair.raw.send_fin()
    pair.raw.wait_acked(8)
    assert pair.readable() == b"request"
    assert pair.sock.recv(10) == b""
    pair.sock.sendall(b"reply")
    pair.sock.close()
    pair.raw.listen_for(0.05)
    assert bytes(pair.raw.received) == b"reply"
    assert pair.raw.peer_closed


@pytest.mark.parametrize("isn", [0xFFFFFFFF, 0xFFFFFFFE, 0xFFFFFF80, 0x7FFFFFFF, 0])
def test_sequence_numbers_wrap(isn: int) -> None:
    with connected(isn=isn) as pair:
        pair.raw.send_segment(200, b"b" * 200)
        pair.raw.send_segment(0, b"a" * 200)
        pair.raw.wait_acked(400)
        assert pair.readable() == b"a" * 200 + b"b" * 200


def test_leaving_resets_the_connection() -> None:
    with connected() as pair:
        pair.raw.send_segment(0, b"x")
        pair.raw.wait_acked(1)
        assert pair.readable() == b"x"
        pair.raw.__exit__(None, None, None)
        with pytest.raises(ConnectionResetError):
            pair.sock.recv(10)


def test_a_reset_by_the_kernel_is_noticed() -> None:
    with connected() as pair:
        pair.raw.send_segment(0, b"never read")
        pair.raw.wait_acked(10)
        pair.sock.close()
        pair.raw.listen_for(0.05)
        assert pair.raw.peer_reset
        with pytest.raises(HopscopeError, match="reset"):
            pair.raw.wait_acked(11)


def test_the_kernel_drops_a_segment_with_a_wrong_checksum() -> None:
    # Without this, the tests above would pass with any checksum at all if the kernel did not look.
    with connected() as pair:
        packet = bytearray(build(Segment((RAW_IPV4, 40_000), (KERNEL_IPV4, 9), 1, 0, TcpFlag.SYN)))
        packet[-1] ^= 1
        pair.tun.write(bytes(packet))
        assert pair.namespace.call(counter, "snmp", "Tcp", "InCsumErrors") == 1


def test_wait_acked_says_how_far_the_kernel_is() -> None:
    with connected() as pair:
        pair.raw.send_segment(10, b"x")
        with pytest.raises(HopscopeError, match="acknowledges 0 bytes, not 11"):
            pair.raw.wait_acked(11, timeout_s=0.05)


def test_no_listener_is_an_error() -> None:
    with Namespace() as namespace, Tun(namespace) as tun, pytest.raises(HopscopeError, match="Nothing listens"):
        RawTcp(tun, 9)


def test_a_taken_device_name_is_an_error() -> None:
    with Namespace() as namespace, Tun(namespace), pytest.raises(KernelError, match="tun0 cannot be made"):
        Tun(namespace)
