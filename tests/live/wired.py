# SPDX-License-Identifier: Apache-2.0
"""Events of the recordings in tests/recordings as frames, and the rows that these become."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hopscope.live.stream.events import Assembler
from hopscope.live.wire.frames import Frames
from hopscope.live.wire.inbox import Received
from hopscope.store.schema import EVENT_TABLES
from hopscope.store.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from hopscope.live.wire.arrivals import Arrivals

RECORDINGS = Path(__file__).parents[1] / "recordings"
NAMES = ("flows", "threads", "devices")


class Sender:
    """Sends a recording's events."""

    def __init__(self, name: str, host: str = "recorder", *, follow: bool = False) -> None:
        with Trace(RECORDINGS / name) as trace:
            self.metadata = trace.metadata
            self.metadata.host["name"] = host
            own = [table.name for table in trace.metadata.tables if table.name != "e_losses"]
            self.rows = {
                table: trace.columns(f"SELECT * FROM {table} ORDER BY {'time_ns, cpu' if timed else 1}")
                for timed, tables in ((True, (*EVENT_TABLES, "drops", *own)), (False, NAMES))
                for table in tables
            }
        self.assembler = Assembler(self.metadata)
        if follow:
            self.assembler.follow()
        for table, columns in self.rows.items():
            self.assembler.add(table, columns)
        events = self.assembler.ready((1 << 63) - 1)
        self.making = Frames(self.metadata, self.assembler.point_names, bytes(6), bytes(6), full=True)
        self.first = self.catalogue(0)
        self.frames = list(self.making.of(events, np.ones(len(events), bool)).each())

    def catalogue(self, lost: int) -> list[bytes]:
        return self.making.catalogue((0, 0, lost), self.assembler.names, self.metadata.started_ns)


def received(frames: Sequence[bytes]) -> list[Received]:
    found = []
    for length in {len(frame) for frame in frames}:
        places = [at for at, frame in enumerate(frames) if len(frame) == length]
        data = np.frombuffer(b"".join(frames[at] for at in places), np.uint8).reshape(-1, length)
        found.append(Received(np.array(places), data))
    return found


def taken(arrivals: Arrivals, batches: Iterable[Sequence[bytes]]) -> dict[str, dict[str, NDArray[Any]]]:
    """Return the rows of all tables."""
    parts: dict[str, list[dict[str, NDArray[Any]]]] = {}
    for table, columns in [each for batch in batches for each in arrivals.rows(received(batch))] + list(arrivals.end()):
        parts.setdefault(table, []).append(columns)
    return {
        table: {name: np.concatenate([part[name] for part in each]) for name in each[0]}
        for table, each in parts.items()
    }


def in_order(columns: dict[str, NDArray[Any]], names: Iterable[str]) -> list[tuple[Any, ...]]:
    return sorted(zip(*(np.ma.getdata(columns[name]).tolist() for name in names), strict=True), key=str)


def require_same(sent: dict[str, dict[str, NDArray[Any]]], found: dict[str, dict[str, NDArray[Any]]]) -> None:
    """Require that all rows of events have come, whole; of drops, the function and its stack stay where they are."""
    for table, columns in sent.items():
        if not len(next(iter(columns.values()))):
            assert table not in found
        elif table not in NAMES:
            there = [each for each in columns if (table, each) not in {("drops", "location"), ("drops", "stack")}]
            assert in_order(found[table], there) == in_order(columns, there), table
