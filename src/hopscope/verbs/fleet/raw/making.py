# SPDX-License-Identifier: Apache-2.0
"""Questions made from what differs between them: for the fleet, and for each of its hosts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from hopscope.model.report import Column
from hopscope.term.json_lines import iso

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hopscope.model.report import Value
    from hopscope.verbs.fleet.raw.question import Question

HOST: Final = Column("host", "text", "name of the host", "host")
HOSTS: Final = Column("hosts", "count", "number of hosts that have it", "hosts", rank=1)


def most(meaning: str) -> Column:
    """Return the column with one of the hosts, which `meaning` says."""
    return Column("most_host", "text", meaning, "most at", rank=2)


def total(column: str) -> str:
    """Return the expression for a sum of whole numbers."""
    return f"CAST(sum({column}) AS BIGINT) AS {column}"


def when(time_ns: int | None) -> str | None:
    """Return a time, CLOCK_REALTIME, as text."""
    return None if time_ns is None else iso(time_ns)


def named(columns: Sequence[Column], times: Sequence[str] = ()) -> Callable[[Mapping[str, Any]], Sequence[Value]]:
    """Return what makes the values of a line that has each column by its name; `times` as :func:`when` does."""
    names = [column.name for column in columns]
    return lambda line: [when(line[name]) if name in times else line[name] for name in names]


def by_host(question: Question, *, most_by: str) -> Question:
    """Return a question whose lines can be of each host, too.

    Its `lines` have ``{who}`` where the hosts of a line are selected, ``{by}`` before the columns by which rows are
    grouped, and ``{within}`` in windows over all lines.

    Parameters
    ----------
    most_by
        The host with the greatest sum of this column is named.
    """
    most_host = f"list(host ORDER BY {most_by} DESC, host)[1]"
    of_all = {"who": f"count(DISTINCT host) AS hosts, {most_host} AS most_host", "by": "", "within": ""}
    own = [column for column in question.columns if column.name not in {HOSTS.name, "most_host"}]
    each = replace(
        question,
        meaning=f"{question.meaning} of a host",
        spread=("host", *question.spread),
        lines=question.lines.format(who="host", by="host, ", within="PARTITION BY host"),
        order=f"{question.order}, host",
        columns=(HOST, *own),
        values=lambda line: [line["host"], *_without(question, line)],
    )
    return replace(question, lines=question.lines.format(**of_all), by_host=each)


def _without(question: Question, line: Mapping[str, Any]) -> list[Value]:
    values = question.values({HOSTS.name: None, "most_host": None, **line})
    kept = zip(question.columns, values, strict=True)
    return [value for column, value in kept if column.name not in {HOSTS.name, "most_host"}]
