# SPDX-License-Identifier: Apache-2.0
"""``hopscope fleet report``, and ``hopscope fleet add --raw``: recordings of many hosts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import click

from hopscope.errors import UsageError
from hopscope.gate import tell
from hopscope.live.help import OTHER, OUTPUT, TRAFFIC, Command, option, section
from hopscope.live.options import SHOWN, group_option, limit_option
from hopscope.live.paths import PATH
from hopscope.progress import progress
from hopscope.recorded.options import chosen_form, form_options, limits_option, show

if TYPE_CHECKING:
    from pathlib import Path


# Names of questions, as hopscope.verbs.fleet.raw.questions has them: without DuckDB and NumPy, `--help` is quick.
NAMES: Final = ("hosts", "hops", "drops", "counters", "findings", "flows", "packets", "messages", "causes")
GROUPS: Final = ("host",)
# Of the slowest of something, where no limit is given.
MOST: Final = 1000


class Moment(click.ParamType[int]):
    """A time of the wall clock, as ISO 8601 has it; without a zone it is UTC."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:  # noqa: ANN401 # as click's
        """Return it as CLOCK_REALTIME in ns, or fail with a sentence."""
        if isinstance(value, int):
            return value
        try:
            found = datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r} is not a time, e.g. 2026-11-26T19 or 2026-11-26T19:30:00", param, ctx)
        return realtime_ns(found)


def realtime_ns(time: datetime) -> int:
    """Return a time as CLOCK_REALTIME; without a zone it is UTC."""
    since = (time if time.tzinfo else time.replace(tzinfo=UTC)) - datetime.fromtimestamp(0, UTC)
    return since // timedelta(microseconds=1) * 1000


def keep(folder: Path, fleet: Path) -> int:
    """Keep a recording in a fleet's directory, say what is not there, and return the exit code."""
    from hopscope.errors import FormatError  # noqa: PLC0415 # as all of it, when it is needed
    from hopscope.store.fleet.hours import recorded, store  # noqa: PLC0415
    from hopscope.store.fleet.raw import Raw  # noqa: PLC0415

    hosts, missing = recorded(folder)
    for sentence in missing:
        tell(f"hopscope: {sentence}")
    code = 0
    for each in hosts:
        try:
            with progress():
                done = store(each, Raw(fleet))
        except (FormatError, UsageError) as error:
            tell(f"hopscope: not kept: {error}")
            code = 1
            continue
        for sentence in done.missing if done.leaves else ["it is there already"]:
            tell(f"hopscope: {each.folder}: {sentence}")
        for leaf in done.leaves:
            click.echo(leaf.folder)
    return code


@click.command(
    "report",
    cls=Command,
    short_help="A report over the recordings of a fleet.",
    examples=(
        ("Who dropped packets from then on, and where?", "hopscope fleet report drops fleet --from 2026-11-26T19"),
        (
            "Hops of each host, by a Spark cluster",
            "hopscope fleet report hops /mnt/fleet -g host --spark spark://a:7077",
        ),
    ),
)
@click.argument("question", type=click.Choice(NAMES), metavar="QUESTION")
@click.argument("fleet", type=PATH, metavar="FLEET")
@section(
    TRAFFIC,
    option("--hosts", default="", metavar="A,B,...", help="Only these hosts; * stands for anything."),
    option("--from", "from_ns", type=Moment(), metavar="TIME", help="Only from this time on (UTC): 2026-11-26T19:30."),
    option("--until", "until_ns", type=Moment(), metavar="TIME", help="Only until this time."),
)
@group_option(GROUPS)
@section(OUTPUT, limit_option())
@form_options()
@section(
    OTHER,
    option("--spark", metavar="MASTER", help="Have this Spark cluster answer: spark://HOST:PORT."),
    option("--processes", type=click.IntRange(1, 1024), metavar="N", help="Without it: how many processes. [CPUs]"),
)
@limits_option()
def report(  # noqa: PLR0913 # one parameter an option
    *,
    question: str,
    fleet: Path,
    hosts: str,
    from_ns: int | None,
    until_ns: int | None,
    group_by: str | None,
    limit: int | None,
    as_json: bool,
    as_csv: bool,
    spark: str | None,
    processes: int | None,
) -> int:
    """Answer a QUESTION over the recordings of many hosts.

    \b
    hosts      what was recorded of each host, and what was lost
    hops       durations of hops, exactly as if all hosts were one
    drops      dropped packets, by reason and place
    counters   kernel counters that increased
    findings   known problems (`hopscope check`)
    flows      packets and bytes of flows, both ends together
    packets    the slowest packets (--limit: so many)
    messages   the slowest messages, each as its host saw it
    causes     what held messages, and for how long

    Each recording is read by itself, by several processes here or by the executors of a Spark cluster, and the results
    are added up. Recordings that cannot be read, or are not complete, are named, and the exit code is 1 then.
    """  # noqa: D301 # the backspace tells click to leave the lines as they are
    from hopscope.store.limits import limits  # noqa: PLC0415
    from hopscope.verbs.fleet.raw.asked import Asked  # noqa: PLC0415
    from hopscope.verbs.fleet.raw.asking import ask, here, on_master  # noqa: PLC0415 # DuckDB and NumPy when needed

    form = chosen_form(as_json=as_json, as_csv=as_csv)
    shown = SHOWN if limit is None and form == "text" else limit or None
    asked = Asked(question, group_by is not None, from_ns, until_ns, shown, shown or MOST, limits().factor)
    with progress():
        answer = ask(
            fleet, asked, [each for each in hosts.split(",") if each], on_master(spark) if spark else here(processes)
        )
    show(answer.report, form)
    return 0 if answer.complete else 1
