# SPDX-License-Identifier: Apache-2.0
"""``hopscope sql``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from hopscope.errors import UsageError
from hopscope.live.help import OUTPUT, Command, section
from hopscope.live.options import limit_option
from hopscope.recorded.options import chosen_form, form_options, show


@click.command(
    "sql",
    cls=Command,
    short_help="Query a recording in SQL.",
    examples=(
        ("List tables and relations, and what a row of each is", "hopscope sql trace --tables"),
        ("Count the events of each point", 'hopscope sql trace "SELECT point, count(*) FROM packets GROUP BY point"'),
    ),
)
@section(
    OUTPUT,
    click.option("--tables", is_flag=True, help="List tables; with a name as QUERY, its columns."),
    limit_option(),
)
@form_options()
@click.argument("folder", type=click.Path(path_type=Path), metavar="TRACE")
@click.argument("query", required=False)
def command(  # noqa: PLR0913 # one parameter an option
    *, as_json: bool, as_csv: bool, limit: int | None, tables: bool, folder: Path, query: str | None
) -> None:
    """Query a recording in SQL. Without a QUERY, it is read from standard input.

    docs/trace.md describes the recorded tables, docs/relations.md what can be derived from them: names, lifetimes of
    packets, messages, requests and more. A relation that the query names is built first.
    """
    from hopscope.recorded.options import Common  # noqa: PLC0415
    from hopscope.verbs.sql.reports import described, listed, query_report  # noqa: PLC0415 # with DuckDB and NumPy

    form = chosen_form(as_json=as_json, as_csv=as_csv)
    if tables:
        with Common(folder, form, limit, {}).trace() as trace:
            show(listed(trace) if query is None else described(trace, query), form)
        return
    text = sys.stdin.read() if query is None else query
    if not text.strip():
        raise UsageError("No query was given", "Give it as the last argument, or on standard input")
    common = Common(folder, form, limit, {})
    with common.trace() as trace:
        show(query_report(trace, text, limit=common.limit), form)
