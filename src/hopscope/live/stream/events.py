# SPDX-License-Identifier: Apache-2.0
"""From the recorder's rows to events in order of time, with names.

CPUs' rings are read one after the other, so that a reading has events which are earlier than some of the reading
before. Events are held back until all before them are there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hopscope.bpf.layout import HopPoint
from hopscope.live.stream.hops import PACKET_COLUMNS, Hops
from hopscope.model.event_batch import Numbers, Texts
from hopscope.model.event_fields import Kind
from hopscope.store.counts import LOSS_TABLES
from hopscope.store.schema import EVENT_TABLES
from hopscope.trace.where import known_of, tables_of_events

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from hopscope.live.stream.hops import Followed
    from hopscope.model.event_fields import Known
    from hopscope.store.meta import Metadata

Table = dict[str, "NDArray[Any]"]

# What is remembered of flows and threads, before all of it is forgotten.
_MOST: Final = 1 << 20
_PACKETS: Final = "packets"
_DROPS: Final = "drops"
# What numbers of devices are below.
PLACE: Final = 1 << 24
_ADDRESSES: Final = (0, 2)
_FLOW_FIELDS: Final = ("source", "source_port", "destination", "destination_port", "protocol")


class Names:
    """What flows, threads and devices are called, as far as the recorder has said."""

    def __init__(self) -> None:
        self.flows: dict[int, tuple[str, int, str, int, int]] = {}
        self.threads: dict[int, tuple[int, str]] = {}
        self.devices: dict[int, str] = {}
        self.device_types: dict[int, int] = {}

    def learn(self, table: str, columns: Table) -> bool:
        """Take rows; say whether they are of this kind."""
        match table:
            case "flows":
                _bound(self.flows)
                self.flows.update(
                    zip(
                        columns["flow"].tolist(),
                        zip(*(columns[name].tolist() for name in _FLOW_FIELDS), strict=True),
                        strict=True,
                    )
                )
            case "threads":
                _bound(self.threads)
                values = zip(columns["pid"].tolist(), columns["comm"].tolist(), strict=True)
                self.threads.update(zip(columns["tid"].tolist(), values, strict=True))
            case "devices":
                places = places_of(columns["netns"], columns["ifindex"]).tolist()
                self.devices.update(zip(places, columns["name"].tolist(), strict=True))
                self.device_types.update(zip(places, columns["type"].tolist(), strict=True))
            case _:
                return False
        return True


class Events:
    """Events in order of time; columns are made when they are asked for.

    Parameters
    ----------
    parts
        Table → columns.
    assembler
        What knows names.
    hops
        Of the rows of `packets`; None: they are not followed.
    """

    def __init__(
        self,
        parts: Mapping[str, Table],
        assembler: Assembler,
        hops: Followed | None,
    ) -> None:
        self._parts = {table: columns for table, columns in parts.items() if table != _DROPS}
        self._drops = parts.get(_DROPS)
        self._assembler = assembler
        self._hops = hops
        times = [columns["time_ns"] for columns in self._parts.values()]
        self._times = _joined(times)
        self._in_order = len(times) <= 1 and _ascend(self._times)
        self._order = np.arange(len(self._times)) if self._in_order else np.argsort(self._times, kind="stable")
        self._made: dict[str, Numbers | Texts] = {}

    def __len__(self) -> int:
        """Return how many events there are."""
        return len(self._order)

    @property
    def size_bytes(self) -> int:
        """Memory that they take, about."""
        return sum(column.nbytes for columns in self._parts.values() for column in columns.values())

    def pieces(self, most: int) -> Iterator[Events]:
        """Yield these events in pieces of about so many, for which a CPU's cache has room; where there is none, one."""
        if len(self) <= most:
            yield self
            return
        limits = self._times[self._order[most::most]]
        parts = self._parts if self._drops is None else self._parts | {_DROPS: self._drops}
        ordered = {table: _in_order(columns) for table, columns in parts.items()}
        cuts = {
            table: [0, *np.searchsorted(columns["time_ns"], limits).tolist(), len(columns["time_ns"])]
            for table, columns in ordered.items()
        }
        for at in range(len(limits) + 1):
            spans = {table: slice(*places[at : at + 2]) for table, places in cuts.items()}
            piece = {
                table: {name: column[spans[table]] for name, column in columns.items()}
                for table, columns in ordered.items()
                if spans[table].start < spans[table].stop
            }
            hops = self._hops.part(spans[_PACKETS]) if self._hops else None
            if piece.keys() - {_DROPS}:
                yield Events(piece, self._assembler, hops)

    def column(self, name: str) -> Numbers | Texts:
        """Return a column by name: one of FIELDS, or one that a tracepoint has."""
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]

    def tables(self) -> Iterator[tuple[str, Table, NDArray[np.int64]]]:
        """Yield each table with its rows, and the place of each row among the events."""
        places = np.empty(len(self._order), np.int64)
        places[self._order] = np.arange(len(self._order))
        at = 0
        for name, columns in self._parts.items():
            count = len(columns["time_ns"])
            yield name, columns, places[at : at + count]
            at += count

    def _make(self, name: str) -> Numbers | Texts:  # noqa: PLR0911 # one a kind of field
        names = self._assembler.names
        match name:
            case "point":
                return self._points()
            case "hop_ns":
                return self._hop_ns()
            case "flow":
                return self._flows()
            case "reason":
                return self._reasons()
            case "pid":
                return self._looked_up("tid", names.threads, 0)
            case "comm":
                return self._looked_up("tid", names.threads, 1)
            case "interface":
                return self._interfaces()
        if name in _FLOW_FIELDS:
            return self._looked_up("flow", names.flows, _FLOW_FIELDS.index(name))
        return self._plain(name)

    def _gathered(self, made: Iterable[NDArray[Any]]) -> NDArray[Any]:
        joined = _joined(list(made))
        return joined if self._in_order else joined[self._order]

    def _plain(self, name: str) -> Numbers | Texts:
        has = [name in columns for columns in self._parts.values()]
        if self._assembler.known.own.get(name) is Kind.TEXT:
            listed = [
                columns[name].tolist() if name in columns else [None] * len(columns["time_ns"])
                for columns in self._parts.values()
            ]
            return _named(self._order, [text for part in listed for text in part])
        values = self._gathered(
            columns[name]
            if name in columns and columns[name].dtype != object
            else np.zeros(len(columns["time_ns"]), np.int64)
            for columns in self._parts.values()
        )
        if all(has):
            return Numbers(values)
        known = self._gathered(np.full(len(columns["time_ns"]), name in columns) for columns in self._parts.values())
        return Numbers(values, known.astype(bool))

    def _points(self) -> Texts:
        codes, names = self._assembler.point_codes, self._assembler.point_names
        own = {name: at for at, name in enumerate(names)}
        found = self._gathered(
            codes[columns["point"]] if table in EVENT_TABLES else np.full(len(columns["time_ns"]), own[table])
            for table, columns in self._parts.items()
        )
        return Texts(found, names)

    def _hop_ns(self) -> Numbers:
        values, known = [], []
        for table, columns in self._parts.items():
            count = len(columns["time_ns"])
            hops = self._hops if table == _PACKETS else None
            values.append(hops.hop_ns if hops else np.zeros(count, np.int64))
            known.append(hops.known if hops else np.zeros(count, bool))
        return Numbers(self._gathered(values), self._gathered(known).astype(bool))

    def _flows(self) -> Numbers:
        """Return the flow of a packet also where its headers were not looked at, but were before."""
        values, known = [], []
        for table, columns in self._parts.items():
            own = columns["flow"] if "flow" in columns else np.zeros(len(columns["time_ns"]), np.int64)
            values.append(self._hops.flow if table == _PACKETS and self._hops else own)
            known.append(np.full(len(own), "flow" in columns))
        return Numbers(self._gathered(values), self._gathered(known).astype(bool))

    def _reasons(self) -> Texts:
        names = list(self._assembler.reasons.values())
        place = {number: at for at, number in enumerate(self._assembler.reasons)}
        found: dict[tuple[int, int], int] = {}
        if self._drops is not None:
            keys = zip(self._drops["time_ns"].tolist(), self._drops["skb"].tolist(), strict=True)
            found = dict(zip(keys, self._drops["reason"].tolist(), strict=True))
        codes = []
        for table, columns in self._parts.items():
            made = np.full(len(columns["time_ns"]), -1, np.int64)
            if table == _PACKETS and found:
                dropped = np.flatnonzero(columns["point"] == HopPoint.HOP_POINT_SKB_DROP)
                for at in dropped.tolist():
                    reason = found.get((int(columns["time_ns"][at]), int(columns["skb"][at])))
                    made[at] = -1 if reason is None else place.get(reason, -1)
            codes.append(made)
        return Texts(self._gathered(codes).astype(np.int64), names)

    def _interfaces(self) -> Texts:
        keys = self._gathered(
            places_of(columns["netns"], columns["ifindex"])
            if {"ifindex", "netns"} <= columns.keys()
            else np.zeros(len(columns["time_ns"]), np.int64)
            for columns in self._parts.values()
        )
        distinct, codes = np.unique(keys, return_inverse=True)
        return _named(codes, [self._assembler.names.devices.get(key) for key in distinct.tolist()])

    def _looked_up(self, key: str, table: Mapping[int, tuple[Any, ...]], field: int) -> Numbers | Texts:
        distinct, codes = self._distinct(key)
        found = [table.get(each) for each in distinct]
        values = [None if each is None else each[field] for each in found]
        if any(isinstance(value, str) for value in values) or (key == "flow" and field in _ADDRESSES):
            return _named(codes, values)
        known = np.array([value is not None for value in values], bool)
        numbers = np.array([value or 0 for value in values], np.int64)
        return Numbers(numbers[codes], known[codes]) if len(numbers) else Numbers(codes, codes > 0)

    def _distinct(self, key: str) -> tuple[list[int], NDArray[Any]]:
        """Return the different values of a column, and the place of each event's among them."""
        name = f"\0{key}"
        if name not in self._made:
            column = self.column(key)
            values = column.values if isinstance(column, Numbers) else np.full(len(self), -1)
            distinct, codes = np.unique(values, return_inverse=True)
            self._made[name] = Texts(codes, distinct.tolist())
        made = self._made[name]
        return made.names, made.codes  # type: ignore[union-attr,return-value]


class Assembler:
    """Takes rows as the recorder gives them, and gives events.

    Parameters
    ----------
    metadata
        What a recording would say of itself: its points, reasons and tables of tracepoints.
    """

    def __init__(self, metadata: Metadata) -> None:
        self.names = Names()
        self._waiting: dict[str, list[Table]] = {}
        self._hops: Hops | None = None
        self.lost = 0
        self.renew(metadata)

    def renew(self, metadata: Metadata) -> None:
        """Take rows of another recorder of this host from now on; packets are followed from one to the other."""
        self._waiting.clear()
        self.metadata = metadata
        self.reasons = dict(metadata.reasons)
        self._own = {table.name for table in tables_of_events(metadata.tables)}
        self.known: Known = known_of(metadata.points.values(), metadata.tables)
        self.point_names = [*metadata.points.values(), *sorted(self._own)]
        self.point_codes = np.full(max(metadata.points) + 1, -1, np.int64)
        self.point_codes[list(metadata.points)] = np.arange(len(metadata.points))
        self._numbers = {name: number for number, name in metadata.points.items()}

    def close(self) -> None:
        """Forget all."""
        if self._hops:
            self._hops.close()

    def add(self, table: str, columns: Table, from_ns: int = 0) -> None:
        """Take rows of a table, events from a time on; rows that are neither events nor names are not kept."""
        if self.names.learn(table, columns):
            return
        if table in LOSS_TABLES:
            self.lost += int(columns["lost"].sum())
            if self._hops and table == "losses":
                self._hops.lost(columns)
        elif table in EVENT_TABLES or table == _DROPS or table in self._own:
            if len(columns["time_ns"]) and columns["time_ns"].min() < from_ns:
                late = columns["time_ns"] >= from_ns
                columns = {name: column[late] for name, column in columns.items()}
            self._waiting.setdefault(table, []).append(columns)

    @property
    def forgotten(self) -> int:
        """How many packets could not be followed to their end, as there were too many at once."""
        return self._hops.forgotten if self._hops else 0

    def follow(self) -> None:
        """Find out hops, and flows of packets where headers are not looked at, from now on; it takes time."""
        self._hops = self._hops or Hops(self._numbers)

    def ready(self, until_ns: int) -> Events:
        """Return the events before a time, and hold back the others.

        Parameters
        ----------
        until_ns
            All events before have been added.
        """
        parts: dict[str, Table] = {}
        for table, waiting in list(self._waiting.items()):
            columns = {name: np.concatenate([each[name] for each in waiting]) for name in waiting[0]}
            early = columns["time_ns"] < until_ns
            if not early.all():
                self._waiting[table] = [{name: column[~early] for name, column in columns.items()}]
                columns = {name: column[early] for name, column in columns.items()}
            else:
                del self._waiting[table]
            if len(columns["time_ns"]):
                parts[table] = columns
        return Events(parts, self, self._followed(parts))

    def _followed(self, parts: dict[str, Table]) -> Followed | None:
        if not self._hops or _PACKETS not in parts:
            return None
        parts[_PACKETS] = _in_order(parts[_PACKETS])
        return self._hops.of({name: parts[_PACKETS][name] for name in PACKET_COLUMNS})


def _in_order(columns: Table) -> Table:
    """Return rows in the order of their time."""
    if _ascend(columns["time_ns"]):
        return columns
    order = np.argsort(columns["time_ns"], kind="stable")
    return {name: column[order] for name, column in columns.items()}


def _ascend(times: NDArray[np.int64]) -> bool:
    return bool((times[1:] >= times[:-1]).all())


def _joined(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    return np.concatenate(parts) if len(parts) > 1 else parts[0] if parts else np.zeros(0, np.int64)


def places_of(netns: NDArray[Any], ifindex: NDArray[Any]) -> NDArray[np.int64]:
    """Return devices and their namespaces as one number each, the key of :attr:`Names.devices`; 0: none."""
    places: NDArray[np.int64] = netns.astype(np.int64) * PLACE + ifindex
    return places


def _named(codes: NDArray[Any], values: list[str | None]) -> Texts:
    """Return texts by their place among values, some of which are not known."""
    known = {text: at for at, text in enumerate(dict.fromkeys(text for text in values if text is not None))}
    places = np.array([*(-1 if text is None else known[text] for text in values), -1], np.int64)
    return Texts(places[codes], list(known))


def _bound(known: dict[int, Any]) -> None:
    if len(known) > _MOST:
        known.clear()
