# SPDX-License-Identifier: Apache-2.0
"""With a filter, a TCP flow that it leaves out runs no program of ours; what that leaves out is said."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from hopscope.errors import HopscopeError
from hopscope.libbpf import enable_stats
from tests import leftovers
from tests.lab.measure import counts, ping, tcp_pair, udp_pair
from tests.verbs.tx.measure import require_stamps, run_tx, total_when

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.lab import Lab
    from hopscope.model.snapshot import Snapshot
    from hopscope.verbs.tx.collector import TxCollector
    from tests.lab.measure import NetworkPath

pytestmark = pytest.mark.root


@pytest.fixture(autouse=True)
def _stamps() -> None:
    require_stamps()


def held(kind: str) -> set[int]:
    """Return the ids of the programs or links that this process holds open."""
    return {number for each, number in leftovers.held_by([os.getpid()]) if each == kind}


def runs(tx: TxCollector) -> dict[str, int]:
    """Return how often the kernel ran each of our programs, while it counts."""
    programs = tx._session.bpf.programs.values()
    return {program.name: program.info().run_count for program in programs if program.autoload}


def notes(snapshot: Snapshot) -> Iterator[str]:
    return (note for note in snapshot.notes if "--hooks host" in note)


def test_only_callbacks_of_sockets_are_attached(lab: Lab, veth: NetworkPath) -> None:
    before = held("link")
    with tcp_pair(veth) as flow, run_tx(lab, ports=[flow[1].getsockname()[1]], flow_hooks=None) as tx:
        assert set(runs(tx)) == {"tx_stamped", "tx_switch_on", "tx_switch_off"}
        assert len(held("link") - before) == 1
        assert ping(*flow, 23) == 23
        snapshot = total_when(tx, "tx.total", 23)
    assert counts(snapshot)["tx.total"] == 23
    assert len(list(notes(snapshot))) == 1
    assert not [row.hop for row in snapshot.hops if row.hop.startswith(("tx.udp", "tx.qdisc"))]


def test_with_all_hooks_nothing_is_left_out_nor_said(lab: Lab) -> None:
    with run_tx(lab) as tx:
        snapshot = tx.interval()
    assert {"tx.udp_total", "tx.qdisc"} <= counts(snapshot).keys()
    assert not list(notes(snapshot))


@pytest.mark.alone  # sockets that another run of tx has marked make the kernel call our programs, too
@pytest.mark.parametrize("filtered", ["port", "pid"])
def test_flows_that_are_left_out_run_nothing(lab: Lab, veth: NetworkPath, filtered: str) -> None:
    with tcp_pair(veth) as flow, tcp_pair(veth) as other, udp_pair(veth) as udp:
        chosen = {"ports": [flow[0].getsockname()[1]]} if filtered == "port" else {"pids": [os.getppid()]}
        with run_tx(lab, flow_hooks=None, **chosen) as tx, enable_stats():
            before = runs(tx)
            assert ping(*other, 1009) + ping(*udp, 1009) == 2018
            quiet = runs(tx)
            assert quiet == before
            assert ping(*flow, 23) == 23
            total_when(tx, "tx.total", 23 if filtered == "port" else 0)
            # At least hand-over, departure, driver and ACK of each; unless another process was asked for.
            ran = runs(tx)["tx_stamped"] - quiet["tx_stamped"]
    assert ran >= 4 * 23 if filtered == "port" else ran == 0


@pytest.mark.alone
def test_a_connection_that_is_left_out_runs_nothing_when_it_sends(lab: Lab, veth: NetworkPath) -> None:
    with run_tx(lab, ports=[9], flow_hooks=None) as tx, tcp_pair(veth) as other, enable_stats():
        before = runs(tx)
        assert ping(*other, 1009) == 1009
        assert runs(tx) == before


def test_asking_for_a_datagram_hop_by_name_attaches_its_hooks(lab: Lab, veth: NetworkPath) -> None:
    with udp_pair(veth) as flow, run_tx(lab, flow_hooks=None, hops=["tx.udp_total"]) as tx:
        assert ping(*flow, 23) == 23
        assert counts(tx.interval()) == {"tx.udp_total": 23}


def test_flow_hooks_that_cannot_be_had_are_one_sentence(lab: Lab) -> None:
    with pytest.raises(HopscopeError, match=r"requires BPF time stamps \(Linux 6\.15\)\. Omit --hooks flow"):
        run_tx(lab, flow_hooks=True, ways={"tx.sched": "tp_btf:net_dev_queue"})
