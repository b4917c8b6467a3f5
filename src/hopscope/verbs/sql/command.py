# SPDX-License-Identifier: Apache-2.0
"""``hopscope sql``."""

from __future__ import annotations

import sys

import click

from hopscope.errors import UsageError
from hopscope.live.help import OTHER, OUTPUT, Command, option, section
from hopscope.live.options import limit_option
from hopscope.live.paths import PATH
from hopscope.recorded.options import chosen_form, form_options, limits_option, show


@click.command(
    "sql",
    cls=Command,
    short_help="Query a recording in SQL.",
    examples=(
        ("List tables and relations, and what a row of each is", "hopscope sql trace --tables"),
        (
            "Count the events of each point of the last recording",
            'hopscope sql "SELECT point, count(*) FROM packets GROUP BY point"',
        ),
    ),
)
@section(
    OUTPUT,
    click.option("--tables", is_flag=True, help="List tables; with a name as QUERY, its columns."),
    limit_option(),
)
@form_options()
@section(OTHER, option("--unrestricted", is_flag=True, help="Let the query read and write other files."))
@limits_option()
@click.argument("trace", required=False, metavar="[TRACE]")
@click.argument("query", required=False, metavar="[QUERY]")
def command(  # noqa: PLR0913 # one parameter an option
    *,
    as_json: bool,
    as_csv: bool,
    limit: int | None,
    tables: bool,
    unrestricted: bool,
    trace: str | None,
    query: str | None,
) -> None:
    """Query a recording in SQL. Without a QUERY, it is read from standard input.

    TRACE is a folder, or the name of a recording that `hopscope recordings` lists; without it, the last of these is
    read. A single argument is the TRACE if that exists, or if it has no blanks; otherwise it is the QUERY. With
    --tables, it is the QUERY unless there is such a TRACE.

    docs/trace.md describes the recorded tables, docs/relations.md what can be derived from them: names, lifetimes of
    packets, messages, requests and more. A relation that the query names is built first.

    QUERY is one statement that reads the recording. With --unrestricted it may be several of any kind, which read and
    write whatever the user may; extensions of DuckDB are not loaded in any case.
    """
    from hopscope.recorded.options import Common  # noqa: PLC0415
    from hopscope.verbs.sql.reports import described, listed, query_report  # noqa: PLC0415 # with DuckDB and NumPy

    form = chosen_form(as_json=as_json, as_csv=as_csv)
    if query is None and trace is not None and not _is_trace(trace, tables=tables):
        trace, query = None, trace
    folder = None if trace is None else PATH.convert(trace, None, click.get_current_context())
    common = Common(folder, form, limit, {})
    if tables:
        with common.trace() as opened:
            show(listed(opened) if query is None else described(opened, query), form)
        return
    text = query if query is not None else sys.stdin.read() if sys.stdin else ""
    if not text.strip("; \n\r\t"):
        raise UsageError("No query was given", "Give it as the last argument, or on standard input")
    with common.trace(unrestricted=unrestricted) as opened:
        show(query_report(opened, text, limit=common.limit), form)


def _is_trace(word: str, *, tables: bool) -> bool:
    """Tell whether the only argument is the recording, rather than the query."""
    from hopscope.recorded.which import names_recording  # noqa: PLC0415 # NumPy

    return names_recording(word) or (not tables and len(word.split()) == 1)
