# SPDX-License-Identifier: Apache-2.0
"""The command that prints what a page of the screen shows."""

from __future__ import annotations

import shlex
from importlib import import_module
from typing import TYPE_CHECKING, Any

from hopscope.live.words import words_of
from hopscope.verbs.frames.filters import narrowed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import click

    from hopscope.verbs.frames.frame import Frame
    from hopscope.verbs.frames.source import Ask
    from hopscope.verbs.top.pages import Page

_OF_RECORDING = {"cpu": "report cpu", "drops": "report drops", "sockets": "report tcp", "check": "check"}


def command_line(  # noqa: PLR0913, PLR0917 # what it depends on
    page: Page,
    top: click.Command,
    chosen: Mapping[str, Any],
    keys: Sequence[str],
    folder: str,
    frame: Frame | None,
    asked: Ask | None,
) -> str:
    """Return the command.

    Parameters
    ----------
    keys
        What the page can be grouped by.
    folder
        Of the recording; empty: it is live.
    asked
        What the page asked for.
    """
    group = [f"--group-by={keys[page.by % len(keys)]}"] if page.kind == "groups" else []
    if page.kind in {"overview", "help"}:
        return _line("top", top, chosen, [], folder)
    if not folder:
        if page.kind in {"messages", "message"}:
            of_group = [word for pair in page.group for word in narrowed(*pair)]
            return _line(page.area, _verb(page.area), chosen, [*of_group, "--slowest=20"], "")
        more = ["--details"] if page.kind == "details" else group
        also = ["--sort", "trouble"] if page.area == "sockets" and not page.sort else []
        return _line(page.area, _verb(page.area), chosen, more or also, "")
    if page.kind == "message" and page.message:
        return _line("explain", _verb("explain"), chosen, [f"--message={page.message.at_ns / 1e9:.6f}"], folder)
    name = "report messages" if page.kind == "messages" else _OF_RECORDING.get(page.area, "report hops")
    command = _verb("check") if name == "check" else _verb("report").commands[name.split()[1]]  # type: ignore[attr-defined]
    window = []
    if frame and frame.rx and name.startswith("report") and asked is not None:
        window = [f"--from={frame.since_s - frame.rx.duration_s:.6f}", f"--until={frame.since_s:.6f}"]
    return _line(name, command, chosen, [*window, *group], folder)


def _verb(name: str) -> click.Command:
    found: click.Command = import_module(f"hopscope.verbs.{name}.command").command
    return found


def _line(name: str, command: click.Command, chosen: Mapping[str, Any], more: Sequence[str], folder: str) -> str:
    words = ["hopscope", *name.split(), *words_of(command, chosen), *more, *([folder] if folder else [])]
    return shlex.join(words)
