# SPDX-License-Identifier: Apache-2.0
"""What traffic is shown: the options of ``top``, and a line that the user typed in the same syntax."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, Final

from hopscope.errors import UsageError
from hopscope.live.words import values_of, words_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    import click

# Names in Python of the options that select traffic.
FILTERS: Final = ("ports", "addresses", "pids", "comms", "cgroups", "namespaces", "interfaces", "protocol")


def parsed(command: click.Command, text: str) -> dict[str, Any]:
    """Return what a line of options selects, as the command line would understand it.

    Raises
    ------
    UsageError
        It is not what the command takes.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"The filter cannot be read: {error}") from error
    return values_of(command, FILTERS, words)


def line_of(command: click.Command, chosen: Mapping[str, Any]) -> str:
    """Return the options of a command that select the same, as far as it has them."""
    return shlex.join(words_of(command, chosen))


def narrowed(key: str, value: str) -> list[str]:
    """Return the option that selects a group, of a live verb, if there is one."""
    if key == "process" and value.endswith(")"):
        return [f"--pid={value.rpartition('(')[2][:-1]}"]
    return [f"--{key}={value}"] if key in {"netns", "cgroup"} and value not in {"other", "-"} else []
