# SPDX-License-Identifier: Apache-2.0
"""How counters moved from reading to reading of a trace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hopscope.model.counters.readings import HOST, Key, Readings, Unread
from hopscope.store.trace import Trace
from hopscope.trace.selection import Selection
from hopscope.verbs.report.counters import counter_history
from tests.lab.counter_traces import written

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

NETNS = 4026531840
DROPPED = Key(HOST, "softnet", "cpu 0", "dropped")
RECEIVED = Key(NETNS, "snmp", "", "UdpInDatagrams")
VETH = Key(NETNS, "link", "veth0", "rx_packets")
FREE = Key(HOST, "memory", "", "MemAvailable_kb")
S = 10**9


def history(
    folder: Path, found: Sequence[Readings], wanted: Selection | None = None
) -> tuple[list[tuple[Any, ...]], list[str]]:
    with Trace(written(folder / "t", found)) as trace:
        report = counter_history(trace, wanted or Selection())
    return list(report.rows()), list(report.notes)


def at(seconds: float, numbers: dict[Key, int], *unread: Unread) -> Readings:
    return Readings(int(seconds * S), int(seconds * S) + 5, numbers, namespaces={NETNS: "web"}, unread=unread)


def test_counts_rates_and_peaks_are_those_of_the_readings(tmp_path: Path) -> None:
    rows, notes = history(
        tmp_path,
        [
            at(1, {DROPPED: 5, RECEIVED: 1000, FREE: 9}),
            at(2, {DROPPED: 5, RECEIVED: 1003, FREE: 8}),
            at(4, {DROPPED: 12, RECEIVED: 2009, FREE: 7}),
            at(5, {DROPPED: 12, RECEIVED: 2010, FREE: 6}),
        ],
    )
    assert rows == [
        ("softnet", "dropped", None, None, "loss", 7, 1.75, 3.5, 4 * S, None),
        ("udp", "UdpInDatagrams", None, "web", None, 1010, 252.5, 503.0, 4 * S, None),
    ]
    assert notes == []


def test_counters_that_go_round_count_on_and_those_that_begin_anew_from_there(tmp_path: Path) -> None:
    end = 1 << 32
    rows, _ = history(
        tmp_path,
        [at(1, {DROPPED: end - 3, RECEIVED: 1000}), at(2, {DROPPED: 4, RECEIVED: 7}), at(3, {DROPPED: 4, RECEIVED: 8})],
    )
    assert [(row[1], row[5], row[9]) for row in rows] == [("dropped", 7, None), ("UdpInDatagrams", 1, 1)]


def test_a_device_that_comes_may_be_older_than_it_looks(tmp_path: Path) -> None:
    first = {VETH: 11, RECEIVED: 1}
    found = [at(1, {RECEIVED: 1}), at(2, first), at(3, first | {VETH: 13}), at(4, {RECEIVED: 1}), at(5, first)]
    rows, _ = history(tmp_path, [*found, at(6, first | {VETH: 18})])
    assert [(row[5], row[8], row[9]) for row in rows] == [(2 + 7, 6 * S, None)]


def test_what_comes_on_a_device_that_was_there_counts_from_nothing(tmp_path: Path) -> None:
    queue = Key(NETNS, "class", "veth0 htb 1:10", "drops")
    rows, _ = history(
        tmp_path, [at(1, {VETH: 3}), at(2, {VETH: 3, queue: 5}), at(3, {VETH: 3}), at(4, {VETH: 3, queue: 2})]
    )
    assert [(row[2], row[5], row[9]) for row in rows] == [("veth0 htb 1:10", 7, None)]


def test_what_could_not_be_read_at_first_is_not_counted_from_nothing(tmp_path: Path) -> None:
    rows, notes = history(
        tmp_path, [at(1, {}, Unread(NETNS, "link", "it is refused")), at(2, {VETH: 900}), at(3, {VETH: 902})]
    )
    assert [row[5] for row in rows] == [2]
    assert notes == ["link not read: it is refused"]


def test_only_readings_in_the_window_count(tmp_path: Path) -> None:
    found = [at(second, {RECEIVED: second * second}) for second in range(1, 7)]
    rows, _ = history(tmp_path, found, Selection(from_s=2.5, until_s=4.5))
    assert [(row[5], row[6]) for row in rows] == [(16 - 4, 6.0)]


@pytest.mark.parametrize(
    ("gone", "counted"), [(1, [(9 - 1, 4.0, 3 * S)]), (2, [(4 - 1, 3.0, 2 * S)]), (0, [(9 - 4, 5.0, 3 * S)])]
)
def test_what_changed_at_a_reading_that_is_missing_is_of_the_next_one(
    tmp_path: Path, gone: int, counted: list[tuple[Any, ...]]
) -> None:
    folder = tmp_path / "t"
    written(folder, [at(second, {RECEIVED: second * second}) for second in (1, 2, 3)])
    (file,) = (folder / "readings").iterdir()
    table = pq.read_table(file)
    pq.write_table(pa.concat_tables([table[:gone], table[gone + 1 :]]), file)
    with Trace(folder) as trace:
        rows = list(counter_history(trace, Selection()).rows())
    assert [(row[5], row[6], row[8]) for row in rows] == counted


@pytest.mark.parametrize("count", [0, 1])
def test_a_trace_without_counters_says_so(tmp_path: Path, count: int) -> None:
    rows, notes = history(tmp_path, [at(1, {RECEIVED: 1})][:count])
    assert rows == []
    assert notes == ["counters were not recorded: `hopscope record` reads them unless --counters 0 is given"]


def test_parts_of_cpus_are_put_together_and_losses_come_first_in_their_layer(tmp_path: Path) -> None:
    parts = [Key(HOST, "softnet", f"cpu {cpu}", name) for cpu in (0, 1) for name in ("processed", "dropped")]
    timer = Key(HOST, "softirq", "TIMER", "cpu 0")
    before, after = (dict(zip(parts, values, strict=True)) for values in ((10, 0, 20, 5), (17, 2, 31, 8)))
    rows, _ = history(tmp_path, [at(1, before | {timer: 1}), at(2, after | {timer: 9})])
    assert [(row[1], row[4], row[5]) for row in rows] == [("dropped", "loss", 5), ("processed", None, 18)]
