# SPDX-License-Identifier: Apache-2.0
"""What is asked of a fleet."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hopscope.store.fleet.raw import HOUR_NS, hour_ns

if TYPE_CHECKING:
    from hopscope.store.fleet.raw import Leaf
    from hopscope.verbs.fleet.raw.question import Question


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked; it can be sent to another process.

    Attributes
    ----------
    question
        Its name.
    by_host
        Whether there is a line for each host.
    from_ns, until_ns
        Only this time, CLOCK_REALTIME; None: no bound.
    limit
        Lines at most; None: all.
    most
        How many of the slowest there are, of questions that have these.
    limits
        By which the limits on a recording's size are raised.
    """

    question: str
    by_host: bool = False
    from_ns: int | None = None
    until_ns: int | None = None
    limit: int | None = None
    most: int = 100
    limits: float = 1.0

    @property
    def asked(self) -> Question:
        """The question."""
        from hopscope.verbs.fleet.raw.questions import QUESTIONS  # noqa: PLC0415 # they need pyarrow, a name does not

        found = QUESTIONS[self.question]
        found = found.by_host or found if self.by_host else found
        return replace(found, merge=found.merge.replace("{most}", str(self.most)))

    def wants(self, leaf: Leaf) -> bool:
        """Tell whether a trace may have something of that time: it has no more than an hour."""
        begins = hour_ns(leaf.hour)
        return (self.until_ns is None or begins < self.until_ns) and (
            self.from_ns is None or begins + HOUR_NS > self.from_ns
        )
