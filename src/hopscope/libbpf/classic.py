# SPDX-License-Identifier: Apache-2.0
"""Classic BPF, as libpcap compiles filters, translated to the BPF of today.

The result is a function of (address of the packet's first byte, bytes that can be read there, bytes that the packet
has), which returns 0 for a packet that is not wanted. It answers as libpcap's own ``bpf_filter`` does: who reads beyond
the end, or divides by 0, gets 0.

What is read at fixed places is copied to the stack at once, what is read at computed ones is copied one by one, unless
it is behind an IP header without options: BPF programs can read memory that the verifier does not know only so, and
before Linux 5.12 they cannot read their stack at a computed place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from hopscope.errors import UsageError
from hopscope.libbpf.assembler import fitted, instruction

if TYPE_CHECKING:
    from collections.abc import Sequence

# What is copied at once is on the stack, of which a program and all that it calls have 512 bytes.
_MOST_COPIED: Final = 96

# include/uapi/linux/bpf_common.h, filter.h: of a classic instruction's code
_LD, _LDX, _ST, _STX, _ALU, _JMP, _RET, _MISC = range(8)
_WORD, _HALF, _BYTE = 0x00, 0x08, 0x10
_SIZES: Final = {_WORD: 4, _HALF: 2, _BYTE: 1}
_IMM, _ABS, _IND, _MEM, _LEN, _MSH = 0x00, 0x20, 0x40, 0x60, 0x80, 0xA0
_X: Final = 0x08
_RET_A: Final = 0x10
_TXA: Final = 0x80
_DIV, _LSH, _RSH, _NEG, _MOD = 0x30, 0x60, 0x70, 0x80, 0x90
_JA, _JEQ, _JGT, _JGE, _JSET = 0x00, 0x10, 0x20, 0x30, 0x40
# include/uapi/linux/bpf.h: what only instructions of today have
_JMP_64, _JMP32, _ALU64 = 0x05, 0x06, 0x07
_MOV, _END, _CALL, _EXIT = 0xB0, 0xD0, 0x80, 0x90
_JNE, _JLT, _JLE = 0x50, 0xA0, 0xB0
_TO_BIG: Final = 0x08
_OR: Final = 0x40
_ADD: Final = 0x00
_OPPOSITE: Final = {_JEQ: _JNE, _JGT: _JLE, _JGE: _JLT}
_DOUBLE: Final = 0x18
# The length of an IP header without options: where the next one begins is what an index is most often.
_USUAL_INDEX: Final = 20
_PROBE_READ_KERNEL: Final = 113

# Registers. The accumulator, the index and what a call must not change are kept where calls leave them alone.
_R0, _R1, _R2, _R3, _NETWORK, _INDEX, _A, _READABLE, _FRAME = 0, 1, 2, 3, 6, 7, 8, 9, 10
# Places on the stack, from its end.
_LENGTH_AT: Final = -8
_LOADED_AT: Final = -16
_REJECT: Final = -1


class Classic(NamedTuple):
    """An instruction of classic BPF (``struct bpf_insn``)."""

    code: int
    jt: int
    jf: int
    k: int


class _Jump(NamedTuple):
    """A jump whose way is not known yet: to a classic instruction, or to :data:`_REJECT`."""

    code: int
    register: int
    other: int
    immediate: int
    target: int


def translate(program: Sequence[Classic], room: int) -> bytes:
    """Return the function's instructions.

    Parameters
    ----------
    program
        Made by libpcap: it jumps to instructions of its own, and ends.
    room
        How many bytes the result is to have.

    Raises
    ------
    UsageError
        It is too long, has a loop, or an instruction that libpcap does not make for a file.
    """
    return fitted(_Translation(program).code(), room)


class _Translation:
    def __init__(self, program: Sequence[Classic]) -> None:
        self._program = program
        self._code: list[bytes | _Jump] = []
        self._starts: dict[int, int] = {}
        self._memory_at = _LOADED_AT - 4 * self._memory_words()
        self._copied = self._to_copy()
        self._copy_at = self._memory_at - self._copied

    def code(self) -> list[bytes]:
        self._begin()
        reached = _reached(self._program)
        for here, each in enumerate(self._program):
            self._starts[here] = len(self._code)
            if here in reached:  # the verifier refuses what is not
                self._translate(each, here + 1)
        if any(isinstance(each, _Jump) and each.target == _REJECT for each in self._code):
            self._starts[_REJECT] = len(self._code)
            self._return(0)
        return [
            each if isinstance(each, bytes) else self._resolved(each, index) for index, each in enumerate(self._code)
        ]

    def _memory_words(self) -> int:
        """Return how many words of its memory the program uses, at least; an even number."""
        used = [k & 15 for code, _, _, k in self._program if code & 7 in {_ST, _STX} or _is_load(code, _MEM)]
        return (max(used, default=-1) + 2) // 2 * 2

    def _to_copy(self) -> int:
        """Return how many bytes from the packet's start have all fixed places near to it: a multiple of 8."""
        ends = [0]
        for code, _, _, k in self._program:
            if _is_load(code, _ABS):
                ends.append(k + _SIZES.get(code & 0x18, 0))
            elif _is_load(code, _MSH):
                ends.append(k + 1)
            elif _is_load(code, _IND):
                ends.append(_USUAL_INDEX + k + _SIZES.get(code & 0x18, 0))
        return -(-max(end for end in ends if end <= _MOST_COPIED) // 8) * 8

    def _begin(self) -> None:
        self._emit(_ALU64 | _MOV | _X, _NETWORK, _R1)
        self._emit(_ALU | _MOV | _X, _READABLE, _R2)
        self._emit(_ALU | _MOV | _X, _R3, _R3)
        self._emit(_STX | _MEM | _DOUBLE, _FRAME, _R3, _LENGTH_AT)
        self._emit(_ALU | _MOV, _A)
        self._emit(_ALU | _MOV, _INDEX)
        for place in range(self._memory_at, _LOADED_AT, 8):
            self._emit(_ST | _MEM | _DOUBLE, _FRAME, 0, place)
        if self._copied:
            self._emit(_ALU64 | _MOV | _X, _R3, _NETWORK)
            self._read_kernel(self._copy_at, self._copied)

    def _translate(self, given: Classic, following: int) -> None:
        code, _, _, k = given
        kind = code & 7
        if kind in {_LD, _LDX}:
            self._load(code, k, _A if kind == _LD else _INDEX)
        elif kind in {_ST, _STX}:
            self._emit(_STX | _MEM | _WORD, _FRAME, _A if kind == _ST else _INDEX, self._memory_at + 4 * (k & 15))
        elif kind == _ALU:
            self._calculate(code & 0xF0, k, by_index=bool(code & _X))
        elif kind == _JMP:
            self._jump(given, following)
        elif kind == _RET:
            self._return(k, accumulator=bool(code & _RET_A))
        elif code & 0xF8 == _TXA:
            self._emit(_ALU | _MOV | _X, _A, _INDEX)
        else:
            self._emit(_ALU | _MOV | _X, _INDEX, _A)

    def _load(self, code: int, k: int, register: int) -> None:
        mode, size = code & 0xE0, _SIZES.get(code & 0x18, 0)
        if mode == _IMM:
            self._emit(_ALU | _MOV, register, immediate=k)
        elif mode == _MEM:
            self._emit(_LDX | _MEM | _WORD, register, _FRAME, self._memory_at + 4 * (k & 15))
        elif mode == _LEN:
            self._emit(_LDX | _MEM | _WORD, register, _FRAME, _LENGTH_AT)
        elif mode == _IND:
            self._load_at_index(k, size)
        elif mode == _ABS and size:
            self._load_at(k, size, _A)
        elif mode == _MSH:
            self._load_at(k, 1, _INDEX)
            self._emit(_ALU | 0x50, _INDEX, immediate=15)
            self._emit(_ALU | _LSH, _INDEX, immediate=2)
        else:
            raise UsageError(f"The filter compiles to an unknown instruction, 0x{code:x}", "Write it differently")

    def _load_at(self, k: int, size: int, register: int) -> None:
        """Load from a fixed place in the packet."""
        if k + size > 2**31 - 1:  # no packet is that long
            self._reject()
            return
        self._reject_if(_JMP_64 | _JLT, _READABLE, k + size)
        if k + size <= self._copied:
            self._from_stack(register, self._copy_at + k, size)
            return
        self._emit(_ALU64 | _MOV | _X, _R3, _NETWORK)
        self._emit(_ALU64 | _ADD, _R3, immediate=k)
        self._read_kernel(_LOADED_AT, size)
        self._from_stack(register, _LOADED_AT, size)

    def _load_at_index(self, k: int, size: int) -> None:
        usual = _USUAL_INDEX + k
        if usual + size > self._copied:
            self._load_anywhere(k, size)
            return
        other = self._skip_from()
        self._reject_if(_JMP_64 | _JLT, _READABLE, usual + size)
        self._from_stack(_A, self._copy_at + usual, size)
        done = self._skip_from()
        self._skip_to_here(other, _JMP32 | _JNE, _INDEX, _USUAL_INDEX)
        self._load_anywhere(k, size)
        self._skip_to_here(done, _JMP_64 | _JA)

    def _load_anywhere(self, k: int, size: int) -> None:
        self._emit(_ALU | _MOV, _R3, immediate=k)
        self._emit(_ALU64 | _ADD | _X, _R3, _INDEX)
        self._emit(_ALU64 | _MOV | _X, _R1, _R3)
        self._emit(_ALU64 | _ADD, _R1, immediate=size)
        self._reject_if(_JMP_64 | _JGT | _X, _R1, other=_READABLE)
        self._emit(_ALU64 | _ADD | _X, _R3, _NETWORK)
        self._read_kernel(_LOADED_AT, size)
        self._from_stack(_A, _LOADED_AT, size)

    def _skip_from(self) -> int:
        """Leave a place for a jump that :meth:`_skip_to_here` puts there."""
        self._code.append(b"")
        return len(self._code) - 1

    def _skip_to_here(self, place: int, code: int, register: int = 0, immediate: int = 0) -> None:
        self._code[place] = instruction(code, register, 0, len(self._code) - place - 1, immediate)

    def _read_kernel(self, where: int, size: int) -> None:
        """Copy from the address in R3 to the stack."""
        self._emit(_ALU64 | _MOV | _X, _R1, _FRAME)
        self._emit(_ALU64 | _ADD, _R1, immediate=where)
        self._emit(_ALU | _MOV, _R2, immediate=size)
        self._emit(_JMP_64 | _CALL, immediate=_PROBE_READ_KERNEL)
        self._reject_if(_JMP_64 | _JNE, _R0)

    def _from_stack(self, register: int, where: int, size: int) -> None:
        """Load what is in network order; the stack can only be read at multiples of the size."""
        if where % size == 0:
            code = {1: _BYTE, 2: _HALF, 4: _WORD}[size]
            self._emit(_LDX | _MEM | code, register, _FRAME, where)
            if size > 1:
                self._emit(_ALU | _END | _TO_BIG, register, immediate=8 * size)
            return
        self._emit(_LDX | _MEM | _BYTE, register, _FRAME, where)
        for byte in range(1, size):
            self._emit(_ALU | _LSH, register, immediate=8)
            self._emit(_LDX | _MEM | _BYTE, _R1, _FRAME, where + byte)
            self._emit(_ALU | _OR | _X, register, _R1)

    def _calculate(self, operation: int, k: int, *, by_index: bool) -> None:
        if operation == _NEG:
            self._emit(_ALU | _NEG, _A)
        elif by_index:
            if operation in {_DIV, _MOD}:
                self._reject_if(_JMP32 | _JEQ, _INDEX)
            shifts = operation in {_LSH, _RSH}
            if shifts:  # what is shifted by more than it has bits is 0
                self._code.append(instruction(_JMP32 | _JLT, _INDEX, 0, 1, 32))
                self._emit(_ALU | _MOV, _A)
            self._emit(_ALU | operation | _X, _A, _INDEX)
        elif operation in {_LSH, _RSH} and k >= 32:
            self._emit(_ALU | _MOV, _A)
        elif operation in {_DIV, _MOD} and not k:
            self._reject()
        else:
            self._emit(_ALU | operation, _A, immediate=k)

    def _jump(self, given: Classic, following: int) -> None:
        condition, source = given.code & 0xF0, given.code & _X
        immediate, other = (0, _INDEX) if source else (given.k, 0)
        yes, no = following + given.jt, following + given.jf
        if condition == _JA:
            self._code.append(_Jump(_JMP_64 | _JA, 0, 0, 0, following + given.k))
        elif yes == following and condition in _OPPOSITE:
            self._code.append(_Jump(_JMP32 | _OPPOSITE[condition] | source, _A, other, immediate, no))
        else:
            self._code.append(_Jump(_JMP32 | condition | source, _A, other, immediate, yes))
            if no != following:
                self._code.append(_Jump(_JMP_64 | _JA, 0, 0, 0, no))

    def _reject(self) -> None:
        """Jump always, and leave what follows reachable, as it must be."""
        self._reject_if(_JMP32 | _JGE, _A, 0)

    def _return(self, k: int, *, accumulator: bool = False) -> None:
        if accumulator:
            self._emit(_ALU | _MOV | _X, _R0, _A)
        else:
            self._emit(_ALU | _MOV, _R0, immediate=int(k != 0))
        self._emit(_JMP_64 | _EXIT)

    def _emit(self, code: int, register: int = 0, other: int = 0, offset: int = 0, immediate: int = 0) -> None:
        self._code.append(instruction(code, register, other, offset, immediate))

    def _reject_if(self, code: int, register: int, immediate: int = 0, other: int = 0) -> None:
        self._code.append(_Jump(code, register, other, immediate, _REJECT))

    def _resolved(self, jump: _Jump, index: int) -> bytes:
        offset = self._starts[jump.target] - index - 1
        return instruction(jump.code, jump.register, jump.other, offset, jump.immediate)


def _is_load(code: int, mode: int) -> bool:
    return code & 7 in {_LD, _LDX} and code & 0xE0 == mode


def _reached(program: Sequence[Classic]) -> set[int]:
    """Return which instructions can be reached.

    Raises
    ------
    UsageError
        They jump back, as `protochain` does.
    """
    reached = {0}
    for here, (code, jt, jf, k) in enumerate(program):
        if here not in reached or code & 7 == _RET:
            continue
        if code & 7 != _JMP:
            reached.add(here + 1)
        elif code & 0xF0 == _JA:
            if k >= len(program):
                raise UsageError("The filter has a loop", "Leave out `protochain`, which follows any number of headers")
            reached.add(here + 1 + k)
        else:
            reached |= {here + 1 + jt, here + 1 + jf}
    return reached
