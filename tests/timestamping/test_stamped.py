# SPDX-License-Identifier: Apache-2.0
"""Every send comes back once, with its stamps or with the reason why it has none."""

from __future__ import annotations

import itertools
import socket
import struct
import time

import pytest

from hopscope.errors import KernelError, UsageError
from hopscope.timestamping import DEFAULT, Missing, Sof, Stage, Stamp, StampedSocket, enable, enabled, supported
from hopscope.timestamping._abi import SO_RXQ_OVFL
from tests.lab.measure import wait_acknowledged
from tests.timestamping.pairs import LO_4, TIMEOUT_S, Path, assert_each, count_calls, in_order, reset

N = 23
SENT = Sof.TX_SCHED | Sof.TX_SOFTWARE
TCP_CORK = 3


def drain(receiver: socket.socket, len_bytes: int) -> None:
    while len_bytes:
        len_bytes -= len(receiver.recv(min(len_bytes, 1 << 20)))


@pytest.mark.parametrize("timeout_s", [None, 0.0, TIMEOUT_S], ids=["blocking", "non-blocking", "time-out"])
def test_n_tcp_sends_are_n_messages(path: Path, timeout_s: float | None) -> None:
    with path.tcp() as (sender, receiver), StampedSocket(sender) as stamped:
        sender.settimeout(timeout_s)
        sent = []
        for number in range(N):
            sent.append(stamped.send(b"x" * (number + 1)))
            drain(receiver, number + 1)
        found = stamped.finish(TIMEOUT_S)
    assert_each(found, sent)
    assert [message.id for message in sent] == [(n + 1) * (n + 2) // 2 - 1 for n in range(N)]
    assert [message.len_bytes for message in sent] == list(range(1, N + 1))
    assert (stamped.counts.stamps, stamped.counts.unmatched, stamped.counts.overflows) == (3 * N, 0, 0)


@pytest.mark.parametrize("own_ids", [True, False])
@pytest.mark.parametrize("timeout_s", [None, 0.0], ids=["blocking", "non-blocking"])
def test_n_udp_sends_are_n_messages(path: Path, timeout_s: float | None, own_ids: bool) -> None:  # noqa: FBT001 - parameter
    with path.udp() as (sender, _), StampedSocket(sender) as stamped:
        sender.settimeout(timeout_s)
        if not own_ids:
            stamped._sends_ids = False
        sent = [stamped.send(b"x") for _ in range(N)]
        found = stamped.finish(TIMEOUT_S)
    assert_each(found, sent)
    assert [message.id for message in sent] == list(range(N))
    assert {message.wanted for message in sent} == {(Stage.SCHED, Stage.SND)}
    assert (stamped.counts.stamps, stamped.counts.unmatched) == (2 * N, 0)


@pytest.mark.root
def test_raw_and_packet_sockets_are_stamped(path: Path) -> None:
    kind = (socket.IPPROTO_ICMPV6, 128) if path.family == socket.AF_INET6 else (socket.IPPROTO_ICMP, 8)
    echo = bytes([kind[1], 0, 0, 0, 0, 1, 0, 1])
    with path.at_sender(socket.socket, path.family, socket.SOCK_RAW, kind[0]) as raw, StampedSocket(raw) as stamped:
        sent = [stamped.sendto(echo, (path.host, 0)) for _ in range(N)]
        assert_each(stamped.finish(TIMEOUT_S), sent)
    interface = "lo" if path.host in {"127.0.0.1", "::1"} else "client0"
    for layer in (socket.SOCK_DGRAM, socket.SOCK_RAW):
        with path.at_sender(socket.socket, socket.AF_PACKET, layer) as packet, StampedSocket(packet) as stamped:
            # An EtherType for local experiments, which no one reads.
            address = (interface, 0x88B5, 0, 0, b"\0" * 6)
            sent = [stamped.sendto(b"\0" * 60, address) for _ in range(N)]
            found = stamped.finish(TIMEOUT_S)
        # A packet socket may go past the queueing discipline, not past __dev_queue_xmit.
        assert_each(found, sent)


def test_messages_of_one_another_are_not_mixed_up(lo: Path) -> None:
    with lo.tcp() as (sender, receiver), StampedSocket(sender) as stamped:
        sent = []
        for _ in range(5):
            sent.append(stamped.send(b"x" * 1000))
            drain(receiver, 1000)
            wait_acknowledged(sender)
        stamped.finish(TIMEOUT_S)
    # The next is called only when the one before has been read.
    for message, following in itertools.pairwise(sent):
        assert in_order(message)
        assert message.time_ns[Stage.ACK] < following.called_ns


def test_coalesced_sends_are_reported(path: Path) -> None:
    with path.tcp() as (sender, receiver), StampedSocket(sender) as stamped:
        sender.setsockopt(socket.IPPROTO_TCP, TCP_CORK, 1)
        first, second, third = (stamped.send(b"x" * 10) for _ in range(3))
        sender.setsockopt(socket.IPPROTO_TCP, TCP_CORK, 0)
        drain(receiver, 30)
        found = stamped.collect(TIMEOUT_S)
    assert found.messages == [first, second, third]
    assert [message.missing for message in found.messages] == [Missing.COALESCED, Missing.COALESCED, None]
    assert first.time_ns == second.time_ns == {}
    assert in_order(third)


def test_empty_send_waits_for_nothing(lo: Path) -> None:
    with lo.tcp() as (sender, _), StampedSocket(sender) as stamped:
        assert enabled(sender) & Sof.OPT_ID_TCP == supported() & Sof.OPT_ID_TCP
        assert stamped.send(b"").wanted == ()
        assert stamped.waiting == 0


def test_partial_send_is_stamped_for_what_was_taken(lo: Path) -> None:
    with lo.tcp() as (sender, receiver), StampedSocket(sender) as stamped:
        sender.settimeout(0)
        message = stamped.send(bytes(64 << 20))
        assert 0 < message.len_bytes < 64 << 20
        with pytest.raises(BlockingIOError):
            stamped.send(b"x")
        drain(receiver, message.len_bytes)
        found = stamped.finish(TIMEOUT_S)
    assert found.messages == [message]
    assert message.complete
    assert message.id == message.len_bytes - 1


def test_send_that_would_block_shifts_nothing(lo: Path) -> None:
    with lo.tcp() as (sender, receiver), StampedSocket(sender) as stamped:
        sender.settimeout(0)
        sent, drained_bytes = [], 0
        for _ in range(3):
            with pytest.raises(BlockingIOError):  # noqa: PT012 - which of them finds the buffer full is the kernel's affair
                while True:
                    sent.append(stamped.send(bytes(1 << 20)))
            sent_bytes = sum(message.len_bytes for message in sent)
            drain(receiver, sent_bytes - drained_bytes)
            drained_bytes = sent_bytes
        wait_acknowledged(sender)  # so that it knows that there is room again
        sent.append(stamped.send(b"x"))
        found = stamped.finish(TIMEOUT_S)
    assert found.messages == sent
    assert {message.missing for message in sent} <= {None, Missing.COALESCED}
    assert sent[-1].complete


def test_bytes_that_went_past_are_made_known(lo: Path) -> None:
    with lo.tcp() as (sender, receiver), StampedSocket(sender) as stamped:
        sender.send(b"x" * 777)
        stamped.sent_elsewhere(777)
        drain(receiver, 777)
        message = stamped.send(b"y")
        drain(receiver, 1)
        found = stamped.finish(TIMEOUT_S)
    assert message.id == 777
    assert found.messages == [message]
    assert message.complete
    assert stamped.counts.unmatched == 3


@pytest.mark.parametrize("kind", ["tcp", "udp"])
def test_sampled_sends_alone_are_stamped(lo: Path, kind: str) -> None:
    with getattr(lo, kind)() as (sender, receiver), StampedSocket(sender, Sof(0)) as stamped:
        sampled = []
        for number in range(2 * N):
            message = stamped.send(b"x" * 10, record=SENT if number % 4 == 0 else None)
            drain(receiver, 10)
            if number % 4 == 0:
                sampled.append(message)
            else:
                assert message.wanted == ()
        assert_each(stamped.finish(TIMEOUT_S), sampled)
    assert stamped.counts.stamps == 2 * len(sampled)


@pytest.mark.parametrize("kind", ["tcp", "udp"])
def test_a_send_can_be_left_out(lo: Path, kind: str) -> None:
    with getattr(lo, kind)() as (sender, receiver), StampedSocket(sender) as stamped:
        sent = []
        for record in (None, Sof(0), Sof.TX_SOFTWARE):
            sent.append(stamped.send(b"x", record=record))
            drain(receiver, 1)
        assert_each(stamped.finish(TIMEOUT_S), [sent[0], sent[2]])
    assert sent[2].wanted == (Stage.SND,)
    assert sent[1].time_ns == {}


def test_ids_of_datagrams_wrap(path: Path) -> None:
    with path.udp() as (sender, _), StampedSocket(sender) as stamped:
        stamped.send(b"finds out that the kernel has ids of one's own")
        if not stamped._sends_ids:
            pytest.skip("this kernel has no SCM_TS_OPT_ID (6.13), and its counter cannot be set")
        stamped.finish(TIMEOUT_S)
        stamped._next_id = 2**32 - 3
        sent = [stamped.send(b"x") for _ in range(6)]
        assert_each(stamped.finish(TIMEOUT_S), sent)
    assert [message.id for message in sent] == list(range(2**32 - 3, 2**32 + 3))


def test_full_queue_of_datagrams_is_reported(path: Path) -> None:
    with path.udp() as (sender, _):
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        with StampedSocket(sender) as stamped:
            sent = [stamped.send(b"x") for _ in range(100)]
            found = stamped.finish(0.2)
            after = [stamped.send(b"x")]
            assert_each(stamped.finish(TIMEOUT_S), after)
    assert sorted(found.messages, key=lambda message: message.id) == sent
    complete = [message for message in sent if message.missing is None]
    assert 0 < len(complete) < 20
    assert {message.missing for message in sent if not message.complete} == {Missing.OVERFLOW}
    assert stamped.counts.overflows == 1


def test_full_queue_of_a_stream_is_not_taken_for_coalescing(lo: Path) -> None:
    with lo.tcp() as (sender, receiver):
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        with StampedSocket(sender) as stamped:
            sent = []
            for _ in range(50):
                sent.append(stamped.send(b"x"))
                drain(receiver, 1)
            found = stamped.collect(TIMEOUT_S)
            last = stamped.send(b"x")
            drain(receiver, 1)
            found.messages.extend(stamped.finish(TIMEOUT_S).messages)
    assert found.messages == [*sent, last]
    assert in_order(last)
    assert {message.missing for message in sent if not message.complete} == {Missing.OVERFLOW}
    assert any(message.missing for message in sent)


class FullQueue:
    """An error queue that was full, with the stamps that had room."""

    def __init__(self, *stamps: Stamp) -> None:
        self.stamps = stamps

    def read(self) -> tuple[list[Stamp], bool]:
        return [*self.stamps], True


def test_what_a_full_queue_tells_of_others_is_not_taken_for_coalescing(lo: Path) -> None:
    with lo.tcp() as (sender, _), StampedSocket(sender) as stamped:
        first, second = stamped.send(b"x"), stamped.send(b"x")
        stamped._queue = FullQueue(*(Stamp(stage, 1, 9) for stage in second.wanted))  # type: ignore[assignment]
        assert stamped.collect().messages == [first, second]
    assert (first.missing, second.missing) == (Missing.OVERFLOW, None)


def test_a_failed_send_on_a_kernel_without_ids_mixes_nothing_up(lo: Path) -> None:
    with lo.udp() as (sender, _), StampedSocket(sender) as stamped:
        stamped._sends_ids = False
        first = stamped.send(b"x")
        with pytest.raises(OSError, match="too long"):
            stamped.send(bytes(70_000))
        second = stamped.send(b"x")  # the first still waits
        assert stamped.collect(TIMEOUT_S).messages == [second, first]
        assert (second.missing, second.time_ns) == (Missing.UNCOUNTED, {})
        assert in_order(first)
        after = [stamped.send(b"x") for _ in range(3)]
        assert_each(stamped.finish(TIMEOUT_S), after)
        assert [message.id for message in (first, second, *after)] == list(range(5))


def test_ids_of_ones_own_survive_a_failed_send(lo: Path) -> None:
    with lo.udp() as (sender, _), StampedSocket(sender) as stamped:
        sent = [stamped.send(b"x")]
        if not stamped._sends_ids:
            pytest.skip("this kernel has no SCM_TS_OPT_ID (6.13)")
        for _ in range(2):
            with pytest.raises(OSError, match="too long"):
                stamped.send(bytes(70_000))
            sent.append(stamped.send(b"x"))
        assert_each(stamped.finish(TIMEOUT_S), sent)
        assert stamped._sends_ids


def test_a_bad_first_send_does_not_decide_about_ids(lo: Path) -> None:
    with lo.udp() as (sender, _), StampedSocket(sender) as stamped:
        bad = [(socket.SOL_SOCKET, 9999, b"\0\0\0\0")]
        with pytest.raises(OSError, match="Invalid argument"):
            stamped.sendmsg([b"x"], bad)
        assert_each(stamped.finish(TIMEOUT_S), [])
        sent = [stamped.send(b"x") for _ in range(2)]
        assert_each(stamped.finish(TIMEOUT_S), sent)


def test_network_errors_are_handed_over(lo: Path) -> None:
    with lo.udp() as (sender, receiver), StampedSocket(sender) as stamped:
        recverr = (socket.SOL_IP, 11) if lo.family == socket.AF_INET else (socket.IPPROTO_IPV6, 25)
        sender.setsockopt(*recverr, 1)
        receiver.close()
        message = stamped.send(b"to nobody")
        found = stamped.finish(TIMEOUT_S)
    assert found.messages == [message]
    assert [error.offender for error in found.errors] == [lo.host]


def test_stamps_end_with_the_context_and_the_flags_are_put_back(lo: Path) -> None:
    with lo.udp() as (sender, _):
        enable(sender, Sof.RX_SOFTWARE | Sof.SOFTWARE)
        with StampedSocket(sender, DEFAULT | Sof.OPT_CMSG) as stamped:
            assert enabled(sender) & ~Sof.OPT_ID_TCP == (
                SENT | Sof.RX_SOFTWARE | Sof.SOFTWARE | Sof.RAW_HARDWARE | Sof.OPT_ID | Sof.OPT_CMSG | Sof.OPT_TX_SWHW
            )
            assert sender.getsockopt(socket.SOL_SOCKET, SO_RXQ_OVFL) == 1
        assert enabled(sender) == Sof.RX_SOFTWARE | Sof.SOFTWARE
        assert sender.getsockopt(socket.SOL_SOCKET, SO_RXQ_OVFL) == 0
        stamped.close()
    with LO_4.tcp() as (sender, _), StampedSocket(sender):
        sender.close()


@pytest.mark.parametrize("kind", ["tcp", "udp"])
def test_ipv4_over_an_ipv6_socket_is_stamped(kind: str) -> None:
    with getattr(Path("::ffff:127.0.0.1"), kind)() as (sender, receiver), StampedSocket(sender) as stamped:
        sent = []
        for _ in range(3):
            sent.append(stamped.send(b"x"))
            drain(receiver, 1)
        assert_each(stamped.finish(TIMEOUT_S), sent)


def test_a_second_one_begins_anew(lo: Path) -> None:
    with lo.tcp() as (sender, receiver):
        for _ in range(2):
            with StampedSocket(sender) as stamped:
                message = stamped.send(b"x" * 10)
                drain(receiver, 10)
                assert stamped.finish(TIMEOUT_S).messages == [message]
                assert (message.id, message.complete) == (9, True)


def test_sends_beyond_the_limit_give_the_oldest_up(lo: Path) -> None:
    with lo.udp() as (sender, _), StampedSocket(sender, limit=4) as stamped:
        sent = [stamped.send(b"x") for _ in range(6)]
        found = stamped.finish(TIMEOUT_S)
    assert found.messages == sent
    assert [message.missing for message in sent] == [Missing.NO_STAMP] * 2 + [None] * 4
    assert stamped.counts.unmatched == 4


def test_hardware_stamps_that_do_not_come_are_missing(lo: Path) -> None:
    with lo.udp() as (sender, _), StampedSocket(sender, SENT | Sof.TX_HARDWARE) as stamped:
        message = stamped.send(b"x")
        found = stamped.finish(0.1)
    assert found.messages == [message]
    assert message.missing == Missing.NO_STAMP
    assert set(message.time_ns) == {Stage.SCHED, Stage.SND}


@pytest.mark.parametrize("timeout_s", [None, 0.0, TIMEOUT_S], ids=["blocking", "non-blocking", "time-out"])
def test_waiting_ends_at_the_time_out_and_is_idle(
    lo: Path, timeout_s: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lo.tcp() as (sender, receiver), StampedSocket(sender) as stamped:
        sender.settimeout(timeout_s)
        reset(sender, receiver)
        reads = count_calls(monkeypatch, stamped, "_read_queue")
        started_s = time.monotonic()
        assert stamped.collect(0.3) == ([], [])
        assert time.monotonic() - started_s >= 0.3
        assert len(reads) <= 3


def test_waiting_ends_when_a_stamp_comes(lo: Path) -> None:
    with lo.udp() as (sender, _), StampedSocket(sender) as stamped:
        for _ in range(3):
            message = stamped.send(b"x")
            assert stamped.collect(None).messages == [message]


@pytest.mark.parametrize(
    ("family", "kind", "protocol", "sentence"),
    [
        (socket.AF_UNIX, socket.SOCK_DGRAM, 0, "for sockets of IP and packet sockets"),
        (socket.AF_NETLINK, socket.SOCK_RAW, 0, "for sockets of IP and packet sockets"),
        (socket.AF_INET, socket.SOCK_STREAM, 262, "this stream socket cannot"),  # MPTCP
        (socket.AF_INET, socket.SOCK_STREAM, 0, "not connected"),
    ],
)
def test_socket_that_cannot_is_told(
    family: socket.AddressFamily, kind: socket.SocketKind, protocol: int, sentence: str
) -> None:
    try:
        made = socket.socket(family, kind, protocol)
    except OSError as error:
        pytest.skip(f"this kernel has no such socket: {error.strerror}")
    with made as sock, pytest.raises(UsageError, match=sentence):
        StampedSocket(sock)


def test_refused_flags_leave_the_socket_as_it_was(lo: Path) -> None:
    with lo.udp() as (sender, _):
        enable(sender, Sof.OPT_ID | Sof.TX_SCHED)
        with pytest.raises(KernelError, match="bit 30"):
            StampedSocket(sender, Sof.TX_SOFTWARE | 1 << 30)
        assert enabled(sender) == Sof.OPT_ID | Sof.TX_SCHED


def test_wrong_use_is_told(lo: Path) -> None:
    with lo.udp() as (sender, _), StampedSocket(sender) as stamped:
        with pytest.raises(UsageError, match="MSG_MORE"):
            stamped.send(b"x", socket.MSG_MORE)
        with pytest.raises(UsageError, match="Only a TCP socket"):
            stamped.sent_elsewhere(1)


def test_tcp_figures_are_those_of_tcp_info(path: Path) -> None:
    with path.tcp() as (sender, receiver), StampedSocket(sender, DEFAULT | Sof.OPT_STATS) as stamped:
        for number in range(N):
            message = stamped.send(b"x" * 100 * (number + 1))
            drain(receiver, 100 * (number + 1))
            stamped.finish(TIMEOUT_S)
        info = sender.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 232)
    stats = message.stats[Stage.ACK]
    # include/uapi/linux/tcp.h, struct tcp_info
    total_retrans, data_segs_out = (struct.unpack_from("I", info, at)[0] for at in (100, 156))
    bytes_sent, bytes_retrans = struct.unpack_from("2Q", info, 200)
    assert bytes_sent - bytes_retrans == 100 * N * (N + 1) // 2
    assert data_segs_out >= N
    assert stats["TCP_NLA_BYTES_SENT"] == bytes_sent
    assert stats["TCP_NLA_DATA_SEGS_OUT"] == data_segs_out
    assert (stats["TCP_NLA_TOTAL_RETRANS"], stats["TCP_NLA_BYTES_RETRANS"]) == (total_retrans, bytes_retrans)
    assert stats["TCP_NLA_SND_SSTHRESH"] == struct.unpack_from("I", info, 76)[0]
    assert stats["TCP_NLA_MIN_RTT"] >= struct.unpack_from("I", info, 148)[0] > 0
    assert "TCP_NLA_TTL" in stats
    assert "TCP_NLA_TTL" not in message.stats[Stage.SCHED]
