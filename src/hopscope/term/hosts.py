# SPDX-License-Identifier: Apache-2.0
"""Results of several hosts: whose they are, and who was not there."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from hopscope.term.json_lines import VERSION, iso

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hopscope.model.hosts import Absence
    from hopscope.model.snapshot import Kind
    from hopscope.term.json_lines import Json
    from hopscope.term.terminal import Terminal

# What stands for the name of a host where it is all of them together; no host can be called that.
ALL_HOSTS: Final = "*"


def host_heading(host: str, terminal: Terminal) -> list[str]:
    """Return the lines above a host's results."""
    return [terminal.paint(line, "bold") for line in terminal.fold("all hosts" if host == ALL_HOSTS else host)]


def absence_lines(host: str, absences: Sequence[Absence], now_ns: int, terminal: Terminal) -> list[str]:
    """Return a sentence for each time that a host was not there, as lines."""
    sentences = [f"{host}: {absence_text(absence, now_ns)}" for absence in absences]
    return [terminal.paint(line, "warn") for sentence in sentences for line in terminal.fold(sentence)]


def absence_text(absence: Absence, now_ns: int) -> str:
    """Return the sentence on an absence, without a full stop."""
    length = timedelta(seconds=max((absence.until_ns or now_ns) - absence.from_ns, 0) // 10**9)
    until = f" to {_clock(absence.until_ns)}" if absence.until_ns else ""
    return f"missing {'from' if until else 'since'} {_clock(absence.from_ns)}{until} UTC ({length}): {absence.reason}"


def absences_to_json(host: str, kind: Kind, absences: Sequence[Absence]) -> Json:
    """Return a host's absences as the object that schema ``hopscope.absences/1`` describes."""
    return {
        "schema": f"hopscope.absences/{VERSION}",
        "host": host,
        "kind": kind,
        "absences": [
            {
                "from": iso(absence.from_ns),
                "until": None if absence.until_ns is None else iso(absence.until_ns),
                "reason": absence.reason,
            }
            for absence in absences
        ],
    }


def _clock(clock_ns: int) -> str:
    return f"{datetime.fromtimestamp(clock_ns // 10**9, UTC):%H:%M:%S}"
