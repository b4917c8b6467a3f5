# SPDX-License-Identifier: Apache-2.0
"""Bounds of times and of differences of times, as a trace has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from hopscope.store.trace import Trace
from hopscope.trace.clock_bounds import SLOT_NS, bound_join, bounds_ns, difference_bound
from hopscope.trace.host_numbers import CPUS, host_of_cpu, host_of_netns, host_of_thread, own_cpu, own_thread
from hopscope.trace.relation import build
from tests.lab.traces import MadeTrace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def trace(tmp_path: Path) -> Iterator[Trace]:
    made = MadeTrace()
    for host, bounds in ((0, (0, 0)), (1, (600, 700)), (2, (50, 60))):
        for slot, bound in enumerate(bounds):
            at = {"host": host, "time_ns": slot * SLOT_NS}
            # Not the same on either side: the greater one counts.
            made.add("clocks", **at, offset_ns=-1000, low_ns=-1000 - bound, high_ns=-1000 + bound // 2)
    with Trace(made.write(tmp_path / "t")) as opened:
        yield opened


@pytest.mark.parametrize(
    ("first", "second", "bound"),
    [
        ((0, 5), (1, SLOT_NS - 1), 600),
        ((1, SLOT_NS), (0, 5), 700),
        ((1, 5), (2, SLOT_NS), 660),
        ((1, 5), (1, SLOT_NS), 0),
        ((1, 5), (2, 2 * SLOT_NS), None),
        ((1, 5), (3, 5), None),
    ],
)
def test_a_difference_is_within_both_bounds(
    trace: Trace, first: tuple[int, int], second: tuple[int, int], bound: int | None
) -> None:
    build(trace, "clock_bounds")
    hosts = host_of_cpu("m.one"), host_of_cpu("m.other")
    joins = f"{bound_join('f', hosts[0], 'm.at')} {bound_join('s', hosts[1], 'm.until')}"
    moments = (
        f"(SELECT {first[0] * CPUS + 3} AS one, {first[1]} AS at, {second[0] * CPUS} AS other, {second[1]} AS until)"
    )
    query = f"SELECT {difference_bound('f', hosts[0], 's', hosts[1])} FROM {moments} m {joins}"
    assert trace.rows(query) == [(bound,)]


def test_bounds_of_many_times(trace: Trace) -> None:
    times = np.array([SLOT_NS + 1, 0, 5 * SLOT_NS, SLOT_NS - 1])
    assert bounds_ns(trace, 1, times).tolist() == [700, 600, -1, 600]
    assert bounds_ns(trace, 7, times).tolist() == [-1] * 4


@pytest.mark.parametrize("host", [0, 1, 31])
def test_numbers_say_their_host(trace: Trace, host: int) -> None:
    cpu, tid, netns = host * 1024 + 1023, host * 2**22 + 2**22 - 1, host * 2**34 + 2**32 - 1
    numbers = f"(SELECT CAST({cpu} AS SMALLINT) AS cpu, {tid} AS tid, {netns} AS netns) n"
    asked = (host_of_cpu("cpu"), host_of_thread("tid"), host_of_netns("netns"), own_cpu("cpu"), own_thread("tid"))
    assert trace.rows(f"SELECT {', '.join(asked)} FROM {numbers}") == [(host, host, host, 1023, 2**22 - 1)]
