# SPDX-License-Identifier: Apache-2.0
"""Frames of a recording: its hops in slices of time, its drops, its messages, and what its counters say."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hopscope.errors import HopscopeError, UsageError
from hopscope.model.drops import DropRow, DropSnapshot
from hopscope.model.snapshot import HopRow, Overhead, Snapshot
from hopscope.term.format import plural
from hopscope.trace.gaps import lost_events
from hopscope.trace.selection import Selection
from hopscope.verbs.check.recorded import check_of
from hopscope.verbs.explain.analysis import explain
from hopscope.verbs.explain.text import told_of
from hopscope.verbs.frames.frame import Answer, Frame, SlowMessage
from hopscope.verbs.frames.source import Ask, Fill, Filled, Filter, Frames, Record, Said
from hopscope.verbs.report.cpu import cpu_time_between, report_of
from hopscope.verbs.report.drops import drop_reasons
from hopscope.verbs.report.hops import UNKNOWN, hops_of_groups, hops_over_time
from hopscope.verbs.report.messages import messages
from hopscope.verbs.report.messages_text import render_messages

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from queue import SimpleQueue

    from hopscope.model.histogram import Histogram
    from hopscope.model.report import Report
    from hopscope.store.trace import Trace
    from hopscope.term.terminal import Terminal
    from hopscope.verbs.check.findings import Check
    from hopscope.verbs.frames.frame import Area, Question
    from hopscope.verbs.frames.source import Event, Request
    from hopscope.verbs.report.cpu import CpuTime

_MOST_FRAMES: Final = 600
_SLOWEST: Final = 20
_GROUPS: Final = 50
_ROWS: Final = 200
_NOTHING: Final = Overhead(0, None, None, 0.0, 0)
_NO_TIMES: Final[Mapping[Area, str]] = {
    "sockets": "`hopscope report tcp` shows what was recorded of sockets",
}


def selection_of(chosen: Mapping[str, Any]) -> Selection:
    """Return the part of a recording that filters select.

    Raises
    ------
    UsageError
        A recording cannot be searched for one of them.
    """
    if chosen.get("cgroups"):
        raise UsageError("--cgroup selects what is measured: a recording cannot be searched for it", "Leave it out")
    return Selection(
        ports=chosen.get("ports") or (),
        addresses=chosen.get("addresses") or (),
        processes=(*map(str, chosen.get("pids") or ()), *(chosen.get("comms") or ())),
        interfaces=chosen.get("interfaces") or (),
        namespaces=chosen.get("namespaces") or (),
        protocol=chosen.get("protocol"),
    )


class ReplaySource:
    """Reads a recording; see :class:`~hopscope.verbs.frames.source.Source`.

    Parameters
    ----------
    trace
        Open, and used by the thread alone that runs :meth:`run`.
    chosen, interval_s, terminal
        As of :class:`~hopscope.verbs.frames.live.LiveSource`; a long recording has longer intervals.
    """

    live = False

    def __init__(self, trace: Trace, chosen: Mapping[str, Any], interval_s: float, terminal: Terminal) -> None:
        self.folder = str(trace.folder)
        self.title = f"recording {trace.folder.name}"
        self._trace = trace
        self._selection = selection_of(chosen)
        self._interval_s = interval_s
        self._terminal = terminal
        self._frames: list[Frame] = []
        self._bounds_s: list[float] = []
        self._checked: Check | None = None
        self._cpu_time: CpuTime | None = None
        self._absent: dict[Area, str] = dict(_NO_TIMES)

    def run(self, post: Callable[[Event], object], requests: SimpleQueue[Request]) -> None:
        """Send all frames, then what is requested, until None is."""
        self._post = post
        try:
            self._checked, _ = check_of(self._trace)
        except HopscopeError as error:
            self._absent["check"] = str(error)
        self._load()
        while (request := requests.get()) is not None:
            try:
                self._obey(request)
            except HopscopeError as error:
                post(Said(str(error)))

    def _obey(self, request: Request) -> None:
        match request:
            case Filter(chosen):
                before, self._selection = self._selection, selection_of(chosen)
                try:
                    self._load()
                except HopscopeError:
                    self._selection = before
                    raise
            case Fill(number) if number < len(self._frames):
                self._post(Filled(number, self._filled(number)))
            case Ask(question, number) if question:
                try:
                    answer = self._answer(question, number)
                except HopscopeError as error:
                    answer = Answer(question, notes=[str(error)])
                self._post(answer)
            case Record():
                raise UsageError("This is a recording already", "`hopscope top` without a TRACE can record")

    # ---- frames ----

    def _load(self) -> None:
        trace = self._trace
        first, last = trace.rows(
            f"SELECT min(time_ns), max(time_ns) FROM packets WHERE {self._selection.window(trace)}"
        )[0]
        length_s = (last - first) / 1e9 if first is not None else 0.0
        slices = min(max(round(length_s / self._interval_s), 1), _MOST_FRAMES)
        self._bounds_s, hops = hops_over_time(trace, self._selection, slices)
        self._cpu_time = None
        lost = lost_events(trace)
        cost = f"{plural(len(self._bounds_s) - 1, 'interval')} of {length_s / slices:.3g} s"
        self._frames = [
            self._frame(number, hops, cost, f"{lost:,} events" if lost else "")
            for number in range(len(self._bounds_s) - 1)
        ]
        self._post(Frames(self._frames))

    def _frame(
        self, number: int, hops: Sequence[tuple[tuple[str, str], Sequence[Histogram]]], cost: str, lost: str
    ) -> Frame:
        rows: dict[str, list[HopRow]] = {"rx": [], "tx": []}
        for (before, point), parts in hops:
            sends = before.startswith("tx.") and not point.startswith("rx.")
            hop = HopRow(f"{before} → {point}", before, point, "packet", {}, parts[number])
            rows["tx" if sends else "rx"].append(hop)
        begin_s, end_s = self._bounds_s[number : number + 2]
        at_ns = self._trace.metadata.realtime_ns
        made = {
            verb: Snapshot(verb, "interval", at_ns + round(begin_s * 1e9), end_s - begin_s, found, _NOTHING)
            for verb, found in rows.items()
        }
        return Frame(
            at_ns + round(end_s * 1e9), end_s, rx=made["rx"], tx=made["tx"], check=self._checked,
            absent=self._absent, cost=cost, lost=lost,
        )  # fmt: skip

    def _of(self, number: int) -> Selection:
        """Return what is selected, within a frame."""
        if number >= len(self._frames):
            return self._selection
        begin_s, end_s = self._bounds_s[number : number + 2]
        return replace(self._selection, from_s=begin_s, until_s=end_s)

    def _filled(self, number: int) -> Frame:
        """Return a frame with its drops and its CPU time, which take queries."""
        frame = self._frames[number]
        if frame.drops is None:
            begin_s, end_s = self._bounds_s[number : number + 2]
            report = drop_reasons(self._trace, self._of(number))
            counts = [int(str(each)) for each in report.column("drops")]
            groups = zip(*(report.column(name) for name in ("reason", "location", "flow_name")), strict=True)
            rows = [
                DropRow(
                    dict(zip(("reason", "location", "flow"), (str(each or "-") for each in group), strict=True)), count
                )
                for group, count in zip(groups, counts, strict=True)
            ]
            drops = DropSnapshot(
                "interval", frame.at_ns, end_s - begin_s, rows, sum(counts), 0, _NOTHING, (), notes=report.notes
            )
            frame = self._frames[number] = replace(frame, drops=drops, cpu_time=self._cpu_report(number))
        return frame

    def _cpu_report(self, number: int, by: str | None = None) -> Report:
        """Return the CPU time in a frame; that of all frames is added up when it is asked for first."""
        if self._cpu_time is None:
            bounds_ns = [self._trace.metadata.started_ns + round(each * 1e9) for each in self._bounds_s]
            self._cpu_time = cpu_time_between(self._trace, np.array(bounds_ns, np.int64))
            if not len(self._cpu_time.time_ns):
                self._absent["cpu"] = "the recording does not say what CPUs did; `hopscope record -P cpu` does"
        return report_of(self._trace, self._cpu_time.of_slice(number), by=by, limit=_ROWS)

    # ---- questions ----

    def _answer(self, question: Question, number: int) -> Answer:
        selection = self._of(number)
        if question.kind == "groups" and question.area == "cpu":
            return Answer(question, cpu_time=self._cpu_report(number, question.by))
        if question.kind == "groups":
            hop, before, point = question.hop
            found = hops_of_groups(self._trace, selection, (before, point), question.by, _GROUPS)
            rows = [HopRow(hop, before, point, "packet", {question.by: name}, each) for name, each in found]
            return Answer(question, hops=rows)
        if question.kind == "messages":
            return self._messages(question, _narrowed(selection, question.group))
        return Answer(question, lines=self._message(question.at_ns))

    def _messages(self, question: Question, selection: Selection) -> Answer:
        report = messages(self._trace, selection, limit=_SLOWEST)
        wanted = ("begin_ns", "total_ns", "blame", "blame_ns", "len_bytes", "flow_name", "sender", "reader")
        found = [
            SlowMessage(
                begin, total, str(blame or "-"), held or 0, size, str(flow),
                " to ".join(str(each) for each in who if each),
            )
            for begin, total, blame, held, size, flow, *who in zip(*map(report.column, wanted), strict=True)
        ]  # fmt: skip
        return Answer(question, messages=found, notes=report.notes)

    def _message(self, at_ns: int) -> list[str]:
        """Return a message's cause in a sentence, with its evidence, and its waterfall."""
        micro_ns = at_ns // 1000 * 1000
        explanation = explain(self._trace, self._selection, begins_ns=micro_ns)
        lines = []
        if explanation.causes:
            told = told_of(explanation.causes[0], unicode=self._terminal.unicode)
            lines = [*(line for text in told for line in self._terminal.fold(text)), ""]
        window = replace(self._selection, from_s=micro_ns / 1e9, until_s=(micro_ns + 1000) / 1e9)
        report = replace(messages(self._trace, window), heading=(), notes=())
        return lines + render_messages(report, self._terminal, waterfall=True).split("\n")


def _narrowed(selection: Selection, group: Sequence[tuple[str, str]]) -> Selection:
    """Return the selection with a group alone, where it can be selected."""
    for key, value in group:
        if value == UNKNOWN:
            continue
        if key == "flow":
            selection = replace(selection, flows=(value,))
        elif key == "process":
            number = re.search(r"\((\d+)\)$|^(\d+)\b", value)
            selection = replace(selection, processes=(next(filter(None, number.groups())) if number else value,))
        elif key == "interface":
            selection = replace(selection, interfaces=(value.partition("@")[0],))
    return selection
