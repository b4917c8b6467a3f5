# SPDX-License-Identifier: Apache-2.0
"""Records of the rings become columns of the trace's tables: as arrays, whatever their number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hopscope.bpf.layout import (
    HOP_DEVICE_DTYPE,
    HOP_DROP_DTYPE,
    HOP_FLOW_DTYPE,
    HOP_PACKET_DTYPE,
    HOP_SOCKET_DTYPE,
    HOP_TCP_DTYPE,
    HOP_THREAD_DTYPE,
    HOP_WORK_DTYPE,
    HopPoint,
)
from hopscope.kernel.cgroups import cpu_cgroup
from hopscope.live.labels import address_of
from hopscope.store.schema import BY_NAME, TEXT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from hopscope.store.schema import Table

Array = np.ndarray[Any, np.dtype[Any]]
Columns = dict[str, Array]

# How many points share a struct (enum hop_point).
_CLASS_BITS: Final = 5
POINTS_PER_TABLE: Final = 1 << _CLASS_BITS
# Kind of a point → table, and struct of its records.
EVENTS: Final = {
    0: ("packets", HOP_PACKET_DTYPE),
    1: ("sockets", HOP_SOCKET_DTYPE),
    2: ("cpu", HOP_WORK_DTYPE),
    4: ("tcp", HOP_TCP_DTYPE),
}
_DEFINITIONS: Final = 3
_POINT_PREFIX: Final = "HOP_POINT_"
_AT_ONCE: Final = 8192
# That are remembered.
_FLOWS: Final = 1 << 20


def point_names() -> dict[int, str]:
    """Return the number of each probe point → its name: ``rx.core`` for ``HOP_POINT_RX_CORE``."""
    return {
        int(point): point.name.removeprefix(_POINT_PREFIX).lower().replace("_", ".", 1)
        for point in HopPoint
        if point >> _CLASS_BITS in EVENTS
    }


def table_of(point: int) -> str:
    """Return the table with the events of a probe point."""
    return EVENTS[point >> _CLASS_BITS][0]


def since(records: NDArray[np.void], started_ns: int) -> NDArray[np.void]:
    """Return those that are no events before this time; what flows, threads and devices are is said only once."""
    events = (records["point"] >> _CLASS_BITS != _DEFINITIONS) | (records["point"] == HopPoint.HOP_POINT_DROP)
    return _where(records, ~(events & (records["time_ns"] < started_ns)))


def events_in(records: NDArray[np.void]) -> int:
    """Return how many of them are events of probe points."""
    return int((records["point"] >> _CLASS_BITS != _DEFINITIONS).sum())


class Tables:
    """Takes records, gives rows; knows what it gave before of flows."""

    def __init__(self) -> None:
        self._flows: set[int] = set()

    def forget(self) -> None:
        """Give flows once more that were given before."""
        self._flows.clear()

    def rows(self, records: NDArray[np.void], cpu: int) -> Iterator[tuple[str, Columns]]:
        """Yield each table's name and rows.

        Parameters
        ----------
        records : ndarray of ``struct hop_packet`` or another of its size, shape (n,)
            Of one CPU.
        cpu
            Which.
        """
        # A few at a time, which stay in the cache while column after column is taken from them.
        for start in range(0, len(records), _AT_ONCE):
            yield from self._rows(records[start : start + _AT_ONCE], cpu)

    def _rows(self, records: NDArray[np.void], cpu: int) -> Iterator[tuple[str, Columns]]:
        points = records["point"]
        kinds = points >> _CLASS_BITS
        for kind, (table, dtype) in EVENTS.items():
            chosen = _where(records, kinds == kind)
            if len(chosen):
                yield table, _events(BY_NAME[table], chosen.view(dtype), cpu)
        told = kinds == _DEFINITIONS
        if told.any():
            yield from self._told(_where(records, told), points[told], cpu)

    def _told(self, records: Array, points: Array, cpu: int) -> Iterator[tuple[str, Columns]]:
        drops = records[points == HopPoint.HOP_POINT_DROP].view(HOP_DROP_DTYPE)
        if len(drops):
            point = np.full(len(drops), HopPoint.HOP_POINT_SKB_DROP, np.int16)
            yield "drops", _events(BY_NAME["drops"], drops, cpu) | {"point": point}
        threads = records[points == HopPoint.HOP_POINT_THREAD].view(HOP_THREAD_DTYPE)
        if len(threads):
            paths = np.array([cpu_cgroup(int(pid)) for pid in threads["pid"]], object)
            names = {"comm": _texts(threads["comm"]), "cgroup_path": paths}
            yield "threads", _events(BY_NAME["threads"], threads, cpu) | names
        devices = records[points == HopPoint.HOP_POINT_DEVICE].view(HOP_DEVICE_DTYPE)
        if len(devices):
            yield "devices", _events(BY_NAME["devices"], devices, cpu) | {"name": _texts(devices["name"])}
        qdiscs = records[points == HopPoint.HOP_POINT_QDISC].view(HOP_DEVICE_DTYPE)
        if len(qdiscs):
            yield "qdiscs", _events(BY_NAME["qdiscs"], qdiscs, cpu) | {"kind": _texts(qdiscs["name"])}
        flows = records[points == HopPoint.HOP_POINT_FLOW].view(HOP_FLOW_DTYPE)
        fresh = [flow for flow in flows if int(flow["flow"]) not in self._flows]
        if fresh:
            if len(self._flows) > _FLOWS:
                self._flows.clear()  # some are told a second time
            self._flows.update(int(flow["flow"]) for flow in fresh)
            yield "flows", _flow_rows(np.array(fresh, HOP_FLOW_DTYPE))


def _where(records: Array, mask: NDArray[np.bool_]) -> Array:
    # As one opaque item each: NumPy would copy a structured array field by field, seven times slower.
    return records if mask.all() else records.view(f"V{records.itemsize}")[mask].view(records.dtype)


def _events(table: Table, records: Array, cpu: int) -> Columns:
    """Return the columns that records of a struct have under the same names, as views where possible, and the CPU."""
    columns: Columns = {}
    for column in table.columns:
        if column.name == "cpu":
            columns["cpu"] = np.broadcast_to(np.asarray(cpu, column.dtype), len(records))
        elif column.dtype != TEXT:
            columns[column.name] = _signed(records[column.name], np.dtype(column.dtype))
    return columns


def _signed(field: Array, dtype: np.dtype[Any]) -> Array:
    return field.view(dtype) if field.dtype.itemsize == dtype.itemsize else field.astype(dtype)


def _flow_rows(flows: Array) -> Columns:
    ports = flows["port"].byteswap()
    return {
        "flow": flows["flow"].astype(np.int64),
        "source": _addresses(flows["source"]),
        "source_port": ports[:, 0].astype(np.int32),
        "destination": _addresses(flows["destination"]),
        "destination_port": ports[:, 1].astype(np.int32),
        "protocol": flows["protocol"].astype(np.int16),
    }


def _addresses(words: Array) -> Array:
    return np.array([address_of(each) for each in words], object)


def _texts(values: Array) -> Array:
    return np.array([value.decode(errors="replace") for value in values], object)
