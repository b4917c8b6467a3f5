# SPDX-License-Identifier: Apache-2.0
"""Recordings of several hosts made up by tests, whose clocks' differences are known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np

from hopscope.store.hosts import BACK, PROBES, THERE, HostsWriter
from hopscope.store.meta import Metadata
from hopscope.store.trace import Trace
from hopscope.trace.join.traces import join
from tests.lab.traces import STARTED_NS, MadeTrace, columns, write

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from hopscope.store.schema import Table

AHEAD_NS = 5_000_000_000
SECOND = 1_000_000_000


class Recording:
    """A recording of several hosts, in the making: each host's clock is ahead of the one before it by AHEAD_NS."""

    def __init__(self, folder: Path, *names: str) -> None:
        self.folder = folder
        self.writer = HostsWriter(folder, [(name, "local") for name in names])
        self.names = names

    def part(
        self,
        name: str,
        made: MadeTrace,
        *,
        boot: str = "",
        own: Mapping[Table, Any] | None = None,
        **meta: Any,  # noqa: ANN401 # of Metadata
    ) -> Path:
        """Write a part of a host: `made` is by the first host's clock."""
        ahead_ns = self.names.index(name) * AHEAD_NS
        own = own or {}
        tables: dict[str, dict[str, NDArray[Any]]] = {
            table: {
                column: values + ahead_ns if column in {"time_ns", "from_ns", "until_ns"} else values
                for column, values in columns(rows, table).items()
            }
            for table, rows in made.rows.items()
        }
        tables |= {table.name: values for table, values in own.items()}
        host = {"name": name, "boot": boot or f"boot of {name}", "release": "6.1", "machine": "x86_64"}
        folder = self.writer.part(name).path
        write(folder, tables, host=host, tables=list(own), plan=made.plan, **meta)
        metadata = Metadata.read(folder)
        metadata.started_ns += ahead_ns
        metadata.ended_ns = (metadata.ended_ns or 0) + ahead_ns
        (folder / "hopscope.json").write_bytes(metadata.packed())
        return folder

    def probe(  # noqa: PLR0913 # what may be said of probes
        self,
        first: str,
        second: str,
        *,
        from_s: float = 0,
        until_s: float = 10,
        error_ns: int = 0,
        by_nics: int = 0,
    ) -> None:
        """Write probes of two hosts, 500 ns each way, six a second."""
        number = self.writer.pair(first, second)
        at_ns = STARTED_NS + np.arange(int(from_s * SECOND), int(until_s * SECOND), SECOND // 6)
        ahead = [self.names.index(name) * AHEAD_NS for name in (first, second)]
        ahead[1] += error_ns
        for way in (THERE, BACK):
            self.writer.append(
                {
                    "pair": np.full(len(at_ns), number, np.int16),
                    "way": np.full(len(at_ns), way, np.int8),
                    "sent_ns": at_ns + ahead[way],
                    "received_ns": at_ns + 500 + ahead[1 - way],
                    "bound_ns": np.full(len(at_ns), 10),
                    "by_nics": np.full(len(at_ns), by_nics, np.int8),
                }
            )

    def grow_old(self) -> None:
        """Have the probes say no more than those of an older recording."""
        self.writer.close()
        for path in (self.folder / PROBES.name).glob("*.parquet"):
            new = path.with_suffix(".new")
            duckdb.sql(f"COPY (SELECT * EXCLUDE by_nics FROM '{path}') TO '{new}' (FORMAT parquet)")
            new.rename(path)

    def joined(self, **options: Any) -> Trace:  # noqa: ANN401 # of join
        self.writer.close()
        out = self.folder / "out"
        join([self.folder], out, **options)
        return Trace(out)
