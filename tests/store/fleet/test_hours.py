# SPDX-License-Identifier: Apache-2.0
"""Recordings as traces of hours: together they have what the recording has, once, and say what is missing."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hopscope.errors import FormatError, UsageError
from hopscope.store.fleet.hours import LEAD_NS
from hopscope.store.fleet.raw import Raw
from hopscope.store.folder import OpenFolder
from hopscope.store.lock import FolderLock
from hopscope.store.meta import Metadata
from hopscope.store.schema import EVENT_TABLES
from hopscope.store.trace import Trace
from hopscope.trace.selection import Selection
from hopscope.verbs.report.counters import counter_history
from hopscope.verbs.report.drops import drop_reasons
from hopscope.verbs.report.hops import hop_times
from tests.lab.fleets import FULL_HOUR, HOUR, SECOND, change, host, long_trace, put
from tests.lab.recordings import AHEAD_NS, Recording
from tests.lab.small_trace import small
from tests.lab.traces import REALTIME_NS, STARTED_NS, MadeTrace

if TYPE_CHECKING:
    from hopscope.store.fleet.raw import Leaf

RECORDINGS = Path(__file__).parents[2] / "recordings"
OWN = Selection(from_s=0.0)


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Leaf]]:
    folder = tmp_path_factory.mktemp("long")
    trace = long_trace(folder / "trace", "web-1")
    return trace, put(folder / "fleet", trace)


def _own(metadata: Metadata) -> Selection:
    return OWN if metadata.lead_ns else Selection()


def test_each_hour_is_a_trace(long: tuple[Path, list[Leaf]]) -> None:
    trace, leaves = long
    whole = Metadata.read(trace)
    assert [leaf.hour for leaf in leaves] == [f"2026-01-02T{hour:02}" for hour in range(3, 7)]
    found = [Metadata.read(leaf.folder) for leaf in leaves]
    bounds = [STARTED_NS, *(STARTED_NS + FULL_HOUR + number * HOUR for number in range(3)), STARTED_NS + 3 * HOUR]
    assert [(each.started_ns, each.ended_ns) for each in found] == list(pairwise(bounds))
    assert [each.lead_ns for each in found] == [0, LEAD_NS, LEAD_NS, LEAD_NS]
    assert {each.realtime_ns - each.started_ns for each in found} == {whole.realtime_ns - whole.started_ns}
    assert {each.state for each in found} == {"complete"}
    assert all(each.host == whole.host for each in found)


def test_hours_have_all_events_once_besides_what_was_before(long: tuple[Path, list[Leaf]]) -> None:
    trace, leaves = long
    for table in (*EVENT_TABLES, "drops"):
        with Trace(trace) as opened:
            whole = sorted(opened.rows(f"SELECT * FROM {table}"))
        own = []
        for leaf in leaves:
            with Trace(leaf.folder) as opened:
                window = _own(opened.metadata).window(opened)
                own += opened.rows(f"SELECT * FROM {table} WHERE {window}")
                least = opened.metadata.started_ns - opened.metadata.lead_ns
                assert opened.rows(f"SELECT count(*) FROM {table} WHERE time_ns < {least}") == [(0,)]
        assert sorted(own) == whole


def _sums(folders: list[Path], report: Any, key: int, value: int) -> dict[Any, int]:  # noqa: ANN401 # of any
    found: dict[Any, int] = {}
    for folder in folders:
        with Trace(folder) as trace:
            for row in report(trace, _own(trace.metadata)).rows():
                found[row[key]] = found.get(row[key], 0) + int(row[value])
    return found


@pytest.mark.parametrize(
    ("report", "key", "value"), [(hop_times, 0, 3), (hop_times, 0, 5), (drop_reasons, 1, 0), (counter_history, 1, 5)]
)
def test_hours_add_up_to_the_recording(
    report: Any,  # noqa: ANN401 # any
    key: int,
    value: int,
    long: tuple[Path, list[Leaf]],
    tmp_path: Path,
) -> None:
    # Without losses: what a gap makes uncertain differs with what is known of the time before.
    trace, leaves = long
    if report is hop_times:
        trace = long_trace(tmp_path / "trace", "web-1")
        for file in (trace / "losses").iterdir():
            file.unlink()
        leaves = put(tmp_path / "fleet", trace)
    whole = _sums([trace], report, key, value)
    assert len(whole) >= 1
    assert sum(whole.values()) > 20
    assert _sums([leaf.folder for leaf in leaves], report, key, value) == whole


def test_a_loss_counts_where_it_begins_and_both_hours_know_of_it(long: tuple[Path, list[Leaf]]) -> None:
    _, leaves = long
    said, counted = [], []
    for leaf in leaves:
        with Trace(leaf.folder) as trace:
            said.append(sorted(lost for (lost,) in trace.rows("SELECT lost FROM losses")))
            window = _own(trace.metadata).window(trace, "from_ns")
            counted.append(trace.rows(f"SELECT sum(lost) FROM losses WHERE {window}")[0][0])
    assert said == [[7], [3, 7], [3], []]
    assert counted == [7, 3, None, None]


def test_an_hour_has_the_flows_and_the_names_that_it_needs(tmp_path: Path) -> None:
    made = MadeTrace(host=host("a"))
    early, late = made.flow("10.0.0.1:1", "10.0.0.2:2"), made.flow("10.0.0.3:3", "10.0.0.4:4")
    made.thread(17, "before")
    made.packet("rx.core", SECOND, skb=1, flow=early)
    made.packet("rx.core", FULL_HOUR + 60 * SECOND, skb=1, flow=late)
    made.add("threads", time_ns=STARTED_NS + SECOND, tid=17, pid=17, comm="after")
    change(made.write(tmp_path / "trace"), ended_ns=STARTED_NS + 2 * HOUR)
    leaves = put(tmp_path / "fleet", tmp_path / "trace")
    found = []
    for leaf in leaves[:2]:
        with Trace(leaf.folder) as trace:
            names = [name for (name,) in trace.rows("SELECT comm FROM threads ORDER BY time_ns")]
            found.append(([flow for (flow,) in trace.rows("SELECT flow FROM flows")], names))
    assert found == [([early], ["before", "after"]), ([late], ["after"])]


def test_what_is_there_is_not_stored_again_and_what_overlaps_is_refused(tmp_path: Path) -> None:
    trace = long_trace(tmp_path / "trace", "a", packets=20)
    fleet = tmp_path / "fleet"
    first = put(fleet, trace)
    assert put(fleet, trace) == []
    change(trace, started_ns=STARTED_NS + 5, realtime_ns=REALTIME_NS + 5)
    with pytest.raises(UsageError, match=r"overlaps with host=a/boot=boot-of-a/hour=2026-01-02T03"):
        put(fleet, trace)
    assert Raw(fleet).leaves()[0] == first
    change(trace, host=host("a", "another"))
    assert len(put(fleet, trace)) == 4


def test_what_cannot_be_stored_says_why(tmp_path: Path) -> None:
    trace = small().write(tmp_path / "trace")
    with pytest.raises(UsageError, match="does not say which host it is of"):
        put(tmp_path / "fleet", trace)
    change(trace, host=host("a"), state="recording", ended_ns=None)
    with FolderLockOf(trace), pytest.raises(UsageError, match="still being recorded"):
        put(tmp_path / "fleet", trace)
    (trace / "hopscope.json").write_text("{")
    with pytest.raises(FormatError):
        put(tmp_path / "fleet", trace)


class FolderLockOf:
    """Holds the lock of a recording, as its recorder does."""

    def __init__(self, folder: Path) -> None:
        self._folder = OpenFolder(os.open(folder, os.O_RDONLY), folder)

    def __enter__(self) -> None:
        self._lock = FolderLock(self._folder)

    def __exit__(self, *_: object) -> None:
        self._lock.release()
        self._folder.close()


def test_what_is_missing_travels_along(tmp_path: Path) -> None:
    trace = long_trace(tmp_path / "trace", "a", packets=20)
    change(trace, state="recording", ended_ns=None, missed=5)
    cut = trace / "packets" / "000001.parquet"
    (trace / "packets" / "000002.parquet").write_bytes(cut.read_bytes()[:-20])
    leaves = put(tmp_path / "fleet", trace)
    warnings = []
    for leaf in leaves:
        with Trace(leaf.folder) as opened:
            warnings.append(opened.warnings)
    left_out = "1 of 2 files of packets are cut off: left out"
    killed = "the recorder was killed or is still running: the trace ends with the last full file"
    missed = "missed events: 5 (BPF runs suppressed by the kernel)"
    assert warnings[:-1] == [[left_out]] * (len(leaves) - 1)
    assert warnings[-1] == [killed, left_out, missed]


def test_an_absence_of_a_host_is_in_the_hour_in_which_it_begins(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "trace", "a", "b")
    for name in ("a", "b"):
        recording.part(name, small())
    recording.writer.absent("b", STARTED_NS + AHEAD_NS + 10 * SECOND, None, "the connection was lost")
    recording.writer.close()
    leaves = put(tmp_path / "fleet", tmp_path / "trace")
    assert [leaf.host for leaf in leaves] == ["a", "b"]
    rows = []
    for leaf in leaves:
        with Trace(leaf.folder) as trace:
            rows.append(trace.rows("SELECT from_ns - until_ns, reason FROM absences"))
    assert rows == [[], [(0, "the connection was lost; it did not come back")]]


def test_a_joined_recording_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Store the recordings that it was made of"):
        put(tmp_path / "fleet", RECORDINGS / "apart")
