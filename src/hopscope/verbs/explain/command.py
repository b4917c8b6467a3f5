# SPDX-License-Identifier: Apache-2.0
"""``hopscope explain``."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from hopscope.errors import UsageError
from hopscope.live.help import MEASURE, OUTPUT, TRAFFIC, Command, option, section
from hopscope.live.options import json_option
from hopscope.live.paths import PATH
from hopscope.live.seconds import Seconds
from hopscope.recorded.options import SINCE_START, Common, opened, print_blocks, report_options, terminal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from click import Context, Parameter

    from hopscope.store.trace import Trace

_HOUR_S = 3600
# CLOCK_MONOTONIC in ns: so many digits are 30 years.
_ID: Final = re.compile(r"@[0-9]{1,18}", re.ASCII)


class _MessageId(Seconds):
    """When a message begins, in seconds since the start of the recording, or the ID of an exemplar: ``@`` and ns."""

    def convert(self, value: Any, param: Parameter | None, ctx: Context | None) -> Any:  # noqa: ANN401 # as click's
        """Return the seconds, or what follows the ``@`` as an int."""
        text = str(value)
        if not text.startswith("@"):
            return super().convert(value, param, ctx)
        if not _ID.fullmatch(text):
            self.fail(f"{text!r} is not an ID of a message, e.g. @1995808587948.", param, ctx)
        return int(text[1:])


@click.command(
    "explain",
    cls=Command,
    short_help="Why messages are slow: what held them, who, and what to do.",
    examples=(
        ("Why is the service on port 6379 slow? Watch it for ten seconds", "hopscope explain --port 6379 -d 10"),
        ("What held the ten slowest messages of a recording?", "hopscope explain trace --slowest 10"),
    ),
)
@section(
    MEASURE,
    option(
        "-d",
        "--duration",
        type=Seconds(0.1, _HOUR_S),
        default=5.0,
        show_default=True,
        help="Without a TRACE: watch for this time.",
    ),
)
@section(
    TRAFFIC,
    option("--slowest", type=click.IntRange(1), metavar="N", help="Only the N slowest messages."),
    option("--message", type=_MessageId(-1e9, 1e9), help="Only the message that begins then, or has this ID (@...)."),
    option("--request", type=SINCE_START, help="Only the request that begins then, as reports show it."),
)
@section(
    OUTPUT,
    option("--baseline", type=PATH, metavar="TRACE", help="Also compare with this recording."),
)
@report_options(output=json_option("explanation", "docs/explain.md"))
@click.pass_context
def command(  # noqa: PLR0913 # one parameter an option
    context: click.Context,
    *,
    common: Common,
    duration: float,
    slowest: int | None,
    message: float | None,
    request: float | None,
    baseline: Path | None,
) -> int:
    """Explain why messages are slow.

    Follows messages from the send call to the read, and attributes every nanosecond to one cause: what held them, who
    is responsible, on which evidence, and what to try next. Watches this host (as root), or reads a TRACE of
    `hopscope record`. The causes are the same as in `report messages` and `report requests`; docs/causes.md has them.
    """
    from hopscope.verbs.explain.analysis import begins_s_of, explain  # noqa: PLC0415 # numpy and DuckDB when they are needed
    from hopscope.verbs.explain.counters import with_counters  # noqa: PLC0415
    from hopscope.verbs.explain.json import explanation_line  # noqa: PLC0415
    from hopscope.verbs.explain.text import render_explanation  # noqa: PLC0415

    if sum(each is not None for each in (slowest, message, request)) > 1:
        raise UsageError("--slowest, --message and --request cannot be combined", "Choose one")
    if common.folder is not None and context.get_parameter_source("duration") is not ParameterSource.DEFAULT:
        raise UsageError("-d cannot be combined with a TRACE, which covers what was recorded", "Omit it")
    if baseline is not None and common.form == "json":
        raise UsageError("--baseline cannot be combined with --json", "Use `hopscope report compare --json`")
    with _trace(common, baseline, duration) as trace:
        if isinstance(message, int):  # an ID
            message = begins_s_of(trace, common.selection, message)
        explanation = with_counters(
            trace,
            explain(
                trace,
                common.selection,
                slowest=slowest,
                begins_ns=None if message is None else round(message * 1e6) * 1000,
                request_ns=None if request is None else round(request * 1e6) * 1000,
            ),
        )
        if not explanation.messages and (message is not None or request is not None):
            what, begins_s = ("request", request) if message is None else ("message", message)
            raise UsageError(f"No {what} begins at {begins_s:g} s", f"`hopscope report {what}s` shows when each begins")
        if common.form == "json":
            click.echo(explanation_line(explanation))
            return 0
        print_blocks([render_explanation(explanation, terminal())])
        if message is not None:
            _waterfall(trace, common, message)
        if baseline is not None:
            _compared(trace, common, baseline)
    return 0


@contextmanager
def _trace(common: Common, baseline: Path | None, duration_s: float) -> Iterator[Trace]:
    """Open the trace, or record one for so long; `baseline` is opened later."""
    beside = [] if baseline is None else [baseline]
    if common.folder is not None:
        with opened(common.folder, beside=beside) as trace:
            yield trace
        return
    from hopscope.verbs.explain.watch import watched  # noqa: PLC0415 # as above

    with watched(common.chosen, duration_s) as folder, opened(folder, beside=beside) as trace:
        yield trace


def _waterfall(trace: Trace, common: Common, begins_s: float) -> None:
    """Print the stages of the message."""
    from dataclasses import replace  # noqa: PLC0415

    from hopscope.verbs.report.messages import messages  # noqa: PLC0415
    from hopscope.verbs.report.messages_text import render_messages  # noqa: PLC0415

    micro = round(begins_s * 1e6) / 1e6
    selection = replace(common.selection, from_s=micro, until_s=micro + 1e-6)
    print_blocks(["", render_messages(messages(trace, selection), terminal(), waterfall=True)])


def _compared(trace: Trace, common: Common, baseline: Path) -> None:
    """Print what is different from another recording."""
    from hopscope.term.report_table import render_report  # noqa: PLC0415
    from hopscope.verbs.report.compare import compare  # noqa: PLC0415

    with opened(baseline) as before:
        report = compare(before, trace, common.selection)
    print_blocks(["", f"Compared with {baseline}:", render_report(report, terminal())])
