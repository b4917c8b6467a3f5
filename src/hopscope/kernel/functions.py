# SPDX-License-Identifier: Apache-2.0
"""Calls and returns of the kernel's functions, recorded as tracepoints are.

By the probes that perf_event_open(2) makes (the PMU ``kprobe``), not by those of tracefs: they have no name, and the
kernel takes them away with the file descriptor, whatever ends this process. There is one a CPU; what happens on the
others, each of them passes over.

What is not seen, and not counted as lost: what the kernel does while it handles another probe on that CPU; returns of
more calls at once than it keeps in mind (register_kretprobe(): as many as its CPUs, newer ones at least 10).
"""

from __future__ import annotations

import difflib
import errno
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from hopscope.errors import KernelError, LoadError, UsageError
from hopscope.kernel.kallsyms import KALLSYMS
from hopscope.kernel.tracepoint_columns import CALLER, EventColumns
from hopscope.kernel.tracepoint_format import Field
from hopscope.libbpf.perf_event import KPROBE_PMU, FunctionProbe

if TYPE_CHECKING:
    from collections.abc import Iterable

CALLS: Final = "function"
RETURNS: Final = "return"
# Returns come first: of probes on a function, the kernel asks the one that came last first, and one that awaits a
# return puts a trampoline's address where that of the caller was, which old kernels do not see through (before 5.15).
KINDS: Final = (RETURNS, CALLS)
# A call's stack: the function, and its caller. A return's: the caller.
_DEPTHS: Final = {CALLS: 2, RETURNS: 1}
# A return's own bytes, struct kretprobe_trace_entry_head (kernel/trace/trace.h): what all events have, the function,
# where it returns to. With one probe a CPU, the latter is right before Linux 5.15 alone; later, it is the trampoline's
# for all but one, and the stack is right: kernel commit df91c5bccb0c ("kprobes: Setup instruction pointer in
# __kretprobe_trampoline_handler"). Another of its series, adf8a61a940c, renamed the trampoline.
_RETURN_FIELDS: Final = (Field(CALLER.name, CALLER.meaning, 16, 8, 8, 1),)
_OLD_TRAMPOLINE: Final = "kretprobe_trampoline"
_PATTERN: Final = re.compile(r"[*?\[]")
# What register_kprobe() and its callers say of functions; other errors are about the machine, or rights.
_NOT_THIS_ONE: Final = frozenset({errno.EINVAL, errno.ENOENT, errno.EILSEQ, errno.EADDRNOTAVAIL, errno.EOPNOTSUPP})
_CLOSE: Final = 3


@dataclass(frozen=True, slots=True)
class FunctionEvent:
    """The calls or the returns of a function, which are wanted."""

    kind: str
    name: str
    pmu: int
    config: int
    depth: int
    columns: EventColumns
    filter: Literal[""] = ""

    @property
    def is_function(self) -> bool:
        """It is one."""
        return True

    @property
    def label(self) -> str:
        """As ``-e`` names it."""
        return f"{self.kind}:{self.name}"

    def open(self, cpu: int, *, recorded: bool = True) -> FunctionProbe:
        """Make the probe, disabled; of one that is not `recorded`, calls or returns are counted alone.

        Raises
        ------
        KernelError
            The kernel refuses, this function or any.
        """
        try:
            return FunctionProbe(self.name, self.pmu, self.config, self.depth, cpu, recorded=recorded)
        except LoadError as error:
            if error.errno not in _NOT_THIS_ONE:
                raise
            raise KernelError(
                f"This kernel does not allow probes on its function {self.name} ({error.reason})",
                "Record a caller or a callee; functions that probes need themselves are excluded",
            ) from error


def require_one(kind: str, name: str, filter_text: str) -> None:
    """Return if that can be recorded as far as its text tells.

    Raises
    ------
    UsageError
        It is a pattern, or has a filter.
    """
    if _PATTERN.search(name):
        raise UsageError(
            f"'{kind}:{name}' is a pattern, which is not allowed for functions: probes on thousands of them would "
            "stall the kernel",
            f"Name each function: -e {kind}:udp_sendmsg -e {kind}:tcp_sendmsg",
        )
    if filter_text:
        raise UsageError(
            f"'{kind}:{name}' cannot have a filter: a function has no fields",
            f"Record {kind}:{name}, and filter its rows with `hopscope sql`",
        )


def function_events(wanted: Iterable[tuple[str, str]]) -> list[FunctionEvent]:
    """Return the events for kinds and names of functions, each once.

    Raises
    ------
    KernelError
        This kernel has no probes.
    UsageError
        It has no such function, or several.
    """
    distinct = sorted(dict.fromkeys(wanted), key=lambda each: KINDS.index(each[0]))
    if not distinct:
        return []
    try:
        pmu = int((KPROBE_PMU / "type").read_text())
        # "config:0": the bit's place.
        returns = 1 << int((KPROBE_PMU / "format" / "retprobe").read_text().partition(":")[2])
    except OSError as error:
        raise KernelError(
            "This kernel has no kprobes, which probes on functions need",
            "Use tracepoints, which `hopscope probes --events '*:*'` lists, or boot a kernel with "
            "CONFIG_KPROBE_EVENTS=y",
        ) from error
    known = Counter(re.findall(r"^\S+ [tTwW] ([^\s]+)", KALLSYMS.read_text(), re.MULTILINE))
    for _, name in distinct:
        _require_function(name, known)
    old = _OLD_TRAMPOLINE in known
    return [_event(kind, name, pmu, returns if kind == RETURNS else 0, old=old) for kind, name in distinct]


def _event(kind: str, name: str, pmu: int, config: int, *, old: bool) -> FunctionEvent:
    meaning = f"the kernel's function {name} {'is called' if kind == CALLS else 'returns'}"
    depth = 0 if kind == RETURNS and old else _DEPTHS[kind]
    columns = EventColumns(kind, name, () if depth else _RETURN_FIELDS, meaning, depth=depth)
    return FunctionEvent(kind, name, pmu, config, depth, columns)


def _require_function(name: str, known: Counter[str]) -> None:
    """Raise if it is no function, or several: before 6.7 the kernel takes any of these and says nothing."""
    if name not in known:
        raise _unknown(name, known)
    if known[name] > 1:
        raise UsageError(
            f"This kernel has {known[name]} functions named {name}, and a probe cannot distinguish them",
            "Record a caller or a callee",
        )


def _unknown(name: str, known: Iterable[str]) -> UsageError:
    # Parts that the compiler has split off or changed (name.isra.0) come first; to compare with all takes seconds.
    close = sorted(each for each in known if each.startswith(f"{name}."))[:_CLOSE]
    close = close or difflib.get_close_matches(name, [each for each in known if each[:2] == name[:2]], _CLOSE)
    step = f"Did you mean {' or '.join(close)}?" if close else f"{KALLSYMS} has all of them; others were inlined"
    return UsageError(f"This kernel has no function {name}", step)
