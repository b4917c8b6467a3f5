# SPDX-License-Identifier: Apache-2.0
"""What each page of the screen shows of a frame: rows to choose from, and lines below them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from hopscope.model.share import shares
from hopscope.term import format as fmt
from hopscope.term.grid import Column, render_grid
from hopscope.term.histogram import hop_lines
from hopscope.term.report_table import render_report
from hopscope.term.sparkline import sparkline
from hopscope.verbs.check.table import render_check
from hopscope.verbs.cpu.table import render_cpu
from hopscope.verbs.drops.table import render_drops
from hopscope.verbs.frames.frame import Question, groups_of, overview, worst_hop

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hopscope.model.snapshot import HopRow
    from hopscope.term.terminal import Terminal
    from hopscope.verbs.frames.frame import Answer, Area, Frame, Harm, SlowMessage
    from hopscope.verbs.top.history import History

Kind: TypeAlias = Literal["overview", "area", "groups", "messages", "message", "details", "help"]
HOP_ORDERS: Final = ("path", "p99", "count", "time", "max")
SOCKET_ORDERS: Final = ("trouble", "sent", "received", "retransmits", "rtt", "receive-queue", "send-queue")
_ROWS: Final = 200
# Lines above a histogram, and what it keeps where notes below it need room, too.
_HEADING, _BUCKETS = 3, 8
_LOOKS: Final[Mapping[Harm, str]] = {"critical": "red", "warning": "warn", "notice": "cyan", "fine": ""}
_WORDS: Final[Mapping[Area, str]] = {"check": "findings"}
_AREA, _HARM = 9, 9
HELP: Final = """\
Enter    open what the cursor is on: a hop, its groups, messages, one message
Escape   back
up, down choose a line; page up and page down: many lines
Tab      group by something else
space    pause, and go on; of a recording, play
t, T     one interval later, earlier
g, G     to the first, to the last interval
j        jump to a time: seconds since the start, or -30 for 30 s before the end
/        filter, with the options of the command line: --port 443 --protocol tcp
s        sort by something else
r        start a recording of what is shown, and end it
y        show the command that prints the same
q        quit"""


@dataclass(slots=True)
class Page:
    """A page, and where the cursor is on it."""

    kind: Kind
    area: Area = "rx"
    hop: tuple[str, str, str] = ("", "", "")
    by: int = 0
    group: tuple[tuple[str, str], ...] = ()
    message: SlowMessage | None = None
    sort: int = 0
    cursor: int = 0
    # What the cursor is on opens that; it stays on it when rows change places.
    on: Page | None = None

    def follow(self, rows: Sequence[tuple[str, Page | None]]) -> None:
        """Put the cursor on what it was on, wherever that is among the rows now."""
        opens = [page for _, page in rows]
        if self.on and opens[self.cursor : self.cursor + 1] != [self.on] and self.on in opens:
            self.cursor = opens.index(self.on)
        self.move(0, rows)

    def move(self, by: int, rows: Sequence[tuple[str, Page | None]]) -> None:
        """Move the cursor by so many rows, as far as there are any."""
        self.cursor = min(max(self.cursor + by, 0), max(len(rows) - 1, 0))
        self.on = rows[self.cursor][1] if rows else None

    def question(self, keys: Sequence[str]) -> Question | None:
        """Return what has to be asked for it, grouped by one of the keys."""
        if self.kind == "groups":
            return Question("groups", self.area, self.hop, keys[self.by % len(keys)])
        if self.kind == "messages":
            return Question("messages", self.area, group=self.group)
        if self.kind == "message" and self.message and not self.message.lines:
            return Question("message", self.area, at_ns=self.message.at_ns)
        return None


@dataclass(frozen=True, slots=True)
class Content:
    """What a page shows: titles, rows with the page that each opens (None: none), and lines below.

    Attributes
    ----------
    below
        Makes the lines below of the chosen row's number and of how many there is room for.
    """

    titles: Sequence[str] = ()
    rows: Sequence[tuple[str, Page | None]] = ()
    below: Callable[[int, int], Sequence[str]] = field(default=lambda _row, _room: ())


def keys_of(area: Area, *, live: bool) -> Sequence[str]:
    """Return what the hops, or the CPU time, of an area can be grouped by."""
    if area == "cpu":
        return ("process", "cgroup", "interface", "cpu") if live else ("process", "cgroup", "cpu")
    if not live:
        return ("flow", "process", "interface", "cpu", "netns")
    return ("interface", "process", "cgroup", "netns", "cpu") if area == "rx" else ("process", "cgroup", "netns", "cpu")


class Pages:
    """Makes the contents of pages.

    Parameters
    ----------
    terminal
        What it can show.
    live
        Whether frames are measured, or recorded.
    """

    def __init__(self, terminal: Terminal, *, live: bool) -> None:
        self.terminal = terminal
        self._live = live

    def content(self, page: Page, frame: Frame, history: History, answer: Answer | None) -> Content:
        """Return what a page shows of a frame."""
        match page.kind:
            case "help":
                return self._text(HELP.split("\n"))
            case "overview":
                return self._overview(frame, history)
            case "groups" | "messages" | "message":
                return self._answered(page, answer)
            case _:
                return self._area(page, frame, history)

    def _area(self, page: Page, frame: Frame, history: History) -> Content:
        if reason := frame.absent.get(page.area):
            return self._text(self.terminal.fold(reason))
        if page.area in {"rx", "tx"}:
            return self._hops(page, frame, history)
        return self._of_text_area(page, frame)

    # ---- overview ----

    def _overview(self, frame: Frame, history: History) -> Content:
        found = overview(frame, unicode=self.terminal.unicode)
        rows = []
        for each in found:
            hop = worst_hop(frame.hops(each.area))
            spark = f"  {self._spark(history, hop.hop)}" if hop else ""
            name = _WORDS.get(each.area, each.area).ljust(_AREA)
            room = self.terminal.width - 2 - _AREA - _HARM - len(spark)
            harm = self.terminal.paint(each.harm.ljust(_HARM), _LOOKS[each.harm]) if _LOOKS[each.harm] else " " * _HARM
            text = self.terminal.cut(each.sentence, room).ljust(room if spark else 0)
            rows.append((f"{name}{harm}{text}{spark}", Page("area", each.area)))

        def below(row: int, room: int) -> Sequence[str]:
            area = found[row].area
            hop = worst_hop(frame.hops(area))
            if hop:
                return hop_lines(hop, self.terminal, max(room - _HEADING, 1))
            if area in {"rx", "tx", *frame.absent} or not _has(frame, area):
                return self.terminal.fold(found[row].sentence)
            return [text for text, _ in self._of_text_area(Page("area", area), frame).rows]

        return Content(rows=rows, below=below)

    def _spark(self, history: History, hop: str) -> str:
        return sparkline(history.values(hop), unicode=self.terminal.unicode)

    # ---- hops ----

    def _hops(self, page: Page, frame: Frame, history: History) -> Content:
        rows = _in_order(frame.hops(page.area), page.sort)
        parts = {row.hop: share for row, share in zip(rows, shares(rows), strict=True) if share}
        sparks = [self._spark(history, row.hop) for row in rows]
        table = [
            Column("hop", [row.hop for row in rows], left=True),
            Column("share", [fmt.part(parts[row.hop].part) if row.hop in parts else "" for row in rows], rank=4),
            *self._figures(rows),
            Column("p99 over time", sparks, rank=1, left=True),
        ]
        opens = [Page("groups", page.area, (row.hop, row.from_point, row.to_point)) for row in rows]
        snapshot = frame.rx if page.area == "rx" else frame.tx
        nothing = "No packets." if page.area == "rx" else "No messages."
        return self._table(table, opens, rows, nothing, snapshot.notes if snapshot else ())

    def _figures(self, rows: Sequence[HopRow]) -> list[Column]:
        def times(q: float) -> list[str]:
            return [fmt.time(row.histogram.percentile(q), unicode=self.terminal.unicode) for row in rows]

        return [
            Column("count", [fmt.count(row.histogram.count) for row in rows]),
            Column("p50", times(50), rank=2),
            Column("p99", times(99)),
            Column("max", [fmt.time(row.histogram.max_ns, unicode=self.terminal.unicode) for row in rows], rank=3),
        ]

    def _table(
        self,
        table: Sequence[Column],
        opens: Sequence[Page | None],
        hops: Sequence[HopRow],
        nothing: str,
        notes: Sequence[str] = (),
    ) -> Content:
        """Return rows with a histogram of the chosen one below, and notes where there is room for both."""
        after = [self.terminal.paint(line, "dim") for note in notes for line in self.terminal.fold(f"note: {note}")]
        if not hops:
            return self._text([*self.terminal.fold(nothing), *after])

        def below(row: int, room: int) -> Sequence[str]:
            left = room - _HEADING
            return [*hop_lines(hops[row], self.terminal, max(left - len(after), min(left, _BUCKETS), 1)), *after]

        titles, *lines = render_grid(table, replace(self.terminal, width=self.terminal.width - 2))
        return Content([titles], list(zip(lines, opens, strict=True)), below)

    # ---- answers ----

    def _answered(self, page: Page, answer: Answer | None) -> Content:
        if page.message and page.message.lines:
            return self._text(page.message.lines)
        if answer is None:
            return self._text(["attaching …" if self._live else "reading …"])
        notes = [line for note in answer.notes for line in self.terminal.fold(note)]
        if page.kind == "message":
            return self._text(answer.lines or notes)
        if page.kind == "messages":
            return self._messages(page, answer, notes)
        if lines := self._cpu_lines(answer):
            return self._text(lines)
        by = answer.question.by
        rows = list(groups_of(answer.hops, page.hop[0]))
        if page.sort:
            rows = _in_order(rows, page.sort)
        table = [Column(by, [row.group.get(by, "-") for row in rows], left=True), *self._figures(rows)]
        opens = [Page("messages", page.area, group=tuple(row.group.items())) for row in rows]
        return self._table(table, opens, rows, " ".join(notes) or "No samples yet.")

    def _messages(self, page: Page, answer: Answer, notes: Sequence[str]) -> Content:
        found = answer.messages
        if not found:
            return self._text(notes or ["No messages."])
        unicode = self.terminal.unicode
        table = [
            Column("total", [fmt.time(each.total_ns, unicode=unicode) for each in found]),
            Column("held by", [each.held_by for each in found], left=True),
            Column("for", [fmt.time(each.held_ns, unicode=unicode) for each in found]),
            Column("bytes", [fmt.count(each.len_bytes) for each in found], rank=2),
            Column("flow", [each.flow for each in found], left=True, rank=1),
            Column("process", [each.process for each in found], left=True, rank=3),
        ]
        titles, *lines = render_grid(table, replace(self.terminal, width=self.terminal.width - 2))
        opens = [Page("message", page.area, message=each) for each in found]
        return Content([titles], list(zip(lines, opens, strict=True)), lambda _row, _room: notes)

    # ---- text ----

    def _of_text_area(self, page: Page, frame: Frame) -> Content:
        if page.area == "sockets" and frame.sockets:
            from hopscope.verbs.sockets.details import render_details  # noqa: PLC0415 # recordings have no sockets
            from hopscope.verbs.sockets.report import in_order  # noqa: PLC0415
            from hopscope.verbs.sockets.table import render_sockets  # noqa: PLC0415

            order = SOCKET_ORDERS[page.sort % len(SOCKET_ORDERS)]
            report = frame.sockets if order == "trouble" else in_order(frame.sockets, order)
            if page.kind == "details":
                return self._text(render_details(report, self.terminal, _ROWS).split("\n"))
            return self._text(render_sockets(report, self.terminal, _ROWS).split("\n"), Page("details", "sockets"))
        if page.area == "cpu" and (lines := self._cpu_lines(frame)):
            return self._text(lines, Page("groups", "cpu"))
        if page.area == "drops" and frame.drops:
            return self._text(render_drops(frame.drops, self.terminal, _ROWS).split("\n"))
        if page.area == "check" and frame.check:
            return self._text(render_check(frame.check, self.terminal, everything=page.kind == "details").split("\n"))
        return self._text(["waiting for the first interval"])

    def _cpu_lines(self, of: Frame | Answer) -> list[str]:
        """Return CPU time, live or recorded; nothing where there is none."""
        if of.cpu_time is not None:
            return render_report(of.cpu_time, self.terminal).split("\n")
        return render_cpu(of.cpu, self.terminal, limit=_ROWS, breakdown=False).split("\n") if of.cpu else []

    def _text(self, lines: Sequence[str], opens: Page | None = None) -> Content:
        return Content(rows=[(line, opens) for line in lines])


def _has(frame: Frame, area: Area) -> bool:
    return getattr(frame, area) is not None or (area == "cpu" and frame.cpu_time is not None)


def _in_order(rows: Sequence[HopRow], sort: int) -> list[HopRow]:
    values: dict[str, Callable[[HopRow], float]] = {
        "p99": lambda row: -(row.histogram.percentile(99) or 0.0),
        "count": lambda row: -row.histogram.count,
        "time": lambda row: -row.histogram.sum_ns,
        "max": lambda row: -row.histogram.max_ns,
    }
    order = HOP_ORDERS[sort % len(HOP_ORDERS)]
    return sorted(rows, key=values[order]) if order in values else list(rows)
