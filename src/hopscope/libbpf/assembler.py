# SPDX-License-Identifier: Apache-2.0
"""Instructions of BPF, and functions made of them in the room that a compiled one has."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from hopscope.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

INSTRUCTION_BYTES: Final = 8

# include/uapi/linux/bpf_common.h, bpf.h: of an instruction's code
LD, LDX, ALU, JMP, JMP32, ALU64 = 0, 1, 4, 5, 6, 7
WORD, HALF, BYTE, DOUBLE = 0x00, 0x08, 0x10, 0x18
SIZES: Final = {1: BYTE, 2: HALF, 4: WORD, 8: DOUBLE}
IMM, MEM = 0x00, 0x60
X: Final = 0x08
AND, LSH, MOV, ARSH, END = 0x50, 0x60, 0xB0, 0xC0, 0xD0
TO_BIG: Final = 0x08
JA, JEQ, JGE, JSET, JNE, JSGT, JSGE = 0x00, 0x10, 0x30, 0x40, 0x50, 0x60, 0x70
CALL, EXIT, JLT, JLE, JSLT, JSLE = 0x80, 0x90, 0xA0, 0xB0, 0xC0, 0xD0


def instruction(code: int, register: int = 0, other: int = 0, offset: int = 0, immediate: int = 0) -> bytes:
    """Return an instruction (``struct bpf_insn``)."""
    return struct.pack("<BBhI", code, register | other << 4, offset, immediate & 0xFFFFFFFF)


def fitted(code: Sequence[bytes], room: int) -> bytes:
    """Return a function's instructions in a room that is larger.

    Raises
    ------
    UsageError
        It is not.
    """
    spare = room // INSTRUCTION_BYTES - len(code) - 3
    if spare < 0:
        raise UsageError("The filter is too long", "Write a shorter one, for instance with networks instead of hosts")
    # What is too much must be reachable, but the verifier sees that it is never reached, and the kernel drops it.
    skip = [instruction(ALU64 | MOV), instruction(JMP | JNE, 0, 0, len(code), 0)]
    rest = [instruction(ALU64 | MOV)] * spare + [instruction(JMP | EXIT)]
    return b"".join([*skip, *code, *rest])


class _Jump(NamedTuple):
    code: int
    register: int
    other: int
    immediate: int
    label: int


class Assembler:
    """Takes instructions in order, and jumps to labels that get their place later."""

    def __init__(self) -> None:
        self._code: list[bytes | _Jump] = []
        self._places: list[int] = []

    def label(self) -> int:
        """Return a new label."""
        self._places.append(-1)
        return len(self._places) - 1

    def here(self, label: int) -> None:
        """Put a label before the next instruction."""
        self._places[label] = len(self._code)

    def is_used(self, label: int) -> bool:
        """Tell whether there is a jump to a label."""
        return any(isinstance(each, _Jump) and each.label == label for each in self._code)

    def add(self, code: int, register: int = 0, other: int = 0, offset: int = 0, immediate: int = 0) -> None:
        """Add an instruction."""
        self._code.append(instruction(code, register, other, offset, immediate))

    def load_constant(self, register: int, number: int) -> None:
        """Put a number of 64 bits into a register."""
        if -(1 << 31) <= number < 1 << 31:
            self.add(ALU64 | MOV, register, immediate=number)
            return
        self.add(LD | IMM | DOUBLE, register, immediate=number)
        self.add(0, immediate=number >> 32)

    def jump(self, label: int, code: int = JMP | JA, register: int = 0, other: int = 0, immediate: int = 0) -> None:
        """Add a jump."""
        self._code.append(_Jump(code, register, other, immediate, label))

    def code(self) -> list[bytes]:
        """Return the instructions; all labels that are used have a place."""
        return [each if isinstance(each, bytes) else self._resolved(each, at) for at, each in enumerate(self._code)]

    def _resolved(self, jump: _Jump, at: int) -> bytes:
        return instruction(jump.code, jump.register, jump.other, self._places[jump.label] - at - 1, jump.immediate)
