# SPDX-License-Identifier: Apache-2.0
"""Ring buffers, read in bulk: no Python code runs per record.

The kernel maps a ring for its reader as three parts: a page with the consumer's position, which the reader writes; a
page with the producer's; and the data, twice in a row, so that what wraps around is contiguous. Both positions count
bytes and never go back. Each record starts with eight bytes, of which the first four are its length, a busy bit (31)
that the kernel clears when the program submits it, and a discard bit (30). See Documentation/bpf/ringbuf.rst.

As all records of a reader have one size, their headers lie at equal distances: one vectorised look at them finds how
many are committed, one copy takes those, one store of the consumer's position gives the room back.

The reader takes turns with writers on other CPUs. It loads a header, then the record's bytes, then stores its position;
the kernel stores the bytes, then clears the busy bit. NumPy has no acquire loads, so this is right only where the CPU
keeps loads in order by itself: on x86-64 it does, on arm64 it does not, and there :class:`RingReader` refuses to be
made.
"""

from __future__ import annotations

import mmap
import os
import platform
import struct
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import numpy as np

from hopscope.errors import FormatError, KernelError, UsageError
from hopscope.libbpf._abi import BPF_MAP_TYPE_RINGBUF
from hopscope.libbpf._failure import load_error
from hopscope.libbpf._library import lib
from hopscope.libbpf._log import captured

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from numpy.typing import NDArray

    from hopscope.libbpf.maps import Map

HEADER_BYTES: Final = 8
BUSY: Final = 1 << 31
DISCARD: Final = 1 << 30
_FLAGS: Final = np.uint32(BUSY | DISCARD)
_ONLINE: Final = Path("/sys/devices/system/cpu/online")
# Where every load is seen in program order (total store order).
_ORDERED_LOADS: Final = {"x86_64"}


class Prefix(NamedTuple):
    """What can be taken from the start of a ring.

    Attributes
    ----------
    committed
        Records before the first one that is still being written, or that has a foreign length.
    discarded
        Which of them the program gave up, shape (committed,); None where it gave up none.
    foreign
        The record after them is complete and has a foreign length.
    """

    committed: int
    discarded: NDArray[np.bool_] | None
    foreign: bool


def committed_prefix(heads: NDArray[np.uint32], length: int) -> Prefix:
    """Find the records that can be taken.

    Parameters
    ----------
    heads : ndarray of uint32, shape (n,)
        The first word of each record that the producer has reserved, if all are of `length`. It is looked at several
        times and must not change meanwhile: a copy, not the ring itself.
    length
        The length in bytes that each record has, without its header.
    """
    if bool((heads == length).all()):
        return Prefix(len(heads), None, foreign=False)
    busy = heads >= BUSY
    # What follows a record of foreign length is found at the wrong place and says nothing.
    stops = busy | ((heads & ~_FLAGS) != length)
    count = int(stops.argmax()) if bool(stops.any()) else len(heads)
    discarded = (heads[:count] & DISCARD) != 0
    return Prefix(
        count,
        discarded if bool(discarded.any()) else None,
        foreign=count < len(heads) and not bool(busy[count]),
    )


class _Ring:
    """One ring's memory.

    Parameters
    ----------
    consumer, producer : ndarray of uint64, shape (1,)
        The positions.
    data : ndarray of uint8, shape (2 * size,)
        The ring, twice.
    length
        Of a record in bytes, without its header.
    """

    def __init__(
        self, consumer: NDArray[np.uint64], producer: NDArray[np.uint64], data: NDArray[np.uint8], length: int
    ) -> None:
        self._consumer = consumer
        self._producer = producer
        self._data = data
        self._size = len(data) // 2
        self._length = length
        self._slot = _slot(length)
        self._record = np.dtype(f"V{length}")

    def look(self) -> Prefix:
        """Find what can be taken now."""
        position = int(self._consumer[0])
        available = int(self._producer[0]) - position
        if not 0 <= available <= self._size:
            return Prefix(0, None, foreign=True)
        # Rounded up: a record that is shorter than ours must be seen, too.
        count = -(-available // self._slot)
        heads = np.ndarray((count,), np.uint32, self._data, position % self._size, (self._slot,)).copy()
        prefix = committed_prefix(heads, self._length)
        if prefix.committed * self._slot > available:
            return committed_prefix(heads[:-1], self._length)._replace(foreign=True)
        return prefix

    def fullness(self) -> float:
        """Return how much of it is taken up: 0 to 1."""
        return (int(self._producer[0]) - int(self._consumer[0])) / self._size

    def take(self, prefix: Prefix, out: NDArray[np.void]) -> None:
        """Copy what `prefix` has, without what was discarded, and give the room back to the kernel."""
        position = int(self._consumer[0])
        start = position % self._size + HEADER_BYTES
        records = np.ndarray((prefix.committed,), self._record, self._data, start, (self._slot,))
        # As one opaque item each: NumPy would copy a structured array field by field, seven times slower.
        out[:] = records if prefix.discarded is None else records[~prefix.discarded]
        self._consumer[0] = position + prefix.committed * self._slot

    def skip(self) -> tuple[int, int, int]:
        """Step over a record of foreign length, or over everything if its length cannot be true.

        Returns
        -------
        position, length, skipped : int
            Where it was, what it said, and how many bytes were stepped over.
        """
        position, produced = int(self._consumer[0]), int(self._producer[0])
        head = int(np.ndarray((1,), np.uint32, self._data, position % self._size)[0])
        length = head & ~(BUSY | DISCARD)
        following = position + _slot(length)
        if following > produced or produced - position > self._size:
            following = produced
        self._consumer[0] = following
        return position, length, following - position


class RingReader:
    """The reader of one or more rings whose records all have one size.

    Parameters
    ----------
    fds
        The rings' file descriptors; they may be closed afterwards.
    dtype
        Of a record, as the program reserves it.
    size
        Of each ring in bytes: a power of two, a multiple of the page.
    cpus
        Which CPU each ring belongs to; by default, counted from 0.

    Attributes
    ----------
    received, discarded : int
        Records handed out, and records that the program gave up after it had reserved them.
    skipped_bytes, skipped_records : int
        Bytes that were skipped because they are not hopscope's records, and how many records would fit into them.

    Raises
    ------
    UsageError
        `size` is no ring's.
    KernelError
        This machine's CPU may reorder loads, or the kernel does not map a ring (LoadError).
    """

    def __init__(self, fds: Sequence[int], dtype: np.dtype[Any], size: int, cpus: Sequence[int] | None = None) -> None:
        require_ordered_loads(platform.machine())
        _require_size(size)
        self.dtype = dtype
        self.cpus = tuple(range(len(fds)) if cpus is None else cpus)
        self.received = 0
        self.discarded = 0
        self.skipped_bytes = 0
        self.skipped_records = 0
        self._rings = dict(zip(self.cpus, (_mapped(fd, size, dtype.itemsize) for fd in fds), strict=True))

    @classmethod
    def per_cpu(cls, rings: Map, dtype: np.dtype[Any], size: int, *, first: int = 0, stride: int = 1) -> Self:
        """Make a ring for every online CPU and put it where that CPU's programs look for it.

        Parameters
        ----------
        rings
            A BPF_MAP_TYPE_ARRAY_OF_MAPS of ring buffers in a loaded object, indexed by CPU. A CPU that comes later
            finds no ring there; its program has to count that as lost.
        dtype, size
            As in the constructor.
        first, stride
            Where there are several rings for each CPU: the place of this one among them, and their number.

        Raises
        ------
        LoadError
            The kernel refuses a ring, or `rings` has fewer entries than there are CPUs.
        """
        require_ordered_loads(platform.machine())
        _require_size(size)
        cpus = online_cpus()
        with ExitStack() as stack:
            fds = []
            for cpu in cpus:
                fds.append(_created(size))
                stack.callback(os.close, fds[-1])
                rings.update(struct.pack("=I", cpu * stride + first), struct.pack("=i", fds[-1]))
            return cls(fds, dtype, size, cpus)

    def read(self) -> NDArray[np.void]:
        """Take everything that is committed now, ring after ring.

        Returns
        -------
        ndarray, shape (n,)
            A copy; of each ring the records in the order in which they were reserved.

        Raises
        ------
        FormatError
            A ring starts with a record of foreign length. It has been stepped over, nothing was taken from any ring:
            the next call goes on behind it.
        """
        return self._read(self.cpus)

    def read_cpu(self, cpu: int) -> NDArray[np.void]:
        """Take what is committed in one CPU's ring, as :meth:`read` does for all."""
        return self._read((cpu,))

    def fullness(self) -> float:
        """Return how full the fullest ring is, 0 to 1, at next to no cost."""
        return max((ring.fullness() for ring in self._rings.values()), default=0.0)

    def close(self) -> None:
        """Unmap the rings; again is allowed. Arrays that were handed out stay valid."""
        self._rings.clear()
        self.cpus = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _read(self, cpus: Sequence[int]) -> NDArray[np.void]:
        prefixes = [(cpu, self._rings[cpu].look()) for cpu in cpus]
        for cpu, prefix in prefixes:
            if prefix.foreign and not prefix.committed:
                self._skip(cpu)
        kept = [prefix.committed - _discarded(prefix) for _, prefix in prefixes]
        out = np.empty(sum(kept), f"V{self.dtype.itemsize}")
        start = 0
        for (cpu, prefix), count in zip(prefixes, kept, strict=True):
            if prefix.committed:
                self._rings[cpu].take(prefix, out[start : start + count])
            start += count
            self.discarded += prefix.committed - count
        self.received += len(out)
        return out.view(self.dtype)

    def _skip(self, cpu: int) -> None:
        position, length, skipped = self._rings[cpu].skip()
        self.skipped_bytes += skipped
        self.skipped_records += -(-skipped // _slot(self.dtype.itemsize))
        raise FormatError(
            f"the ring of CPU {cpu} has a record of {length} bytes at position {position}, "
            f"not of {self.dtype.itemsize}; {skipped} bytes were skipped"
        )


def require_ordered_loads(machine: str) -> None:
    """Refuse a machine on which the reader could see a record before its bytes.

    Raises
    ------
    KernelError
        Always but on x86-64.
    """
    if machine not in _ORDERED_LOADS:
        raise KernelError(
            f"records cannot be read from a ring on {machine}, whose CPUs may reorder loads",
            "Use histograms, which need no ring, or record on an x86-64 machine",
        )


def online_cpus() -> list[int]:
    """Return the numbers of the CPUs that are online."""
    return cpu_list(_ONLINE.read_text())


def cpu_list(text: str) -> list[int]:
    """Parse the kernel's list of CPUs, such as ``0-3,8``."""
    cpus: list[int] = []
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        cpus.extend(range(int(first), int(last or first) + 1))
    return cpus


def _require_size(size: int) -> None:
    if size < mmap.PAGESIZE or size & (size - 1):
        raise UsageError(
            f"a ring cannot have {size} bytes", f"Use a power of two from {mmap.PAGESIZE}, the size of a page"
        )


def _discarded(prefix: Prefix) -> int:
    return 0 if prefix.discarded is None else int(prefix.discarded.sum())


def _slot(length: int) -> int:
    return -(-(length + HEADER_BYTES) // 8) * 8


def _created(size: int) -> int:
    with captured() as log:
        fd = int(lib().bpf_map_create(BPF_MAP_TYPE_RINGBUF, b"hop_ring", 0, 0, size, None))
    if fd < 0:
        raise load_error(f"a ring of {size} bytes cannot be made", fd, log=log.text)
    return fd


def _mapped(fd: int, size: int, length: int) -> _Ring:
    page = mmap.PAGESIZE
    try:
        consumer = mmap.mmap(fd, page, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        rest = mmap.mmap(fd, page + 2 * size, mmap.MAP_SHARED, mmap.PROT_READ, offset=page)
    except OSError as error:
        raise load_error(f"a ring of {size} bytes cannot be mapped", error.errno or 0) from error
    return _Ring(
        np.frombuffer(consumer, np.uint64, 1),
        np.frombuffer(rest, np.uint64, 1),
        np.frombuffer(rest, np.uint8, offset=page),
        length,
    )
