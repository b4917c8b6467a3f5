# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING

from hopscope.store.trace import Trace
from hopscope.trace.selection import Selection
from hopscope.verbs.report.flows import flows
from tests.lab.traces import MadeTrace

if TYPE_CHECKING:
    from pathlib import Path


def test_packets_and_bytes_are_counted_once_in_each_direction(trace: Trace) -> None:
    report = flows(trace, Selection())
    names = [column.name for column in report.columns if column.name != "flow"]
    found = {
        str(row[0]): dict(zip(names[1:], row[1:], strict=True)) for row in zip(*map(report.column, names), strict=True)
    }
    assert found["10.0.0.2:80 > 10.0.0.1:40000"] == {
        "protocol": "tcp", "tx_packets": 2, "tx_bytes": 2_000, "rx_packets": 0, "rx_bytes": 0,
        "retransmits": 1, "drops": 0, "first_ns": 3_500, "last_ns": 9_000,
    }  # fmt: skip
    assert found["[fd00::1]:5353 > [fd00::2]:53"]["rx_bytes"] == 100
    assert [row[1] for row in flows(trace, Selection(), limit=1).rows()] == ["10.0.0.2:80 > 10.0.0.1:40000"]
    assert flows(trace, Selection(), limit=1).left_out == 2


def test_packet_that_passes_stacked_devices_counts_once(tmp_path: Path) -> None:
    made = MadeTrace()
    flow = made.flow("10.0.0.1:1", "10.0.0.2:2")
    for number, device in enumerate([made.device("vlan7", 3), made.device("eth0", 2)]):
        made.packet("tx.queue", 100 * number, skb=1, flow=flow, len_bytes=60, **device)
    with Trace(made.write(tmp_path / "trace")) as trace:
        report = flows(trace, Selection())
    assert (report.column("tx_packets"), report.column("tx_bytes")) == ([1], [60])


def test_flow_without_a_name_is_said_to_have_none(tmp_path: Path) -> None:
    made = MadeTrace()
    made.packet("tx.queue", 100, skb=1, flow=-77, len_bytes=60)
    with Trace(made.write(tmp_path / "trace")) as trace:
        report = flows(trace, Selection())
    assert (report.column("flow"), report.column("flow_name")) == ([-77], ["addresses not recorded (flow -77)"])
