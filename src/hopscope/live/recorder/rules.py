# SPDX-License-Identifier: Apache-2.0
"""Conditions that say which events get a record, and in which ring.

They are instructions of the recorder's programs (``bpf/common/rules.h``).

A condition is evaluated on what the event's row would have, so that the rows are those that the same condition selects
of a recording without it. There is code for each kind of record, in which fields that it does not have are folded away.
"""

from __future__ import annotations

import functools
import ipaddress
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from hopscope.bpf.layout import HOP_BESIDE_DTYPE, HOP_OWN_FLOW_DTYPE, HOP_PACKET_DTYPE, HopPoint, HopRule
from hopscope.errors import UsageError
from hopscope.libbpf import assembler as asm
from hopscope.live.recorder.tables import EVENTS, POINTS_PER_TABLE, point_names
from hopscope.model.condition import FAILS, PASSES, Comparison, Condition, Joined, Not, comparisons, steps
from hopscope.model.event_fields import event_condition
from hopscope.store.schema import BY_NAME
from hopscope.store.unrecorded import RULES, UNRECORDED
from hopscope.trace.where import known_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from hopscope.libbpf import BpfObject
    from hopscope.live.recorder.options import EventClass
    from hopscope.model.condition import Sign

# The C function that the conditions become, and what counts the events that it leaves out.
FUNCTION: Final = "rules"
_COUNTS: Final = "unrecorded"
_OF_FLOWS: Final = ("source", "source_port", "destination", "destination_port", "protocol")
_OF_HEADERS: Final = frozenset({"flow", "header_bytes", "seq", "tcp_flags", *_OF_FLOWS})
_OF_THREADS: Final = ("pid", "comm")
_NAMES: Final = frozenset({*_OF_THREADS, "interface"})
_JUMPS: Final[dict[Sign, int]] = {
    "==": asm.JEQ, "!=": asm.JNE, "<": asm.JSLT, "<=": asm.JSLE, ">": asm.JSGT, ">=": asm.JSGE, "&": asm.JSET,
}  # fmt: skip
_NAME_BYTES: Final = 16
_MAPPED: Final = b"\0" * 10 + b"\xff\xff"
_SMP_PROCESSOR_ID: Final = 8  # the helper's number

# Registers: what the function is called with, where calls leave it alone; then the rest.
_RECORD, _FLOW, _BESIDE, _POINT = 6, 7, 8, 9
_RESULT, _VALUE, _OTHER = 0, 1, 2


class Rules(NamedTuple):
    """Which events get a record.

    Attributes
    ----------
    keep, drop
        Conditions as the user wrote them: those that it holds for, and those that it does not; empty: none.
    classes
        Of those events, whose condition holds first is of that class.
    """

    keep: str = ""
    drop: str = ""
    classes: Sequence[EventClass] = ()

    def checked(self, points: Sequence[str]) -> Checked:
        """Return the conditions, which name none but these points.

        Raises
        ------
        UsageError
            One is no condition, or compares what the kernel does not know when an event happens.
        """
        keep, drop = (_checked(f"--{name}", getattr(self, name), points) for name in RULES)
        classes = [_checked(f"--class {each.name}", each.condition, points) for each in self.classes]
        return Checked(keep, drop, [each for each in classes if each])


class Checked(NamedTuple):
    """Conditions that the recorder's programs can evaluate; None: there is none."""

    keep: Condition | None
    drop: Condition | None
    classes: Sequence[Condition]

    @property
    def leave_out(self) -> bool:
        """Whether some events get no record."""
        return bool(self.keep or self.drop)

    def functions(self, reasons: Mapping[int, str]) -> Mapping[str, Callable[[int], bytes]]:
        """Return what :meth:`hopscope.libbpf.BpfObject.open` takes.

        Parameters
        ----------
        reasons
            Number of a drop reason on this kernel → its name.
        """
        if not any(self):
            return {}
        return {FUNCTION: lambda room: asm.fitted(self.code(reasons), room)}

    def configure(self, bpf: BpfObject) -> None:
        """Set the constants, and the room to count in."""
        every = [each for each in (self.keep, self.drop, *self.classes) if each]
        fields = {each.field for condition in every for each in comparisons(condition)}
        bpf.set_const("cfg_rules", int(any(self)))
        bpf.set_const("cfg_rules_headers", int(bool(fields & _OF_HEADERS)))
        bpf.set_const("cfg_rules_names", int(bool(fields & _NAMES)))
        most = int(HopRule.HOP_RULES * HopRule.HOP_RULE_POINTS)
        bpf.maps[_COUNTS].set_max_entries(most if self.leave_out else 1)

    def code(self, reasons: Mapping[int, str]) -> list[bytes]:
        """Return the function's instructions."""
        made = asm.Assembler()
        for register, given in ((_RECORD, 1), (_FLOW, 2), (_BESIDE, 3)):
            made.add(asm.ALU64 | asm.MOV | asm.X, register, given)
        made.add(asm.LDX | asm.MEM | asm.BYTE, _POINT, _RECORD, _offset(HOP_PACKET_DTYPE, "point"))
        numbers = range(HopRule.HOP_RULE_CLASS, HopRule.HOP_RULE_CLASS + len(self.classes))
        ends = {rule: made.label() for rule in (0, HopRule.HOP_RULE_KEEP, HopRule.HOP_RULE_DROP, *numbers)}
        for kind in EVENTS:
            following = made.label()
            made.jump(following, asm.JMP | asm.JLT, _POINT, immediate=kind * POINTS_PER_TABLE)
            made.jump(following, asm.JMP | asm.JGE, _POINT, immediate=(kind + 1) * POINTS_PER_TABLE)
            writer = _Writer(made, kind, reasons)
            wanted = made.label()
            writer.condition(self.keep, wanted, ends[HopRule.HOP_RULE_KEEP], without=True)
            for number, condition in ((HopRule.HOP_RULE_DROP, self.drop), *zip(numbers, self.classes, strict=True)):
                if made.is_used(wanted):  # the kernel takes no instructions that nothing leads to
                    made.here(wanted)
                    wanted = made.label()
                    writer.condition(condition, ends[number], wanted, without=False)
            if made.is_used(wanted):
                made.here(wanted)
                made.jump(ends[0])
            made.here(following)
        made.here(ends[0])  # no event
        for rule, label in ends.items():
            if not rule or made.is_used(label):
                made.here(label)
                made.add(asm.ALU64 | asm.MOV, _RESULT, immediate=int(rule))
                made.add(asm.JMP | asm.EXIT)
        return made.code()


class Unrecorded:
    """Counts the events that the conditions leave out.

    Parameters
    ----------
    bpf
        The loaded recorder.
    started_ns
        From when on they are counted.
    """

    def __init__(self, bpf: BpfObject, started_ns: int) -> None:
        self._counts = bpf.maps[_COUNTS]
        self._read_ns, self._before = started_ns, self._now()

    def read(self) -> list[tuple[str, dict[str, NDArray[Any]]]]:
        """Return the rows of the table `unrecorded` since the last call; none, if there are none."""
        now_ns, counts = time.monotonic_ns(), self._now()
        more = counts - self._before
        rules, numbers = np.nonzero(more)
        from_ns, self._read_ns, self._before = self._read_ns, now_ns, counts
        if not len(rules):
            return []
        columns: dict[str, NDArray[Any]] = {
            "from_ns": np.full(len(rules), from_ns, np.int64),
            "until_ns": np.full(len(rules), now_ns, np.int64),
            "point": numbers.astype(np.int16),
            "condition": np.array(["keep", "drop"], object)[rules],
            "events": more[rules, numbers].astype(np.int64),
        }
        return [(UNRECORDED.name, columns)]

    def _now(self) -> NDArray[np.uint64]:
        _, counts = self._counts.items()
        by_cpu = counts.reshape(int(HopRule.HOP_RULES), int(HopRule.HOP_RULE_POINTS), -1)
        return np.asarray(by_cpu.sum(axis=2, dtype=np.uint64))


def _checked(option: str, text: str, points: Sequence[str]) -> Condition | None:
    if not text:
        return None
    condition = event_condition(text, known_of(point_names().values(), ()))
    for each in comparisons(condition):
        if each.field == "hop_ns":
            raise UsageError(
                f"{option} cannot compare how long a hop took: the kernel does not know a packet's event before",
                "Record without it, and select by `report events --where` or `export --where`",
            )
        if each.field == "point" and each.value not in points:
            raise UsageError(f"{option} names {each.value}, which this recording does not have", f"Add -p {each.value}")
    return condition


class _Writer:
    """Writes conditions on one kind of record.

    Parameters
    ----------
    made
        Where to.
    kind
        Of the table's points.
    reasons
        Number of a drop reason → its name.
    """

    def __init__(self, made: asm.Assembler, kind: int, reasons: Mapping[int, str]) -> None:
        self._made = made
        self._kind = kind
        self._reasons = reasons
        table, self._record = EVENTS[kind]
        self._columns = {column.name: np.dtype(column.dtype) for column in BY_NAME[table].columns}
        self._numbers = {name: number for number, name in point_names().items()}

    def condition(self, condition: Condition | None, yes: int, no: int, *, without: bool) -> None:
        """Write jumps to one label or the other.

        `without`: whether it holds where there is no condition.
        """
        folded = without if condition is None else self._folded(condition)
        if isinstance(folded, bool):
            self._made.jump(yes if folded else no)
            return
        every = steps(folded)
        labels = {at: self._made.label() for at in range(len(every))} | {PASSES: yes, FAILS: no}
        for at, step in enumerate(every):
            self._made.here(labels[at])
            self._compare(step.comparison, labels[step.if_true], labels[step.if_false])

    def _folded(self, condition: Condition) -> Condition | bool:
        """Return it without the comparisons that are decided by the kind of record."""
        match condition:
            case Comparison():
                return self._decided(condition)
            case Not(inner):
                found = self._folded(inner)
                return not found if isinstance(found, bool) else Not(found)
            case Joined(both, left, right):
                sides = self._folded(left), self._folded(right)
                if (not both) in sides:
                    return not both
                first, second = sides
                if isinstance(first, bool):
                    return second
                return first if isinstance(second, bool) else Joined(both, first, second)

    def _decided(self, comparison: Comparison) -> Comparison | bool:
        field, sign, value = comparison.field, comparison.sign, comparison.value
        if field == "point":
            return comparison if self._numbers[str(value)] // POINTS_PER_TABLE == self._kind else sign == "!="
        if field in {"comm", "interface"} and sign == "==" and len(str(value).encode()) >= _NAME_BYTES:
            return False
        if field == "reason" and not self._numbered(sign, str(value)):
            return False
        has = {
            **dict.fromkeys(_OF_FLOWS, "flow" in self._columns),
            **dict.fromkeys(_OF_THREADS, True),
            "cpu": True,
            "interface": "ifindex" in self._columns,
            "reason": self._kind == 0,
        }
        return comparison if has.get(field, field in self._columns) else False

    def _compare(self, comparison: Comparison, yes: int, no: int) -> None:
        field, sign, value = comparison.field, comparison.sign, comparison.value
        match field:
            case "point":
                self._is(_POINT, sign, self._numbers[str(value)], yes, no)
            case "cpu":
                self._made.add(asm.JMP | asm.CALL, immediate=_SMP_PROCESSOR_ID)
                self._is(_RESULT, sign, value, yes, no)
            case "pid" | "comm":
                self._load(_RECORD, self._record, "tid")
                self._made.jump(no, asm.JMP | asm.JEQ, _VALUE)  # the idle task is none
                self._beside(field, sign, value, yes, no)
            case "interface":
                self._load(_BESIDE, HOP_BESIDE_DTYPE, field, 1)
                self._made.jump(no, asm.JMP | asm.JEQ, _VALUE)
                self._beside(field, sign, value, yes, no)
            case "reason":
                self._made.jump(no, asm.JMP | asm.JNE, _POINT, immediate=int(HopPoint.HOP_POINT_SKB_DROP))
                self._reason(sign, str(value), yes, no)
            case _ if field in _OF_FLOWS:
                self._load(_RECORD, self._record, "flow")
                self._made.jump(no, asm.JMP | asm.JEQ, _VALUE)
                self._of_flow(field, sign, value, yes, no)
            case _:
                self._load(_RECORD, self._record, field)
                if self._columns[field].itemsize == self._record[field].itemsize == 4:
                    for shift in (asm.LSH, asm.ARSH):  # the column is signed
                        self._made.add(asm.ALU64 | shift, _VALUE, immediate=32)
                self._is(_VALUE, sign, value, yes, no)

    def _is(self, register: int, sign: Sign, value: Any, yes: int, no: int) -> None:  # noqa: ANN401 # a number
        if -(1 << 31) <= value < 1 << 31:
            self._made.jump(yes, asm.JMP | _JUMPS[sign], register, immediate=value)
        else:
            self._made.load_constant(_OTHER, value)
            self._made.jump(yes, asm.JMP | _JUMPS[sign] | asm.X, register, _OTHER)
        self._made.jump(no)

    def _load(self, register: int, dtype: np.dtype[Any], field: str, size: int | None = None, more: int = 0) -> None:
        size = size or dtype[field].itemsize
        self._made.add(asm.LDX | asm.MEM | asm.SIZES[size], _VALUE, register, _offset(dtype, field) + more)

    def _beside(self, field: str, sign: Sign, value: Any, yes: int, no: int) -> None:  # noqa: ANN401 # as its kind
        if field == "pid":
            self._load(_BESIDE, HOP_BESIDE_DTYPE, field)
            self._is(_VALUE, sign, value, yes, no)
            return
        name = str(value).encode()
        same, other = (yes, no) if sign == "==" else (no, yes)
        if len(name) >= _NAME_BYTES:
            self._made.jump(other)
            return
        for at in range(0, _NAME_BYTES, 8):
            self._load(_BESIDE, HOP_BESIDE_DTYPE, field, 8, at)
            word = int.from_bytes(name.ljust(_NAME_BYTES, b"\0")[at : at + 8], "little", signed=True)
            self._made.load_constant(_OTHER, word)
            self._made.jump(other, asm.JMP | asm.JNE | asm.X, _VALUE, _OTHER)
        self._made.jump(same)

    def _reason(self, sign: Sign, name: str, yes: int, no: int) -> None:
        self._load(_BESIDE, HOP_BESIDE_DTYPE, "reason")
        for first, last in _ranges(self._numbered(sign, name)):
            after = self._made.label()
            self._made.load_constant(_OTHER, first)
            self._made.jump(after, asm.JMP | asm.JLT | asm.X, _VALUE, _OTHER)
            self._made.load_constant(_OTHER, last)
            self._made.jump(yes, asm.JMP | asm.JLE | asm.X, _VALUE, _OTHER)
            self._made.here(after)
        self._made.jump(no)

    def _numbered(self, sign: Sign, name: str) -> list[int]:
        """Return the reasons of this name, or the others."""
        return sorted(number for number, each in self._reasons.items() if (each == name) == (sign == "=="))

    def _of_flow(self, field: str, sign: Sign, value: Any, yes: int, no: int) -> None:  # noqa: ANN401 # as its kind
        end = int(field.startswith("destination"))
        if field == "protocol":
            self._load(_FLOW, HOP_OWN_FLOW_DTYPE, "word", 4, 36)
            self._is(_VALUE, sign, value, yes, no)
        elif field.endswith("_port"):
            self._load(_FLOW, HOP_OWN_FLOW_DTYPE, "word", 2, 32 + 2 * end)
            self._made.add(asm.ALU | asm.END | asm.TO_BIG, _VALUE, immediate=16)
            self._is(_VALUE, sign, value, yes, no)
        else:
            self._in_network(16 * end, str(value), *((yes, no) if sign == "==" else (no, yes)))

    def _in_network(self, at: int, text: str, inside: int, outside: int) -> None:
        network = ipaddress.ip_network(text, strict=False)
        address, mask = network.network_address.packed, network.netmask.packed
        if network.version == 4:
            address, mask = _MAPPED + address, b"\xff" * len(_MAPPED) + mask
        else:
            # What is mapped is IPv4, and in no network of IPv6.
            is_other = self._made.label()
            self._words(at, _MAPPED, b"\xff" * len(_MAPPED), is_other)
            self._made.jump(outside)
            self._made.here(is_other)
        self._words(at, address, mask, outside)
        self._made.jump(inside)

    def _words(self, at: int, wanted: bytes, mask: bytes, other: int) -> None:
        """Write a jump to `other` unless these bytes are what is wanted."""
        for place in range(0, len(wanted), 4):
            bits, word = (int.from_bytes(each[place : place + 4], "little") for each in (mask, wanted))
            if not bits:
                continue
            self._load(_FLOW, HOP_OWN_FLOW_DTYPE, "word", 4, at + place)
            if bits != 0xFFFFFFFF:
                self._made.add(asm.ALU | asm.AND, _VALUE, immediate=bits)
            self._made.jump(other, asm.JMP32 | asm.JNE, _VALUE, immediate=word)


def _ranges(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Return the first and the last of each run of numbers."""
    runs = np.split(np.array(numbers, np.int64), np.flatnonzero(np.diff(numbers) != 1) + 1)
    return [(int(run[0]), int(run[-1])) for run in runs if len(run)]


@functools.cache
def _offset(dtype: np.dtype[Any], field: str) -> int:
    return int(dtype.fields[field][1])  # type: ignore[index] # it has some
