# SPDX-License-Identifier: Apache-2.0
"""Traces made up by tests: events are put down one by one, with the packet that each is of, which nobody else knows.

A test says what happens (`trace.packet("rx.core", at=…, skb=…)`), writes the trace and compares what an analysis finds
with :attr:`MadeTrace.truth`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hopscope.store.meta import Metadata
from hopscope.store.schema import BY_NAME
from hopscope.store.writer import TraceWriter

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

STARTED_NS = 1_000_000_000_000
REALTIME_NS = 1_767_323_045_250_000_000  # 2026-01-02 03:04:05.25 UTC
ENDED_NS = STARTED_NS + 10_000_000_000
NETNS = 4_026_531_840
TCP, UDP = 6, 17


@cache
def points() -> dict[str, int]:
    """Return probe point's name → number, from the definition: HOP_POINT_RX_TCP_QUEUE is rx.tcp_queue."""
    text = (Path(__file__).parents[2] / "src/hopscope/bpf/common/events.h").read_text()
    block = re.search(r"enum hop_point \{(.*?)\};", text, re.DOTALL)
    assert block is not None
    found = re.findall(r"HOP_POINT_(\w+) = (\d+)", block[1])
    return {name.lower().replace("_", ".", 1): int(number) for name, number in found}


@dataclass
class MadeTrace:
    """A trace in the making.

    Attributes
    ----------
    truth
        (time_ns, cpu, skb, point's name) of an event of a packet → the packet, a number that the test chose.
    """

    rows: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: {name: [] for name in BY_NAME})
    truth: dict[tuple[int, int, int, str], int] = field(default_factory=dict)
    plan: list[dict[str, str]] = field(default_factory=list)
    reasons: dict[int, str] = field(default_factory=dict)
    host: dict[str, str] = field(default_factory=dict)

    def packet(self, point: str, at: int, *, skb: int, packet: int = 0, cpu: int = 0, **columns: int) -> None:
        """Put down that a packet passes a point, `at` ns after the start."""
        self.add("packets", time_ns=STARTED_NS + at, point=points()[point], skb=skb, cpu=cpu, **columns)
        self.truth[STARTED_NS + at, cpu, skb, point] = packet

    def socket(self, point: str, at: int, *, cpu: int = 0, **columns: int) -> None:
        """Put down what happens to a socket."""
        self.add("sockets", time_ns=STARTED_NS + at, point=points()[point], cpu=cpu, **columns)

    def work(self, point: str, at: int, *, cpu: int = 0, **columns: int) -> None:
        """Put down an interrupt, a softirq, a poll, or what the scheduler does."""
        self.add("cpu", time_ns=STARTED_NS + at, point=points()[point], cpu=cpu, **columns)

    def drop(  # noqa: PLR0913 # as the table's columns
        self,
        at: int,
        *,
        skb: int,
        packet: int = 0,
        cpu: int = 0,
        reason: int = 2,
        location: int = 0,
        stack: int = -1,
        **columns: int,
    ) -> None:
        """Put down that a packet is dropped, in both tables; `columns` are the packet's."""
        self.packet("skb.drop", at, skb=skb, packet=packet, cpu=cpu, **columns)
        both = {name: value for name, value in columns.items() if name in {"flow", "ifindex", "netns", "tid"}}
        own = {"reason": reason, "location": location, "stack": stack, "cpu": cpu}
        self.add("drops", time_ns=STARTED_NS + at, point=points()["skb.drop"], skb=skb, **own, **both)

    def lose(self, from_ns: int, until_ns: int, *, cpu: int = 0, lost: int = 1) -> None:
        """Put down that events are missing, not before and not after these times since the start."""
        self.add("losses", from_ns=STARTED_NS + from_ns, until_ns=STARTED_NS + until_ns, cpu=cpu, lost=lost)

    def flow(self, source: str, destination: str, protocol: int = TCP) -> int:
        """Put down a flow between two ``ADDRESS:PORT`` and return its number."""
        (from_address, from_port), (to_address, to_port) = (_end(text) for text in (source, destination))
        digest = blake2b(f"{source} {destination} {protocol}".encode(), digest_size=8).digest()
        number = int.from_bytes(digest, "little", signed=True)
        known = {row["flow"] for row in self.rows["flows"]}
        if number not in known:
            self.add(
                "flows",
                flow=number,
                source=from_address,
                source_port=from_port,
                destination=to_address,
                destination_port=to_port,
                protocol=protocol,
            )
        return number

    def thread(self, tid: int, comm: str, pid: int = 0) -> int:
        """Put down a thread's name and return its number."""
        self.add("threads", time_ns=STARTED_NS, tid=tid, pid=pid or tid, comm=comm)
        return tid

    def device(self, name: str, ifindex: int, netns: int = NETNS) -> dict[str, int]:
        """Put down a device's name and return the columns by which events name it."""
        self.add("devices", netns=netns, ifindex=ifindex, name=name)
        return {"ifindex": ifindex, "netns": netns}

    def add(self, table: str, **columns: object) -> None:
        """Put down a row; columns that are not given are 0, or empty."""
        unknown = columns.keys() - {column.name for column in BY_NAME[table].columns}
        assert not unknown, f"{table} has no {unknown}"
        self.rows[table].append(columns)

    def write(self, folder: Path, *, left_out: Iterable[str] = ()) -> Path:
        """Write the trace and return its folder; without the events of the points that are left out."""
        absent = {points()[name] for name in left_out}
        tables = {
            name: columns([row for row in rows if row.get("point") not in absent], name)
            for name, rows in self.rows.items()
        }
        return write(folder, tables, plan=self.plan, reasons=self.reasons, host=self.host)


def write(folder: Path, tables: Mapping[str, Mapping[str, NDArray[Any]]], /, **metadata: Any) -> Path:  # noqa: ANN401 # as of Metadata
    """Write a trace of these tables' columns, which may be long, and return its folder."""
    names = {number: name for name, number in points().items()}
    meta = Metadata("0.test", STARTED_NS, REALTIME_NS, names, **metadata)
    with TraceWriter(folder, meta) as writer:
        for name, table in tables.items():
            if len(next(iter(table.values()))):
                writer.append(name, table)
        writer.close(ended_ns=ENDED_NS)
    return folder


def columns(rows: list[dict[str, Any]], table: str) -> dict[str, NDArray[Any]]:
    """Return rows as the columns of a table."""
    empty: dict[bool, Any] = {True: "", False: 0}
    return {
        column.name: np.array(
            [row.get(column.name, empty[column.dtype == "object"]) for row in rows], dtype=column.dtype
        )
        for column in BY_NAME[table].columns
    }


def _end(text: str) -> tuple[str, int]:
    address, _, port = text.rpartition(":")
    return address.strip("[]"), int(port)
