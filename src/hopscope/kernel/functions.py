# SPDX-License-Identifier: Apache-2.0
"""Calls and returns of the kernel's functions, recorded as tracepoints are.

By the probes that perf_event_open(2) makes (the PMU ``kprobe``), not by those of tracefs: they have no name, and the
kernel takes them away with the file descriptor, whatever ends this process. There is one a CPU; what happens on the
others, each of them passes over.

Such probes cannot read what a function is called with, as those of tracefs can. Where it is asked for, a BPF program
does, on one probe for all CPUs, and leaves out what a filter does not want; its records come into the same rings.

What is not seen, and not counted as lost: what the kernel does while it handles another probe on that CPU; returns of
more calls at once than it keeps in mind (register_kretprobe(): as many as its CPUs, newer ones at least 10).
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import re
import struct
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Self

import numpy as np

from hopscope.bpf import object_path
from hopscope.bpf.layout import (
    HOP_FETCH_DTYPE,
    HOP_FETCH_TEST_DTYPE,
    HOP_FETCHED_DTYPE,
    HopFetchLimits,
)
from hopscope.errors import KernelError, LoadError, UsageError
from hopscope.kernel.function_filter import in_order, numbers_of, parse_filter
from hopscope.kernel.function_values import FunctionTypes
from hopscope.kernel.kallsyms import KALLSYMS
from hopscope.kernel.tracepoint_columns import CALLER, STACK, EventColumns
from hopscope.kernel.tracepoint_format import Field
from hopscope.libbpf import BpfObject, Btf, online_cpus, possible_cpus
from hopscope.libbpf.perf_event import KPROBE_PMU, FunctionProbe, ProgramOutput

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from hopscope.kernel.function_values import Value
    from hopscope.libbpf import Map, Program
    from hopscope.libbpf.perf_event import RecordedEvent

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
_IF: Final = re.compile(r"\sif(?=[\s(]|$)")
_PATH: Final = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
_FUNCTION: Final = re.compile(r"[A-Za-z_][\w.$]*(?:\+(?:0[xX][0-9a-fA-F]{1,8}|[1-9]\d{0,8}|0))?")
_UNREAD: Final = (
    "values that could not be read, a bit each from the lowest on: a pointer on the way is NULL or no kernel address"
)
# Where the parts of struct hop_fetched are.
_OFFSETS: Final = {name: int(offset) for name, (_, offset, *_) in (HOP_FETCHED_DTYPE.fields or {}).items()}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked for of a function.

    Attributes
    ----------
    kind
        :data:`CALLS` or :data:`RETURNS`.
    name
        The function's.
    offset
        Of an instruction in it, in bytes; 0: where it begins.
    paths
        Values that are wanted.
    stack
        The whole stack is wanted.
    filter
        What the values have to be; empty: anything.
    """

    kind: str
    name: str
    offset: int = 0
    paths: tuple[str, ...] = ()
    stack: bool = False
    filter: str = ""

    @classmethod
    def parse(cls, kind: str, text: str) -> Self:
        """Read ``NAME[+OFFSET] [VALUE …] [stack] [if FILTER]``.

        Raises
        ------
        UsageError
            It is something else.
        """
        text = text.replace("->", ".")
        found = _IF.search(text)
        head, condition = (text[: found.start()], text[found.end() :].strip()) if found else (text, "")
        where, *words = head.split() or [""]
        _require_name(kind, where, text)
        name, _, offset = where.partition("+")
        if offset and (kind == RETURNS or words != [STACK.name] * len(words) or condition):
            raise UsageError(
                f"'{kind}:{text}' has an offset, where neither arguments nor what is returned are known",
                f"Record {CALLS}:{where}, or '{CALLS}:{where} {STACK.name}'",
            )
        for word in words:
            if not _PATH.fullmatch(word):
                raise UsageError(
                    f"'{word}' in '{kind}:{text}' is no name of a value",
                    f"Write '{CALLS}:udp_sendmsg len sk.sk_sndbuf stack if len > 1000'",
                )
        if found:
            parse_filter(condition)
        paths = dict.fromkeys(word for word in words if word != STACK.name)
        return cls(kind, name, int(offset or "0", 0), tuple(paths), STACK.name in words, condition)

    @property
    def label(self) -> str:
        """As ``-e`` names it, without values."""
        return f"{self.kind}:{self.name}" + (f"+{self.offset:#x}" if self.offset else "")

    @property
    def has_values(self) -> bool:
        """Whether more is wanted than when it was, and who called."""
        return bool(self.paths or self.stack or self.filter)


@dataclass(frozen=True, slots=True)
class FunctionEvent:
    """The calls or the returns of a function, which are wanted."""

    wanted: Wanted
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
        return self.wanted.label

    def open(self, cpu: int, *, recorded: bool = True) -> RecordedEvent:
        """Make the probe, disabled; of one that is not `recorded`, calls or returns are counted alone.

        Raises
        ------
        KernelError
            The kernel refuses, this function or any.
        """
        name, offset = self.wanted.name, self.wanted.offset
        try:
            return FunctionProbe(name, self.pmu, self.config, self.depth, cpu, offset=offset, recorded=recorded)
        except LoadError as error:
            if error.errno not in _NOT_THIS_ONE:
                raise
            where = f"{name}+{offset:#x}, which has to be where an instruction begins" if offset else name
            raise KernelError(
                f"This kernel does not allow probes on its function {where} ({error.reason})",
                "Record a caller or a callee; functions that probes need themselves are excluded",
            ) from error


@dataclass(frozen=True, slots=True)
class ValuesEvent(FunctionEvent):
    """The same with values, a stack, or a filter, by a program."""

    values: Sequence[Value] = ()

    def open(self, cpu: int, *, recorded: bool = True) -> RecordedEvent:
        """Make what the program writes to, disabled.

        Raises
        ------
        UsageError
            It is not to be recorded.
        """
        if not recorded:
            raise UsageError(
                f"{self.label} is counted without values, a stack or a filter",
                f"Count {self.label}, or use `hopscope record -e` and `hopscope sql`",
            )
        return ProgramOutput(f"{self.label} on CPU {cpu}", cpu)

    @contextlib.contextmanager
    def attached(self, outputs: Mapping[int, RecordedEvent], stacks: Map | None) -> Iterator[Program]:
        """Attach the program, which writes to these events by CPU, and puts stacks there.

        Raises
        ------
        KernelError
            The kernel refuses.
        """
        with BpfObject.open(object_path("function")) as bpf:
            bpf.maps["outputs"].set_max_entries(possible_cpus())
            if stacks:
                bpf.maps["stacks"].share(stacks)
            self._configure(bpf)
            bpf.load()
            for cpu, output in outputs.items():
                bpf.maps["outputs"].update(struct.pack("=I", cpu), struct.pack("=I", output.fd))
            probe = FunctionEvent.open(self, online_cpus()[0], recorded=False)
            program = bpf.programs["fetch_function"]
            program.attach_event(probe.fd)
            yield program

    def _configure(self, bpf: BpfObject) -> None:
        words, fetches = 0, np.zeros(HopFetchLimits.HOP_FETCHES, HOP_FETCH_DTYPE)
        for fetch, value in zip(fetches, self.values, strict=False):
            fetch["offset"][: len(value.offsets)] = value.offsets
            fetch["from"], fetch["hops"], fetch["kind"] = value.argument, len(value.offsets), value.kind
            fetch["size"] = value.read_bytes
            fetch["left"], fetch["right"] = 64 - value.first_bit - value.bits, 64 - value.bits
            fetch["is_signed"], fetch["word"] = value.signed, words
            fetch["swapped"] = value.size if value.in_network_order else 0
            words += value.words
        bpf.set_const("cfg_fetch", fetches)
        bpf.set_const("cfg_fetches", len(self.values))
        bpf.set_const("cfg_record_bytes", _OFFSETS["word"] + 8 * words)
        bpf.set_const("cfg_caller_bytes", 8 * self.depth)
        bpf.set_const("cfg_stack", int(self.wanted.stack))
        if self.wanted.filter:
            self._configure_filter(bpf)

    def _configure_filter(self, bpf: BpfObject) -> None:
        tests, paths = (
            np.zeros(HopFetchLimits.HOP_FETCH_TESTS, HOP_FETCH_TEST_DTYPE),
            [each.path for each in self.values],
        )
        wanted = in_order(parse_filter(self.wanted.filter))
        for test, each in zip(tests, wanted, strict=False):
            index = paths.index(each.path)
            test["number"] = each.number % (1 << 64)
            test["fetch"], test["is"] = index, each.kind
            test["is_signed"] = self.values[index].is_compared_signed
            test["if_true"], test["if_false"] = each.if_true, each.if_false
        bpf.set_const("cfg_test", tests)
        bpf.set_const("cfg_tests", len(wanted))


def _require_name(kind: str, where: str, text: str) -> None:
    if _PATTERN.search(where):
        raise UsageError(
            f"'{kind}:{where}' is a pattern, which is not allowed for functions: probes on thousands of them would "
            "stall the kernel",
            f"Name each function: -e {kind}:udp_sendmsg -e {kind}:tcp_sendmsg",
        )
    if not _FUNCTION.fullmatch(where):
        raise UsageError(
            f"'{kind}:{text}' is no function of the kernel",
            f"Write {kind}:NAME, {CALLS}:NAME+0x10, or '{kind}:NAME VALUE if VALUE > 1000'",
        )


def function_events(wanted: Iterable[Wanted]) -> list[FunctionEvent]:
    """Return the events that are wanted of functions, each once.

    Raises
    ------
    KernelError
        This kernel has no probes, or no BTF where it is needed.
    UsageError
        It has no such function, or several, or no such value; or a function is wanted in two ways.
    """
    distinct = sorted(dict.fromkeys(wanted), key=lambda each: KINDS.index(each.kind))
    if not distinct:
        return []
    for label, count in Counter(each.label for each in distinct).items():
        if count > 1:
            raise UsageError(f"{label} is named {count} times, with different values", "Name all values in one -e")
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
    for each in distinct:
        _require_function(each.name, known)
    old = _OLD_TRAMPOLINE in known
    return [_event(each, pmu, returns if each.kind == RETURNS else 0, old=old) for each in distinct]


def _event(wanted: Wanted, pmu: int, config: int, *, old: bool) -> FunctionEvent:
    kind, name = wanted.kind, wanted.name
    place = f"{name}+{wanted.offset:#x}" if wanted.offset else name
    meaning = f"the kernel's function {place} {'is called' if kind == CALLS else 'returns'}"
    if wanted.offset:
        meaning = f"the kernel is at {place}"
    depth = 0 if kind == RETURNS and old else _DEPTHS[kind]
    if not wanted.has_values:
        columns = EventColumns(kind, place, () if depth else _RETURN_FIELDS, meaning, depth=depth)
        return FunctionEvent(wanted, pmu, config, depth, columns)
    values = _values(wanted)
    columns = EventColumns(kind, place, fields(wanted, values), meaning)
    return ValuesEvent(wanted, pmu, config, depth, columns, values=values)


def _values(wanted: Wanted) -> list[Value]:
    """Return what is to be read: what is named, and what the filter compares.

    Raises
    ------
    UsageError
        There is no such value, it cannot be compared, or they are too many.
    """
    compared = numbers_of(parse_filter(wanted.filter)) if wanted.filter else []
    paths = dict.fromkeys([*wanted.paths, *(path for path, _ in compared)])
    if not paths:
        return []
    types = FunctionTypes(Btf.kernel(), wanted.name, returns=wanted.kind == RETURNS)
    values = {path: types.value(path) for path in paths}
    for path, number in compared:
        values[path].require_number(number)
    most = int(HopFetchLimits.HOP_FETCHES)
    if len(values) > most:
        raise UsageError(f"{wanted.label} has {len(values)} values, at most {most} can be recorded", "Name fewer")
    return list(values.values())


def fields(wanted: Wanted, values: Sequence[Value]) -> list[Field]:
    """Return what the program's records have: ``struct hop_fetched``."""
    found = [Field(CALLER.name, CALLER.meaning, _OFFSETS["caller"], 8, 8, 1)]
    if wanted.stack:
        found.append(Field(STACK.name, STACK.meaning, _OFFSETS["stack"], 4, 4, 1, signed=True))
    words = 0
    for value in values:
        found.append(value.field(_OFFSETS["word"] + 8 * words))
        words += value.words
    if any(value.offsets for value in values):
        found.append(Field("unread", _UNREAD, _OFFSETS["unread"], 4, 4, 1))
    return found


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
