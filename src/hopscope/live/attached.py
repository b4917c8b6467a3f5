# SPDX-License-Identifier: Apache-2.0
"""What collectors have in common: programs that are attached by a plan while the collector is entered."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Self

from hopscope.errors import KernelError
from hopscope.live.cost import CostMeter, sample

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from types import TracebackType

    from hopscope.libbpf import BpfObject
    from hopscope.live.budget import Budget
    from hopscope.model.snapshot import PlanRow
    from hopscope.probes.resolve import Plan


class Attached(ABC):
    """Entering it attaches, leaving it detaches, whatever happened; see :mod:`hopscope.live.contract`."""

    _plan: Plan
    _cost: CostMeter
    # What keeps the cost within a limit, where there is one.
    _budget: Budget | None = None

    @abstractmethod
    def _open(self, stack: contextlib.ExitStack) -> None:
        """Load, attach and begin to count; what `stack` is given is undone at the end, or when this fails."""

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self._open(stack)
            self._opened = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._opened.close()

    def plan(self) -> list[PlanRow]:
        """Return the way that each probe point got, and the better ones with the reason against them."""
        return self._plan.rows()

    def programs(self) -> dict[str, str]:
        """Return the name and the kind of each program of the plan."""
        return self._plan.programs()

    def measure_cost(self, window_s: float) -> None:
        """Wait, and let the kernel measure the programs meanwhile; call it once an interval."""
        measure_costs([self], window_s)

    def budget_notes(self) -> list[str]:
        """Return sentences on what keeps a budget from measuring."""
        return self._budget.notes() if self._budget else []

    def _note_plan(self, bpf: BpfObject, ways: Mapping[str, str]) -> None:
        """Take note of what is attached.

        Raises
        ------
        KernelError
            A way that was asked for by name was refused.
        """
        for name, way in ways.items():
            row = next((row for row in self._plan.rows() if row.point == name and row.way == way), None)
            if row and row.status != "attached":
                raise KernelError(f"{name} cannot be attached using {way}: {row.reason}", row.next_step)
        used = self.programs()
        self._cost = CostMeter(program for program in bpf.programs.values() if program.name in used)


def measure_costs(collectors: Iterable[object], window_s: float) -> None:
    """Wait, and let the kernel measure the programs of all of these meanwhile; call it once an interval.

    Those of a budget are measured by it.
    """
    attached = [each for each in collectors if isinstance(each, Attached)]
    sample([each._cost for each in attached if not each._budget], window_s)  # noqa: SLF001 # its own class
