# SPDX-License-Identifier: Apache-2.0
"""Readings come out of a trace as they went in."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopscope.errors import UsageError
from hopscope.model.counters.readings import HOST, Key, Readings, Unread
from hopscope.store.trace import Trace
from hopscope.trace.recorded_counters import first_and_last, reading_at, rows, times
from tests.lab.counter_traces import written

KEYS = st.builds(
    Key,
    st.sampled_from([HOST, 4026531840]),
    st.sampled_from(["snmp", "link"]),
    st.sampled_from(["", "eth0"]),
    st.sampled_from(["rx", "tx", "rx'dropped"]),
)
UNREAD = st.builds(Unread, st.just(HOST), st.sampled_from(["ring", "qdisc"]), st.sampled_from(["gone", "refused"]))


@st.composite
def series(draw: st.DrawFn) -> list[Readings]:
    count = draw(st.integers(2, 5))
    return [
        Readings(
            (number + 1) * 10,
            (number + 1) * 10 + 3,
            draw(st.dictionaries(KEYS, st.integers(-(2**63), 2**63 - 1), max_size=6)),
            draw(st.dictionaries(KEYS, st.text(st.characters(codec="utf-8", exclude_characters="\0")), max_size=4)),
            {4026531840: "host"},
            draw(st.lists(UNREAD, max_size=2, unique_by=lambda each: each.source)),
        )
        for number in range(count)
    ]


def same(one: Readings, other: Readings) -> bool:
    return (
        (one.time_ns, one.until_ns, one.numbers, one.words)
        == (other.time_ns, other.until_ns, other.numbers, other.words)
    ) and sorted(map(str, one.unread)) == sorted(map(str, other.unread))


@pytest.mark.slow
@settings(max_examples=40)
@given(series())
def test_every_reading_comes_back(found: list[Readings]) -> None:
    with tempfile.TemporaryDirectory() as folder, Trace(written(Path(folder) / "t", found)) as trace:
        assert times(trace) == [(each.time_ns, each.until_ns) for each in found]
        assert all(same(reading_at(trace, each.time_ns), each) for each in found)
        first, last = first_and_last(trace)
        assert same(first, found[0])
        assert same(last, found[-1])
        assert last.namespaces == {4026531840: "host"}


def test_only_what_changed_is_written() -> None:
    key, still = Key(HOST, "softnet", "cpu 0", "processed"), Key(HOST, "softnet", "cpu 1", "processed")
    first = Readings(1, 2, {key: 5, still: 7})
    (_, times_of), (table, columns) = rows(first, Readings(3, 4, {key: 6, still: 7}))
    assert times_of["time_ns"].tolist() == [3]
    assert (table, columns["subject"].tolist(), columns["value"].tolist()) == ("counters", ["cpu 0"], [6])


def test_a_counter_beyond_signed_integers_keeps_its_bits() -> None:
    key = Key(HOST, "ethtool", "eth0", "odd")
    ((_, _), (_, columns)) = rows(None, Readings(1, 2, {key: (1 << 64) - 1}))
    assert columns["value"].tolist() == [-1]


@pytest.mark.parametrize(("count", "said"), [(0, "no readings"), (1, "one reading")])
def test_a_trace_with_less_than_two_readings_says_so(tmp_path: Path, count: int, said: str) -> None:
    with (
        Trace(written(tmp_path / "t", [Readings(1, 2, {})][:count])) as trace,
        pytest.raises(UsageError, match=f"{said} of the counters, but two are needed"),
    ):
        first_and_last(trace)


def test_a_time_at_which_nothing_was_read_is_refused(tmp_path: Path) -> None:
    with (
        Trace(written(tmp_path / "t", [Readings(1, 2, {})])) as trace,
        pytest.raises(UsageError, match="no reading of the counters"),
    ):
        reading_at(trace, 7)
