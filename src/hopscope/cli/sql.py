# SPDX-License-Identifier: Apache-2.0
"""``hopscope sql``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from hopscope.cli.report_options import SHOWN, chosen_form, form_options, show
from hopscope.errors import UsageError


@click.command("sql", short_help="Query a recording in SQL.")
@form_options()
@click.option(
    "--limit",
    type=click.IntRange(0),
    metavar="N",
    help=f"So many rows; 0: all. Without it {SHOWN} of a table for people, all of JSON and CSV.",
)
@click.argument("folder", type=click.Path(path_type=Path), metavar="TRACE")
@click.argument("query", required=False)
def command(*, as_json: bool, as_csv: bool, limit: int | None, folder: Path, query: str | None) -> None:
    """Query a trace in SQL; without a QUERY, the one on the standard input.

    docs/trace.md describes the tables. Besides them there are the views `points`, `reasons`, `flow_names`,
    `device_names`, `thread_names`, and `lives`: the packets' events, each with the packet that it is of.

    \b
    hopscope sql trace "SELECT point, count(*) FROM packets GROUP BY point"
    hopscope sql trace --csv < query.sql
    """  # noqa: D301 # the backspace tells click to leave the lines as they are
    from hopscope.analysis.query import query_report  # noqa: PLC0415 # DuckDB and NumPy when they are needed
    from hopscope.cli.report_options import Common  # noqa: PLC0415

    form = chosen_form(as_json=as_json, as_csv=as_csv)
    text = sys.stdin.read() if query is None else query
    if not text.strip():
        raise UsageError("There is no query", "Give one as the last argument, or on the standard input")
    common = Common(folder, form, limit, {})
    with common.trace() as trace:
        show(query_report(trace, text, limit=common.limit), form)
