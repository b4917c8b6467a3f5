# SPDX-License-Identifier: Apache-2.0
"""What the page can ask of a recording. No figure is made here: reports, findings, explanations are sent as they are.

A question comes from a process that is not trusted: it names what it wants, and only options that select or sort. None
of them opens a file.
"""

from __future__ import annotations

import json
import shlex
import shutil
import tempfile
from typing import TYPE_CHECKING, Any, Final

from hopscope import __version__
from hopscope.errors import HopscopeError, UsageError
from hopscope.live.arguments import check_names, invoke, words_for
from hopscope.live.handover import handed_over
from hopscope.trace.gaps import lost_events
from hopscope.verbs.check.json import check_lines
from hopscope.verbs.check.recorded import check_of
from hopscope.verbs.explain.analysis import explain
from hopscope.verbs.explain.json import explanation_line
from hopscope.verbs.explain.text import told_of
from hopscope.verbs.export.command import FORMATS
from hopscope.verbs.export.formats import file_name, write_to
from hopscope.verbs.export.recorded import placed
from hopscope.verbs.report.command import command as reports
from hopscope.verbs.report.cpu import BY, cpu_over_time
from hopscope.verbs.report.hops import hops_over_time
from hopscope.verbs.report.messages import messages
from hopscope.verbs.report.pictures import draw_cpu, draw_drops
from hopscope.verbs.sql.reports import listed, query_report
from hopscope.verbs.web.documents import head, with_stages, write_json, write_report
from hopscope.verbs.web.heat import over_time, upper_ns
from hopscope.verbs.web.questions import WINDOW, options_of, selection_of, whole_number
from hopscope.verbs.web.timeline import Drawn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from hopscope.store.trace import Trace
    from hopscope.trace.selection import Selection
    from hopscope.verbs.export.recorded import Part
    from hopscope.verbs.web.questions import Options
    from hopscope.verbs.web.wire import Answerer

_SHOWN: Final = 50
_MOST_ROWS: Final = 10_000
_COLUMNS: Final = 120
_MOST_COLUMNS: Final = 1_000
# Parts of a timeline that are shown, besides the events that are read as they are looked at, and how many of them are
# kept: two selections.
PARTS: Final[dict[str, tuple[Part, ...]]] = {
    "events": ("marks",),
    "activity": ("activity", "tasks"),
    "messages": ("messages",),
}
_MOST_TIMELINES: Final = 4
_MOST_PIXELS: Final = 4_096
# Columns times nanoseconds are numbers of 64 bits.
_LONGEST_NS: Final = 1 << 50
_SVG: Final = "image/svg+xml"
# What is drawn as a flame graph.
_FLAMES: Final[Mapping[str, Callable[[Trace, Selection], str]]] = {"drops": draw_drops, "cpu": draw_cpu}
# As many lines as can be told apart, and one for the others.
_SERIES: Final = 5
_BYTES: Final = "application/octet-stream"


class Answers:
    """Answers questions on a recording.

    Parameters
    ----------
    trace
        Open.
    folder
        As the user named it.
    other, other_folder
        What it can be compared with; None: nothing.
    """

    def __init__(
        self, trace: Trace, folder: Path, other: Trace | None = None, other_folder: Path | None = None
    ) -> None:
        self._trace = trace
        self._folder = folder
        self._other = other
        self._other_folder = other_folder
        self._timelines: dict[tuple[str, Selection], Drawn] = {}
        self._known: dict[str, Callable[[Options, Answerer], None]] = {
            "about": self._about,
            "report": self._report,
            "heat": self._heat,
            "cpu": self._cpu,
            "timeline": self._timeline,
            "details": self._timeline,
            "findings": self._findings,
            "explain": self._explain,
            "message": self._message,
            "sql": self._sql,
            "tables": self._tables,
            "flame": self._flame,
            "export": self._export,
        }

    def answer(self, question: Mapping[str, Any], out: Answerer) -> None:
        """Answer a question.

        Raises
        ------
        HopscopeError
            It is not one, or there is no answer.
        """
        asked = question.get("ask")
        if not isinstance(asked, str) or asked not in self._known:
            raise UsageError("The page asks for what there is not", "Load it again")
        self._known[asked](dict(question), out)

    def interrupt(self) -> None:
        """Have a query end that another thread runs; of both recordings, as it may be of either."""
        for trace in filter(None, (self._trace, self._other)):
            trace.interrupt()

    # ---- what is answered ----

    def _about(self, _question: Options, out: Answerer) -> None:
        trace = self._trace
        metadata = trace.metadata
        hosts = [name for (name,) in trace.rows("SELECT name FROM hosts ORDER BY host")]
        ((first, last),) = trace.rows("SELECT min(time_ns), max(time_ns) FROM packets")
        begins = [None if each is None else (each - metadata.started_ns) / 1e9 for each in (first, last)]
        write_json(out, {
            "version": __version__,
            "folder": str(self._folder),
            "name": self._folder.resolve().name,
            "other": None if self._other_folder is None else str(self._other_folder),
            "hosts": hosts or [metadata.host.get("name", "")],
            "kernel": metadata.host.get("release", ""),
            "started_ns": str(metadata.realtime_ns),
            "first_s": begins[0],
            "last_s": begins[1],
            "lost": lost_events(trace) + metadata.missed,
            "warnings": list(trace.warnings),
            "reports": sorted(reports.commands),
            "files": {form: file_name(form) for form in FORMATS},
        })  # fmt: skip

    def _report(self, question: Options, out: Answerer) -> None:
        name = str(question.get("name"))
        options = {option.replace("-", "_"): value for option, value in options_of(question).items()}
        commands = reports.commands
        check_names("report", name, commands, hint="The page shows those that there are")
        limit = options.pop("limit", None)
        limit = limit if isinstance(limit, int) and not isinstance(limit, bool) else _SHOWN
        options["limit"] = min(max(limit, 1), _MOST_ROWS)
        traces, arguments = {self._folder: self._trace}, [self._folder]
        if name == "compare":
            second = self._other_folder if question.get("other") and self._other_folder else self._folder
            if second == self._other_folder and self._other:
                traces[second] = self._other
            arguments.append(second)
        called = f"hopscope report {name}"
        with handed_over(traces) as left:
            invoke(commands[name], called, options, ["--json"], arguments)
        words = words_for(commands[name], called, options)
        command = shlex.join([*called.split(), *words, *map(str, arguments)])
        write_report(out, left.reports[0], command, more=left.reports[1:])

    def _heat(self, question: Options, out: Answerer) -> None:
        columns = question.get("columns")
        wanted = columns if isinstance(columns, int) and 1 <= columns <= _MOST_COLUMNS else _COLUMNS
        options = options_of(question)
        bounds_s, found = hops_over_time(self._trace, selection_of(options), wanted)
        width_s = bounds_s[1] - bounds_s[0] if len(bounds_s) > 1 else 1.0
        write_json(out, {
            "bounds_s": bounds_s,
            "upper_ns": upper_ns(),
            "hops": [
                {"hop": f"{before} → {point}", **over_time(parts, width_s)} for (before, point), parts in found
            ],
            "command": self._command("report hops", options, "--plot", "hops.svg"),
        })  # fmt: skip

    def _cpu(self, question: Options, out: Answerer) -> None:
        """Tell what CPUs did over time; what has least of it is together."""
        options = options_of(question)
        by = question.get("by") or None
        if by not in {None, *BY}:
            raise UsageError("The page asks for a grouping that there is not", "Load it again")
        bounds_s, series = cpu_over_time(self._trace, selection_of(options), _COLUMNS, by=by)
        few = [*series[:_SERIES], *([("others", _added(series[_SERIES:]))] if series[_SERIES:] else [])]
        write_json(out, {
            "bounds_s": bounds_s,
            "series": [{"name": name, "shares": shares} for name, shares in few],
            "command": self._command("report cpu", options, "--plot", "cpu.svg"),
        })  # fmt: skip

    def _timeline(self, question: Options, out: Answerer) -> None:
        """Show a view of a part of the timeline, or search in it. The period of the selection does not apply to it."""
        part = str(question.get("part"))
        if part not in PARTS:
            raise UsageError("The page asks for a part that timelines do not have", "Load it again")
        options = {name: value for name, value in options_of(question).items() if name not in WINDOW}
        drawn = self._drawn(part, selection_of(options))
        started_ns = self._trace.metadata.started_ns
        if "find" in question:
            found = drawn.search(str(question["find"]), started_ns + whole_number(question.get("after_ns")))
            write_json(out, {"found": found})
            return
        extent = drawn.extent() or (started_ns, started_ns + 1)
        given = [question.get(name) for name in ("from_ns", "until_ns")]
        from_ns, until_ns = (
            whole if each is None else started_ns + whole_number(each)
            for each, whole in zip(given, extent, strict=True)
        )
        columns = question.get("columns")
        if not isinstance(columns, int) or not 1 <= columns <= _MOST_PIXELS or not 0 < until_ns - from_ns < _LONGEST_NS:
            raise UsageError("The page asks for a view that cannot be drawn", "Load it again")
        write_json(out, {
            "from_ns": from_ns - started_ns,
            "until_ns": until_ns - started_ns,
            "started_ns": str(started_ns),
            "extent_ns": [each - started_ns for each in extent],
            **drawn.seen(from_ns, until_ns, columns, with_flows=question.get("flows") is True),
            "notes": drawn.notes,
            "command": self._command("export perfetto", options, "-o", "timeline.pftrace"),
        })  # fmt: skip

    def _drawn(self, part: str, selection: Selection) -> Drawn:
        """Return a part of the timeline, which is prepared when it is first asked for."""
        if (part, selection) not in self._timelines:
            while len(self._timelines) >= _MOST_TIMELINES:
                del self._timelines[next(iter(self._timelines))]
            place = placed(self._trace, selection, limit=None, parts=PARTS[part])
            self._timelines[part, selection] = Drawn(place, with_events=part == "events")
        return self._timelines[part, selection]

    def _findings(self, _question: Options, out: Answerer) -> None:
        command = self._command("check", {})
        try:
            check, at_ns = check_of(self._trace)
        except HopscopeError as error:  # it has no counters, which is nothing that the page could do better
            write_json(out, {"findings": [], "summary": None, "notes": [str(error)], "command": command})
            return
        lines = [json.loads(line) for line in check_lines(check, at_ns)]
        write_json(out, {"findings": lines[:-1], "summary": lines[-1], "notes": [], "command": command})

    def _explain(self, question: Options, out: Answerer) -> None:
        options = options_of(question)
        explanation = explain(self._trace, selection_of(options))
        write_json(out, {
            **json.loads(explanation_line(explanation)),
            "told": [told_of(each, unicode=True) for each in explanation.causes],
            "command": self._command("explain", options),
        })  # fmt: skip

    def _message(self, question: Options, out: Answerer) -> None:
        """Tell of the message, or of the messages of the request, that begin in a microsecond: causes, stages."""
        at_ns = whole_number(question.get("begin_ns")) // 1000 * 1000
        options = options_of(question)
        if question.get("request"):
            explanation, found = explain(self._trace, selection_of(options), request_ns=at_ns), None
        else:
            explanation = explain(self._trace, selection_of(options), begins_ns=at_ns)
            window = {**options, "from": at_ns / 1e9, "until": (at_ns + 1000) / 1e9}
            found = messages(self._trace, selection_of(window), limit=_SHOWN)
        which = "--request" if found is None else "--message"
        write_json(out, {
            "told": [told_of(each, unicode=True) for each in explanation.causes],
            "messages": [] if found is None else with_stages(found),
            "command": self._command("explain", {}, f"{which}={at_ns / 1e9:.6f}"),
        })  # fmt: skip

    def _sql(self, question: Options, out: Answerer) -> None:
        query = str(question.get("query", ""))
        if not query.strip("; \n\r\t"):
            raise UsageError("No query was given", "Write one, such as SELECT * FROM packets LIMIT 10")
        report = query_report(self._trace, query, limit=_MOST_ROWS)
        write_report(out, report, shlex.join(["hopscope", "sql", str(self._folder), query]))

    def _tables(self, _question: Options, out: Answerer) -> None:
        write_report(out, listed(self._trace), shlex.join(["hopscope", "sql", str(self._folder), "--tables"]))

    def _flame(self, question: Options, out: Answerer) -> None:
        draw = _FLAMES.get(str(question.get("of")))
        if draw is None:
            raise UsageError("The page asks for a flame graph that there is not", "Load it again")
        svg = draw(self._trace, selection_of(options_of(question)))
        out.begin(head(_SVG))
        out.write(svg.encode())

    def _export(self, question: Options, out: Answerer) -> None:
        form = str(question.get("form"))
        if form not in FORMATS:
            raise UsageError("The page asks for a format that there is not", "Load it again")
        # It is complete before anything is sent: until then, it can still fail, and what it lacks is in the head.
        with tempfile.TemporaryFile() as file:
            notes = write_to(file, form, self._trace, selection_of(options_of(question)))
            file.seek(0)
            out.begin({**head(_BYTES), "notes": notes, "name": file_name(form)})
            shutil.copyfileobj(file, out)

    def _command(self, what: str, options: Options, *more: str) -> str:
        words = [
            f"--{name}={each}"
            for name, value in options.items()
            for each in (value if isinstance(value, list) else [value])
        ]
        return shlex.join(["hopscope", *what.split(), *words, *more, str(self._folder)])


def _added(series: Sequence[tuple[str, Sequence[float]]]) -> list[float]:
    return [sum(each) for each in zip(*(shares for _, shares in series), strict=True)]
