# SPDX-License-Identifier: Apache-2.0
"""Programs: what may be set before they are loaded, and the ways to attach them after."""

from __future__ import annotations

import ctypes
import functools
import os
import platform
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from hopscope.errors import KernelError
from hopscope.libbpf._abi import (
    BPF_LINK_CREATE,
    BPF_NETFILTER,
    BpfLinkCreateNetfilter,
    BpfProgInfo,
    decoded,
    libc,
)
from hopscope.libbpf._failure import load_error
from hopscope.libbpf._library import lib
from hopscope.libbpf._log import captured
from hopscope.libbpf._numbers import numbers
from hopscope.libbpf.links import Link
from hopscope.libbpf.perf_event import open_clock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from hopscope.libbpf._handle import ObjectHandle

# asm/unistd_64.h, asm-generic/unistd.h
_NR_BPF: Final = {"x86_64": 321, "aarch64": 280}
_COUNTERS: Final = ("run_cnt", "run_time_ns", "recursion_misses")
_INFO_DTYPE: Final = np.dtype(
    {
        "names": _COUNTERS,
        "formats": [np.uint64] * len(_COUNTERS),
        "offsets": [getattr(BpfProgInfo, name).offset for name in _COUNTERS],
        "itemsize": ctypes.sizeof(BpfProgInfo),
    }
)
_SIZE: Final = ctypes.POINTER(ctypes.c_uint32)
_FIRST_WITH_MISSES: Final = BpfProgInfo.recursion_misses.offset + BpfProgInfo.recursion_misses.size


@dataclass(frozen=True, slots=True)
class ProgramInfo:
    """What the kernel counts of a loaded program.

    Attributes
    ----------
    id
        The kernel's number, as ``bpftool prog`` shows it.
    run_time_ns, run_count
        All runs on all CPUs while :func:`~hopscope.libbpf.stats.enable_stats` was on, by anybody; 0 without.
    recursion_misses
        Runs that the kernel left out because the program was running already on that CPU.
    misses_counted
        False on kernels before 5.12, which do not count them.
    """

    id: int
    run_time_ns: int
    run_count: int
    recursion_misses: int
    misses_counted: bool


class Program:
    """One program of an object; made by :class:`~hopscope.libbpf.object.BpfObject`.

    Attributes
    ----------
    name
        The C function's name.
    section
        The ELF section, which says what libbpf attaches it to.
    """

    def __init__(self, handle: ObjectHandle, pointer: int) -> None:
        self._handle = handle
        self._pointer = pointer
        self.name = decoded(lib().bpf_program__name(pointer))
        self.section = decoded(lib().bpf_program__section_name(pointer))

    @property
    def fd(self) -> int:
        """The file descriptor of the loaded program.

        Raises
        ------
        RuntimeError
            It is not loaded, or was left out by :attr:`autoload`.
        """
        self._handle.check(loaded=True)
        fd = int(lib().bpf_program__fd(self._pointer))
        if fd < 0:
            raise RuntimeError(f"program {self.name} is not loaded")
        return fd

    @property
    def autoload(self) -> bool:
        """Whether it is loaded with its object; may be set before that."""
        self._handle.check()
        return bool(lib().bpf_program__autoload(self._pointer))

    @autoload.setter
    def autoload(self, wanted: bool) -> None:
        self._handle.check(loaded=False)
        lib().bpf_program__set_autoload(self._pointer, wanted)

    def set_type(self, prog_type: int, expected_attach_type: int) -> None:
        """Set ``enum bpf_prog_type`` and ``enum bpf_attach_type`` where libbpf does not know the section's name."""
        self._handle.check(loaded=False)
        lib().bpf_program__set_type(self._pointer, prog_type)
        lib().bpf_program__set_expected_attach_type(self._pointer, expected_attach_type)

    def attach(self) -> Link:
        """Attach as the section's name says (``tp_btf``, ``fentry``, ``fexit``, ``kprobe``, ``tp``).

        Raises
        ------
        LoadError
            The kernel refuses.
        """
        return self._attached(lambda: lib().bpf_program__attach(self._pointer))

    def attach_cgroup(self, cgroup_fd: int) -> Link:
        """Attach to a cgroup (version 2), by the file descriptor of its directory.

        Raises
        ------
        LoadError
            The kernel refuses.
        """
        return self._attached(lambda: lib().bpf_program__attach_cgroup(self._pointer, cgroup_fd))

    def attach_clock(self, cpu: int, hz: int) -> Link:
        """Attach a program of type ``perf_event`` to a CPU's clock, so many times a second.

        Raises
        ------
        LoadError
            The kernel refuses.
        """
        return self.attach_event(open_clock(cpu, hz))

    def attach_event(self, event: int) -> Link:
        """Attach to a perf event, by its file descriptor, and enable it; the link owns it from here on.

        A tracepoint's or a function's event on one CPU stands for all CPUs, and has a program of the type
        ``tracepoint`` or ``kprobe``; a filter of the event does not hold for the program.

        Raises
        ------
        LoadError
            The kernel refuses; the event is closed.
        """
        try:
            return self._attached(lambda: lib().bpf_program__attach_perf_event(self._pointer, event))
        except BaseException:
            os.close(event)
            raise

    def attach_netfilter(self, family: int, hook: int, priority: int) -> Link:
        """Attach to netfilter in the network namespace that the calling thread is in.

        Parameters
        ----------
        family
            ``NFPROTO_IPV4`` (2) or ``NFPROTO_IPV6`` (10).
        hook
            ``enum nf_inet_hooks``: ``NF_INET_PRE_ROUTING`` (0), ``NF_INET_LOCAL_IN`` (1), …
        priority
            The place among the hook's functions; two programs cannot share one.

        Raises
        ------
        LoadError
            The kernel refuses; before 6.4, it always does.
        """
        attr = BpfLinkCreateNetfilter(
            prog_fd=self.fd, attach_type=BPF_NETFILTER, pf=family, hooknum=hook, priority=priority
        )
        size = ctypes.sizeof(attr)
        fd = int(libc().syscall(_nr_bpf(), BPF_LINK_CREATE, ctypes.byref(attr), ctypes.c_long(size)))
        if fd < 0:
            raise load_error(f"{self.name} cannot be attached", ctypes.get_errno(), program=self.name)
        return self._kept(Link(fd, functools.partial(os.close, fd)))

    def iterate(self) -> bytes:
        """Run an iterator over everything it walks in this thread's network namespace, and return what it wrote.

        Raises
        ------
        LoadError
            The kernel refuses, or the program's run ended with an error.
        """
        link = self.attach()
        try:
            fd = int(lib().bpf_iter_create(link.fd))
            if fd < 0:
                raise load_error(f"{self.name} cannot be run", fd, program=self.name)
            with os.fdopen(fd, "rb") as walk:
                return walk.read()
        except OSError as error:
            raise load_error(f"{self.name} cannot be run", error.errno or 0, program=self.name) from error
        finally:
            link.close()
            self._handle.links.remove(link)

    def info(self) -> ProgramInfo:
        """Return what the kernel counts of it.

        Raises
        ------
        LoadError
            The kernel does not tell.
        """
        info = BpfProgInfo()
        size = ctypes.c_uint32(ctypes.sizeof(info))
        failed = lib().bpf_obj_get_info_by_fd(self.fd, ctypes.byref(info), ctypes.byref(size))
        if failed:
            raise load_error(f"{self.name} cannot be asked about", failed, program=self.name)
        return ProgramInfo(
            id=info.id,
            run_time_ns=info.run_time_ns,
            run_count=info.run_cnt,
            recursion_misses=info.recursion_misses,
            misses_counted=size.value >= _FIRST_WITH_MISSES,
        )

    def _attached(self, attach: Callable[[], int | None]) -> Link:
        self._handle.check(loaded=True)
        with captured() as log:
            pointer = attach()
        if not pointer:
            raise load_error(f"{self.name} cannot be attached", ctypes.get_errno(), program=self.name, log=log.text)
        library = lib()
        return self._kept(Link(library.bpf_link__fd(pointer), functools.partial(library.bpf_link__destroy, pointer)))

    def _kept(self, link: Link) -> Link:
        # Those that were closed are not kept: programs may be attached and detached for as long as the object lives.
        self._handle.links[:] = [each for each in self._handle.links if each.fd >= 0]
        self._handle.links.append(link)
        return link


class RunCounters:
    """Reads what the kernel counts of several programs, again and again, into the same memory.

    Parameters
    ----------
    programs
        Loaded programs, which are closed together.
    """

    def __init__(self, programs: Iterable[Program]) -> None:
        self._programs = list(programs)
        self._fds = [program.fd for program in self._programs]
        self._bytes = np.zeros((len(self._programs), ctypes.sizeof(BpfProgInfo)), np.uint8)
        self._sizes = np.zeros(len(self._programs), np.uint32)
        self._where = [
            (self._bytes[number].ctypes.data, ctypes.cast(self._sizes[number:].ctypes.data, _SIZE))
            for number in range(len(self._programs))
        ]

    def read(self) -> NDArray[np.int64]:
        """Return runs, their time in ns, and runs that the kernel left out, of each program: shape (3, n).

        They are what :class:`ProgramInfo` has.

        Raises
        ------
        LoadError
            The kernel does not tell.
        """
        if self._programs:
            self._programs[0].fd  # noqa: B018 # where the object is closed, the numbers may be those of other files
        # The kernel takes lengths of arrays from it that it wrote there itself.
        self._bytes[:] = 0
        self._sizes[:] = self._bytes.shape[1]
        ask = lib().bpf_obj_get_info_by_fd
        for number, fd in enumerate(self._fds):
            if failed := ask(fd, *self._where[number]):
                name = self._programs[number].name
                raise load_error(f"{name} cannot be asked about", failed, program=name)
        infos = self._bytes.view(_INFO_DTYPE)[:, 0]
        return np.array([infos[name] for name in _COUNTERS], np.int64)


def program_ids() -> tuple[int, ...] | None:
    """Return the numbers of all programs that this kernel holds, in order; None where it does not tell.

    It tells who has CAP_SYS_ADMIN. A number is not given again before two thousand million others.
    """
    return numbers(lib().bpf_prog_get_next_id)


def function_lengths(ids: Iterable[int]) -> dict[int, int]:
    """Return the address and the length in bytes of every function of these programs; of those that are gone, nothing.

    It takes CAP_SYS_ADMIN.
    """
    lengths: dict[int, int] = {}
    for number in ids:
        fd = int(lib().bpf_prog_get_fd_by_id(number))
        if fd >= 0:
            try:
                lengths |= _function_lengths(fd)
            finally:
                os.close(fd)
    return lengths


def _function_lengths(fd: int) -> dict[int, int]:
    counts, size = BpfProgInfo(), ctypes.c_uint32(ctypes.sizeof(BpfProgInfo))
    if lib().bpf_obj_get_info_by_fd(fd, ctypes.byref(counts), ctypes.byref(size)):
        return {}
    addresses = (ctypes.c_uint64 * counts.nr_jited_ksyms)()
    lengths = (ctypes.c_uint32 * counts.nr_jited_func_lens)()
    wanted = BpfProgInfo(
        nr_jited_ksyms=len(addresses),
        jited_ksyms=ctypes.addressof(addresses),
        nr_jited_func_lens=len(lengths),
        jited_func_lens=ctypes.addressof(lengths),
    )
    size.value = ctypes.sizeof(BpfProgInfo)
    if lib().bpf_obj_get_info_by_fd(fd, ctypes.byref(wanted), ctypes.byref(size)):
        return {}
    return dict(zip(addresses, lengths, strict=False))


def _nr_bpf() -> int:
    machine = platform.machine()
    if machine not in _NR_BPF:
        raise KernelError(f"bpf(2) has no known number on {machine}", "Use an x86-64 or arm64 machine")
    return _NR_BPF[machine]
