# SPDX-License-Identifier: Apache-2.0
"""``tx`` counts each message that TCP Fast Open sends in the SYN, and says of MPTCP that it is not followed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.lab.measure import all_discarded, counts, ping
from tests.lab.opening import fast_open_listener, mptcp_pair, send_fast_open
from tests.verbs.tx.tcp_measure import WAYS, accounted, assert_accounted, done, events, run

if TYPE_CHECKING:
    from hopscope.lab import Lab

pytestmark = pytest.mark.root

_CONNECTIONS = 6


@pytest.mark.parametrize("how", ["sendto", "connect", "nonblocking"])
@pytest.mark.parametrize("way", WAYS)
def test_each_message_in_a_syn_is_counted_once(lab: Lab, way: str, how: str) -> None:
    with fast_open_listener(lab) as listener, run(lab, way) as tx:
        for _ in range(_CONNECTIONS):
            send_fast_open(lab, listener, how, [bytes(100), bytes(50)])
        snapshot = done(tx, 2 * _CONNECTIONS)
        single = events(tx)
    assert_accounted(snapshot, way, 2 * _CONNECTIONS)
    assert sorted(message.len_bytes for message in single) == [50] * _CONNECTIONS + [100] * _CONNECTIONS
    assert counts(snapshot)["tx.total"] == 2 * _CONNECTIONS
    missing = ("tx.tcp", "tx.sched", "tx.qdisc", "tx.driver", "tx.host", "tx.ack") if way == "stamped" else ()
    assert all_discarded(snapshot) == {(hop, "fast_open"): _CONNECTIONS for hop in missing}


@pytest.mark.parametrize("way", WAYS)
def test_what_a_syn_has_no_room_for_is_of_the_same_message(lab: Lab, way: str) -> None:
    with fast_open_listener(lab) as listener, run(lab, way) as tx:
        send_fast_open(lab, listener, "sendto", [bytes(10_000)])
        snapshot = done(tx, 1)
        single = events(tx)
    assert_accounted(snapshot, way, 1)
    assert [message.len_bytes for message in single] == [10_000]


@pytest.mark.parametrize("way", WAYS)
def test_packets_of_mptcp_are_counted_as_not_followed(lab: Lab, way: str) -> None:
    with run(lab, way) as tx:
        with mptcp_pair(lab) as (sender, receiver):
            ping(sender, receiver, _CONNECTIONS)
        snapshot = done(tx, _CONNECTIONS)
    assert accounted(snapshot)["tx.total"] == _CONNECTIONS
    assert all_discarded(snapshot) == {("tx.total", "mptcp"): _CONNECTIONS}
