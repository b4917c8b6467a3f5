# SPDX-License-Identifier: Apache-2.0
"""Receive latency: from the driver to the application's read, hop by hop.

The kernel side (``bpf/rx/``) stamps each packet where the driver hands it over and adds the time to a histogram at
each later probe point. Nothing runs in Python per packet: the histograms are mapped memory, read once an interval.

All durations are differences of CLOCK_MONOTONIC, taken in the kernel; neither a step of CLOCK_REALTIME nor the TAI
offset matters. A duration is exact but for the time between the hook and the clock's reading, some ten ns, and for the
difference between the clocks of two CPUs, which Linux keeps below what it can measure. One hop, from a NIC's own stamp,
compares two clocks, and has a bound.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from hopscope.bpf.layout import HopLimits, HopProtocolGroup, HopRxDiscard, HopRxHop, HopRxStage
from hopscope.errors import KernelError, UsageError
from hopscope.libbpf import Btf
from hopscope.live.attached import Attached
from hopscope.live.budget import Budget
from hopscope.live.contract import NoMessages
from hopscope.live.hops import named
from hopscope.live.labels import NOT_KNOWN, OTHER, Labels
from hopscope.live.messages.found import Found
from hopscope.live.own_flows import SelfTrafficFilter
from hopscope.live.series import EVERY_CPU, Series, series_of
from hopscope.live.session import Session
from hopscope.live.slices import Slices
from hopscope.model.snapshot import HopRow, Snapshot
from hopscope.probes.catalogue import POINTS
from hopscope.probes.grants import lacks_socket_storage
from hopscope.probes.resolve import Plan, Resolver
from hopscope.term.format import plural
from hopscope.verbs.rx.account import Account
from hopscope.verbs.rx.hops import HOPS, MEANINGS, of_packet, of_reader
from hopscope.verbs.rx.messages import ReceivedRecords, configure_messages
from hopscope.verbs.rx.nic import POINT as NIC_POINT
from hopscope.verbs.rx.nic import NicStamps, find_nics
from hopscope.verbs.rx.options import RxOptions, configure

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from hopscope.errors import LoadError
    from hopscope.libbpf import BpfObject
    from hopscope.live.contract import MessageSource
    from hopscope.live.hops import Hop
    from hopscope.live.series import Span
    from hopscope.model.snapshot import Kind, PacketAccount, PlanRow

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
_DROP: Final = "rx.drop"
_FORWARD: Final = "rx.forward"
_NIC: Final = HopRxHop.HOP_RX_NIC
# What raw tracepoints call, from 6.1 on, when they keep a program from interrupting itself.
_RECURSION_GUARD: Final = "bpf_prog_inc_misses_counter"
_PROTOCOL_GROUPS: Final[dict[int, str]] = {HopProtocolGroup.HOP_GROUP_TCP: "tcp", HopProtocolGroup.HOP_GROUP_UDP: "udp"}


class RxCollector(SelfTrafficFilter, Attached):
    """Runs the receive programs; see :class:`~hopscope.live.contract.Collector`.

    Parameters
    ----------
    options
        What is asked for.

    Raises
    ------
    UsageError
        A hop is not known, or what is asked for by name cannot be had.

    Attributes
    ----------
    messages
        Reads the records of single messages; None where none are wanted.
    found
        What is wanted of them; none until it is entered.
    """

    messages: ReceivedRecords | None = None
    found: MessageSource

    def __init__(self, options: RxOptions) -> None:
        self._options = options
        self.found = NoMessages()
        self._hops = _wanted_hops(options)
        self._wants_nic = any(hop.hop == _NIC for hop in self._hops)
        accounted = {_DROP, _FORWARD} if options.accounts and any(of_packet(hop) for hop in self._hops) else set()
        followed = _followed_hops(options) if options.records else self._hops
        points = [POINTS[name] for name in _needed_points(followed, accounted)]
        self._plan = Plan(Resolver(), points, options.ways)
        self._labels = Labels(options.group_by or "")
        self._storage = True
        self._nic_error_ns: dict[Kind, int | None] = {"interval": None, "total": None}

    def plan(self) -> list[PlanRow]:
        """Return the way that each probe point got, and the better ones with the reason against them."""
        nics = self._nics.rows() if self._wants_nic else []
        return nics + super().plan()

    def interval(self) -> Snapshot:
        """Return what was seen since the last call."""
        if self._budget:
            self._budget.interval()
        self._session.refresh()
        error_ns = self._nics.refresh()
        self._nic_error_ns = {"interval": error_ns, "total": max(self._nic_error_ns["total"] or 0, error_ns or 0)}
        # A clock that was set meanwhile makes what it stamped useless.
        void: dict[int, int] = {_NIC: HopRxDiscard.HOP_RX_CLOCK_SET} if error_ns is None else {}
        if self._account:
            self._account.refresh()
        return self._snapshot("interval", self._series.interval(void))

    def total(self) -> Snapshot:
        """Return what was seen since the start, as of the last :meth:`interval`."""
        return self._snapshot("total", self._series.total())

    # ---- start ----

    def _configure(self, bpf: BpfObject) -> None:
        configure(bpf, self._options)
        self._configure_own(bpf)
        chosen = {point.name: way for point in self._plan.points if (way := self._plan.chosen(point))}
        stages = 0
        for name in chosen:
            stages |= 1 << _STAGES[name] if name in _STAGES else 0
        bpf.set_const("cfg_stages", stages)
        bpf.set_const("cfg_account", int(_DROP in chosen))
        bpf.set_const("cfg_drop_arguments", Btf.kernel().tracepoint_arguments("kfree_skb"))
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
        configure_messages(bpf, wanted=self._options.records)
        bpf.maps["nic_clocks"].set_max_entries(max(1, len(self._nics.used)))
        bpf.maps["threads"].set_max_entries(HopLimits.HOP_THREADS if "rx.wake" in chosen else 1)
        bpf.maps["tcp_states_by_address"].set_max_entries(1 if storage else _SOCKETS)
        Series.size(bpf, hops=HopRxHop.HOP_RX_HOPS, rows=self._options.rows)

    def _adapt(self, error: LoadError) -> bool:
        """Without socket storage, the state of sockets is kept by their address."""
        if self._storage and lacks_socket_storage(error):
            self._storage = False
            return True
        return False

    def _open(self, stack: contextlib.ExitStack) -> None:
        nics = find_nics(self._options.wants_interface) if self._wants_nic else []
        self._nics = stack.enter_context(NicStamps(nics, switch_on=self._options.nic_stamps))
        self._session = stack.enter_context(Session("rx", self._plan, self._configure, self._adapt))
        bpf = self._session.bpf
        self._note_plan(bpf, self._options.ways)
        self._start_own(bpf)
        self._nics.start(bpf.maps["nic_clocks"])
        if not self._nics.used and (self._options.nic_stamps or NIC_POINT in self._options.hops):
            row = self._nics.rows()[0]
            raise KernelError(f"{row.point} is not available: {row.way}: {row.reason}", row.next_step)
        if self._options.records:
            self.messages = ReceivedRecords(bpf, switches="rx.wake" in self._attached())
            stack.callback(self.messages.close)
            self.found = Found(self.messages, each=self._options.events, slowest=self._options.slowest)
        self._series = Series(
            bpf,
            hops=HopRxHop.HOP_RX_HOPS,
            discards=HopRxDiscard.HOP_RX_DISCARDS,
            rows=self._options.rows,
            cost=self._cost,
        )
        known = _DROP in self._attached()
        self._account = Account(bpf) if known else None
        if self._options.budget is not None:
            slices = Slices(
                session=self._session,
                meter=self._cost,
                series=self._series,
                cleared=("cpu_states", "threads_seen"),
                sampled=[hop.hop for hop in HOPS if of_packet(hop)],
            )
            self._budget = stack.enter_context(Budget(self._options.budget, slices))

    # ---- results ----

    def _snapshot(self, kind: Kind, span: Span) -> Snapshot:
        shown = list(self._shown())
        return Snapshot(
            verb="rx",
            kind=kind,
            started_ns=span.before.clock_ns,
            duration_s=span.after.at_s - span.before.at_s,
            hops=[
                replace(row, error_ns=self._nic_error_ns[kind]) if hop.hop == _NIC else row
                for hop, start in shown
                for row in self._rows(hop, start, span)
            ],
            overhead=self._cost.overhead(span.before.cost, span.after.cost),
            lost=span.count("lost") + (self.found.dropped if kind == "total" else 0),
            discarded=span.discards([hop for hop, _ in shown], MEANINGS, "HOP_RX_"),
            plan=self.plan(),
            sampling_1_in=self._options.sample,
            filters=dict(self._options.shown),
            notes=self._nics.notes(self._nic_error_ns[kind]) + self._notes(span),
            packets=self._packets(kind),
            coverage=self._budget.coverage(kind) if self._budget else None,
        )

    def _packets(self, kind: Kind) -> PacketAccount | None:
        if not self._account:
            return None
        return self._account.interval() if kind == "interval" else self._account.total()

    def _attached(self) -> set[str]:
        nic = {NIC_POINT} if self._nics.used else set()
        return nic | {point.name for point in self._plan.points if self._plan.chosen(point)}

    def _shown(self) -> Iterator[tuple[Hop, str]]:
        """Yield the hops that are recorded, and where they begin."""
        attached = self._attached()
        for hop in self._hops:
            if start := hop.start(attached):
                yield hop, "rx.driver" if self._options.since_entry and hop.protocol else start

    def _rows(self, hop: Hop, start: str, span: Span) -> Iterator[HopRow]:
        for group, cpus, row in self._series_of(hop):
            histogram = span.histogram(hop.hop, row, cpus)
            if histogram.count or not group:
                bounds = span.bounds(hop.hop, row, cpus, histogram)
                yield HopRow(
                    hop.name, start, hop.ends, hop.unit, group, histogram, hop.chain, cause=hop.cause, bounds=bounds
                )

    def _series_of(self, hop: Hop) -> Iterator[tuple[dict[str, str], slice, int]]:
        """Yield label, CPUs and row of each series of a hop."""
        by = self._options.group_by
        rest = OTHER if of_packet(hop) else NOT_KNOWN
        if by == "process" and not of_reader(hop):
            yield {by: NOT_KNOWN}, EVERY_CPU, 0
        elif by == "protocol":
            for row, name in [*_PROTOCOL_GROUPS.items(), (0, rest)]:
                yield {by: name}, EVERY_CPU, row
        else:
            yield from series_of(by, self._session.bpf, self._labels, rest)

    def _notes(self, span: Span) -> list[str]:
        notes = self._session.notes()
        options = self._options
        if not self._account and not self._budget and any(point.name == _DROP for point in self._plan.points):
            notes.append("What became of packets that were not read is not known: rx.drop is not attached (--plan)")
        if overflow := span.count("group_overflow"):
            notes.append(
                f"{plural(overflow, 'packet')} counted as `{OTHER}`: the limit of "
                f"{plural(options.max_groups, 'group')} is reached (--max-groups)"
            )
        notes += self.budget_notes()
        if options.sample > 1:
            notes.append(f"{span.count('sampled'):,} of {plural(span.count('packets'), 'packet')} followed")
        return notes


def _wanted_hops(options: RxOptions) -> list[Hop]:
    """Return the hops that are asked for and that make sense with the filters."""
    wanted = named(HOPS, options.hops)
    if options.protocol:
        wanted = [hop for hop in wanted if hop.protocol in {None, options.protocol}]
    if options.selects_packets:
        wanted = [hop for hop in wanted if of_packet(hop)]
    if options.pids or options.comms:
        wanted = [hop for hop in wanted if of_reader(hop)]
    if options.nic_stamps and NIC_POINT not in [hop.name for hop in wanted]:
        raise UsageError("--nic-stamps has no effect without the hop rx.nic", "Omit it, or add --hop rx.nic")
    if not wanted:
        raise UsageError("No hop can be measured with these options", "Remove a filter, or select more hops")
    return wanted


def _followed_hops(options: RxOptions) -> list[Hop]:
    """Return the hops that a single message is made of, whichever are shown."""
    return [
        hop for hop in HOPS if of_packet(hop) and (not options.protocol or hop.protocol in {None, options.protocol})
    ]


def _needed_points(hops: Sequence[Hop], others: AbstractSet[str]) -> list[str]:
    """Return the points that the hops rest on, and others, in the order of the catalogue."""
    needed = {*others} | ({"rx.driver", "rx.core"} if any(of_packet(hop) for hop in hops) else set())
    for hop in hops:
        needed |= {hop.starts[0], hop.ends, *hop.also}
    for protocol in ("tcp", "udp"):
        # What only the socket knows is recorded where the packet joins it.
        if any(hop.protocol == protocol for hop in hops):
            needed.add(f"rx.{protocol}_queue")
            needed |= {"rx.tcp_closing"} if protocol == "tcp" else set()
    return [name for name in POINTS if name in needed]
