# SPDX-License-Identifier: Apache-2.0
"""Results for a program instead of the terminal: how :mod:`hopscope.api` gets what a command would print.

A program's call and a command line run the same code with the same options up to the place where the result would be
printed or the run would start. There the command asks for the handover, and leaves its result in it if there is one.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from hopscope.live.contract import Collector
    from hopscope.model.report import Report
    from hopscope.store.trace import Trace


@dataclass(slots=True)
class Handover:
    """What a command leaves for the program that runs it.

    Attributes
    ----------
    traces
        Folder → trace that the program has open already.
    reports
        In the order in which they would have been printed.
    collector
        Of a verb that reports at intervals; not entered.
    between_s
        How often that collector's rings have to be emptied; None: they need not be.
    """

    traces: Mapping[Path, Trace] = field(default_factory=dict)
    reports: list[Report] = field(default_factory=list)
    collector: Collector[Any] | None = None
    between_s: float | None = None


_CURRENT: ContextVar[Handover | None] = ContextVar("handover", default=None)


def handover() -> Handover | None:
    """Return where to leave results; None: they are to be printed."""
    return _CURRENT.get()


@contextmanager
def handed_over(traces: Mapping[Path, Trace] | None = None) -> Iterator[Handover]:
    """Yield what a command that is run inside of it leaves."""
    found = Handover(traces or {})
    token = _CURRENT.set(found)
    try:
        yield found
    finally:
        _CURRENT.reset(token)
