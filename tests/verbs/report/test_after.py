# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hopscope.errors import UsageError
from hopscope.store.trace import Trace
from hopscope.trace.selection import Selection
from hopscope.verbs.report.after import after
from tests.lab.joined import JoinedTrace

if TYPE_CHECKING:
    from pathlib import Path


def test_what_another_host_did_within_the_bound_followed_only_possibly(tmp_path: Path) -> None:
    joined = JoinedTrace(bound_ns=2_000)
    for number, (host, point, at) in enumerate([
        (0, "tx.queue", 100_000), (0, "tx.start", 100_500), (1, "rx.core", 101_000), (1, "rx.core", 103_000),
        (0, "tx.queue", 200_000), (1, "rx.core", 199_000),
        (0, "tx.queue", 300_000), (0, "tx.start", 310_001),
    ]):  # fmt: skip
        joined.packet(host, point, at, skb=8 * number)
    with Trace(joined.write(tmp_path / "trace")) as trace:
        found = after(trace, Selection(), "tx.queue", 1e-5)
        assert found.heading[0].startswith("3 events tx.queue; ")
        rows = {row[0]: row[2:] for row in found.rows()}
        # The first of the other host is 1 µs later, the second 3 µs: the bound of the difference is that of its clock.
        assert rows["rx.core"] == (1, pytest.approx(1 / 3), 1, 3_000, 3_000, 3_000)
        assert rows["tx.start"] == (1, pytest.approx(1 / 3), 0, 500, 500, 500)
        assert "tx.queue" not in rows
        assert "less than 2.00" in found.notes[0]
        with pytest.raises(UsageError, match=r"No event rx.l4 was recorded.* tx.queue, tx.start"):
            after(trace, Selection(), "rx.l4", 1.0)
