# SPDX-License-Identifier: Apache-2.0
"""Full rings, runs at the same time, and sudden ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hopscope.live.messages import records
from tests.lab.measure import assert_killed_leaves_nothing, counts, ping, tcp_pair, udp_pair
from tests.verbs.tx.measure import UDP_HOPS, assert_seen, messages, run_tx, run_udp

if TYPE_CHECKING:
    from hopscope.lab import Lab
    from tests.lab.measure import NetworkPath

pytestmark = pytest.mark.root

HOLDER = """
import time
from hopscope.verbs.tx.collector import TxCollector
from hopscope.verbs.tx.options import TxOptions
with TxCollector(TxOptions(events=True)):
    print("attached", flush=True)
    time.sleep(60)
"""


def test_a_full_ring_loses_records_and_nothing_else(
    lab: Lab, veth: NetworkPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "RING_BYTES", 4096)
    with udp_pair(veth) as flow, run_udp(lab, events=True) as tx:
        assert ping(*flow, 1009) == 1009
        snapshot, single = tx.interval(), messages(tx)
        assert_seen(snapshot, UDP_HOPS, 1009)
        assert 0 < len(single) < 1009
        assert snapshot.lost == 1009 - len(single)
        # What was read makes room again.
        assert ping(*flow, 7) == 7
        assert len(messages(tx)) == 7
        assert tx.interval().lost == 0


def test_two_runs_at_once_both_see_everything(lab: Lab, either: NetworkPath) -> None:
    with udp_pair(either) as udp, tcp_pair(either) as tcp, run_udp(lab) as first:
        with run_tx(lab, ports=[udp[0].getsockname()[1]]) as second:
            assert ping(*udp, 200) + ping(*tcp, 23) == 223
            assert_seen(second.interval(), UDP_HOPS, 200)
        assert ping(*udp, 23) == 23
        assert_seen(first.interval(), UDP_HOPS, 223)


def test_a_killed_run_leaves_nothing_attached() -> None:
    assert_killed_leaves_nothing(HOLDER)


def test_messages_before_the_start_and_sockets_from_before(lab: Lab, veth: NetworkPath) -> None:
    with udp_pair(veth) as flow:
        assert ping(*flow, 7) == 7
        with run_udp(lab) as tx:
            assert counts(tx.interval())["tx.udp"] == 0
            assert ping(*flow, 23) == 23
            assert_seen(tx.interval(), UDP_HOPS, 23)
            assert_seen(tx.total(), UDP_HOPS, 23)
