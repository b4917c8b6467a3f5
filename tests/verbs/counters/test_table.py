# SPDX-License-Identifier: Apache-2.0
"""How counters look."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hopscope.gate import passed
from hopscope.model.counters.names import find
from hopscope.model.counters.rows import CounterRow, CounterSnapshot
from hopscope.term.terminal import Terminal, columns
from hopscope.verbs.counters.explanation import render_explanation
from hopscope.verbs.counters.table import counters_to_json, render_counters
from tests.lab.snapshots import STARTED_NS

if TYPE_CHECKING:
    from collections.abc import Callable

HOST = 4026531833


def row(layer: str, source: str, subject: str, name: str, count: int, now: int, **more: object) -> CounterRow:  # noqa: PLR0913, PLR0917 # a row of a table
    netns, namespace = (0, "") if layer in {"interrupt", "softnet", "cpu"} else (HOST, "host")
    seen = {"level": False, "netns": netns, "namespace": namespace, "sign": "plain"} | more
    return CounterRow(layer=layer, source=source, subject=subject, name=name, count=count, now=now, **seen)  # type: ignore[arg-type]


@pytest.fixture
def snapshot() -> CounterSnapshot:
    rows = [
        row("nic", "ethtool", "eth0", "rx_missed_errors", 7, 1_007, sign="loss", event="wrapped"),
        row("nic", "ethtool", "eth0", "a_driver_has_31_letters_for_this", 12_345_678, 99_999_999_999_999, sign=None),
        row("interrupt", "interrupt", "", "eth0-TxRx", 23_456, 123_456_789, by_cpu={"cpu 0": 23_000, "cpu 1": 456}),
        row("softnet", "softnet", "", "dropped", 101, 101, sign="loss", by_cpu={"cpu 127": 101}),
        row("device", "link", "eth0", "rx_bytes", 123_456_789_012, 5_123_456_789_012, event="restarted"),
        row("qdisc", "qdisc", "eth0 fq_codel 8001: parent 1:10", "drops", 3, 3, sign="loss", event="new"),
        row("tcp", "netstat", "", "MPTcpExtMPCapableFallbackSYNACK", 1, 1, sign="bad"),
        row("tcp", "snmp", "", "TcpCurrEstab", -12, 88, level=True),
        row("udp", "snmp", "", "UdpInDatagrams", 1_009, 5_009, netns=17, namespace="4711 (a\x1b[31m\n日本)"),
        row("socket", "sockstat", "", "TCP.inuse", 1_234_567_890_123, 2, level=True),
    ]
    notes = ["reset: eth0 rx_bytes decreased (was the driver reloaded?): the increase in this interval is unknown"]
    return CounterSnapshot("interval", STARTED_NS, 1.0003, rows, 5_123, 11, 0.42, notes=notes)


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_table(snapshot: CounterSnapshot, width: int, golden: Callable[[str, str], None]) -> None:
    text = render_counters(snapshot, Terminal(width))
    assert all(columns(line) <= width for line in text.split("\n"))
    golden(f"counters_{width}", text)


def test_total_of_a_command_says_which(snapshot: CounterSnapshot, golden: Callable[[str, str], None]) -> None:
    total = CounterSnapshot("total", STARTED_NS, 3.02, list(snapshot.rows[:1]), 5_123, 0, 0.1, filters={"layer": "nic"})
    text = render_counters(total, Terminal(unicode=False), "iperf3 -c 10.0.0.1 -t 3")
    assert text.isascii()
    golden("counters_command_80_ascii", text)


def test_colours_do_not_change_the_text(snapshot: CounterSnapshot) -> None:
    coloured = passed(render_counters(snapshot, Terminal(colour=True)))
    assert "\x1b[33m! rx_missed_errors" in coloured


def test_columns_stand_still(snapshot: CounterSnapshot) -> None:
    fewer = CounterSnapshot("interval", STARTED_NS, 1.0, list(snapshot.rows[8:9]), 5_123, 0, 0.1)
    lines = render_counters(snapshot, Terminal()).split("\n") + render_counters(fewer, Terminal()).split("\n")
    assert len({line for line in lines if line.lstrip().startswith("count ")}) == 1
    shown = {line for line in lines if "UdpInDatagrams" in line}
    assert len(shown) == 1


def test_nothing_moved(golden: Callable[[str, str], None]) -> None:
    golden(
        "counters_empty_80", render_counters(CounterSnapshot("interval", STARTED_NS, 1.0, [], 812, 0, 0.0), Terminal())
    )


def test_json_has_all_figures(snapshot: CounterSnapshot) -> None:
    document = counters_to_json(snapshot)
    by_name = {each["name"]: each for each in document["rows"]}
    assert len(by_name) == len(snapshot.rows)
    assert by_name["rx_bytes"]["count"] == 123_456_789_012
    assert by_name["rx_bytes"]["event"] == "restarted"
    assert by_name["eth0-TxRx"]["by_cpu"] == {"cpu 0": 23_000, "cpu 1": 456}
    assert by_name["eth0-TxRx"]["netns"] is None
    assert by_name["TcpCurrEstab"]["per_s"] is None
    assert by_name["TcpCurrEstab"]["kind"] == "level"


@pytest.mark.parametrize("width", [40, 80])
def test_explanation(width: int, golden: Callable[[str, str], None]) -> None:
    found = [*find("UdpRcvbufErrors"), *find("rx_missed_errors"), *find("rx7_drops")]
    text = "\n\n".join(render_explanation(*each, Terminal(width)) for each in found)
    assert all(len(line) <= width for line in text.split("\n"))
    golden(f"counter_explanations_{width}", text)
