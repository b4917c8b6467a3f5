# SPDX-License-Identifier: Apache-2.0
"""What was measured, as metrics: docs/serve.md has the table of them."""

from __future__ import annotations

import re
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hopscope import __version__
from hopscope.clock.wall_clock import wall_offset_ns
from hopscope.kernel.sockets.table import State
from hopscope.live.labels import OTHER
from hopscope.model.parts import PARTS
from hopscope.verbs.check.findings import SEVERITIES
from hopscope.verbs.serve.family import Bounded, Exemplar, Family, figures_of, histogram_of
from hopscope.verbs.serve.pods import LABELS as POD_LABELS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from hopscope.model.cpu import CpuSnapshot
    from hopscope.model.drops import DropSnapshot
    from hopscope.model.histogram import Histogram
    from hopscope.model.message import Message
    from hopscope.model.sampled import Coverage
    from hopscope.model.snapshot import HopRow, Overhead, PlanRow, Snapshot
    from hopscope.verbs.check.findings import Check
    from hopscope.verbs.serve.family import Labels, Type
    from hopscope.verbs.serve.pods import Pods
    from hopscope.verbs.serve.tally import Tally
    from hopscope.verbs.sockets.report import SocketReport

# Pairs of reason and function that have series of their own.
_MOST_DROPS: Final = 100
_NS_PER_S: Final = 10**9
# How namespaces are called that have no name: after a process in them, or by their inode.
_OF_PROCESS: Final = re.compile(r"\d+ \((.*)\)", re.DOTALL)
_OF_INODE: Final = re.compile(r"netns \d+")
_HELP: Final = {
    "rx": "Time that received packets spent in a hop, or in a softirq or poll, from the one point to the other",
    "tx": "Time that sent messages and datagrams spent in a hop, from the one point to the other",
}
# The labels of a group, of each way to group.
_LABELS: Final[Mapping[str | None, Labels]] = {
    None: (),
    "interface": ("interface", "namespace"),
    "netns": ("namespace",),
    "cgroup": ("cgroup",),
}
_NAMES: Final = {"rx": "hopscope_receive_hop_seconds", "tx": "hopscope_transmit_hop_seconds"}


class Families:
    """Makes metrics of snapshots. Counts are since the start, however often it is asked.

    Parameters
    ----------
    collected
        What is measured: names of verbs.
    group_by
        What hops are told apart by, ``interface``, ``netns`` or ``cgroup``; None: nothing.
    most_groups
        How many groups have series of their own.
    pods
        Names of pods for cgroups; None: they have none.
    """

    def __init__(
        self, collected: Sequence[str], group_by: str | None, most_groups: int, pods: Pods | None = None
    ) -> None:
        self._collected = collected
        self._label_names = POD_LABELS if pods else _LABELS[group_by]
        self._most_groups = most_groups
        rest = (OTHER,) * len(self._label_names)
        labels = pods.labels if pods else None
        self._groups = {verb: _Groups(most_groups, rest, labels) for verb in _NAMES}
        self._drops = Bounded(_MOST_DROPS, (OTHER, OTHER))
        self._places: dict[Labels, int] = {}

    def hops(self, verb: str, total: Snapshot, slowest: Message | None = None) -> Iterator[Family]:
        """Yield the histograms of ``rx`` or ``tx``, and what could not be measured.

        `slowest`: the slowest message of the last interval, which is an exemplar of each of its hops; None: not known.
        """
        series: dict[Labels, Histogram] = self._groups[verb].update(total.hops)
        exemplars = _exemplars(slowest, series) if slowest else {}
        labels = ("hop", "unit", *self._label_names)
        yield Family(_NAMES[verb], "histogram", _HELP[verb], labels, series, exemplars)
        if total.coverage:
            yield from self._coverage(verb, total.coverage)
        discarded: Counter[Labels] = Counter()
        for each in total.discarded:
            discarded[each.hop, each.reason] += each.count
        yield Family(
            f"hopscope_{'receive' if verb == 'rx' else 'transmit'}_discarded_samples_total", "counter",
            "Samples of hops that could not be used, by reason", ("hop", "reason"), dict(discarded),
        )  # fmt: skip
        if total.packets:
            found: dict[Labels, int] = {("entered",): total.packets.entered, ("read",): total.packets.read}
            found |= {(each,): total.packets.ended(each) for each in ("dropped", "discarded")}
            yield Family(
                "hopscope_receive_packets_total", "counter",
                "Packets that entered the stack, and what became of them", ("fate",), found,
            )  # fmt: skip

    @staticmethod
    def _coverage(verb: str, coverage: Coverage) -> Iterator[Family]:
        """Yield which part was measured, of which histograms are the estimate of the whole."""
        way = "receive" if verb == "rx" else "transmit"
        for name, help_, value in (
            ("represented_seconds_total", "Time that the histograms of hops are of", coverage.represented_s),
            ("open_seconds_total", "Time in which hops were measured", coverage.open_s),
            ("followed_seconds_total", "The same, times the share of packets that were followed", coverage.followed_s),
            ("slices_total", "Times that programs were attached anew, within the budget", coverage.slices),
        ):
            yield Family(f"hopscope_{way}_{name}", "counter", help_, (), {(): value})

    def cpu(self, total: CpuSnapshot) -> Iterator[Family]:
        """Yield the CPU time of each part of the stack."""
        parts = {(name,): total.total.parts[name] for name in PARTS}
        yield Family(
            "hopscope_cpu_seconds_total", "counter", "CPU time that networking took, by part of the stack", ("part",),
            {labels: part.ns / _NS_PER_S for labels, part in parts.items()},
        )  # fmt: skip
        if total.ticks:
            return  # samples do not tell runs
        yield Family(
            "hopscope_cpu_runs_total", "counter", "Interrupts, softirqs, polls and calls, by part of the stack",
            ("part",), {labels: part.runs for labels, part in parts.items()},
        )  # fmt: skip

    def drops(self, total: DropSnapshot) -> Iterator[Family]:
        """Yield dropped packets by reason and function."""
        rows = [((row.group["reason"], row.group["function"]), np.array([row.count])) for row in total.rows]
        series = {labels: int(figures[0]) for labels, figures in self._drops.update(rows).items()}
        yield Family(
            "hopscope_dropped_packets_total", "counter", "Packets that the kernel dropped, by reason and function",
            ("reason", "location"), series,
        )  # fmt: skip

    def sockets(self, report: SocketReport) -> Iterator[Family]:
        """Yield sums over all sockets."""
        yield Family(
            "hopscope_sockets", "gauge", "Sockets by protocol and state", ("protocol", "state"),
            {(*kind,): count for kind, count in report.states().items()},
        )  # fmt: skip
        message = report.sockets.rows["message"]
        data = message["state"] != State.LISTEN  # whose queues are connections
        queued = {name: int(message[name][data].astype(np.int64).sum()) for name in ("rqueue", "wqueue")}
        yield Family(
            "hopscope_socket_queue_bytes", "gauge", "Bytes queued in all sockets", ("queue",),
            {("receive",): queued["rqueue"], ("send",): queued["wqueue"]},
        )  # fmt: skip
        listening = message["rqueue"][~data].astype(np.int64)
        yield Family(
            "hopscope_socket_accept_queue_connections", "gauge", "Connections that wait to be accepted", (),
            {(): int(listening.sum())},
        )  # fmt: skip
        yield Family(
            "hopscope_sockets_in_trouble", "gauge", "Sockets with a sign that something is wrong", (),
            {(): int(np.count_nonzero(report.signs.scores > 0))},
        )  # fmt: skip

    def check(self, check: Check) -> Iterator[Family]:
        """Yield findings; one that was found once stays, with 0."""
        self._places = dict.fromkeys(self._places, 0)
        for each in (*check.findings, *check.notes):
            key = (each.id, each.severity, each.entry.layer)
            self._places[key] = self._places.get(key, 0) + 1
        severities = Counter(each.severity for each in check.findings)
        yield Family(
            "hopscope_findings", "gauge", "Findings of `hopscope check`, by severity", ("severity",),
            {(each,): severities[each] for each in SEVERITIES if each != "note"},
        )  # fmt: skip
        yield Family(
            "hopscope_finding_places", "gauge", "Places of a finding: interfaces, CPUs, listeners, namespaces",
            ("finding", "severity", "layer"), dict(self._places),
        )  # fmt: skip
        states = Counter(each.state for each in check.checked)
        yield Family(
            "hopscope_checks", "gauge", "Conditions that were looked at, by what became of them", ("state",),
            {(each,): states[each] for each in ("found", "well", "unseen")},
        )  # fmt: skip

    @staticmethod
    def flight(tally: Tally) -> Iterator[Family]:
        """Yield what the flight recorder keeps, and what it has written."""
        yield Family(
            "hopscope_flight_recordings_total", "counter",
            "Recordings that the flight recorder was to write, by what became of them", ("result",),
            {(each,): tally[each] for each in ("written", "failed", "skipped")},
        )  # fmt: skip
        yield Family(
            "hopscope_flight_kept_seconds", "gauge", "How far back the events go that are kept in memory", (),
            {(): tally["kept_ns"] / _NS_PER_S},
        )  # fmt: skip
        others: tuple[tuple[str, Type, str, str], ...] = (
            ("kept_bytes", "gauge", "Memory that these events take", "kept_bytes"),
            ("stored_bytes", "gauge", "What all recordings of the flight recorder take on disk", "stored_bytes"),
            ("lost_records_total", "counter", "Records that its rings had no room for", "lost"),
        )
        for name, type_, help_, field in others:
            yield Family(f"hopscope_flight_{name}", type_, help_, (), {(): tally[field]})

    @staticmethod
    def pushes(tally: Tally) -> Iterator[Family]:
        """Yield what a receiver of OpenTelemetry rejected of what it took."""
        yield Family(
            "hopscope_otlp_rejected_points_total", "counter",
            "Data points that the receiver of --otlp rejected in requests that it accepted", (),
            {(): tally["rejected"]},
        )  # fmt: skip

    def own(
        self, now: Mapping[str, Any], totals: Mapping[str, Any], absent: Mapping[str, str], plans: Sequence[PlanRow]
    ) -> Iterator[Family]:
        """Yield what measuring itself cost and lost, and what is attached.

        Parameters
        ----------
        now, totals
            Verb → its snapshot of the last interval, and since the start, of those that attach programs.
        absent
            Verb → why it could not be attached.
        plans
            Of all verbs.
        """
        yield Family("hopscope_build_info", "gauge", "The version of hopscope", ("version",), {(__version__,): 1})
        yield Family(
            "hopscope_collector_up", "gauge", "Whether this is measured; a message on stderr says why not",
            ("collector",), {(each,): int(each not in absent) for each in self._collected},
        )  # fmt: skip
        points: dict[Labels, int] = {}
        for row in plans:
            points[row.point,] = max(points.get((row.point,), 0), int(row.status == "attached"))
        yield Family("hopscope_point_attached", "gauge", "Whether a probe point is attached", ("point",), points)
        yield Family(
            "hopscope_lost_records_total", "counter", "Samples and records that the kernel had no room for",
            ("collector",), {(verb,): each.lost for verb, each in totals.items()},
        )  # fmt: skip
        yield Family(
            "hopscope_missed_runs_total", "counter", "Runs of programs that the kernel suppressed (recursion)",
            ("collector",), {(verb,): each.overhead.missed for verb, each in totals.items()},
        )  # fmt: skip
        yield Family(
            "hopscope_bpf_cpu_ratio", "gauge",
            "CPU time of the programs in the kernel in the last interval, of one CPU",
            ("collector",), dict(_ratios({verb: each.overhead for verb, each in now.items()})),
        )  # fmt: skip
        yield Family(
            "hopscope_process_cpu_seconds_total", "counter", "CPU time of the process that measures", (),
            {(): time.process_time()},
        )  # fmt: skip
        yield Family(
            "hopscope_measured_timestamp_seconds", "gauge", "When these figures were read", (), {(): time.time()}
        )


def _exemplars(message: Message, series: Iterable[Labels]) -> dict[Labels, Exemplar]:
    """Return the labels of each hop that took a message some time, of those that there are → how long it took."""
    times: dict[str, int | None] = {
        **message.hops(),
        f"rx.{'udp' if message.datagram else 'tcp'}_total": message.total_ns,
    }
    at_ns = wall_offset_ns() + (message.done_ns or 0)
    return {
        labels: Exemplar(f"@{message.start_ns}", value_ns, at_ns)
        for labels in series
        if (value_ns := times.get(labels[0]))
    }


def _ratios(overheads: Mapping[str, Overhead]) -> Iterator[tuple[Labels, float]]:
    for verb, overhead in overheads.items():
        if overhead.bpf_cpu_percent is not None:
            yield (verb,), overhead.bpf_cpu_percent / 100


class _Groups:
    """The hops of a verb, group by group: a group has a name for all hops, or for none."""

    def __init__(self, most: int, rest: Labels, labels: Callable[[Labels], Labels] | None) -> None:
        self._named = Bounded(most, rest, lambda figures: figures[:, :-1].sum(), labels)
        self._rest = rest
        # Hop and unit → row of its figures; hops appear when they have samples, or are attached again.
        self._numbers: dict[tuple[str, str], int] = {}

    def update(self, rows: Sequence[HopRow]) -> dict[Labels, Histogram]:
        """Return labels → histogram of the cumulative rows."""
        if not self._rest:
            return {(row.hop, row.unit): row.histogram for row in rows}
        hops = self._numbers
        for row in rows:
            hops.setdefault((row.hop, row.unit), len(hops))
        self._named.widen(len(hops))
        groups: dict[Labels, NDArray[np.int64]] = {}
        for row in rows:
            labels = _group(row.group)
            figures = groups.setdefault(labels, np.zeros((len(hops), len(row.histogram.counts) + 1), np.int64))
            figures[hops[row.hop, row.unit]] += figures_of(row.histogram)
        found = self._named.update(groups.items())
        return {
            (*hop, *labels): histogram_of(figures[number])
            for hop, number in hops.items()
            for labels, figures in found.items()
            if figures[number].any()
        }


def _group(group: Mapping[str, str]) -> Labels:
    """Return the values of a group's labels, as :data:`_LABELS` names them."""
    ((key, text),) = group.items()
    if key == "netns":
        return (_namespace(text),)
    if key == "interface" and text != OTHER:
        name, _, namespace = text.partition("@")
        return name, _namespace(namespace or "host")
    return (text,) * len(_LABELS[key])


def _namespace(name: str) -> str:
    """Return what a namespace is called, without the PID or the inode that it has where it has no name."""
    if found := _OF_PROCESS.fullmatch(name):
        return f"of {found[1]}"
    return "unnamed" if _OF_INODE.fullmatch(name) else name
