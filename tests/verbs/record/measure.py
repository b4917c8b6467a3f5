# SPDX-License-Identifier: Apache-2.0
"""What the accuracy tests of ``record`` share: a recording of the lab alone, its rows by table and point, and flows."""

from __future__ import annotations

import contextlib
import socket
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from hopscope.live.recorder.collector import Recorder
from hopscope.live.recorder.options import RecordOptions
from hopscope.store.schema import BY_NAME, EVENT_TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.lab import Lab
    from hopscope.live.own_flows import OwnFlow

Array = np.ndarray[Any, np.dtype[Any]]

FLOW = ("source", "source_port", "destination", "destination_port", "protocol")
FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16


class Rows:
    """Rows of a table, by the names of their columns."""

    def __init__(self, columns: dict[str, Array]) -> None:
        self._columns = columns

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def __getitem__(self, column: str) -> Array:
        return self._columns[column]

    def __contains__(self, column: str) -> bool:
        return column in self._columns

    def where(self, mask: Array) -> Rows:
        return Rows({name: values[mask] for name, values in self._columns.items()})

    def having(self, **values: Any) -> Rows:  # noqa: ANN401 - whatever the columns are of
        """Return the rows that have these values, or one of them where several are given."""
        mask = np.ones(len(self), bool)
        for name, wanted in values.items():
            mask &= np.isin(self[name], wanted)
        return self.where(mask)

    def by_time(self) -> Rows:
        return self.where(np.argsort(self["time_ns"], kind="stable"))


class Seen:
    """All that a recorder has said so far."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.metadata = recorder.metadata()
        self._points = {name: number for number, name in self.metadata.points.items()}
        self._tables = BY_NAME | {table.name: table for table in self.metadata.tables}
        self._parts: dict[str, list[dict[str, Array]]] = {name: [] for name in self._tables}

    def take(self) -> Seen:
        """Read what came since."""
        for table, columns in self.recorder.read():
            assert set(columns) == {column.name for column in self._tables[table].columns}
            assert len({len(values) for values in columns.values()}) == 1
            self._parts[table].append(columns)
        return self

    def forget(self) -> Seen:
        """Begin anew, with what is known of flows, threads and devices."""
        self.take()
        for table in (*EVENT_TABLES, "drops"):
            self._parts[table].clear()
        return self

    def rows(self, table: str) -> Rows:
        parts = self._parts[table]
        return Rows(
            {
                column.name: np.concatenate([part[column.name] for part in parts])
                if parts
                else np.zeros(0, column.dtype)
                for column in self._tables[table].columns
            }
        )

    def columns(self, table: str) -> list[str]:
        return [column.name for column in self._tables[table].columns]

    def number(self, point: str) -> int:
        return self._points[point]

    def at(self, point: str, **values: Any) -> Rows:  # noqa: ANN401 - as for `having`
        """Return the events of a probe point that have these values."""
        number = self._points[point]
        table = EVENT_TABLES[number >> 5]
        return self.rows(table).having(point=number, **values)

    def counts(self, **values: Any) -> Counter[str]:  # noqa: ANN401 - as above
        """Return how many events of packets and sockets each probe point has with these values."""
        found: Counter[str] = Counter()
        for table in ("packets", "sockets"):
            points = self.rows(table).having(**values)["point"]
            found.update(self.metadata.points[int(point)] for point in points)
        return found

    def flow(self, source: tuple[Any, ...], destination: tuple[Any, ...], protocol: int) -> int:
        """Return the number of a flow; it must have exactly one."""
        flows = self.rows("flows")
        found = flows.having(
            source=source[0],
            source_port=source[1],
            destination=destination[0],
            destination_port=destination[1],
            protocol=protocol,
        )["flow"]
        (number,) = set(found)  # it may be told several times
        return int(number)

    def flow_of(self, sender: socket.socket) -> int:
        """Return the flow of what a connected socket sends."""
        return self.flow(sender.getsockname(), sender.getpeername(), protocol_of(sender))

    def socket_flows(self, sender: socket.socket) -> tuple[int, int]:
        """Return the flows of what a connected socket sends, and of what comes back."""
        ends = sender.getsockname(), sender.getpeername()
        return self.flow(*ends, protocol_of(sender)), self.flow(*reversed(ends), protocol_of(sender))

    def ends(self, flow: int) -> tuple[str, int, str, int, int]:
        rows = self.rows("flows").having(flow=flow)
        (told,) = set(zip(*(rows[name] for name in FLOW), strict=True))
        return told

    def thread(self, tid: int, time_ns: int) -> tuple[int, str]:
        """Return the process and the name that a thread had at a time."""
        rows = self.rows("threads").having(tid=tid)
        known = rows.where(rows["time_ns"] <= time_ns).by_time()
        assert len(known), tid
        return int(known["pid"][-1]), str(known["comm"][-1])

    def devices(self, rows: Rows) -> set[tuple[str, int]]:
        """Return the name and the namespace of each device that packets were at."""
        known = self.rows("devices")
        found = set()
        for ifindex, netns in set(zip(rows["ifindex"].tolist(), rows["netns"].tolist(), strict=True)):
            (name,) = set(known.having(ifindex=ifindex, netns=netns)["name"])
            found.add((str(name), netns))
        return found

    def reasons(self, **values: Any) -> Counter[str]:  # noqa: ANN401 - as for `having`
        """Return how many drops have each reason, of those whose packets have these values in ``packets``."""
        packets = self.at("skb.drop", **values)
        keys = set(zip(packets["time_ns"], packets["cpu"], packets["skb"], strict=True))
        drops = self.rows("drops")
        kept = [key in keys for key in zip(drops["time_ns"], drops["cpu"], drops["skb"], strict=True)]
        return Counter(self.metadata.reasons[int(reason)] for reason in drops["reason"][kept])

    def records(self) -> int:
        """Return how many records there were in all."""
        return sum(len(self.rows(table)) for table in (*EVENT_TABLES, "drops", "flows", "threads", "devices"))


def protocol_of(sock: socket.socket) -> int:
    return socket.IPPROTO_TCP if sock.type == socket.SOCK_STREAM else socket.IPPROTO_UDP


def anyone(host: str) -> tuple[str, int]:
    """Return the other end of a socket that is not connected."""
    return "::" if ":" in host else "0.0.0.0", 0  # noqa: S104 - nothing is bound


def namespaces(lab: Lab) -> list[int]:
    return [lab.client.inode, lab.server.inode]


@contextlib.contextmanager
def recording(
    lab: Lab | None,
    own: list[OwnFlow] | None = None,
    **options: Any,  # noqa: ANN401 - whatever RecordOptions takes
) -> Iterator[Seen]:
    """Yield what is recorded of the lab and of nothing else of this machine, but `own`; nothing may be lost."""
    only = {"namespaces": namespaces(lab)} if lab else {}
    recorder = Recorder(RecordOptions(**{**only, **options}))
    if own is not None:
        recorder.leave_out(own)
    with recorder:
        yield Seen(recorder)
        assert recorder.lost == 0


def payload(rows: Rows) -> Array:
    found: Array = rows["len_bytes"] - rows["header_bytes"]
    return found


def covered(seq: Array, len_bytes: Array) -> int:
    """Return how many different bytes of a stream segments carry."""
    starts = (seq - seq[0] + (1 << 31)) % (1 << 32)
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], np.maximum.accumulate((starts + len_bytes)[order])
    new = np.maximum(ends[1:] - np.maximum(starts[1:], ends[:-1]), 0)
    return int(ends[0] - starts[0] + new.sum())
