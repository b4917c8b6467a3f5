# SPDX-License-Identifier: Apache-2.0
"""What is measured for metrics: plain data, which the process that serves need not understand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hopscope.verbs.serve.tally import Tally

# A socket that is looked for where it usually is.
AUTO: Final = "auto"


@dataclass(frozen=True, slots=True)
class Budget:
    """What measuring may cost.

    Attributes
    ----------
    percent
        Of one CPU.
    must_hold
        Whether what cannot be measured within it is not measured at all; else, all of it is.
    """

    percent: float
    must_hold: bool


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is measured.

    Attributes
    ----------
    collected
        What `--collect` takes.
    interval_s
        Between readings.
    group_by, most_groups
        As of :class:`~hopscope.verbs.serve.families.Families`.
    budget
        What measuring hops may cost, with all else that is measured; None: all is measured.
    chosen
        The filters, by the options' names in Python.
    exemplars
        Whether the slowest message of each interval is looked for.
    tally
        What the flight recorder does; None: there is none.
    pushes
        What became of pushed metrics; None: none are pushed.
    kubernetes
        The socket of the container runtime that knows the names of pods, or :data:`AUTO`;
        None: containers have their ids.
    """

    collected: Sequence[str]
    interval_s: float
    group_by: str | None
    most_groups: int
    budget: Budget | None
    chosen: Mapping[str, Any]
    exemplars: bool = False
    tally: Tally | None = None
    pushes: Tally | None = None
    kubernetes: str | None = None
