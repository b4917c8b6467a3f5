# SPDX-License-Identifier: Apache-2.0
"""Transmit latency: from the application's send call to the ACK, hop by hop.

TCP is followed by the kernel's BPF time stamps where it has them (``bpf/tx/stamped.h``): callbacks of the sockets that
are selected, and of no other. Elsewhere, and for datagrams, by hooks that every packet passes (``bpf/tx/traced.h``,
``bpf/tx/datagram.h``). A message is what one send call hands over; its times are those of its last byte.

All times are CLOCK_MONOTONIC, taken in the kernel.
"""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING, Final

from hopscope.bpf.layout import HopTxDiscard, HopTxHop
from hopscope.errors import KernelError, UsageError
from hopscope.kernel.capabilities import unseen_namespaces
from hopscope.live.attached import Attached
from hopscope.live.budget import Budget
from hopscope.live.contract import NoMessages
from hopscope.live.hops import named
from hopscope.live.labels import OTHER, Labels
from hopscope.live.messages.found import Found
from hopscope.live.messages.records import configure_records
from hopscope.live.own_flows import SelfTrafficFilter
from hopscope.live.series import Series, series_of
from hopscope.live.session import Session
from hopscope.live.slices import Slices
from hopscope.model.snapshot import HopRow, Snapshot
from hopscope.probes.catalogue import POINTS
from hopscope.probes.resolve import Plan, Resolver
from hopscope.term.format import plural
from hopscope.verbs.tx.hops import HOPS, MEANINGS
from hopscope.verbs.tx.messages import SentRecords
from hopscope.verbs.tx.options import GROUP_BY, TxOptions
from hopscope.verbs.tx.sockets import Sockets

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable, Iterator

    from hopscope.libbpf import BpfObject
    from hopscope.live.contract import MessageSource
    from hopscope.live.hops import Hop
    from hopscope.live.series import Span
    from hopscope.model.snapshot import Kind

# include/uapi/linux/time.h; its resolution is the tick.
_CLOCK_MONOTONIC_COARSE: Final = 6
# Sockets that exist at the start, and threads that are in a send call.
_INODES: Final = 65536
_SENDS: Final = 16384
# Messages on the way that have the state of their sockets with them, some 200 bytes each.
_FIELDS: Final = 32768
# Flows of datagrams, where their rate is limited.
_FLOWS_PACED: Final = 65536
_TRACED_SOCKETS: Final = 1024
# At 8 KiB of kernel memory each.
_STAMPED_SOCKETS: Final = 8192
# Which of them exist where TCP is stamped by the kernel, and where it is traced.
STAMPED_ONLY: Final = ("tx.tcp", "tx.sockets", "tx.arrival", "tx.driver", "tx.nic")
_TCP_POINTS: Final = (
    "tx.send", "tx.tcp", "tx.sockets", "tx.arrival", "tx.sched", "tx.qdisc", "tx.driver", "tx.nic", "tx.ack",
)  # fmt: skip
_UDP_POINTS: Final = ("tx.udp_send", "tx.udp", "tx.udp_qdisc", "tx.udp_driver", "tx.udp_free")
# Points whose hooks run for flows that are not selected, too.
_HOST_POINTS: Final = {"tx.send", "tx.arrival", "tx.qdisc", *_UDP_POINTS}
_TRACE_WAYS: Final = {"tx.sched": "tp_btf:net_dev_queue", "tx.ack": "tp_btf:tcp_probe+inet_sock_set_state"}


class TxCollector(SelfTrafficFilter, Attached):
    """Runs the transmit programs; see :class:`~hopscope.live.contract.Collector`.

    Parameters
    ----------
    options
        What is asked for.

    Raises
    ------
    UsageError
        A hop is not known, or what is asked for cannot be had together.

    Attributes
    ----------
    messages
        Reads the records of single messages; None where none are wanted.
    found
        What is wanted of them; none until it is entered.
    """

    messages: SentRecords | None = None
    found: MessageSource
    _switch_on: Callable[[], None] = staticmethod(lambda: None)

    def __init__(self, options: TxOptions) -> None:
        self._options = options
        self.found = NoMessages()
        self._resolver = Resolver()
        self._choose(stamped=not _forces_tracing(options))
        if self._lacks_stamps():
            self._choose(stamped=False)
        self._labels = Labels(options.group_by or "")

    def interval(self) -> Snapshot:
        """Return what was seen since the last call."""
        if self._budget:
            self._budget.interval()
        return self._snapshot("interval", self._series.interval())

    def total(self) -> Snapshot:
        """Return what was seen since the start, as of the last :meth:`interval`."""
        return self._snapshot("total", self._series.total())

    # ---- what is attached ----

    def _choose(self, *, stamped: bool) -> None:
        """Decide on hops and hooks, with the kernel's time stamps or without."""
        if not stamped and self._options.flow_hooks:
            raise KernelError("Attaching to selected flows requires BPF time stamps (Linux 6.15)", "Omit --hooks flow")
        self._stamped = stamped
        self._flow_hooks = stamped and self._options.only_flow_hooks
        self._hops = _wanted_hops(self._options, flow_hooks=self._flow_hooks)
        self._plan = self._new_plan()

    def _lacks_stamps(self) -> bool:
        """Whether TCP cannot be stamped after all: a kprobe at the send call has no access to a socket's storage."""
        if not self._stamped or not self._wants("tcp"):
            return False
        send = self._plan.chosen(POINTS["tx.send"]) if self._has("tx.send") else None
        return not self._plan.chosen(POINTS["tx.tcp"]) or (send is not None and send.kind == "kprobe")

    def _wants(self, protocol: str) -> bool:
        return any(hop.protocol == protocol for hop in self._hops)

    def _new_plan(self) -> Plan:
        names = [name for name in _TCP_POINTS if self._wants("tcp")]
        if not self._stamped:
            names = [name for name in names if name not in STAMPED_ONLY]
        names += [name for name in _UDP_POINTS if self._wants("udp")]
        if self._flow_hooks:
            names = [name for name in names if name not in _HOST_POINTS]
        needed = {point for hop in self._hops for point in (*hop.starts, hop.ends, *hop.also)}
        # The ACK ends a message, whichever hops are wanted; so does the driver a datagram, or a drop.
        if needed & {"tx.sched"}:
            needed.add("tx.arrival")  # what delays a message
        needed |= {"tx.ack", "tx.sockets", "tx.udp", "tx.udp_qdisc", "tx.udp_driver", "tx.udp_free"}
        forced = dict(self._options.ways)
        if not self._stamped and self._wants("tcp"):
            forced |= {name: way for name, way in _TRACE_WAYS.items() if name not in forced}
        return Plan(self._resolver, [POINTS[name] for name in names if name in needed], forced)

    def _started(self) -> Session:
        """Load and attach; where the kernel refuses its time stamps only in the act, trace instead."""
        session = Session("tx", self._plan, self._configure)
        if self._lacks_stamps():
            session.close()
            self._choose(stamped=False)
            return Session("tx", self._plan, self._configure)
        return session

    def _configure(self, bpf: BpfObject) -> None:
        options = self._options
        options.configure(bpf)
        self._configure_own(bpf)
        scalars = {
            "cfg_group_by": int(GROUP_BY[options.group_by]) if options.group_by else 0,
            "cfg_sample": options.sample,
            "cfg_budget": int(options.budget is not None),
            "cfg_gap_ns": 10**9 // options.rate if options.rate else 0,
            "cfg_tick_ns": round(time.clock_getres(_CLOCK_MONOTONIC_COARSE) * 1e9),
            "cfg_qdisc": int(self._stamped and self._has("tx.qdisc")),
            "cfg_send": int(self._has("tx.send")),
            "cfg_fields": int(bool(options.fields)),
            "cfg_stamped": int(self._stamped),
            "cfg_sockets": _STAMPED_SOCKETS,
            "cfg_datagrams": int(self._has("tx.udp")),
        }
        for name, value in scalars.items():
            bpf.set_const(name, value)
        Series.size(bpf, hops=HopTxHop.HOP_TX_HOPS, rows=options.rows)
        configure_records(bpf, wanted=options.records)
        bpf.maps["inodes"].set_max_entries(_INODES)
        bpf.maps["fields"].set_max_entries(_FIELDS if options.fields else 1)
        bpf.maps["sends"].set_max_entries(_SENDS)
        bpf.maps["paced"].set_max_entries(_FLOWS_PACED if options.rate else 1)
        bpf.maps["traced_states"].set_max_entries(1 if self._stamped else _TRACED_SOCKETS)

    def _has(self, name: str) -> bool:
        return any(point.name == name and self._plan.chosen(point) for point in self._plan.points)

    def _open(self, stack: contextlib.ExitStack) -> None:
        self._session = stack.enter_context(self._started())
        bpf = self._session.bpf
        self._note_plan(bpf, self._options.ways)
        self._require_fields()
        self._start_own(bpf)
        if self._options.records:
            self.messages = SentRecords(
                bpf, qdisc=self._has("tx.qdisc") or not self._stamped, fields=self._options.fields
            )
            stack.callback(self.messages.close)
            self.found = Found(self.messages, each=self._options.events, slowest=self._options.slowest)
        self._series = Series(
            bpf,
            hops=HopTxHop.HOP_TX_HOPS,
            discards=HopTxDiscard.HOP_TX_DISCARDS,
            rows=self._options.rows,
            cost=self._cost,
        )
        if self._has("tx.sockets"):
            sockets = Sockets(bpf)
            stack.callback(sockets.close)
            self._switch_on = functools.partial(sockets.switch_on, self._options)
            self._switch_on()
        if self._options.budget is not None:
            self._budget = stack.enter_context(Budget(self._options.budget, self._slices()))

    def _require_fields(self) -> None:
        """Refuse what this kernel's verifier refuses.

        Raises
        ------
        KernelError
            Fields are wanted, and messages of TCP are not seen with them.
        """
        for row in self._plan.rows() if self._options.fields and self._wants("tcp") else ():
            if row.point in _TRACE_WAYS and not self._has(row.point):
                raise KernelError(f"This kernel refuses the programs of --fields: {row.reason}", "Omit --fields")

    def _slices(self) -> Slices:
        return Slices(
            session=self._session,
            meter=self._cost,
            series=self._series,
            cleared=("cpu_states", "sockets_followed"),
            again=self._switch_on,  # sockets that came into being meanwhile
            packets="messages",
            sampled=[hop.hop for hop in HOPS],
        )

    # ---- results ----

    def _snapshot(self, kind: Kind, span: Span) -> Snapshot:
        options = self._options
        return Snapshot(
            verb="tx",
            kind=kind,
            started_ns=span.before.clock_ns,
            duration_s=span.after.at_s - span.before.at_s,
            hops=[row for hop, start in self._shown() for row in self._rows(hop, start, span)],
            overhead=self._cost.overhead(span.before.cost, span.after.cost),
            lost=span.count("lost") + (self.found.dropped if kind == "total" else 0),
            discarded=span.discards([hop for hop, _ in self._shown()], MEANINGS, "HOP_TX_"),
            plan=self._plan.rows(),
            sampling_1_in=options.sample,
            filters=dict(options.shown),
            notes=self._notes(span),
            coverage=self._budget.coverage(kind) if self._budget else None,
        )

    def _shown(self) -> Iterator[tuple[Hop, str]]:
        attached = {point.name for point in self._plan.points if self._plan.chosen(point)}
        for hop in self._hops:
            start = hop.start(attached)
            if start:
                yield hop, start

    def _rows(self, hop: Hop, start: str, span: Span) -> Iterator[HopRow]:
        for group, cpus, row in series_of(self._options.group_by, self._session.bpf, self._labels, OTHER):
            histogram = span.histogram(hop.hop, row, cpus)
            if histogram.count or not group:
                bounds = span.bounds(hop.hop, row, cpus, histogram)
                yield HopRow(hop.name, start, hop.ends, hop.unit, group, histogram, hop.chain, bounds=bounds)

    def _notes(self, span: Span) -> list[str]:
        options = self._options
        notes = self.budget_notes()
        if self._wants("tcp") and (unseen := unseen_namespaces()):
            notes.append(f"TCP sockets that existed before: {unseen}")
        if self._wants("tcp") and not self._stamped:
            notes.append("TCP is traced: this kernel has no BPF time stamps, or another attach method is forced")
        if self._flow_hooks:
            notes.append(
                "attached to the selected TCP flows only: without send call, qdisc and datagrams (--hooks host)"
            )
        if span.count("group_overflow"):
            notes.append(
                f"{plural(span.count('group_overflow'), 'message')} counted as `{OTHER}`: the limit of "
                f"{plural(options.max_groups, 'group')} is reached (--max-groups)"
            )
        if options.sample > 1 or options.rate:
            notes.append(f"{span.count('sampled'):,} of {plural(span.count('messages'), 'message')} followed")
        if span.count("retransmits"):
            notes.append(f"{plural(span.count('retransmits'), 'retransmitted packet')} with followed messages")
        return notes


def _wanted_hops(options: TxOptions, *, flow_hooks: bool) -> list[Hop]:
    wanted = [hop for hop in named(HOPS, options.hops) if options.protocol in {None, hop.protocol}]
    if flow_hooks:
        wanted = [hop for hop in wanted if hop.protocol == "tcp"]
    if not wanted:
        raise UsageError("No hop can be measured with these options", "Remove a filter, or select more hops")
    return wanted


def _forces_tracing(options: TxOptions) -> bool:
    return any(options.ways.get(name) == way for name, way in _TRACE_WAYS.items())
