# SPDX-License-Identifier: Apache-2.0
"""io_uring's socket calls: their hooks, which every packet passes, are attached only where io_uring is in use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.probes.attach import attach
from hopscope.probes.catalogue import POINTS

if TYPE_CHECKING:
    from hopscope.libbpf import BpfObject
    from hopscope.probes.resolve import Plan

HOOKS: Final = "cpu.uring"
_TASKS: Final = "cpu.uring_tasks"
NAMES: Final = (HOOKS, _TASKS)


def programs(plan: Plan) -> tuple[str, ...]:
    """Return the programs of a plan that :class:`UringWatch` attaches."""
    hooks = plan.chosen(POINTS[HOOKS]) if POINTS[HOOKS] in plan.points else None
    return hooks.programs if hooks else ()


def uses_uring(bpf: BpfObject) -> bool:
    """Tell whether any thread that we can see has used io_uring, and may go on to."""
    return bool(bpf.programs["cpu_uring_tasks"].iterate())


class UringWatch:
    """Attaches the hooks: at once where a thread has used io_uring, else when the first one is seen to.

    The kernel side counts each system call and each turn of a thread of io_uring that nobody watched.

    Parameters
    ----------
    bpf
        The loaded object, whose other programs are attached already: what comes after the look at the threads is seen.
    plan
        What it was loaded by.
    """

    def __init__(self, bpf: BpfObject, plan: Plan) -> None:
        self._bpf = bpf
        self._unwatched = bpf.maps["counters"].array()["uring"]
        self._waiting = programs(plan)
        by_functions = POINTS[HOOKS] not in plan.points  # then its calls are seen as all others are
        if by_functions or HOOKS in plan.forced or (plan.chosen(POINTS[_TASKS]) and uses_uring(bpf)):
            self._attach()

    def look(self) -> None:
        """Attach if io_uring has come into use; to be called several times a second."""
        if self._waiting and self._unwatched.any():
            self._attach()

    def _attach(self) -> None:
        for name in self._waiting:
            attach(self._bpf.programs[name], "tp_btf")
        self._waiting = ()
        self._bpf.data()["uring_watched"] = True
