# SPDX-License-Identifier: Apache-2.0
"""What the tests of the CPU accounting share: rows of a process or a device, and a burden that is known."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import build_bpf
from hopscope.kernel import netns
from hopscope.lab._libc import Iovec, Mmsghdr
from hopscope.libbpf import BpfObject
from hopscope.model.cpu import NO_PART, PARTS, Part, added
from hopscope.probes.attach import attach
from hopscope.verbs.cpu.collector import CpuCollector
from hopscope.verbs.cpu.options import CpuOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.lab import Namespace
    from hopscope.model.cpu import CpuSnapshot

BURN = Path(__file__).parent / "bpf" / "burn.bpf.c"
NOBODY = dict.fromkeys(PARTS, NO_PART)
# include/uapi/linux/bpf.h: enum bpf_attach_type
BPF_XDP = 37
BPF_TCX_INGRESS = 46
BPF_TCX_EGRESS = 47


def run(group_by: str = "process", **options: Any) -> CpuCollector:  # noqa: ANN401 - whatever CpuOptions takes
    return CpuCollector(CpuOptions(group_by=group_by, **options))


def of_process(snapshot: CpuSnapshot, pid: int = 0) -> dict[str, Part]:
    """Return what a process took, by default this one."""
    return _row(snapshot, rf".* \({pid or os.getpid()}\)")


def of_device(snapshot: CpuSnapshot, ifname: str, namespace: Namespace) -> dict[str, Part]:
    """Return what the polls of a device took."""
    return of_group(snapshot, f"{ifname}@{netns.namespaces()[namespace.inode].name}")


def of_group(snapshot: CpuSnapshot, name: str) -> dict[str, Part]:
    """Return what a group took, by its whole name."""
    return _row(snapshot, re.escape(name))


def _row(snapshot: CpuSnapshot, pattern: str) -> dict[str, Part]:
    rows = [row for row in snapshot.rows if re.fullmatch(pattern, next(iter(row.group.values())))]
    assert len(rows) <= 1, rows
    return rows[0].parts if rows else NOBODY


def calls(parts: dict[str, Part], *names: str) -> list[tuple[int, int]]:
    """Return runs and bytes of these parts."""
    return [(parts[name].runs, parts[name].len_bytes) for name in names]


def assert_sane(snapshot: CpuSnapshot) -> None:
    """Nothing is negative, no more time is charged than there was, and the rows are the total."""
    assert added(snapshot.rows) == snapshot.total.parts
    for row in snapshot.rows:
        for part in row.parts.values():
            assert min(part.ns, part.runs, part.packets, part.len_bytes) >= 0, row
    # A CPU's account may be closed 4 ms (a tick) after the interval has begun or ended.
    assert snapshot.total.ns <= (snapshot.duration_s + 0.01) * 1e9 * snapshot.cpus


def script(namespace: Namespace | None, text: str, *arguments: object) -> subprocess.Popen[str]:
    """Start a Python program of our own that talks by lines; in no namespace but our own where there is None."""
    start = subprocess.Popen if namespace is None else namespace.popen
    argv = [sys.executable, "-c", text, *map(str, arguments)]
    child: subprocess.Popen[str] = start(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    return child


def line(child: subprocess.Popen[str]) -> str:
    """Return the next line that a program says."""
    assert child.stdout is not None
    said = child.stdout.readline().strip()
    assert said, "it ended"
    return said


def tell(child: subprocess.Popen[str], words: str) -> None:
    """Say a line to a program."""
    assert child.stdin is not None
    child.stdin.write(words + "\n")
    child.stdin.flush()


def batch(len_bytes: int, messages: int) -> ctypes.Array[Mmsghdr]:
    """Return headers of messages that share a buffer."""
    buffer = ctypes.create_string_buffer(len_bytes)
    headers = (Mmsghdr * messages)()
    for header in headers:
        header.hdr.iov = ctypes.pointer(Iovec(ctypes.addressof(buffer), len_bytes))
        header.hdr.iovlen = 1
    headers.buffer = buffer
    return headers


@contextlib.contextmanager
def on_cpu(cpu: int) -> Iterator[None]:
    """Keep this thread on a CPU."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


@contextlib.contextmanager
def before_others() -> Iterator[None]:
    """Have this thread run before all that are in no hurry: ticks tell little of who is often displaced."""
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(2))
    try:
        yield
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


class Burner:
    """A BPF program that takes a known time for each packet that comes to an interface.

    Parameters
    ----------
    folder
        For the compiled object.
    program
        ``burn_xdp``, ``burn_tc`` or ``burn_connect``.
    outgoing
        Whether ``burn_tc`` burns what is sent.
    """

    def __init__(self, folder: Path, program: str, *, outgoing: bool = False) -> None:
        target = folder / "burn.bpf.o"
        build_bpf.compile_object(BURN, target, build_bpf.host_arch())
        self.bpf = BpfObject.open(target)
        self.bpf.load()
        self._program = self.bpf.programs[program]
        self._hook = BPF_XDP if program == "burn_xdp" else BPF_TCX_EGRESS if outgoing else BPF_TCX_INGRESS
        self._data = self.bpf.data(".bss")

    @contextlib.contextmanager
    def on(self, namespace: Namespace, ifname: str) -> Iterator[None]:
        """Attach it, burning nothing at first."""
        library = ctypes.CDLL("libbpf.so.1", use_errno=True)

        def attach() -> int:
            fd = int(library.bpf_link_create(self._program.fd, socket.if_nametoindex(ifname), self._hook, None))
            assert fd >= 0, os.strerror(-fd)
            return fd

        link = namespace.call(attach)
        try:
            yield
        finally:
            os.close(link)

    @contextlib.contextmanager
    def in_connect(self) -> Iterator[None]:
        """Attach ``burn_connect`` to the calls of all processes."""
        (link,) = attach(self._program, "sockops")  # as all programs of cgroups
        with link:
            yield

    def each(self, burn_ns: int, *, least_bytes: int = 0) -> None:
        """Burn so much from now on, for packets of a length, and count anew."""
        self._data["least_bytes"] = least_bytes
        self._data["packets"] = self._data["burned_ns"] = 0
        self._data["softirq_ns"] = self._data["burned_softirq_ns"] = 0
        self._data["burn_ns"] = burn_ns

    @contextlib.contextmanager
    def softirqs(self) -> Iterator[None]:
        """Measure all softirqs, of whomever."""
        with self.bpf.programs["softirq_ends"].attach(), self.bpf.programs["softirq_begins"].attach():
            yield

    def softirq_ns(self, vector: int) -> tuple[int, int]:
        """How long a softirq ran, on all CPUs, and what of it was burned."""
        return int(self._data["softirq_ns"][vector]), int(self._data["burned_softirq_ns"][vector])

    @property
    def packets(self) -> int:
        """How many came."""
        return int(self._data["packets"])

    @property
    def burned_ns(self) -> int:
        """What it took, by its own clock."""
        return int(self._data["burned_ns"])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.bpf.close()


def spin(seconds: float) -> None:
    """Take CPU time in user space."""
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass
