# SPDX-License-Identifier: Apache-2.0
"""Run a verb that reports at intervals: here, or on the hosts that its options name."""

from __future__ import annotations

import contextlib
import inspect
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from hopscope.errors import UsageError
from hopscope.live.contract import NoMessages
from hopscope.live.interval import run
from hopscope.term.hosts import ALL_HOSTS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hopscope.live.contract import Collector
    from hopscope.live.interval import Reports


class _Nobody:
    """The collector of all hosts together: nothing has to be fetched from it."""

    found = NoMessages()

    def drain(self) -> None:
        """Do nothing."""


def style_of(*, as_json: bool, histogram: bool = False) -> str:
    """Return how results are printed.

    Raises
    ------
    UsageError
        They cannot be printed in two ways.
    """
    if histogram and as_json:
        raise UsageError("--histogram and --json cannot be combined", "The JSON output contains the full histograms")
    return "histogram" if histogram else "json" if as_json else "table"


def run_verb(
    collector_of: Callable[..., Collector[Any]],
    output_of: Callable[[Any, str], Reports[Any]],
    style: str,
    given: Mapping[str, Any],
) -> int:
    """Run the verb whose command is being invoked, and return the exit code.

    Parameters
    ----------
    collector_of
        Makes the verb's collector; its parameters are the options that say what is collected, here or elsewhere.
    output_of
        From a collector and its host's name (empty where there are no others), how its results are printed.
    style
        As from :func:`style_of`.
    given
        All options but those that are for the output alone.

    Raises
    ------
    HopscopeError
        It cannot be run.
    """
    timing = {"interval_s": given["interval"], "duration_s": given["duration"], "command": given["command"]}
    asked = {name: given[name] for name in inspect.signature(collector_of).parameters}
    if given["hosts"]:
        return _run_there(output_of, style, given, asked, timing)
    for option in ("ssh", "remote_command", "together"):
        if given[option]:
            raise UsageError(f"--{option.replace('_', '-')} needs --host", "Specify the hosts: --host HOST")
    collector = collector_of(**asked)
    return run(collector, output_of(collector, ""), **timing)


def _run_there(
    output_of: Callable[[Any, str], Reports[Any]],
    style: str,
    given: Mapping[str, Any],
    asked: Mapping[str, Any],
    timing: Mapping[str, Any],
) -> int:
    from hopscope.agent.connect import connect  # noqa: PLC0415 # what runs here needs none of it
    from hopscope.agent.connect_all import connected  # noqa: PLC0415
    from hopscope.agent.ssh import Ssh  # noqa: PLC0415
    from hopscope.agent.target import parse_all  # noqa: PLC0415
    from hopscope.live.hosts import HostsOutput  # noqa: PLC0415
    from hopscope.live.remote.client import RemoteCollector  # noqa: PLC0415
    from hopscope.live.remote.codec import CODECS  # noqa: PLC0415
    from hopscope.live.remote.fleet import Fleet  # noqa: PLC0415
    from hopscope.live.words import words_of  # noqa: PLC0415

    if given["together"] and style == "json":
        raise UsageError("--together and --json cannot be combined", "Each line of the JSON output names its host")
    command = click.get_current_context().command
    verb = str(command.name)
    targets, ssh = parse_all(given["hosts"]), Ssh.of(given["ssh"], given["remote_command"])
    words = words_of(command, asked)
    with contextlib.ExitStack() as stack:
        channels = stack.enter_context(connected(targets, ssh, given["tls"]))
        fleet: Fleet[Any] = Fleet(
            [
                RemoteCollector(channel, partial(connect, target, ssh.again(), given["tls"]), verb, words)
                for channel, target in zip(channels, targets, strict=True)
            ]
        )
        output: HostsOutput[Any] = HostsOutput(
            style,
            fleet=fleet,
            codec=CODECS[verb],
            outputs={host.name: output_of(host, host.name) for host in fleet.hosts},
            apart=output_of(_Nobody(), "") if given["together"] else None,
            added=output_of(_Nobody(), ALL_HOSTS),
        )
        return run(fleet, output, **timing) or int(output.incomplete)
