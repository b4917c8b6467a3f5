# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hopscope.store.trace import Trace
from hopscope.trace.relation import build
from hopscope.trace.selection import Selection
from tests.lab.traces import UDP, MadeTrace

if TYPE_CHECKING:
    from pathlib import Path

QUERY, ANSWER = ("10.0.0.1:40000", "10.0.0.2:53"), ("10.0.0.2:53", "10.0.0.1:40000")
OTHER = ("10.0.0.3:40000", "10.0.0.4:53")
# What a socket's flow is where it is connected, and where it leaves its peer, or its own address as well, open.
RECEIVING = {"connected": QUERY, "bound": ("0.0.0.0:0", "10.0.0.2:53"), "to any": ("0.0.0.0:0", "0.0.0.0:53")}


def served(receiving: tuple[str, str], sending: tuple[str, str]) -> tuple[MadeTrace, dict[tuple[str, str], int]]:
    """Return a trace of two name servers' clients, one of whose servers has these flows as a socket, and the flows."""
    made = MadeTrace()
    flows = {ends: made.flow(*ends, UDP) for ends in (QUERY, ANSWER, OTHER)}
    made.flow(QUERY[0], QUERY[1])  # of TCP
    client, server = made.thread(17, "client"), made.thread(18, "server")
    made.socket("tx.sent", 1, flow=flows[QUERY], tid=client, protocol=UDP)
    made.socket("rx.received", 2, flow=made.flow(*receiving, UDP), tid=server, protocol=UDP)
    made.socket("tx.sent", 3, flow=made.flow(*sending, UDP), tid=server, protocol=UDP)
    return made, flows


def owners(made: MadeTrace, folder: Path) -> dict[tuple[int, bool], str]:
    with Trace(made.write(folder / "trace")) as trace:
        build(trace, "flow_owners")
        return {(flow, sends): comm for flow, sends, comm in trace.rows("SELECT flow, sends, comm FROM flow_owners")}


@pytest.mark.parametrize("kind", RECEIVING)
def test_who_reads_datagrams_has_them(kind: str, tmp_path: Path) -> None:
    source, destination = RECEIVING[kind]
    made, flows = served((source, destination), (destination, source))
    found = owners(made, tmp_path)
    for flow, client_sends in ((flows[QUERY], True), (flows[ANSWER], False)):
        assert found[flow, client_sends] == "client"
        assert found[flow, not client_sends] == "server"
    assert ((flows[OTHER], False) in found) == (kind == "to any")


def test_a_connected_socket_goes_before_an_open_one(tmp_path: Path) -> None:
    made, flows = served(RECEIVING["to any"], RECEIVING["to any"][::-1])
    worker = made.thread(19, "worker")
    made.socket("rx.received", 4, flow=flows[QUERY], tid=worker, protocol=UDP)
    for at in (5, 6):
        made.socket("rx.received", at, flow=made.flow(*RECEIVING["to any"], UDP), tid=18, protocol=UDP)
    assert owners(made, tmp_path)[flows[QUERY], False] == "worker"


@pytest.mark.parametrize(("kind", "others"), [("connected", 0), ("bound", 0), ("to any", 1)])
def test_a_process_is_chosen_by_its_open_sockets(kind: str, others: int, tmp_path: Path) -> None:
    source, destination = RECEIVING[kind]
    made, flows = served((source, destination), (destination, source))
    with Trace(made.write(tmp_path / "trace")) as trace:
        wanted = Selection(processes=["server"]).flow(trace)
        found = {flow for (flow,) in trace.rows(f"SELECT flow FROM flows WHERE {wanted} AND protocol = {UDP}")}
    assert {flows[QUERY], flows[ANSWER]} <= found
    assert (flows[OTHER] in found) == bool(others)
