# SPDX-License-Identifier: Apache-2.0
"""What the screen shows of one moment, live or recorded: the objects of the verbs, and how bad each is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from hopscope.model.share import TOTAL_SUFFIX, shares
from hopscope.term import format as fmt

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hopscope.model.cpu import CpuSnapshot
    from hopscope.model.drops import DropSnapshot
    from hopscope.model.histogram import Histogram
    from hopscope.model.report import Report
    from hopscope.model.snapshot import HopRow, Snapshot
    from hopscope.verbs.check.findings import Check
    from hopscope.verbs.sockets.report import SocketReport

Area: TypeAlias = Literal["rx", "tx", "cpu", "drops", "sockets", "check"]
# In this order where they are equally bad.
AREAS: Final[tuple[Area, ...]] = ("rx", "tx", "cpu", "drops", "sockets", "check")
Harm: TypeAlias = Literal["critical", "warning", "notice", "fine"]
HARMS: Final[tuple[Harm, ...]] = ("critical", "warning", "notice", "fine")

# A message that takes less is not slow (`explain` has the same limit).
_SLOW_NS: Final = 1_000_000
# Networking's part of one CPU, and how bad that is.
_CORES: Final = ((0.8, "warning"), (0.5, "notice"))
# What `sockets` gives a socket at least half of whose time something is wrong.
_TROUBLE: Final = 0.5


@dataclass(frozen=True, slots=True)
class Question:
    """What is wanted beside a frame.

    Attributes
    ----------
    kind
        ``groups`` of a hop or of the CPUs' time; the slowest ``messages``; one ``message``.
    area
        Of the screen.
    hop
        The hop (name, from point, to point) that is grouped; empty: none.
    by
        What it is grouped by.
    group
        The group whose messages are wanted: key → value.
    at_ns
        When the wanted message begins, since the recording's start.
    """

    kind: Literal["groups", "messages", "message"]
    area: Area
    hop: tuple[str, str, str] = ("", "", "")
    by: str = ""
    group: tuple[tuple[str, str], ...] = ()
    at_ns: int = 0


@dataclass(frozen=True, slots=True)
class SlowMessage:
    """A message in the list of the slowest, live or recorded.

    Attributes
    ----------
    at_ns
        When it begins, since the recording's start; live, CLOCK_MONOTONIC.
    held_by, held_ns
        The cause that held it longest, and for how long.
    lines
        Its waterfall, if that is known at once.
    """

    at_ns: int
    total_ns: int
    held_by: str
    held_ns: int
    len_bytes: int
    flow: str
    process: str
    lines: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """What a question gave: the rows of groups, messages, or lines.

    Attributes
    ----------
    cpu, cpu_time
        Of a question about CPU time, live and of a recording.
    notes
        Sentences on what is missing.
    """

    question: Question
    hops: Sequence[HopRow] = ()
    cpu: CpuSnapshot | None = None
    cpu_time: Report | None = None
    messages: Sequence[SlowMessage] = ()
    lines: Sequence[str] = ()
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Frame:
    """All that is known of an interval.

    Attributes
    ----------
    at_ns
        CLOCK_REALTIME of its end.
    since_s
        Its end, since the recording, or the screen, was started.
    rx, tx, cpu, cpu_time, drops, sockets, check
        None where there is nothing (yet); `absent` says why. A recording has `cpu_time` (``report cpu``), and no `cpu`.
    absent
        Area → why there is nothing, a sentence without a full stop.
    cost
        What measuring costs; of a recording, what a frame is.
    lost
        Samples and records that are missing; empty: none.
    """

    at_ns: int
    since_s: float
    rx: Snapshot | None = None
    tx: Snapshot | None = None
    cpu: CpuSnapshot | None = None
    cpu_time: Report | None = None
    drops: DropSnapshot | None = None
    sockets: SocketReport | None = None
    check: Check | None = None
    absent: Mapping[Area, str] = field(default_factory=dict)
    cost: str = ""
    lost: str = ""

    def hops(self, area: Area) -> Sequence[HopRow]:
        """Return the hops of an area that have samples."""
        snapshot = self.rx if area == "rx" else self.tx if area == "tx" else None
        return [row for row in snapshot.hops if row.histogram.count] if snapshot else []


class Worst(NamedTuple):
    """The worst of an area: how bad, and what it is."""

    area: Area
    harm: Harm
    sentence: str


def overview(frame: Frame, *, unicode: bool) -> list[Worst]:
    """Return the worst of each area, in the order of harm."""
    found = [_worst(area, frame, unicode=unicode) for area in AREAS]
    return sorted(found, key=lambda each: HARMS.index(each.harm))


def worst_hop(rows: Sequence[HopRow]) -> HopRow | None:
    """Return the hop that has most of its chain's time; of recorded hops, which have no chain, the one with most time.

    Totals and hops that stand alone beside others are none, nor is the time until a packet's memory is freed.
    """
    largest = [row for row, share in zip(rows, shares(rows), strict=True) if share and share.largest]
    candidates = largest or [row for row in rows if not row.hop.endswith(TOTAL_SUFFIX) and row.to_point != "skb.free"]
    return max(candidates, key=lambda row: row.histogram.sum_ns, default=None)


def _worst(area: Area, frame: Frame, *, unicode: bool) -> Worst:
    if reason := frame.absent.get(area):
        return Worst(area, "fine", reason)
    told = {
        "rx": lambda: _of_hops(area, frame, unicode=unicode),
        "tx": lambda: _of_hops(area, frame, unicode=unicode),
        "cpu": lambda: _of_cpu(frame),
        "drops": lambda: _of_drops(frame),
        "sockets": lambda: _of_sockets(frame, unicode=unicode),
        "check": lambda: _of_check(frame),
    }[area]()
    return told or Worst(area, "fine", "waiting for the first interval")


def _of_hops(area: Area, frame: Frame, *, unicode: bool) -> Worst | None:
    snapshot = frame.rx if area == "rx" else frame.tx
    if snapshot is None:
        return None
    row = worst_hop(frame.hops(area))
    if row is None:
        return Worst(area, "fine", "no packets" if area == "rx" else "no messages")
    histogram = row.histogram
    p99, most = histogram.percentile(99), histogram.max_ns
    harm: Harm = "warning" if (p99 or 0) >= _SLOW_NS else "notice" if most >= _SLOW_NS else "fine"
    return Worst(area, harm, f"{row.hop}: {_times(histogram, unicode=unicode)}")


def _times(histogram: Histogram, *, unicode: bool) -> str:
    shown = {"p99": histogram.percentile(99), "max": histogram.max_ns, "p50": histogram.percentile(50)}
    times = ", ".join(f"{name} {fmt.time(each, unicode=unicode)}" for name, each in shown.items())
    return f"{times}, {fmt.count(histogram.count)} {fmt.noun_of(histogram.count, 'sample')}"


def _of_cpu(frame: Frame) -> Worst | None:
    if frame.cpu_time is not None:
        return _of_cpu_time(frame.cpu_time)
    if (cpu := frame.cpu) is None:
        return None
    busiest = max(cpu.rows, key=lambda row: row.ns, default=cpu.total)
    cores = cpu.cores(busiest.ns)
    harm = next((name for limit, name in _CORES if cores >= limit), "fine")
    parts = sorted(((part.ns, name) for name, part in cpu.total.parts.items() if part.ns), reverse=True)
    most = f", most of it in {parts[0][1]}" if parts else ""
    who = ", ".join(f"CPU {value}" if key == "cpu" else value for key, value in busiest.group.items())
    busy = f"; {who} {fmt.per_cent(100 * cores)}" if who else ""
    share = fmt.per_cent(100 * cpu.cores(cpu.total.ns))
    return Worst("cpu", harm, f"networking takes {share} of one CPU{most}{busy}")  # type: ignore[arg-type]


def _of_cpu_time(report: Report) -> Worst:
    """Return what has most of the recorded time. It is not networking's alone, so that no part of it is harm."""
    if not len(report):
        return Worst("cpu", "fine", "no interrupt, softirq or thread with sockets ran")
    shares = [float(str(each)) for each in report.column("share")]
    part, name = (report.column(each)[0] for each in ("part", "name"))
    who = str(name) if part == "thread" else f"{part} {name}"
    whole, most = (fmt.per_cent(100 * each) for each in (sum(shares), shares[0]))
    sentence = f"interrupts, softirqs and threads with sockets take {whole} of one CPU; {who} {most}"
    return Worst("cpu", "fine", sentence)


def _of_drops(frame: Frame) -> Worst | None:
    if (drops := frame.drops) is None:
        return None
    if not drops.dropped:
        return Worst("drops", "fine", "no packets were dropped")
    first = drops.rows[0]
    where = ", ".join(value for value in first.group.values() if value != "-")
    return Worst(
        "drops", "warning", f"{fmt.plural(drops.dropped, 'packet')} dropped; {fmt.count(first.count)} of them: {where}"
    )


def _of_sockets(frame: Frame, *, unicode: bool) -> Worst | None:
    if (report := frame.sockets) is None:
        return None
    from hopscope.term.terminal import Terminal  # noqa: PLC0415 # it is the text alone that is wanted
    from hopscope.verbs.sockets.table import sign_lines, socket_names  # noqa: PLC0415 # recordings have no sockets

    count = fmt.plural(len(report), "socket")
    first = report.head(1)
    score = float(first.signs.scores[0]) if len(first) else 0.0
    if not score:
        return Worst("sockets", "fine", f"{count}, nothing is known to be wrong with any")
    signs = " ".join(line.strip() for line in sign_lines(first, 0, Terminal(200, unicode=unicode)))
    name = socket_names(first)[0]
    return Worst("sockets", "warning" if score >= _TROUBLE else "notice", f"{name}: {signs}")


def _of_check(frame: Frame) -> Worst | None:
    if (check := frame.check) is None:
        return None
    if not check.findings:
        return Worst("check", "fine", f"{len(check.checked)} known problems were looked for, none was found")
    first = check.findings[0]
    more = f" (and {len(check.findings) - 1} more)" if len(check.findings) > 1 else ""
    where = f"{first.namespace}: " if first.namespace and first.namespace != "host" else ""
    harm: Harm = "notice" if first.severity == "note" else first.severity
    return Worst("check", harm, f"{where}{first.sentence}{more}")


def groups_of(rows: Sequence[HopRow], hop: str) -> Iterator[HopRow]:
    """Iterate over the groups of a hop, those with the most time first."""
    yield from sorted(
        (row for row in rows if row.hop == hop and row.histogram.count), key=lambda row: -row.histogram.sum_ns
    )
