# SPDX-License-Identifier: Apache-2.0
"""Computes with softirqs disabled, as drivers, filters and netfilter's rules do: a BPF program in a test run."""

from __future__ import annotations

import ctypes
import os
import struct
from functools import partial
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_SYS_BPF: Final = {"x86_64": 321, "aarch64": 280}
_PROG_LOAD, _PROG_TEST_RUN = 5, 10
_SCHED_CLS: Final = 3
_KTIME_GET_NS: Final = 5
_ATTR_BYTES: Final = 128
_FRAME_BYTES: Final = 64


def masked_spin(ms: float) -> Callable[[], None]:
    """Return what computes for so many ms with softirqs disabled on its CPU."""
    bpf = partial(_bpf, ctypes.CDLL(None, use_errno=True))
    program = _load(bpf, round(ms * 1e6))
    return partial(_run, bpf, program, ctypes.create_string_buffer(_FRAME_BYTES))


def _bpf(libc: ctypes.CDLL, command: int, attributes: bytes) -> int:
    data = ctypes.create_string_buffer(attributes, _ATTR_BYTES)
    done: int = libc.syscall(_SYS_BPF[os.uname().machine], command, data, _ATTR_BYTES)
    if done < 0:
        raise OSError(ctypes.get_errno(), "bpf")
    return done


def _instruction(code: int, *, to: int = 0, source: int = 0, offset: int = 0, value: int = 0) -> bytes:
    return struct.pack("=BBhi", code, source << 4 | to, offset, value)


def _load(bpf: Callable[[int, bytes], int], duration_ns: int) -> int:
    """Return a program that looks at the clock until so much time is over."""
    code = ctypes.create_string_buffer(
        b"".join(
            (
                _instruction(0x85, value=_KTIME_GET_NS),
                _instruction(0xBF, to=6),  # r6 = r0
                _instruction(0xE5, offset=3),  # may_goto the end: the verifier wants to know that it does end
                _instruction(0x85, value=_KTIME_GET_NS),
                _instruction(0x1F, source=6),  # r0 -= r6
                _instruction(0xA5, offset=-4, value=duration_ns),  # if r0 < duration_ns goto may_goto
                _instruction(0xB7),  # r0 = 0
                _instruction(0x95),
            )
        )
    )
    licence = ctypes.create_string_buffer(b"GPL")
    count = (len(code) - 1) // 8
    return bpf(_PROG_LOAD, struct.pack("=IIQQ", _SCHED_CLS, count, ctypes.addressof(code), ctypes.addressof(licence)))


def _run(bpf: Callable[[int, bytes], int], program: int, frame: ctypes.Array[ctypes.c_char]) -> None:
    attributes = struct.pack("=IIIIQQII", program, 0, _FRAME_BYTES, 0, ctypes.addressof(frame), 0, 1, 0)
    bpf(_PROG_TEST_RUN, attributes)
