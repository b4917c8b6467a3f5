# SPDX-License-Identifier: Apache-2.0
"""The options that verbs share: one name and one meaning wherever they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from hopscope.errors import UsageError
from hopscope.live.help import MEASURE, OUTPUT, TRAFFIC, option, section, together
from hopscope.live.seconds import Seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

Decorated = TypeVar("Decorated", bound="Callable[..., Any]")
_DAY_S: Final = 86_400
_YEAR_S: Final = 365 * _DAY_S
_MOST_ROWS: Final = 1 << 20
# Rows that people are shown where they do not say how many; programs get all.
SHOWN: Final = 20
_PROFILES: Final = ("messages", "packets", "rx", "tx", "tcp", "calls", "cpu", "drops", "all")


def interval_option() -> Callable[[Decorated], Decorated]:
    """Add how often to report."""
    return option(
        "-i", "--interval", type=Seconds(0.1, _DAY_S), default=1.0, show_default=True, help="Time between reports."
    )


def duration_option() -> Callable[[Decorated], Decorated]:
    """Add how long to measure."""
    return option(
        "-d", "--duration", type=Seconds(0.1, _YEAR_S), help="Stop after this time.", default_text="until Ctrl-C"
    )


def profile_option(text: str) -> Callable[[Decorated], Decorated]:
    """Add which sets of the recorder's probe points to attach."""
    return option(
        "-P",
        "--profile",
        "profiles",
        type=click.Choice(_PROFILES),
        metavar="PROFILE",
        multiple=True,
        help=text,
        default_text="messages",
    )


def flight_memory_option(default: int, text: str) -> Callable[[Decorated], Decorated]:
    """Add how much memory a flight recorder may take for events, in MiB."""
    return option(
        "--flight-memory",
        type=click.IntRange(1, 1 << 20),
        metavar="MIB",
        default=default,
        show_default=True,
        help=text,
    )


def point_option() -> Callable[[Decorated], Decorated]:
    """Add which of the recorder's probe points to attach besides."""
    return option("--point", "points", metavar="POINT", multiple=True, help="Another probe point, such as call.enter.")


def event_option(text: str) -> Callable[[Decorated], Decorated]:
    """Add which tracepoints and functions of the kernel."""
    return option("-e", "--event", "events", metavar="EVENT", multiple=True, help=text)


# Sizes of a ring, MiB: the kernel takes powers of two.
BUFFERS: Final = tuple(str(1 << power) for power in range(9))


def buffer_option() -> Callable[[Decorated], Decorated]:
    """Add how large the recorder's rings are."""
    return option(
        "--buffer",
        type=click.Choice(BUFFERS),
        default="16",
        show_default=True,
        metavar="MIB",
        help="Size of each CPU's ring.",
    )


def json_option(what: str, page: str) -> Callable[[Decorated], Decorated]:
    """Add JSON Lines, one object `what`; `page` documents them."""
    return option("--json", "as_json", is_flag=True, help=f"One JSON object per {what} ({page}).")


def limit_option() -> Callable[[Decorated], Decorated]:
    """Add how many rows to print; None: nothing was said, 0: all."""
    return option(
        "--limit",
        aliases=["--top"],
        type=click.IntRange(0, _MOST_ROWS),
        metavar="N",
        help=f"Maximum rows (0: unlimited). [{SHOWN} in tables]",
    )


def rows_shown(limit: int | None) -> int | None:
    """Return how many rows of a table --limit asks for; None: all."""
    return SHOWN if limit is None else limit or None


def timing_options() -> Callable[[Decorated], Decorated]:
    """Add how often to report, and how long to measure."""
    return section(MEASURE, interval_option(), duration_option())


def check_budget(budget: float | None, *, others: Mapping[str, bool]) -> None:
    """Refuse what a budget excludes: option → whether it is given.

    Raises
    ------
    UsageError
        One is.
    """
    for name, given in others.items():
        if budget is not None and given:
            raise UsageError(f"--budget measures a part, which {name} cannot have", "Give one of the two")


class _Budget(click.FloatRange):
    """Per cent of one CPU, or none."""

    name = "percentage"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401
        return None if value == "none" else super().convert(value, param, ctx)


def budget_option(
    default: str | None = None, *, what: str = "Measure", title: str = MEASURE
) -> Callable[[Decorated], Decorated]:
    """Add what measuring may cost; by default, whatever it costs."""
    return section(
        title,
        option(
            "--budget",
            type=_Budget(0, 100, min_open=True),
            metavar="PERCENT",
            default=default,
            help=f"{what} a part, such that it costs at most PERCENT of one CPU."
            + (f" none: measure all. [default: {default}]" if default else ""),
        ),
    )


def form_options(page: str, *, histogram: bool = False, limit: bool = False) -> Callable[[Decorated], Decorated]:
    """Add in which form a verb reports; `page` documents the JSON."""
    forms = [option("--histogram", is_flag=True, help="Print full histograms instead of the table.")]
    return section(
        OUTPUT,
        *([limit_option()] if limit else []),
        *(forms if histogram else []),
        json_option("line and report", page),
    )


def group_option(
    groups: Sequence[str],
    *,
    default: str | tuple[str, ...] | None = None,
    multiple: bool = False,
    aliases: Sequence[str] = (),
) -> Callable[[Decorated], Decorated]:
    """Add by what to group; several where `multiple`."""
    more = " (repeatable)" if multiple else ""
    return section(
        OUTPUT,
        option(
            "-g",
            "--group-by",
            aliases=aliases,
            type=click.Choice(groups),
            metavar="KEY",
            multiple=multiple,
            default=default,
            show_default=default is not None,
            help=f"One row per {listed(groups)}{more}.",
        ),
    )


def max_groups_option(default: int, rest: str) -> Callable[[Decorated], Decorated]:
    """Add how many groups are told apart; `rest` is the name of the row of all others."""
    return section(
        OUTPUT,
        option(
            "--max-groups",
            type=click.IntRange(1, 4096),
            metavar="N",
            default=default,
            show_default=True,
            help=f"Maximum groups; the rest: `{rest}`.",
        ),
    )


def message_options() -> Callable[[Decorated], Decorated]:
    """Add which single messages."""
    return section(
        OUTPUT,
        option("--events", is_flag=True, help="One line per message; the table at the end."),
        option("--slowest", type=click.IntRange(1, 1000), metavar="N", help="The N slowest messages below each table."),
    )


def hop_option() -> Callable[[Decorated], Decorated]:
    """Add which hops."""
    return section(MEASURE, option("--hop", "hops", multiple=True, metavar="HOP", help="Only this hop (repeatable)."))


def netns_option(named_by: str = "name, PID, inode or `self`") -> Callable[[Decorated], Decorated]:
    """Add which network namespaces."""
    return section(
        TRAFFIC,
        option(
            "--netns",
            "namespaces",
            multiple=True,
            metavar="NETNS",
            help=f"Only this namespace: {named_by}.",
        ),
    )


def interface_option() -> Callable[[Decorated], Decorated]:
    """Add which interfaces."""
    return section(
        TRAFFIC,
        option("--interface", "interfaces", multiple=True, metavar="NAME[@NETNS]", help="Only this interface."),
    )


def protocol_option() -> Callable[[Decorated], Decorated]:
    """Add which transport protocol."""
    return section(
        TRAFFIC,
        option("--protocol", type=click.Choice(("tcp", "udp")), metavar="tcp|udp", help="Only this protocol."),
    )


def port_option() -> Callable[[Decorated], Decorated]:
    """Add which ports."""
    return section(
        TRAFFIC,
        option(
            "--port",
            "ports",
            type=click.IntRange(1, 65535),
            metavar="N",
            multiple=True,
            help="Only this source or destination port.",
        ),
    )


def address_option() -> Callable[[Decorated], Decorated]:
    """Add which addresses."""
    return section(
        TRAFFIC,
        option(
            "--address",
            "addresses",
            multiple=True,
            metavar="ADDRESS[/LEN]",
            help="Only this source or destination, or network.",
        ),
    )


def process_options(does: str) -> Callable[[Decorated], Decorated]:
    """Add whose packets: what processes do with them (`does`: ``reads``, ``sends``, ``uses``)."""
    return section(
        TRAFFIC,
        option("-p", "--pid", "pids", type=int, metavar="PID", multiple=True, help=f"Only what this process {does}."),
        option(
            "-c",
            "--comm",
            "comms",
            metavar="COMM",
            multiple=True,
            help=f"Only what processes with this name {does[:-1]}.",
        ),
    )


def cgroup_option() -> Callable[[Decorated], Decorated]:
    """Add whose packets, by cgroup."""
    return section(
        TRAFFIC,
        option("--cgroup", "cgroups", multiple=True, metavar="PATH|ID", help="Only this cgroup and those below it."),
    )


def socket_options(does: str) -> Callable[[Decorated], Decorated]:
    """Add the filters of sockets and processes, which do (`does`) something with packets."""
    return together(port_option(), address_option(), process_options(does), cgroup_option(), netns_option())


def attach_options(*, plan: bool = True, title: str = MEASURE) -> Callable[[Decorated], Decorated]:
    """Add how to attach (in the section `title`), and the command to run."""
    shown = [section(OUTPUT, option("--plan", "show_plan", is_flag=True, help="Show how each probe is attached."))]
    return together(
        section(
            title,
            option(
                "--attach",
                "ways",
                aliases=["--way"],
                multiple=True,
                metavar="POINT=METHOD",
                help="Attach a probe point this way (see `probes`).",
            ),
        ),
        *(shown if plan else []),
        command_argument(),
    )


def command_argument() -> Callable[[Decorated], Decorated]:
    """Add the command to run beside the measurement, for a :class:`~hopscope.live.help.CommandBeside`."""
    return click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND...]")


def listed(names: Sequence[str]) -> str:
    """Return names as a sentence has them: ``a, b or c``."""
    return " or ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
