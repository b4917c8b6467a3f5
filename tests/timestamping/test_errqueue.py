# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import errno
import socket
import time
from typing import TYPE_CHECKING

import pytest

from hopscope.timestamping import ErrorQueue, NetworkError, Sof, Stage, Stamp, enable, send_control
from hopscope.timestamping._abi import SO_TIMESTAMPING_NEW, SO_TIMESTAMPING_OLD, U32
from tests.timestamping.pairs import TIMEOUT_S, Path

if TYPE_CHECKING:
    from collections.abc import Callable

SENT = Sof.TX_SCHED | Sof.TX_SOFTWARE
REPORT = Sof.SOFTWARE | Sof.OPT_ID | Sof.OPT_TSONLY
SO_EE_ORIGIN_ICMP, SO_EE_ORIGIN_ICMP6, SO_EE_ORIGIN_ZEROCOPY = 2, 3, 5
SO_ZEROCOPY = 60
# include/uapi/linux/in6.h
IPV6_RECVERR, IPV6_RECVPKTINFO = 25, 49
IP_RECVERR = 11


def read(sock: socket.socket, enough: Callable[[list[Stamp | NetworkError]], bool]) -> list[Stamp | NetworkError]:
    """Read until there is enough."""
    queue, found = ErrorQueue(sock), []
    deadline_s = time.monotonic() + TIMEOUT_S
    while not enough(found):
        assert time.monotonic() < deadline_s, found
        found += queue.read()[0]
    return found


@pytest.mark.parametrize("name", [SO_TIMESTAMPING_OLD, SO_TIMESTAMPING_NEW], ids=["old", "new"])
def test_stamps_are_between_the_calls(lo: Path, name: int) -> None:
    with lo.udp() as (sock, _):
        sock.setsockopt(socket.SOL_SOCKET, name, U32.pack(SENT | REPORT))
        before_ns = time.time_ns()
        sock.send(b"one")
        sock.send(b"two")
        stamps = read(sock, lambda found: len(found) == 4)
        after_ns = time.time_ns()
    assert [(stamp.stage, stamp.packet_id) for stamp in stamps] == [
        (Stage.SCHED, 0),
        (Stage.SND, 0),
        (Stage.SCHED, 1),
        (Stage.SND, 1),
    ]
    times_ns = [stamp.time_ns for stamp in stamps]
    assert [before_ns, *times_ns, after_ns] == sorted([before_ns, *times_ns, after_ns])


def test_many_more_than_a_batch_come_in_one_read(lo: Path) -> None:
    with lo.udp() as (sock, _):
        enable(sock, Sof.TX_SOFTWARE | REPORT)
        for _ in range(150):
            sock.send(b"x")
        stamps, _ = ErrorQueue(sock).read()
    assert [stamp.packet_id for stamp in stamps] == list(range(150))


@pytest.mark.parametrize("timeout_s", [None, 0.0, 10.0])
def test_empty_queue_is_read_without_waiting(lo: Path, timeout_s: float | None) -> None:
    with lo.udp() as (sock, _):
        sock.settimeout(timeout_s)
        started_s = time.monotonic()
        assert ErrorQueue(sock).read() == ([], False)
        assert time.monotonic() - started_s < 5


def test_control_messages_of_one_send_choose_stages_and_id(lo: Path) -> None:
    with lo.udp() as (sock, _):
        enable(sock, REPORT)
        sock.send(b"not sampled")
        try:
            sock.sendmsg([b"x"], send_control(Sof.TX_SOFTWARE, packet_id=2**32 - 1))
        except OSError as error:
            pytest.skip(f"this kernel has no SCM_TS_OPT_ID (6.13): {error.strerror}")
        sock.sendmsg([b"x"], send_control(Sof.TX_SCHED, packet_id=0))
        sock.sendmsg([b"x"], send_control(Sof.TX_SOFTWARE))
        stamps = read(sock, lambda found: len(found) == 3)
        assert ErrorQueue(sock).read()[0] == []
    # The third has the socket's counter, which ids of one's own do not move.
    assert [(s.stage, s.packet_id) for s in stamps] == [(Stage.SND, 2**32 - 1), (Stage.SCHED, 0), (Stage.SND, 0)]


def test_interface_is_told_with_opt_cmsg(lo: Path) -> None:
    with lo.udp() as (sock, _):
        if lo.family == socket.AF_INET:
            sock.setsockopt(socket.SOL_IP, socket.IP_PKTINFO if hasattr(socket, "IP_PKTINFO") else 8, 1)
        else:
            sock.setsockopt(socket.IPPROTO_IPV6, IPV6_RECVPKTINFO, 1)
        enable(sock, Sof.TX_SOFTWARE | Sof.SOFTWARE | Sof.OPT_ID | Sof.OPT_CMSG)
        sock.send(b"x")
        (stamp,) = read(sock, lambda found: len(found) == 1)
    assert stamp.ifindex == socket.if_nametoindex("lo")


def test_icmp_error_is_handed_over_beside_stamps(lo: Path) -> None:
    with lo.udp() as (sock, receiver):
        four = lo.family == socket.AF_INET
        sock.setsockopt(*((socket.SOL_IP, IP_RECVERR) if four else (socket.IPPROTO_IPV6, IPV6_RECVERR)), 1)
        enable(sock, SENT | REPORT)
        receiver.close()
        sock.send(b"to nobody")
        found = read(sock, lambda found: len(found) == 3)
    (error,) = (record for record in found if isinstance(record, NetworkError))
    assert error.errno == errno.ECONNREFUSED
    assert (error.origin, error.type, error.code) == ((SO_EE_ORIGIN_ICMP, 3, 3) if four else (SO_EE_ORIGIN_ICMP6, 1, 4))
    assert error.offender == lo.host
    assert error.payload == b"to nobody"
    assert {record.stage for record in found if isinstance(record, Stamp)} == {Stage.SCHED, Stage.SND}


def test_zero_copy_notification_is_handed_over(lo: Path) -> None:
    with lo.tcp() as (sock, receiver):
        sock.setsockopt(socket.SOL_SOCKET, SO_ZEROCOPY, 1)
        enable(sock, Sof.TX_SOFTWARE | REPORT)
        for _ in range(2):
            sock.send(b"x" * 50_000, 0x4000000)  # MSG_ZEROCOPY
        assert len(receiver.recv(100_000, socket.MSG_WAITALL)) == 100_000

        def ended(found: list[Stamp | NetworkError]) -> bool:
            return sum(r.data - r.info + 1 for r in found if isinstance(r, NetworkError)) == 2

        found = read(sock, ended)
    errors = [record for record in found if isinstance(record, NetworkError)]
    assert {(error.errno, error.origin) for error in errors} == {(0, SO_EE_ORIGIN_ZEROCOPY)}
    assert [number for error in errors for number in range(error.info, error.data + 1)] == [0, 1]
    assert [record.packet_id for record in found if isinstance(record, Stamp)] == [49_999, 99_999]


def test_full_queue_is_told(lo: Path) -> None:
    with lo.udp() as (sock, _):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        enable(sock, Sof.TX_SOFTWARE | REPORT)
        queue = ErrorQueue(sock)
        for count, full in ((5, False), (200, True), (5, False)):
            for _ in range(count):
                sock.send(b"x")
            stamps, found_full = queue.read()
            assert found_full == full
            assert (len(stamps) < count) == full


def test_closed_socket_is_an_error(lo: Path) -> None:
    with lo.udp() as (sock, _):
        queue = ErrorQueue(sock)
    with pytest.raises(OSError, match="Bad file descriptor"):
        queue.read()
