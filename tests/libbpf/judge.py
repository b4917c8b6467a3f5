# SPDX-License-Identifier: Apache-2.0
"""What a filter says of packets: here in the kernel, translated, and by libpcap's own interpreter."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import struct
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hopscope.kernel.pcap import FUNCTION, library
from hopscope.libbpf import BpfObject
from hopscope.libbpf.classic import Classic, translate

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

PACKETS = 256
PACKET_BYTES = 240


class RunOptions(ctypes.Structure):
    """``struct bpf_test_run_opts``, of which nothing is needed but the size."""

    _fields_ = (("sz", ctypes.c_size_t), ("rest", ctypes.c_char * 72))


class Packet(NamedTuple):
    """The part of a packet that can be read, and how long it is in all."""

    readable: bytes
    len_bytes: int


@contextlib.contextmanager
def loaded(path: Path, program: Sequence[Classic]) -> Iterator[BpfObject]:
    with BpfObject.open(path, {FUNCTION: functools.partial(translate, program)}) as bpf:
        bpf.set_const("cfg_pcap", 1)
        bpf.load()
        yield bpf


def judged_in_kernel(bpf: BpfObject, packets: Sequence[Packet]) -> list[bool]:
    """Return which packets are wanted, by the loaded test program."""
    assert len(packets) <= PACKETS
    rows = bpf.maps["packets"].array()
    for row, packet in zip(rows, packets, strict=False):
        row["readable_bytes"], row["len_bytes"], row["wanted"] = len(packet.readable), packet.len_bytes, 99
        # What is behind must not decide.
        row["bytes"][:] = 0xA5
        row["bytes"][: len(packet.readable)] = np.frombuffer(packet.readable, np.uint8)
    bpf.data(".bss")["used"] = len(packets)
    options = RunOptions(sz=ctypes.sizeof(RunOptions))
    run = ctypes.CDLL("libbpf.so.1", use_errno=True).bpf_prog_test_run_opts
    assert run(bpf.programs["judge_all"].fd, ctypes.byref(options)) == 0
    said = rows["wanted"][: len(packets)]
    assert 99 not in said.tolist()
    return [bool(each) for each in said]


def judged_by_libpcap(program: Sequence[Classic], packets: Sequence[Packet]) -> list[bool]:
    raw = b"".join(struct.pack("=HBBI", *each) for each in program)
    assert library().bpf_validate(raw, len(program)), "libpcap would not run it"
    return [
        bool(library().bpf_filter(raw, each.readable, each.len_bytes, len(each.readable)) & 0xFFFFFFFF)
        for each in packets
    ]
