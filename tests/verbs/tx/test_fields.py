# SPDX-License-Identifier: Apache-2.0
"""The state of TCP's sockets at the stages of their messages, against what ``ss`` says of the same sockets."""

from __future__ import annotations

import fcntl
import socket
import sys
import termios
from typing import TYPE_CHECKING, Any

import pytest

from hopscope.model.message import FIELDS, STAGES, SentMessage
from tests.kernel.sockets.ss_lines import ss
from tests.lab.measure import NetworkPath, ping, tcp_pair, udp_pair
from tests.verbs.tx.measure import messages, run_udp, total_when
from tests.verbs.tx.tcp_measure import WAYS, done, events, read_all, run
from tests.verbs.tx.test_loss import dropping
from tests.waiting import eventually

if TYPE_CHECKING:
    from hopscope.lab import Lab
    from hopscope.verbs.tx.collector import TxCollector

pytestmark = pytest.mark.root


def said(lab: Lab, sender: socket.socket) -> dict[str, Any]:
    """Return what ss says of the client's socket, as the fields of a message."""
    (line,) = ss(lab.client, "-t", "-i", "sport", "=", str(sender.getsockname()[1]))
    again, retransmits = map(int, line.get("retrans", "0/0").split("/"))
    lost, sacked, unacked = (int(line.get(name, 0)) for name in ("lost", "sacked", "unacked"))
    return {
        "cwnd": int(line["cwnd"]),
        "ssthresh": int(line["ssthresh"]) if "ssthresh" in line else None,
        "in_flight": unacked - lost - sacked + again,
        "snd_wnd_bytes": int(line["snd_wnd"]),
        "srtt_ns": round(float(line["rtt"].split("/")[0]) * 1e6),
        "retransmits": retransmits,
    }


def acknowledged(sender: socket.socket) -> None:
    """Wait until all that was sent is acknowledged."""
    eventually(
        lambda: not int.from_bytes(fcntl.ioctl(sender, termios.TIOCOUTQ, bytes(4)), sys.byteorder),
        "not all is acknowledged",
    )


def sent_by(tx: TxCollector, sender: socket.socket) -> list[SentMessage]:
    """Return the messages of a socket, in the order of the stream."""
    port = sender.getsockname()[1]
    found = [each for each in events(tx) if isinstance(each, SentMessage)]
    return [each for each in found if each.flow and each.flow.local_port == port]


def handed(message: SentMessage) -> dict[str, Any]:
    """Return the state at hand-over, but what ss does not say."""
    assert message.tcp
    state = message.tcp["handed"]
    assert state
    return {name: value for name, value in state.items() if name not in {"unacked_bytes", "rcv_wnd_bytes", "state"}}


@pytest.mark.parametrize("way", WAYS)
def test_each_message_meets_the_state_that_ss_has_before_it(lab: Lab, veth: NetworkPath, way: str) -> None:
    sizes = (100, 20_000, 100, 60_000, 1)
    with tcp_pair(veth) as (sender, receiver), run(lab, way, fields=FIELDS) as tx:
        before = []
        for size in sizes:
            before.append(said(lab, sender))
            sender.sendall(bytes(size))
            read_all(receiver, size)
            acknowledged(sender)
        done(tx, len(sizes))
        found = sent_by(tx, sender)
    assert [message.len_bytes for message in found] == [*sizes]
    # Of a long one, a part has left by the time that TCP has all of it.
    assert [handed(message) for message in found[::2]] == before[::2]
    for message in found:
        assert message.tcp
        assert tuple(message.tcp) == STAGES
        for state in message.tcp.values():
            assert state
            assert tuple(state) == FIELDS
            assert state["state"] == "open"
    # The window has grown, and the later messages have met that.
    assert before[-1]["cwnd"] > before[0]["cwnd"]
    assert found[0].tcp
    assert [state and state["unacked_bytes"] for state in found[0].tcp.values()] in ([0, 0, 0, 0], [0, 0, 0, 100])


@pytest.mark.parametrize("way", WAYS)
def test_loss_shows_in_what_is_sent_meanwhile(lab: Lab, veth: NetworkPath, way: str) -> None:
    with tcp_pair(veth) as (sender, receiver), run(lab, way, fields=FIELDS) as tx:
        sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
        ping(sender, receiver, 1)
        with dropping(lab.server, "input", receiver.getsockname()[1]):
            sender.send(bytes(100), socket.MSG_EOR)
            eventually(lambda: said(lab, sender)["retransmits"] >= 1, "nothing is sent again")
            count, states = 2, []  # the first two are those above
            # In between, it may be sent again once more.
            while not states or states[-1] != said(lab, sender):
                states.append(said(lab, sender))
                sender.send(bytes(100), socket.MSG_EOR)
                count += 1
        read_all(receiver, 100 * (count - 1))
        acknowledged(sender)
        ping(sender, receiver, 1)
        done(tx, count + 1)
        found = sent_by(tx, sender)[:count]
    last = found[-1]
    assert handed(last) == states[-1]
    assert last.tcp
    assert states[-1]["ssthresh"] is not None
    assert last.tcp["handed"]
    assert (last.tcp["handed"]["state"], last.tcp["handed"]["unacked_bytes"]) == ("loss", 100)
    lost = found[1]
    assert lost.tcp
    at_ack = lost.tcp["ack"]
    assert at_ack is None or int(at_ack["retransmits"] or 0) >= lost.retransmits >= 1
    assert [state and state["retransmits"] for state in lost.tcp.values()][:3] == [0, 0, 0]


def test_datagrams_have_none(lab: Lab, veth: NetworkPath) -> None:
    with udp_pair(veth) as flow, run_udp(lab, events=True, fields=("cwnd",)) as tx:
        ping(*flow, 3)
        total_when(tx, "tx.udp_total", 3)
        found = messages(tx)
    assert [message.tcp for message in found if isinstance(message, SentMessage)] == [None] * 3


def test_only_the_fields_that_are_asked_for(lab: Lab, veth: NetworkPath) -> None:
    with tcp_pair(veth) as flow, run(lab, fields=("srtt_ns", "cwnd")) as tx:
        ping(*flow, 1)
        done(tx, 1)
        found = sent_by(tx, flow[0])
    assert found[0].tcp
    assert [state and tuple(state) for state in found[0].tcp.values()] == [("srtt_ns", "cwnd")] * len(STAGES)
