# SPDX-License-Identifier: Apache-2.0
"""Receive latency: from the driver to the application's read, hop by hop.

The kernel side (``rx.bpf.c``) stamps each packet where the driver hands it over and adds the time to a histogram at
each later probe point. Nothing runs in Python per packet: the histograms are mapped memory, read once an interval.

All durations are differences of CLOCK_MONOTONIC, taken in the kernel; neither a step of CLOCK_REALTIME nor the TAI
offset matters. A duration is exact but for the time between the hook and the clock's reading, some ten ns, and for the
difference between the clocks of two CPUs, which Linux keeps below what it can measure. One hop, from a NIC's own stamp,
compares two clocks, and has a bound.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np

from hopscope.analysis.histogram import Histogram
from hopscope.analysis.snapshot import Discard, HopRow, Snapshot
from hopscope.bpf.layout import HopProtocolGroup, HopRxDiscard, HopRxHop, HopRxStage
from hopscope.collectors.cost import CostMeter
from hopscope.collectors.labels import NOT_KNOWN, OTHER, Labels
from hopscope.collectors.rx_hops import HOPS, MEANINGS, Hop
from hopscope.collectors.rx_nic import POINT as NIC_POINT
from hopscope.collectors.rx_nic import NicStamps, find_nics
from hopscope.collectors.rx_options import RxOptions, configure
from hopscope.collectors.session import Session
from hopscope.errors import KernelError, UsageError
from hopscope.libbpf import Btf, possible_cpus
from hopscope.probes.catalogue import POINTS
from hopscope.probes.grants import lacks_socket_storage
from hopscope.probes.resolve import Plan, Resolver

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType

    from hopscope.analysis.snapshot import Kind, PlanRow
    from hopscope.collectors.cost import CostReading
    from hopscope.errors import LoadError
    from hopscope.libbpf import BpfObject

_SOCKETS: Final = 16384
_STAGES: Final = {
    "rx.driver": HopRxStage.HOP_STAGE_DRIVER,
    "rx.core": HopRxStage.HOP_STAGE_CORE,
    "rx.ip": HopRxStage.HOP_STAGE_IP,
    "rx.tcp": HopRxStage.HOP_STAGE_L4,
    "rx.udp": HopRxStage.HOP_STAGE_L4,
    "rx.tcp_queue": HopRxStage.HOP_STAGE_QUEUE,
    "rx.udp_queue": HopRxStage.HOP_STAGE_QUEUE,
}
_NIC: Final = HopRxHop.HOP_RX_NIC
# What raw tracepoints call, from 6.1 on, when they keep a program from interrupting itself.
_RECURSION_GUARD: Final = "bpf_prog_inc_misses_counter"
_PROTOCOL_GROUPS: Final[dict[int, str]] = {HopProtocolGroup.HOP_GROUP_TCP: "tcp", HopProtocolGroup.HOP_GROUP_UDP: "udp"}

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Reading:
    """All counters at one instant.

    Attributes
    ----------
    slots
        int64, shape (cpus, hops, groups, 226).
    sum_ns
        int64, shape (cpus, hops, groups).
    discarded
        int64, shape (hops, reasons).
    overflow, packets, sampled
        Packets whose group found no row; at the entry; followed.
    at_s, clock_ns
        CLOCK_MONOTONIC and, for display, CLOCK_REALTIME.
    cost
        What the programs and this process took.
    """

    slots: Array
    sum_ns: Array
    discarded: Array
    overflow: int
    packets: int
    sampled: int
    at_s: float
    clock_ns: int
    cost: CostReading


class RxCollector:
    """Runs the receive programs; see :class:`~hopscope.collectors.contract.Collector`.

    Parameters
    ----------
    options
        What is asked for.

    Raises
    ------
    UsageError
        A hop is not known, or what is asked for by name cannot be had.
    """

    def __init__(self, options: RxOptions) -> None:
        self._options = options
        self._hops = _wanted_hops(options)
        self._wants_nic = any(hop.hop == _NIC for hop in self._hops)
        points = [POINTS[name] for name in _needed_points(self._hops)]
        self._plan = Plan(Resolver(), points, options.ways)
        self._labels = Labels(options.group_by or "")
        self._storage = True
        self._nic_error_ns: dict[Kind, int | None] = {"interval": None, "total": None}
        self._last: Reading

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            nics = find_nics(self._options.wants_interface) if self._wants_nic else []
            self._nics = stack.enter_context(NicStamps(nics, switch_on=self._options.nic_stamps))
            self._session = stack.enter_context(Session("rx", self._plan, self._configure, self._adapt))
            self._open(self._session)
            self._opened = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._opened.close()

    def plan(self) -> list[PlanRow]:
        """Return the way that each probe point got, and the better ones with the reason against them."""
        nics = self._nics.rows() if self._wants_nic else []
        return nics + self._plan.rows()

    def measure_cost(self, window_s: float) -> None:
        """Wait, and let the kernel measure the programs meanwhile; call it once an interval."""
        self._cost.sample(window_s)

    def interval(self) -> Snapshot:
        """Return what was seen since the last call."""
        self._session.refresh()
        before, raw = self._last, self._read()
        error_ns = self._nics.refresh()
        if error_ns is None:
            self._voided = raw.slots[:, _NIC] - before.slots[:, _NIC]
            self._voided_ns = raw.sum_ns[:, _NIC] - before.sum_ns[:, _NIC]
        self._nic_error_ns = {"interval": error_ns, "total": max(self._nic_error_ns["total"] or 0, error_ns or 0)}
        self._last = self._without_voided(raw)
        maxima = self._take_maxima(nic_too=error_ns is not None)
        return self._snapshot("interval", before, self._last, maxima)

    def total(self) -> Snapshot:
        """Return what was seen since the start, as of the last :meth:`interval`."""
        return self._snapshot("total", self._first, self._last, self._maxima)

    # ---- start ----

    def _configure(self, bpf: BpfObject) -> None:
        configure(bpf, self._options)
        chosen = {point.name: way for point in self._plan.points if (way := self._plan.chosen(point))}
        stages = 0
        for name in chosen:
            stages |= 1 << _STAGES[name] if name in _STAGES else 0
        bpf.set_const("cfg_stages", stages)
        for const, point, program in (
            ("cfg_cgroup_records_tcp", "rx.tcp", "rx_l4_cgroup"),
            ("cfg_cgroup_records_udp", "rx.udp", "rx_l4_cgroup"),
            ("cfg_ready_records_tcp", "rx.tcp_closing", "rx_ready"),
            ("cfg_ready_records_udp", "rx.udp_queue", "rx_ready"),
        ):
            bpf.set_const(const, int(point in chosen and program in chosen[point].programs))
        tcp_kinds = {way.kind for name, way in chosen.items() if name in {"rx.tcp_queue", "rx.tcp_read"}}
        storage = self._storage and "kprobe" not in tcp_kinds
        bpf.set_const("cfg_socket_storage", int(storage))
        bpf.set_const("cfg_programs_nest", int(not Btf.kernel().has_func(_RECURSION_GUARD)))
        bpf.set_const("cfg_nic_stamps", int(bool(self._nics.used)))
        bpf.maps["nic_clocks"].set_max_entries(max(1, len(self._nics.used)))
        bpf.maps["tcp_states_by_address"].set_max_entries(1 if storage else _SOCKETS)
        rows = self._options.rows
        bpf.maps["histograms"].set_max_entries(possible_cpus() * HopRxHop.HOP_RX_HOPS * rows)
        bpf.maps["counters"].set_max_entries(possible_cpus())
        bpf.maps["groups"].set_max_entries(rows)
        bpf.maps["group_rows"].set_max_entries(rows)

    def _adapt(self, error: LoadError) -> bool:
        """Without socket storage, the state of sockets is kept by their address."""
        if self._storage and lacks_socket_storage(error):
            self._storage = False
            return True
        return False

    def _open(self, session: Session) -> None:
        bpf = session.bpf
        for name in self._options.ways:
            if not self._plan.chosen(POINTS[name]):
                row = next(
                    row for row in self._plan.rows() if row.point == name and row.way == self._options.ways[name]
                )
                raise KernelError(f"{name} cannot be attached by {row.way}: {row.reason}", row.next_step)
        self._nics.start(bpf.maps["nic_clocks"])
        if not self._nics.used and (self._options.nic_stamps or NIC_POINT in self._options.hops):
            row = self._nics.rows()[0]
            raise KernelError(f"{row.point} cannot be had: {row.way}: {row.reason}", row.next_step)
        self._rows = bpf.maps["histograms"].array()
        self._counters = bpf.maps["counters"].array()
        used = self._plan.programs()
        self._cost = CostMeter(program for program in bpf.programs.values() if program.name in used)
        self._rows["max_ns"] = 0
        self._maxima = np.zeros(self._shape, np.int64)
        self._first = self._last = self._read()
        self._voided = np.zeros_like(self._first.slots[:, _NIC])
        self._voided_ns = np.zeros_like(self._first.sum_ns[:, _NIC])

    @property
    def _shape(self) -> tuple[int, int, int]:
        return (possible_cpus(), int(HopRxHop.HOP_RX_HOPS), self._options.rows)

    # ---- reading ----

    def _read(self) -> Reading:
        rows = self._rows.reshape(self._shape)
        discards = self._counters["discarded"].astype(np.int64).sum(axis=0)
        return Reading(
            slots=rows["slots"].astype(np.int64),
            sum_ns=rows["sum_ns"].astype(np.int64),
            discarded=discards.reshape(int(HopRxHop.HOP_RX_HOPS), int(HopRxDiscard.HOP_RX_DISCARDS)),
            overflow=int(self._counters["group_overflow"].sum()),
            packets=int(self._counters["packets"].sum()),
            sampled=int(self._counters["sampled"].sum()),
            at_s=time.monotonic(),
            clock_ns=time.time_ns(),
            cost=self._cost.read(),
        )

    def _without_voided(self, reading: Reading) -> Reading:
        """Count what a NIC's clock made useless as discarded."""
        reading.slots[:, _NIC] -= self._voided
        reading.sum_ns[:, _NIC] -= self._voided_ns
        reading.discarded[_NIC, HopRxDiscard.HOP_RX_CLOCK_SET] = self._voided.sum()
        return reading

    def _take_maxima(self, *, nic_too: bool) -> Array:
        """Return the largest durations since the last call and let the kernel start anew."""
        mapped = self._rows["max_ns"]
        taken = mapped.astype(np.int64).reshape(self._shape)
        mapped[:] = 0
        if not nic_too:
            taken[:, _NIC] = 0
        self._maxima = np.maximum(self._maxima, taken)
        return taken

    # ---- results ----

    def _snapshot(self, kind: Kind, before: Reading, after: Reading, maxima: Array) -> Snapshot:
        slots, sum_ns = after.slots - before.slots, after.sum_ns - before.sum_ns
        return Snapshot(
            verb="rx",
            kind=kind,
            started_ns=before.clock_ns,
            duration_s=after.at_s - before.at_s,
            hops=[
                replace(row, error_ns=self._nic_error_ns[kind]) if hop.hop == _NIC else row
                for hop in self._shown()
                for row in self._hop_rows(hop, slots, sum_ns, maxima)
            ],
            overhead=self._cost.overhead(before.cost, after.cost),
            discarded=self._discards(after.discarded - before.discarded),
            plan=self.plan(),
            sampling_1_in=self._options.sample,
            filters=dict(self._options.shown),
            notes=self._nics.notes(self._nic_error_ns[kind]) + self._notes(before, after),
        )

    def _attached(self) -> set[str]:
        nic = {NIC_POINT} if self._nics.used else set()
        return nic | {point.name for point in self._plan.points if self._plan.chosen(point)}

    def _shown(self) -> Iterator[Hop]:
        attached = self._attached()
        for hop in self._hops:
            if {hop.ends, *hop.also} <= attached and any(start in attached for start in hop.starts):
                yield hop

    def _hop_rows(self, hop: Hop, slots: Array, sum_ns: Array, maxima: Array) -> Iterator[HopRow]:
        attached = self._attached()
        start = next(point for point in hop.starts if point in attached)
        if self._options.since_entry and hop.protocol:
            start = "rx.driver"
        for group, cpus, row in self._series(hop):
            counts = slots[cpus, hop.hop, row].sum(axis=0)
            if not counts.any() and group:
                continue
            maximum = int(maxima[cpus, hop.hop, row].max())
            histogram = Histogram(counts, int(sum_ns[cpus, hop.hop, row].sum()), maximum)
            yield HopRow(hop.name, start, hop.ends, hop.unit, group, histogram, hop.chain)

    def _series(self, hop: Hop) -> Iterator[tuple[dict[str, str], slice, int]]:
        """Yield label, CPUs and row of each series of a hop."""
        by = self._options.group_by
        every = slice(None)
        if by is None:
            yield {}, every, 0
        elif by == "process" and not hop.of_reader:
            yield {by: NOT_KNOWN}, every, 0
        elif by == "cpu":
            for cpu in range(possible_cpus()):
                yield {by: str(cpu)}, slice(cpu, cpu + 1), 0
        else:
            rest = OTHER if hop.of_packet else NOT_KNOWN
            for row, name in sorted(self._groups(by, rest).items(), key=lambda item: (item[0] == 0, item[1])):
                yield {by: name}, every, row

    def _groups(self, by: str, rest: str) -> dict[int, str]:
        if by == "protocol":
            return {0: rest, **_PROTOCOL_GROUPS}
        rows, groups = self._session.bpf.maps["groups"].items()
        return {0: rest} | {int(row): self._labels.name(group) for row, group in zip(rows, groups, strict=True)}

    def _discards(self, counts: Array) -> list[Discard]:
        shown = {hop.hop: hop.name for hop in self._shown()}
        return [
            Discard(name, reason.name.removeprefix("HOP_RX_").lower(), int(counts[hop, reason]), MEANINGS[reason])
            for hop, name in shown.items()
            for reason in MEANINGS
            if counts[hop, reason]
        ]

    def _notes(self, before: Reading, after: Reading) -> list[str]:
        notes = []
        options = self._options
        if after.overflow > before.overflow:
            notes.append(
                f"{after.overflow - before.overflow} packets are in the row `{OTHER}`: all {options.max_groups} groups "
                "are taken (--max-groups)"
            )
        if options.sample > 1:
            notes.append(f"{after.sampled - before.sampled} of {after.packets - before.packets} packets were followed")
        return notes


def _wanted_hops(options: RxOptions) -> list[Hop]:
    """Return the hops that are asked for and that make sense with the filters."""
    names = [hop.name for hop in HOPS]
    unknown = [name for name in options.hops if name not in names]
    if unknown:
        raise UsageError(f"There is no hop {unknown[0]}", f"The hops are {', '.join(names)}")
    wanted = [hop for hop in HOPS if not options.hops or hop.name in options.hops]
    if options.protocol:
        wanted = [hop for hop in wanted if hop.protocol in {None, options.protocol}]
    if options.selects_packets:
        wanted = [hop for hop in wanted if hop.of_packet]
    if options.pids or options.comms:
        wanted = [hop for hop in wanted if hop.of_reader]
    if options.nic_stamps and NIC_POINT not in [hop.name for hop in wanted]:
        raise UsageError("None of the hops asked for needs --nic-stamps", "Leave it out, or ask for rx.nic")
    if not wanted:
        raise UsageError("No hop is left with these options", "Leave out a filter, or ask for more hops")
    return wanted


def _needed_points(hops: Sequence[Hop]) -> list[str]:
    """Return the points that the hops rest on, in the order of the catalogue."""
    needed = {"rx.driver", "rx.core"} if any(hop.of_packet for hop in hops) else set()
    for hop in hops:
        needed |= {hop.starts[0], hop.ends, *hop.also}
    for protocol in ("tcp", "udp"):
        # What only the socket knows is recorded where the packet joins it.
        if any(hop.protocol == protocol for hop in hops):
            needed.add(f"rx.{protocol}_queue")
            needed |= {"rx.tcp_closing"} if protocol == "tcp" else set()
    return [name for name in POINTS if name in needed]
