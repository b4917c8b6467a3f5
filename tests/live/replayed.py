# SPDX-License-Identifier: Apache-2.0
"""Events of the recordings in tests/recordings as they would come, and random conditions on them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import strategies as st

from hopscope.live.stream.events import Assembler
from hopscope.model.event_batch import Numbers, selected
from hopscope.model.event_fields import FIELDS, event_condition
from hopscope.store.schema import EVENT_TABLES
from hopscope.store.trace import Trace
from hopscope.trace import events
from hopscope.trace.selection import Selection

if TYPE_CHECKING:
    from collections.abc import Collection

    from hopscope.live.stream.events import Events

RECORDINGS = Path(__file__).parents[1] / "recordings"
NAMES = ("udp", "events", "losses", "drops")
STEPS = 40
# Addresses, ports, names and times that these recordings have, and some that they do not.
VALUES = {
    "point": ["rx.driver", "rx.core", "skb.free", "skb.drop", "tx.start", "tx.driver", "rx.read"],
    "hop_ns": ["0", "2us", "20us", "1ms"],
    "hop": ["5us"],
    "rx.core": ["1us", "10us"],
    "tx.driver": ["1us"],
    "skb.free": ["10us"],
    "comm": ["client", "python", "iperf3", "none"],
    "interface": ["server0", "client0", "lo", "none"],
    "source": ["10.77.0.1", "10.77.0.0/31", "::/0"],
    "destination": ["10.77.0.2", "127.0.0.0/8"],
    "address": ["10.77.0.2", "fd00::/8"],
    "protocol": ["tcp", "udp", "1"],
    "reason": ["NETFILTER_DROP", "NO_SOCKET", "none"],
}
NUMBERS = ["0", "1", "2", "16", "53", "1000", "37613", "44308", "0x10"]


class Replayed:
    """A recording's events, given to an assembler step by step."""

    def __init__(self, name: str) -> None:
        self.trace = Trace(RECORDINGS / name)
        self.assembler = Assembler(self.trace.metadata)
        self.assembler.follow()
        own = [table.name for table in events.own_tables(self.trace)]
        tables = {
            table: self.trace.columns(f"SELECT * FROM {table} ORDER BY time_ns")
            for table in (*EVENT_TABLES, "drops", *own)
        }
        self.assembler.add("threads", self.trace.columns("SELECT * FROM threads ORDER BY time_ns"))
        for table in ("flows", "devices", "losses"):
            self.assembler.add(table, self.trace.columns(f"SELECT * FROM {table}"))
        every = np.sort(np.concatenate([columns["time_ns"] for columns in tables.values()]))
        self.parts: list[Events] = []
        for until_ns in [*every[:: max(len(every) // STEPS, 1)].tolist(), int(every[-1]) + 1]:
            for table, columns in tables.items():
                # Some come later than others do, as of other CPUs.
                late = columns["time_ns"] < until_ns + 1000
                self.assembler.add(table, {key: column[late] for key, column in columns.items()})
                tables[table] = {key: column[~late] for key, column in columns.items()}
            self.parts.append(self.assembler.ready(until_ns))

    def close(self) -> None:
        self.assembler.close()
        self.trace.close()

    def selected(self, text: str) -> list[tuple[Any, ...]]:
        """Return time and CPU of the events that are selected as they come."""
        condition = event_condition(text, self.assembler.known)
        found = []
        for part in self.parts:
            mask = selected(condition, part)
            columns = [part.column(name) for name in ("time_ns", "cpu")]
            values = [column.values[mask].tolist() for column in columns if isinstance(column, Numbers)]
            found += zip(*values, strict=True)
        return sorted(found)

    def recorded(self, text: str) -> list[tuple[Any, ...]]:
        """Return the same of the recording."""
        selection = Selection(where=text)
        events.prepare(self.trace, selection)
        own = [table.name for table in events.own_tables(self.trace)]
        queries = [events.rows(self.trace, selection, table, "TRUE") for table in (*EVENT_TABLES, *own)]
        union = " UNION ALL ".join(f"SELECT time_ns, cpu FROM ({query}) q" for query in queries)
        return sorted(self.trace.rows(union))


def comparisons(without: Collection[str]) -> st.SearchStrategy[str]:
    fields = {*(field.name for field in FIELDS), *VALUES} - set(without)

    def compared(field: str) -> st.SearchStrategy[str]:
        values = VALUES.get(field, NUMBERS)
        only_equal = field in {"point", "comm", "interface", "source", "destination", "address", "reason"}
        signs = (
            ["==", "!="] if only_equal else ["==", "!=", "<", "<=", ">", ">=", *(["&"] if values is NUMBERS else [])]
        )
        one = st.builds("{} {} {}".format, st.just(field), st.sampled_from(signs), st.sampled_from(values))
        some = st.lists(st.sampled_from(values), min_size=1, max_size=3).map(
            lambda them: f"{field} in ({', '.join(them)})"
        )
        return one | some

    return st.sampled_from(sorted(fields)).flatmap(compared)


def conditions(without: Collection[str] = ()) -> st.SearchStrategy[str]:
    """Return conditions, but none that compare certain fields."""
    return st.recursive(
        comparisons(without),
        lambda inner: (
            st.builds("({} {} {})".format, inner, st.sampled_from(["and", "or"]), inner) | inner.map("not {}".format)
        ),
        max_leaves=5,
    )
