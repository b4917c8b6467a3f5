# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import socket
import struct
import time
from typing import TYPE_CHECKING

import pytest

from hopscope.timestamping import Sof, enable, receive
from hopscope.timestamping._abi import SCM_TIMESTAMPING_PKTINFO, SO_RXQ_OVFL, SO_TIMESTAMPING_NEW, SO_TIMESTAMPING_OLD
from tests.timestamping.pairs import TIMEOUT_S, Path
from tests.waiting import eventually

if TYPE_CHECKING:
    from hopscope.timestamping import Received


def stamped_read(sender: socket.socket, receiver: socket.socket) -> tuple[int, Received]:
    """Send until what arrives is stamped: the kernel begins with it some time after it was asked to."""

    def stamped() -> tuple[int, Received] | None:
        before_ns = time.time_ns()
        sender.send(b"ping")
        got = receive(receiver, 100)
        assert got.data == b"ping"
        return None if got.software_ns is None else (before_ns, got)

    return eventually(stamped, "the kernel does not stamp what it receives")


@pytest.mark.parametrize("kind", ["tcp", "udp"])
def test_arrival_is_between_send_and_read(path: Path, kind: str) -> None:
    with getattr(path, kind)() as (sender, receiver):
        enable(receiver, Sof.RX_SOFTWARE | Sof.SOFTWARE)
        before_ns, got = stamped_read(sender, receiver)
        time.sleep(0.05)
        sender.send(b"later")
        time.sleep(0.05)
        later = receive(receiver, 100)
    assert before_ns <= got.software_ns <= got.read_ns
    assert later.software_ns is not None
    assert later.software_ns - got.software_ns >= 40_000_000
    assert later.read_ns - later.software_ns >= 40_000_000
    assert (got.hardware_ns, got.ifindex, got.packet_len_bytes) == (None, None, None)


@pytest.mark.parametrize("kind", ["tcp", "udp"])
def test_without_stamps_there_are_none(lo: Path, kind: str) -> None:
    with getattr(lo, kind)() as (sender, receiver):
        sender.send(b"ping")
        got = receive(receiver, 100)
    assert (got.data, got.software_ns, got.hardware_ns, got.control) == (b"ping", None, None, [])


def test_dropped_datagrams_are_counted(lo: Path) -> None:
    with lo.udp() as (sender, receiver):
        receiver.setsockopt(socket.SOL_SOCKET, SO_RXQ_OVFL, 1)
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        for _ in range(50):
            sender.send(b"x" * 500)
        receiver.settimeout(0)
        read = 0
        while True:
            try:
                assert receive(receiver, 1000).dropped == 0
            except BlockingIOError:
                break
            read += 1
        sender.send(b"x")
        receiver.settimeout(TIMEOUT_S)
        assert receive(receiver, 1000).dropped == 50 - read > 0


class Wire:
    """Answers as a socket with a NIC that stamps would."""

    def __init__(self, control: list[tuple[int, int, bytes]]) -> None:
        self.control = control

    def recvmsg(self, *_: int) -> tuple[bytes, list[tuple[int, int, bytes]], int, None]:
        return b"data", self.control, 0, None


@pytest.mark.parametrize("name", [SO_TIMESTAMPING_OLD, SO_TIMESTAMPING_NEW], ids=["old", "new"])
def test_hardware_stamp_and_packet_information_are_decoded(name: int) -> None:
    stamp = (socket.SOL_SOCKET, name, struct.pack("6q", 0, 0, 0, 0, 12, 34))
    packet = (socket.SOL_SOCKET, SCM_TIMESTAMPING_PKTINFO, struct.pack("4I", 7, 1514, 99, 99))
    other = (socket.SOL_IP, 2, b"\x40\0\0\0")
    got = receive(Wire([stamp, packet, other]), 9)  # type: ignore[arg-type]
    assert (got.software_ns, got.hardware_ns) == (None, 12_000_000_034)
    assert (got.ifindex, got.packet_len_bytes, got.control) == (7, 1514, [other])
