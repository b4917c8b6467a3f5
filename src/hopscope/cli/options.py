# SPDX-License-Identifier: Apache-2.0
"""The options that verbs share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click

from hopscope.cli.seconds import Seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Decorated = TypeVar("Decorated", bound="Callable[..., Any]")
_DAY_S = 86_400


def report_options(page: str, *, histogram: bool = True) -> Callable[[Decorated], Decorated]:
    """Add how often, how long and in which form to report; `page` documents the JSON."""
    forms = [click.option("--histogram", is_flag=True, help="Full histograms instead of the table.")]
    return together(
        click.option(
            "-i", "--interval", type=Seconds(0.1, _DAY_S), default=1.0, show_default=True, help="Time between reports."
        ),
        click.option("-d", "--duration", type=Seconds(0.1, 365 * _DAY_S), help="Stop after this time."),
        *(forms if histogram else ()),
        click.option("--json", "as_json", is_flag=True, help=f"One JSON object a line and report ({page})."),
    )


def hop_options(groups: Sequence[str]) -> Callable[[Decorated], Decorated]:
    """Add which hops, and by what to group them."""
    return together(
        click.option(
            "--hop", "hops", multiple=True, metavar="HOP", help="Only this hop; may be repeated, as all filters."
        ),
        click.option("-g", "--group-by", type=click.Choice(groups), help="A line for each of these."),
        click.option(
            "--max-groups",
            type=click.IntRange(1, 4096),
            metavar="N",
            default=64,
            show_default=True,
            help="So many groups have a line of their own; the rest share the line `other`.",
        ),
    )


def socket_options(does: str, what: str) -> Callable[[Decorated], Decorated]:
    """Add the filters of sockets and processes, of which each `does` something with `what`."""
    return together(
        click.option(
            "-p", "--pid", "pids", type=int, metavar="PID", multiple=True, help=f"Only what this process {does}s."
        ),
        click.option(
            "-c", "--comm", "comms", metavar="NAME", multiple=True, help=f"Only what processes of this name {does}."
        ),
        click.option(
            "--cgroup", "cgroups", multiple=True, metavar="PATH|ID", help="Only sockets of this cgroup and those below."
        ),
        click.option(
            "--netns",
            "namespaces",
            multiple=True,
            metavar="NAME|PID|INODE|self",
            help="Only this network namespace.",
        ),
        click.option(
            "--address", "addresses", multiple=True, metavar="ADDRESS[/LEN]", help=f"Only {what} from or to it."
        ),
        click.option(
            "--port",
            "ports",
            type=click.IntRange(1, 65535),
            metavar="N",
            multiple=True,
            help=f"Only {what} from or to it.",
        ),
    )


def attach_options() -> Callable[[Decorated], Decorated]:
    """Add how to attach, and the command to run."""
    return together(
        click.option(
            "--way", "ways", multiple=True, metavar="POINT=WAY", help="Attach a point this way (hopscope probes)."
        ),
        click.option("--plan", "show_plan", is_flag=True, help="Show how each probe point is attached."),
        click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND...]"),
    )


def together(*decorators: Callable[[Any], Any]) -> Callable[[Decorated], Decorated]:
    """Return a decorator that applies all of these; help shows their options in this order."""

    def decorate(function: Decorated) -> Decorated:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate
