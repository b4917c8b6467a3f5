# SPDX-License-Identifier: Apache-2.0
"""Filters in libpcap's language (pcap-filter(7)), for programs that include ``common/pcap.h``."""

from __future__ import annotations

import contextlib
import ctypes
import functools
from typing import TYPE_CHECKING, Final

from hopscope.errors import KernelError, UsageError
from hopscope.libbpf.classic import Classic, translate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

LIBRARY: Final = "libpcap.so.0.8"
# The C function that the filter becomes.
FUNCTION: Final = "pcap_filter"
# A packet starts with its IP header, whatever device it is at.
_DLT_RAW: Final = 12
ETHERNET: Final = 1
_WHOLE: Final = 0x40000
_ANY_NETMASK: Final = 0xFFFFFFFF


class _Instruction(ctypes.Structure):
    """``struct bpf_insn`` of libpcap."""

    _fields_ = (("code", ctypes.c_uint16), ("jt", ctypes.c_uint8), ("jf", ctypes.c_uint8), ("k", ctypes.c_uint32))


class Program(ctypes.Structure):
    """``struct bpf_program`` of libpcap."""

    _fields_ = (("length", ctypes.c_uint), ("instructions", ctypes.POINTER(_Instruction)))


def functions(expression: str) -> Mapping[str, Callable[[int], bytes]]:
    """Return what :meth:`hopscope.libbpf.BpfObject.open` takes for an object that includes ``common/pcap.h``.

    Set its constant ``cfg_pcap`` besides.

    Raises
    ------
    UsageError
        It is no such expression; opening the object raises it, too, if the filter is too long.
    KernelError
        There is no libpcap.
    """
    return {FUNCTION: functools.partial(translate, compile_filter(expression))}


def compile_filter(expression: str) -> list[Classic]:
    """Return the instructions that libpcap makes of an expression, for packets that start with their IP header.

    Raises
    ------
    UsageError, KernelError
        As :func:`functions`.
    """
    with compiled(expression) as program:
        found = program.instructions[: program.length]
        return [Classic(each.code, each.jt, each.jf, each.k) for each in found]


@contextlib.contextmanager
def compiled(expression: str, link_type: int = _DLT_RAW) -> Iterator[Program]:
    """Compile an expression and keep libpcap's own program for as long as it is used.

    Parameters
    ----------
    expression
        In libpcap's language.
    link_type
        What a packet starts with: by default its IP header, or :data:`ETHERNET`.

    Raises
    ------
    UsageError, KernelError
        As :func:`functions`.
    """
    pcap = library()
    handle = pcap.pcap_open_dead(link_type, _WHOLE)
    program = Program()
    try:
        if pcap.pcap_compile(handle, ctypes.byref(program), expression.encode(), 1, _ANY_NETMASK):
            said = pcap.pcap_geterr(handle).decode(errors="replace")
            raise UsageError(
                f"'{expression}' is not a valid packet filter: {said}",
                "See pcap-filter(7); filters on Ethernet addresses, VLANs and interfaces are not supported",
            )
        try:
            yield program
        finally:
            pcap.pcap_freecode(ctypes.byref(program))
    finally:
        pcap.pcap_close(handle)


@functools.cache
def library() -> ctypes.CDLL:
    """Return libpcap.

    Raises
    ------
    KernelError
        There is none.
    """
    try:
        pcap = ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise KernelError(
            f"--pcap and --protocol need libpcap, and {LIBRARY} cannot be opened",
            "Install it (Debian, Ubuntu: apt-get install libpcap0.8; Fedora: dnf install libpcap)",
        ) from error
    pcap.pcap_open_dead.restype = ctypes.c_void_p
    pcap.pcap_open_dead.argtypes = (ctypes.c_int, ctypes.c_int)
    pcap.pcap_compile.argtypes = (
        ctypes.c_void_p, ctypes.POINTER(Program), ctypes.c_char_p, ctypes.c_int, ctypes.c_uint32,
    )  # fmt: skip
    pcap.pcap_geterr.restype = ctypes.c_char_p
    pcap.pcap_geterr.argtypes = (ctypes.c_void_p,)
    pcap.pcap_freecode.argtypes = (ctypes.POINTER(Program),)
    pcap.pcap_close.argtypes = (ctypes.c_void_p,)
    return pcap
