# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING

from hopscope.model.histogram import bucket_of, thresholds_ns
from hopscope.trace.histogram_sql import slot

if TYPE_CHECKING:
    from hopscope.store.trace import Trace


def test_slots_are_those_of_histograms_at_every_bound(trace: Trace) -> None:
    durations = sorted({0, 1, 2**62} | {bound + near for bound in thresholds_ns() for near in (-1, 0, 1)})
    listed = ", ".join(f"({each})" for each in durations)
    found = dict(trace.rows(f"SELECT d, {slot('d')} FROM (VALUES {listed}) AS t(d)"))
    assert found == {each: bucket_of(each) for each in durations}
