# SPDX-License-Identifier: Apache-2.0
"""Stamps against causes that are known: a token bucket, lost packets, devices on one another, a slow peer."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from typing import TYPE_CHECKING

import pytest

from hopscope.lab import Lab, Tbf, shape
from hopscope.timestamping import DEFAULT, Missing, Sof, Stage, StampedSocket, enable, receive, supported
from hopscope.timestamping import stamped as stamped_module
from tests.stamping import stamping
from tests.timestamping.pairs import TIMEOUT_S, Path, assert_each, in_order, veth

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.lab import Namespace

pytestmark = pytest.mark.root

MS = 1_000_000
MAC_IP_UDP_BYTES = 14 + 20 + 8


@contextlib.contextmanager
def no_tcp(namespace: Namespace, hook: str) -> Iterator[None]:
    """Drop what TCP receives (``input``) or sends (``output``) there meanwhile."""
    chain = f"type filter hook {hook} priority 0\n meta l4proto tcp drop\n"
    namespace.run(["nft", "-f", "-"], input=f"table inet t {{\n chain c {{\n {chain} }}\n}}\n", text=True, check=True)
    yield
    namespace.run(["nft", "delete", "table", "inet", "t"], check=True)


def test_token_bucket_holds_a_datagram_as_long_as_its_backlog_takes(lab: Lab) -> None:
    tbf = Tbf(rate_bit_s=2_000_000, burst_bytes=2_000)
    shape(lab.client, "client0", tbf)
    with stamping(), veth(lab, 4).udp() as (sender, receiver), StampedSocket(sender) as stamped:
        enable(receiver, Sof.RX_SOFTWARE | Sof.SOFTWARE)
        sent = [stamped.send(bytes(1_000)) for _ in range(80)]
        assert_each(stamped.finish(TIMEOUT_S), sent)
        arrived_ns = [receive(receiver, 1_000).software_ns for _ in sent]
    wire_bytes = 1_000 + MAC_IP_UDP_BYTES
    first_ns = sent[0].called_ns
    for number in range(20, 80):
        ahead_bytes = (number + 1) * wire_bytes - tbf.burst_bytes
        leaves_ns = first_ns + ahead_bytes * 8 * 10**9 // tbf.rate_bit_s
        expected_ns = leaves_ns - sent[number].time_ns[Stage.SCHED]
        queued_ns = sent[number].time_ns[Stage.SND] - sent[number].time_ns[Stage.SCHED]
        assert expected_ns * 0.9 - 5 * MS < queued_ns, number
        # How late the bucket let it go, where something held up the machine, the other side says as well.
        assert sent[number].time_ns[Stage.SND] <= arrived_ns[number], number


def test_datagrams_that_the_queue_drops_are_missing(lab: Lab) -> None:
    # The bucket passes 1 of 1,042 bytes, the queue holds 4, and there is none to the next in less than 4 s.
    shape(lab.client, "client0", Tbf(rate_bit_s=2_000, burst_bytes=1_050, limit_bytes=5_000))
    with veth(lab, 4).udp() as (sender, receiver), StampedSocket(sender) as stamped:
        sent = [stamped.send(bytes(1_000)) for _ in range(20)]
        shape(lab.client, "client0", Tbf(rate_bit_s=100_000_000, burst_bytes=20_000, limit_bytes=50_000))
        sent.append(stamped.send(bytes(1_000)))  # has the queue look at what it may send now
        for _ in range(6):
            receiver.recv(1_000)
        found = stamped.finish(1.0)
    dropped = [message for message in sent if not message.complete]
    shown = lab.client.run(["tc", "-s", "qdisc", "show", "dev", "client0"], capture_output=True, text=True).stdout
    assert f"(dropped {len(dropped)}," in shown
    assert dropped == sent[5:20]
    assert sorted(found.messages, key=lambda message: message.id) == sent
    assert {(message.missing, *message.time_ns) for message in dropped} == {(Missing.NO_STAMP, Stage.SCHED)}


@pytest.mark.parametrize("version", [4, 6])
def test_retransmitted_send_keeps_its_first_stamps(lab: Lab, version: int) -> None:
    with veth(lab, version).tcp() as (sender, receiver), StampedSocket(sender, DEFAULT | Sof.OPT_STATS) as stamped:
        with no_tcp(lab.server, "input"):
            message = stamped.send(b"x" * 100)
            assert stamped.collect(0.3) == ([], [])
        assert receiver.recv(1000) == b"x" * 100
        found = stamped.finish(TIMEOUT_S)
        info = sender.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 232)
    assert found.messages == [message]
    assert in_order(message)
    (total_retrans,) = struct.unpack_from("I", info, 100)
    assert message.repeats[Stage.SCHED] == message.repeats[Stage.SND] == total_retrans >= 1
    assert message.stats[Stage.ACK]["TCP_NLA_TOTAL_RETRANS"] == total_retrans
    assert message.stats[Stage.ACK]["TCP_NLA_BYTES_RETRANS"] == 100 * total_retrans
    assert message.time_ns[Stage.SND] < message.returned_ns + 200 * MS
    assert message.time_ns[Stage.ACK] - message.time_ns[Stage.SND] > 300 * MS


def test_devices_on_one_another_each_stamp(lab: Lab) -> None:
    for namespace, ifname, address in (
        (lab.client, "client0", "10.78.0.1/24"),
        (lab.server, "server0", "10.78.0.2/24"),
    ):
        made = namespace.run(["ip", "link", "add", "link", ifname, "name", "upper", "type", "macvlan"])
        if made.returncode:
            pytest.skip("this kernel has no macvlan")
        namespace.run(["ip", "addr", "add", address, "dev", "upper"], check=True)
        namespace.run(["ip", "link", "set", "upper", "up"], check=True)
    with Path("10.78.0.2", lab.client.call, lab.server.call).udp() as (sender, _), StampedSocket(sender) as stamped:
        stamped.send(b"x")  # a packet waits until the neighbour is known
        stamped.finish(TIMEOUT_S)
        message = stamped.send(b"x")
        found = stamped.finish(TIMEOUT_S)
    assert found.messages == [message]
    assert message.repeats == {Stage.SCHED: 1}


def test_offsets_without_opt_id_tcp_begin_behind_what_is_not_acknowledged(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = supported() & ~Sof.OPT_ID_TCP
    monkeypatch.setattr(stamped_module, "supported", lambda: older)
    with veth(lab, 4).tcp() as (sender, receiver):
        shape(lab.client, "client0", Tbf(rate_bit_s=200_000))
        sender.send(bytes(20_000))
        with StampedSocket(sender) as stamped:
            sent = [stamped.send(bytes(1_000)) for _ in range(3)]
            left_bytes = 23_000
            while left_bytes:
                left_bytes -= len(receiver.recv(left_bytes))
            found = stamped.finish(TIMEOUT_S)
    assert [message.id for message in sent] == [999, 1_999, 2_999]
    assert found.messages == sent
    assert sent[-1].complete
    # The sends of these few bytes may have shared a packet, which is reported; no stamp is of an unknown byte.
    assert {message.missing for message in sent} <= {None, Missing.COALESCED}
    assert stamped.counts.unmatched == 0


def test_acknowledgement_waits_for_the_peer(lab: Lab) -> None:
    with veth(lab, 4).tcp() as (sender, receiver), StampedSocket(sender) as stamped:
        with no_tcp(lab.server, "output"):
            message = stamped.send(b"x")
            assert receiver.recv(10) == b"x"
            received_ns = time.time_ns()
            time.sleep(0.1)
            assert stamped.collect() == ([], [])
            assert Stage.ACK not in message.time_ns
        assert stamped.finish(TIMEOUT_S).messages == [message]
    assert message.time_ns[Stage.SND] <= received_ns
    assert message.time_ns[Stage.ACK] - message.time_ns[Stage.SND] > 100 * MS
