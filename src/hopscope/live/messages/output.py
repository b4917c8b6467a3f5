# SPDX-License-Identifier: Apache-2.0
"""What is printed beside a table: single messages, the slowest ones, and cumulative distributions."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, TextIO

from hopscope.errors import UsageError
from hopscope.live.contract import batches
from hopscope.live.curves import show_curves
from hopscope.live.interval import Output
from hopscope.model.cdf import Curve
from hopscope.model.histogram import Histogram
from hopscope.term.hosts import ALL_HOSTS
from hopscope.term.message_json import message_to_json, slowest_to_json
from hopscope.term.message_table import TITLES_EVERY, Columns, message_lines, render_slowest, titles

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hopscope.live.contract import MessageSource
    from hopscope.model.message import Message
    from hopscope.model.snapshot import Snapshot
    from hopscope.term.terminal import Terminal

# So long messages are printed before something else is looked at, and at the end.
_AT_ONCE_S: Final = 0.25
_REST_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Extras:
    """What is wanted beside the table.

    Attributes
    ----------
    events
        A line a message instead of a table an interval.
    slowest
        So many of the slowest messages, of each interval and of the run; 0: none.
    cdf
        Hops whose distributions are shown at the end.
    svg
        Open file for a picture of those.
    """

    events: bool = False
    slowest: int = 0
    cdf: Sequence[str] = ()
    svg: TextIO | None = None

    def __bool__(self) -> bool:
        """Whether anything is wanted."""
        return self.events or bool(self.slowest) or bool(self.cdf)


class MessageLog:
    """Single messages, a line each, under titles that come again."""

    def __init__(self, verb: str) -> None:
        self._columns = Columns(verb)
        self._since_titles = TITLES_EVERY

    def lines(self, messages: Sequence[Message], offset_ns: int, terminal: Terminal, host: str = "") -> list[str]:
        """Return the lines of further messages, of a host where there are several; `offset_ns` is its clock's."""
        widths = self._columns.fitting(messages, terminal, host)
        if widths != self._columns:
            self._columns, self._since_titles = widths, TITLES_EVERY
        lines = []
        for message in messages:
            if self._since_titles == TITLES_EVERY:
                lines += titles(widths, terminal)
                self._since_titles = 0
            lines += message_lines(message, offset_ns, widths, terminal, host=host)
            self._since_titles += 1
        return lines


class FindsMessages(Protocol):
    """A collector of ``rx`` or ``tx``, here or elsewhere."""

    @property
    def found(self) -> MessageSource:
        """What is wanted of single messages."""


@dataclass
class MessageOutput(Output):
    """How the results of ``rx`` and ``tx`` are printed, with what is wanted beside the table.

    Attributes
    ----------
    collector
        Whose messages are shown; with ``events`` or ``slowest`` among its options if these are wanted.
    extras
        What is wanted.
    log
        Of all hosts.
    """

    between_s: ClassVar[float | None] = 0.1

    collector: FindsMessages = field(kw_only=True)
    extras: Extras = field(kw_only=True)
    log: MessageLog = field(kw_only=True)
    _reports: int = field(default=0, init=False)

    def between(self) -> None:
        """Fetch the messages that came, and print them if that is asked for."""
        self._fetch(_AT_ONCE_S)

    def rest(self) -> None:
        """Print the messages that are left, as many as can be in a second."""
        self._fetch(_REST_S)
        self.collector.found.close()

    def show(self, snapshot: Snapshot) -> None:
        """Print a snapshot, and the slowest messages of its time."""
        self.between()
        last = snapshot.kind == "total"
        self._reports += not last
        # With one interval, it has been the whole; but programs count on a total.
        again = last and self._reports == 1 and self.style != "json" and not self.extras.events
        hidden = again or (self.extras.events and not last)
        slowest = self.collector.found.slowest(snapshot.kind)
        offset_ns = self.collector.found.offset_ns
        # JSON ends with the total.
        if slowest and not hidden and self.style == "json":
            self._print_json(
                slowest_to_json(slowest, snapshot.verb, snapshot.started_ns, snapshot.duration_s, offset_ns)
            )
        if not hidden:
            super().show(snapshot)
        if slowest and not hidden and self.style != "json":
            self._print(render_slowest(slowest, snapshot.verb, offset_ns, self._terminal()), headed=False)

    def finish(self, total: Snapshot) -> None:
        """Show the distributions."""
        if self.extras.cdf:
            curves = [curve for hop in self.extras.cdf for curve in _curves(total, hop)]
            show_curves(f"hopscope {total.verb}: {', '.join(self.extras.cdf)}", curves, self.extras.svg)

    def wants_total(self, reports: int) -> bool:
        """As for any output; the distributions and the summary below the messages are of the whole run."""
        return bool(self.extras.events or self.extras.cdf) or super().wants_total(reports)

    def _fetch(self, most_s: float) -> None:
        for messages in batches(self.collector.found, most_s):
            self._print_messages(messages)

    def _print_messages(self, messages: Sequence[Message]) -> None:
        offset_ns = self.collector.found.offset_ns
        if self.style == "json":
            lines = [self._json(message_to_json(message, offset_ns)) for message in messages]
        else:
            lines = self.log.lines(messages, offset_ns, self._terminal(), self.host)
        sys.stdout.write("".join(f"{each}\n" for each in lines))
        sys.stdout.flush()


def wanted_extras(given: Mapping[str, Any], *, cdf: Sequence[str] = (), svg: TextIO | None = None) -> Extras:
    """Return what the options of a command ask for beside its table.

    Raises
    ------
    UsageError
        Single messages are wanted of all hosts together.
    """
    if given["together"] and (given["events"] or given["slowest"]):
        raise UsageError(
            "--together cannot be combined with --events or --slowest, which show individual messages",
            "Omit one of them",
        )
    return Extras(given["events"], given["slowest"] or 0, cdf, svg)


def message_outputs(
    verb: str, style: str, extras: Extras, *, show_plan: bool
) -> Callable[[FindsMessages, str], Output]:
    """Return what makes the output of a host; those of all hosts together have no single messages."""
    log = MessageLog(verb)

    def output(collector: FindsMessages, host: str) -> Output:
        wanted = replace(extras, events=False, slowest=0) if host == ALL_HOSTS else extras
        if not wanted:
            return Output(style, show_plan, host)
        return MessageOutput(style, show_plan, host, collector=collector, extras=wanted, log=log)

    return output


def _curves(snapshot: Snapshot, hop: str) -> list[Curve]:
    """Return the curves of a hop, one a group, those with the most samples first; a hop without any is an empty one."""
    rows = [row for row in snapshot.hops if row.hop == hop]
    rows.sort(key=lambda row: -row.histogram.count)
    curves = [Curve(" ".join([hop, *row.group.values()]), row.histogram) for row in rows]
    return curves or [Curve(hop, Histogram.empty())]
