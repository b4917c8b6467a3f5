# SPDX-License-Identifier: Apache-2.0
"""``hopscope fleet``: one command a question."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC
from typing import TYPE_CHECKING, Any, Final

import click

from hopscope.errors import HopscopeError, UsageError
from hopscope.live.help import OTHER, OUTPUT, TRAFFIC, Command, option, section, together
from hopscope.live.options import SHOWN, json_option, limit_option
from hopscope.live.paths import FLEET, PATH
from hopscope.live.units import Age, Duration, Size
from hopscope.recorded.confine import confine, is_own_process
from hopscope.recorded.options import chosen_form, show
from hopscope.verbs.fleet.raw.command import keep, report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime
    from pathlib import Path

    from hopscope.recorded.options import Form
    from hopscope.store.fleet.fleet import Fleet

_HOUR_S: Final = 3600
_TIMES: Final = ("%Y-%m-%d", "%Y-%m-%dT%H", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M")
_PART: Final = click.FloatRange(0, 1, min_open=True, max_open=True)


@dataclass(frozen=True, slots=True)
class Common:
    """What the shared options say: the fleet's directory, the time, and what to print."""

    folder: Path | str
    form: Form
    given_limit: int | None
    from_: datetime | None
    until: datetime | None

    @property
    def limit(self) -> int | None:
        """Maximum rows, None for all, as of reports."""
        if self.given_limit is None:
            return SHOWN if self.form == "text" else None
        return self.given_limit or None

    @contextmanager
    def fleet(self) -> Iterator[Fleet]:
        """Open the directory; the command line's own process is confined to reading it."""
        from hopscope.store.fleet.fleet import Fleet  # noqa: PLC0415 # DuckDB and NumPy when they are needed

        if is_own_process() and not isinstance(self.folder, str):  # object storage is reached through the network
            confine()
        from_hour, until_hour = _hour(self.from_), _hour(self.until, after=True)
        if from_hour is not None and until_hour is not None and from_hour >= until_hour:
            raise UsageError("--from is not before --until", "Give them the other way round")
        with Fleet(self.folder, from_hour=from_hour, until_hour=until_hour) as fleet:
            yield fleet


def _hour(time: datetime | None, *, after: bool = False) -> int | None:
    if time is None:
        return None
    seconds = int(time.replace(tzinfo=UTC).timestamp())
    return -(-seconds // _HOUR_S) if after else seconds // _HOUR_S


def _common_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the shared options; the function takes them as one argument, `common`."""
    options = together(
        click.argument("folder", type=FLEET, metavar="FLEET"),
        section(
            TRAFFIC,
            option(
                "--from",
                "from_",
                type=click.DateTime(_TIMES),
                metavar="TIME",
                help="From this hour, UTC: 2026-11-26T13.",
                default_text="the last day",
            ),
            option("--until", type=click.DateTime(_TIMES), metavar="TIME", help="Until this hour, UTC."),
        ),
        section(OUTPUT, limit_option(), json_option("row", "docs/fleet.md")),
        section(OUTPUT, option("--csv", "as_csv", is_flag=True, help="CSV with a header line.")),
    )

    def gathered(  # noqa: PLR0913 # one parameter an option
        *,
        folder: Path | str,
        as_json: bool,
        as_csv: bool,
        limit: int | None,
        from_: datetime | None,
        until: datetime | None,
        **own: Any,  # noqa: ANN401 # the command's own options
    ) -> object:
        form = chosen_form(as_json=as_json, as_csv=as_csv)
        return function(common=Common(folder, form, limit, from_, until), **own)

    gathered.__doc__ = function.__doc__
    gathered.__name__ = function.__name__
    gathered.__dict__.update(function.__dict__)  # options that were added below this decorator
    return options(gathered)


def _hop_option(*, required: bool = False) -> Callable[[Any], Any]:
    return section(
        TRAFFIC,
        option("--hop", required=required, metavar="HOP", help="Hop, such as message or rx.core:rx.l4."),
    )


def _by_option(default: str | None) -> Callable[[Any], Any]:
    return section(
        OUTPUT,
        option(
            "-g",
            "--group-by",
            "by",
            aliases=["--by"],
            default=default,
            show_default=default is not None,
            metavar="KEY",
            help="By host, kernel, driver, another fact, or a label of hosts.csv, such as rack.",
        ),
    )


def _chance_options(function: Callable[..., Any]) -> Callable[..., Any]:
    from hopscope.verbs.fleet.chance import FALSE_RATE, LEAST_DELTA  # noqa: PLC0415 # of this function

    return section(
        OUTPUT,
        option(
            "--false-rate",
            type=_PART,
            default=FALSE_RATE,
            show_default=True,
            metavar="PART",
            help="Which part of what is found may be due to chance.",
        ),
        option(
            "--least-delta",
            type=click.FloatRange(0, 1),
            default=LEAST_DELTA,
            show_default=True,
            metavar="DELTA",
            help="Leave out smaller effects (Cliff's delta).",
        ),
    )(function)


def _names(listed: str) -> list[str]:
    """Return the names of a list with commas."""
    return list(dict.fromkeys(filter(None, map(str.strip, listed.split(",")))))


@click.group("fleet", short_help="Ask questions of many hosts at once.")
def command() -> None:
    """Ask questions of the histograms of many hosts, minute by minute, of months, and of their recordings.

    FLEET is a directory that `hopscope fleet add` and `hopscope serve --fleet` fill. Without --from and --until, the
    last day that it has is read. No privileges are needed. docs/fleet.md describes each question, and how sure its
    answer is. `report` asks the recordings that `add --raw` kept (docs/fleet-recordings.md).
    """


@command.command(
    "add",
    cls=Command,
    short_help="Add recordings to a fleet.",
    examples=(
        ("Add two recordings", "hopscope fleet add trace-a trace-b --to fleet"),
        ("Keep the recordings of all hosts, too", "hopscope fleet add --raw hopscope-recording --to fleet"),
    ),
)
@section(
    OUTPUT,
    option("--to", "folder", required=True, type=FLEET, metavar="FLEET", help="Directory of the fleet."),
    option("--raw", is_flag=True, help="Keep the recordings, too, for `fleet report`."),
)
@click.argument("traces", nargs=-1, required=True, type=PATH, metavar="TRACE...")
def add(*, folder: Path | str, raw: bool, traces: tuple[Path, ...]) -> int:
    """Add the hops, messages and drops of recordings to a fleet's directory, which is made if it is not there.

    A hop is called FROM:TO after its two probe points; `message` is the time of messages that were read on the host,
    from their first point there to the read. What is there already is not added again. Recordings of several hosts add
    each of them. With --raw, each hour of a recording is kept as a trace of its own, which every command that reads
    recordings opens (docs/fleet-recordings.md); the exit code is 1 if one cannot be kept.
    """
    from hopscope.gate import tell  # noqa: PLC0415
    from hopscope.recorded.which import which_recording  # noqa: PLC0415
    from hopscope.store.fleet.objects import place_of  # noqa: PLC0415 # as above
    from hopscope.term.format import plural  # noqa: PLC0415
    from hopscope.verbs.fleet.add import add_recording  # noqa: PLC0415

    try:
        if not isinstance(folder, str):
            folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder} cannot be created: {error.strerror}", "Give another directory with --to") from error
    if raw and isinstance(folder, str):
        raise UsageError("Recordings are kept in a directory, not in object storage", "Leave out --raw")
    place, code = place_of(folder), 0
    for trace, found in [(trace, which_recording(trace)) for trace in traces]:
        added, there = add_recording(place, found)
        already = f", {there:,} of which were there" if there else ""
        tell(f"hopscope: {trace}: {plural(added + there, 'batch', 'batches')}{already}")
        if raw and not isinstance(folder, str):
            code = max(code, keep(found, folder))
    return code


@command.command(
    "compact",
    cls=Command,
    short_help="Pack the batches of each hour, and remove what is old.",
    examples=(
        ("Pack what is over, hourly, as from a timer", "hopscope fleet compact fleet"),
        ("Keep 90 days, and at most 200 GiB", "hopscope fleet compact fleet --older-than 90d --keep-size 200G"),
    ),
)
@section(
    OTHER,
    option("--older-than", type=Age(), metavar="AGE", help="Remove histograms that are older, e.g. 90d."),
    option("--raw-older-than", type=Age(), metavar="AGE", help="Remove recordings that are older, e.g. 2d."),
    option(
        "--keep-size",
        type=Size(),
        metavar="SIZE",
        help="Then remove the oldest until the rest fits, recordings first, e.g. 200G.",
    ),
)
@click.argument("folder", type=FLEET, metavar="FLEET")
def compact(
    *, folder: Path | str, older_than: float | None, raw_older_than: float | None, keep_size: float | None
) -> None:
    """Make one file of each table of the many that hosts wrote in an hour that is over, and remove what is too old.

    It can be killed at any moment: the next run completes or removes what was begun, and no row counts twice. Replaced
    files stay for a quarter of an hour, as somebody may be reading them.
    """
    import time  # noqa: PLC0415

    from hopscope.store.fleet import batches  # noqa: PLC0415 # as above
    from hopscope.store.fleet.objects import place_of  # noqa: PLC0415
    from hopscope.term.format import plural  # noqa: PLC0415

    place, now_hour = place_of(folder), int(time.time()) // _HOUR_S
    if not place.exists():
        raise UsageError(f"{place.shown} has no histograms of a fleet", "`hopscope fleet add TRACE --to DIR` fills one")
    since, raw_since = (None if age is None else now_hour - int(age // _HOUR_S) for age in (older_than, raw_older_than))
    most = None if keep_size is None else int(keep_size)
    removed, recordings = batches.keep(place, since_hour=since, raw_since_hour=raw_since, most_bytes=most)
    packs, packed = batches.compact(place, before_hour=now_hour)
    click.echo(
        f"packed {plural(packed, 'batch', 'batches')} of {plural(packs, 'hour')}; removed"
        f" {plural(removed, 'batch', 'batches')} and {plural(recordings, 'recording')}"
    )


@command.command(
    "hosts",
    cls=Command,
    short_help="Which hosts there are, what they are, and when they were measured.",
    examples=(
        ("Which hosts are there?", "hopscope fleet hosts fleet"),
        ("All of a week, as CSV", "hopscope fleet hosts fleet --from 2026-11-19 --csv"),
    ),
)
@_common_options
def hosts(*, common: Common) -> None:
    """Show each boot of each host: kernel, driver, from when to when it was measured, and what is missing."""
    from hopscope.verbs.fleet import hosts as analysis  # noqa: PLC0415 # as above

    with common.fleet() as fleet:
        show(analysis.hosts(fleet, limit=common.limit), common.form)


@command.command(
    "differs",
    cls=Command,
    short_help="Which hosts, racks, kernels or drivers have a hop that differs from the rest.",
    examples=(
        ("Which hosts differ, on any hop?", "hopscope fleet differs fleet"),
        ("Is a kernel slower to wake readers?", "hopscope fleet differs fleet -g kernel --hop rx.tcp_wake"),
    ),
)
@_hop_option()
@_by_option("host")
@_chance_options
@_common_options
def differs(*, common: Common, hop: str | None, by: str, false_rate: float, least_delta: float) -> None:
    """Show the hosts, or groups of them, whose durations are longer or shorter than those of the rest.

    Each hour of a host is compared with the same hour of all others. Hosts and hours are what is counted, not packets:
    millions of these make any difference significant. The largest effect comes first.
    """
    from hopscope.verbs.fleet import differs as analysis  # noqa: PLC0415 # as above

    with common.fleet() as fleet:
        found = analysis.differs(
            fleet, hop=hop, by=by, false_rate=false_rate, least_delta=least_delta, limit=common.limit
        )
        show(found, common.form)


@command.command(
    "began",
    cls=Command,
    short_help="When a hop of a host changed.",
    examples=(
        ("Since when is a host slow?", "hopscope fleet began fleet --hosts web-17 --hop message"),
        ("Within a week", "hopscope fleet began fleet --hosts web-17 --hop message --from 2026-11-19"),
    ),
)
@section(TRAFFIC, option("--hosts", required=True, metavar="A,B,...", help="These hosts."))
@_hop_option(required=True)
@_common_options
def began(*, common: Common, hosts: str, hop: str) -> None:
    """Show when the durations of a hop of a host changed most, compared with all other hosts, and how sure that is.

    The interval from the earliest to the latest minute has the change with 95 % confidence.
    """
    from hopscope.verbs.fleet import began as analysis  # noqa: PLC0415 # as above

    with common.fleet() as fleet:
        show(analysis.began(fleet, hosts=_names(hosts), hop=hop), common.form)


@command.command(
    "common",
    cls=Command,
    short_help="What some hosts have in common that the others have not.",
    examples=(
        ("What do three slow hosts have in common?", "hopscope fleet common fleet --hosts web-3,web-17,web-21"),
        ("And all that differ on a hop?", "hopscope fleet common fleet --hop message"),
    ),
)
@section(
    TRAFFIC,
    option("--hosts", metavar="A,B,...", help="These hosts.", default_text="those that `differs` finds"),
)
@_hop_option()
@_chance_options
@_common_options
def common_facts(*, common: Common, hosts: str | None, hop: str | None, false_rate: float, least_delta: float) -> None:
    """Show which kernel, driver, setting, offload or label these hosts have, and the others have not.

    Facts come from the recordings, and labels from hosts.csv in the directory (docs/fleet.md).
    """
    from hopscope.verbs.fleet import common as analysis  # noqa: PLC0415 # as above
    from hopscope.verbs.fleet.differs import differing  # noqa: PLC0415

    if hosts is not None and hop is not None:
        raise UsageError("--hop is for the hosts that `differs` finds, and --hosts names them", "Omit one of them")
    with common.fleet() as fleet:
        names = _names(hosts or "")
        if hosts is None:
            found, _ = differing(fleet, hop=hop, by="host", false_rate=false_rate, least_delta=least_delta)
            names = list(dict.fromkeys(each.group for each in found))
        if not names:
            raise HopscopeError("No host differs from the rest", "Name some with --hosts")
        show(analysis.common(fleet, hosts=names, false_rate=false_rate, limit=common.limit), common.form)


@command.command(
    "drops",
    cls=Command,
    short_help="Who drops packets, where and why.",
    examples=(
        ("Which hosts drop most?", "hopscope fleet drops fleet"),
        ("Which drivers?", "hopscope fleet drops fleet -g driver"),
    ),
)
@_by_option("host")
@_common_options
def drops(*, common: Common, by: str) -> None:
    """Show rates of dropped packets by host, or group of hosts, reason and place, the highest first."""
    from hopscope.verbs.fleet import drops as analysis  # noqa: PLC0415 # as above

    with common.fleet() as fleet:
        show(analysis.drops(fleet, by=by, limit=common.limit), common.form)


@command.command(
    "objective",
    cls=Command,
    short_help="Which share of durations is above a limit: error budgets.",
    examples=(
        ("How many messages took over 10 ms?", "hopscope fleet objective fleet --hop message --above 10ms"),
        (
            "Which roles of hosts.csv use up their budget?",
            "hopscope fleet objective fleet --hop message --above 10ms -g role",
        ),
    ),
)
@_hop_option(required=True)
@section(
    TRAFFIC,
    option("--above", required=True, type=Duration(), metavar="DURATION", help="Limit, e.g. 500us or 10ms."),
    option(
        "--target",
        type=click.FloatRange(0, 100, max_open=True),
        default=99.9,
        show_default=True,
        metavar="PERCENT",
        help="How many are to be below it.",
    ),
)
@_by_option(None)
@_common_options
def objective(*, common: Common, hop: str, above: float, target: float, by: str | None) -> None:
    """Show the share of a hop's durations above a limit, between exact bounds, and the part of the error budget used.

    A histogram says of the durations in the bucket of the limit only that they may be above it: a limit that is the
    upper bound of a bucket has no such doubt.
    """
    from hopscope.verbs.fleet import objective as analysis  # noqa: PLC0415 # as above

    with common.fleet() as fleet:
        found = analysis.objective(fleet, hop=hop, limit_ns=int(above), by=by, target=target, limit=common.limit)
        show(found, common.form)


command.add_command(report)
