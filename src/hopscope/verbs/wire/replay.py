# SPDX-License-Identifier: Apache-2.0
"""A recording whose events come once more, in their own time or faster, as from a recorder."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np

from hopscope.errors import UsageError
from hopscope.recorded.options import opened
from hopscope.store.counts import LOSS_TABLES
from hopscope.store.schema import EVENT_TABLES
from hopscope.trace.events import own_tables

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import TracebackType

    from numpy.typing import NDArray

    from hopscope.store.meta import Metadata
    from hopscope.store.trace import Trace

Columns = dict[str, "NDArray[Any]"]

# Of the recording, read at a time; rows of a table that come at a time.
_SLICE_NS: Final = 2_000_000_000
_MOST_ROWS: Final = 1 << 17
_NAMES: Final = {"flows": "flow", "threads": "time_ns", "devices": "ifindex"}


class Replay:
    """The events of a recording, while it is entered.

    Parameters
    ----------
    folder
        As of :func:`~hopscope.recorded.which.which_recording`.
    speed
        How many times faster than they were they come.
    wait_s
        They begin so long after the first :meth:`read`.

    Attributes
    ----------
    started_ns
        When the recording began.
    lost
        Events that it lost up to :meth:`now_ns`.
    ended
        Whether all have come.
    behind
        Whether more is due already.
    """

    def __init__(self, folder: Path, speed: float, wait_s: float) -> None:
        self._folder, self._speed, self._wait_s = folder, speed, wait_s
        self.lost = 0
        self.ended = self.behind = False

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self._trace: Trace = stack.enter_context(opened(self._folder))
            if self._trace.metadata.joined:
                raise UsageError(
                    "This recording has several hosts, and frames have one", "Name the folder of one of them"
                )
            tables = [*EVENT_TABLES, "drops", *(table.name for table in own_tables(self._trace))]
            self._times = dict.fromkeys(tables, "time_ns")
            self._times |= {table: "until_ns" for table in LOSS_TABLES if table in self._tables()}
            self.started_ns = self._now_ns = self._read_ns = self._trace.metadata.started_ns
            latest = " UNION ALL ".join(f"SELECT max({time}) AS t FROM {table}" for table, time in self._times.items())
            ((last_ns,),) = self._trace.rows(f"SELECT max(t) FROM ({latest}) e")
            self._end_ns = max(last_ns or 0, self.started_ns) + 1
            self._waiting: dict[str, Columns] = {}
            self._begun_s: float | None = None
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()

    def not_granted(self) -> list[str]:
        """Return nothing: nothing is attached."""
        return []

    def notes(self) -> list[str]:
        """Return a sentence on when it begins, and how long it takes."""
        takes_s = (self._end_ns - self.started_ns) / 1e9 / self._speed
        return [f"begins in {self._wait_s:.1f} s, takes {takes_s:.1f} s"]

    def metadata(self) -> Metadata:
        """Return what the recording says of itself."""
        return self._trace.metadata

    def now_ns(self) -> int:
        """Return the time up to which events have come, by their clock."""
        return self._now_ns

    def read(self) -> Iterator[tuple[str, Columns]]:
        """Yield the rows whose time has come since the last call; first, names."""
        if self._begun_s is None:
            self._begun_s = time.monotonic() + self._wait_s
            for table, order in _NAMES.items():
                yield table, self._trace.columns(f"SELECT * FROM {table} ORDER BY {order}")
        elapsed_ns = int(max(time.monotonic() - self._begun_s, 0) * self._speed * 1e9)
        until_ns = min(self.started_ns + elapsed_ns, self._now_ns + _SLICE_NS, self._end_ns)
        if until_ns > self._read_ns:
            self._fetch(max(until_ns, min(self._read_ns + _SLICE_NS, self._end_ns)))
        due_ns = until_ns
        for table, columns in self._waiting.items():
            until_ns = min([until_ns, *columns[self._times[table]][_MOST_ROWS : _MOST_ROWS + 1].tolist()])
        # However many events a stranger's recording has at one time.
        until_ns = max(until_ns, min(self._now_ns + 1, due_ns))
        self.behind = until_ns < due_ns
        for table, columns in list(self._waiting.items()):
            split = int(np.searchsorted(columns[self._times[table]], until_ns))
            self._waiting[table] = {name: values[split:] for name, values in columns.items()}
            if table in LOSS_TABLES:
                self.lost += int(columns["lost"][:split].sum())
            if split:
                yield table, {name: values[:split] for name, values in columns.items()}
        self._now_ns = until_ns
        self.ended = until_ns == self._end_ns

    def stop(self) -> None:
        """Read no more: the rest has not come."""
        self._waiting = {}
        self._read_ns = self._now_ns = self._end_ns

    def _fetch(self, until_ns: int) -> None:
        """Read on up to a time."""
        for table, at in self._times.items():
            inside = f"{at} >= {self._read_ns} AND {at} < {until_ns}"
            rows = self._trace.columns(f"SELECT * FROM {table} WHERE {inside} ORDER BY {at}")
            before = self._waiting.get(table)
            self._waiting[table] = {
                name: np.concatenate([before[name], values]) if before else np.ma.getdata(values)
                for name, values in rows.items()
            }
        self._read_ns = until_ns

    def _tables(self) -> set[str]:
        return {"losses", *(table.name for table in self._trace.metadata.tables)}
