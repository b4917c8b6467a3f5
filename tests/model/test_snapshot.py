# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from hopscope.model.histogram import Histogram
from hopscope.model.snapshot import HopRow, Overhead, Snapshot


def test_sample_count_is_of_all_hops() -> None:
    rows = [HopRow(hop, "a", "b", "packet", {}, Histogram.from_values([1, 2, 3])) for hop in ("rx.core", "rx.ip")]
    assert Snapshot("rx", "interval", 0, 1.0, rows, Overhead(0, None, None, 0.0, 0)).sample_count == 6
