# SPDX-License-Identifier: Apache-2.0
"""Rings of perf events, read in bulk: no Python code runs per record.

The kernel maps a ring as a page of its own (``struct perf_event_mmap_page``) and the data. It writes whole records at
``data_head``, the reader frees them by ``data_tail``; both count bytes and never go back. Records are of different
events and sizes; each is a multiple of eight bytes long and starts with its type and size. See perf_event_open(2).

As with :mod:`hopscope.libbpf.ring`, the reader needs a CPU that keeps loads in order.
"""

from __future__ import annotations

import mmap
import platform
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from hopscope.errors import FormatError, UsageError
from hopscope.libbpf._failure import load_error
from hopscope.libbpf.ring import require_ordered_loads

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from hopscope.libbpf.perf_event import RecordedEvent

Words = np.ndarray[Any, np.dtype[np.uint64]]

# include/uapi/linux/perf_event.h
LOST: Final = 2
SAMPLE: Final = 9
_HEAD_AT: Final = 1024
_TAIL_AT: Final = 1032
# What a sample has before the event's own bytes: header, identifier, pid, tid, time, CPU, weight, size of those bytes.
SAMPLE_HEAD: Final = np.dtype(
    {
        "names": ["pid", "tid", "time_ns", "cpu"],
        "formats": [np.int32, np.int32, np.int64, np.int32],
        "offsets": [16, 20, 24, 32],
        "itemsize": 52,
    }
)
# With a stack, from that size on instead: how many numbers follow; a mark (enum perf_callchain_context), the addresses.
STACK_AT: Final = 48
_TIME_WORD: Final = 3
_WEIGHT_WORD: Final = 5
# A header's upper 16 bits are the size in bytes: this makes it one in words.
_SIZE_SHIFT: Final = np.uint64(51)
# A record that says how many were lost ends with the same, of the event whose record came after the gap.
_LOST: Final = np.dtype(
    {"names": ["lost", "time_ns"], "formats": [np.int64, np.int64], "offsets": [16, 32], "itemsize": 56}
)


class Batch(NamedTuple):
    """What was in a ring.

    Attributes
    ----------
    words : ndarray of uint64
        The records, one after the other.
    starts, ids : ndarray of int64, uint64, shape (n,)
        Of each sample: the index of its first word, and the identifier of its event.
    weight : int
        What the samples count together: one each, but for events that count something else (sched_stat_runtime: ns).
    lost, from_ns, until_ns : ndarray of int64, shape (m,)
        Of each gap: how many records are missing, and CLOCK_MONOTONIC of those before and after.
    """

    words: Words
    starts: NDArray[np.int64]
    ids: NDArray[np.uint64]
    weight: int
    lost: NDArray[np.int64]
    from_ns: NDArray[np.int64]
    until_ns: NDArray[np.int64]


class PerfRing:
    """The ring that events on one CPU share.

    Parameters
    ----------
    events
        They must stay open; at least one.
    size
        In bytes: a power of two, a multiple of the page.

    Attributes
    ----------
    cpu : int
        Where.
    last_ns : int
        CLOCK_MONOTONIC of the last record that was taken; before, of the start.

    Raises
    ------
    KernelError
        This machine's CPU may reorder loads, or the kernel does not map a ring (LoadError).
    UsageError
        `size` is no ring's.
    """

    def __init__(self, events: Sequence[RecordedEvent], size: int) -> None:
        require_ordered_loads(platform.machine())
        if size < mmap.PAGESIZE or size & (size - 1):
            raise UsageError(
                f"a ring cannot have {size} bytes", f"Use a power of two from {mmap.PAGESIZE}, the size of a page"
            )
        owner = events[0]
        try:
            memory = mmap.mmap(owner.fd, mmap.PAGESIZE + size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        except OSError as error:
            raise load_error(f"a ring of {size} bytes for perf events cannot be mapped", error.errno or 0) from error
        for each in events[1:]:
            each.share_ring(owner)
        self.cpu = owner.cpu
        self.last_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        self._ids = range(min(each.id for each in events), max(each.id for each in events) + 1)
        self._head = np.frombuffer(memory, np.uint64, 1, _HEAD_AT)
        self._tail = np.frombuffer(memory, np.uint64, 1, _TAIL_AT)
        self._data = np.frombuffer(memory, np.uint64, offset=mmap.PAGESIZE)

    def read(self) -> Batch:
        """Take everything that is in the ring.

        Raises
        ------
        FormatError
            The records do not follow one another. What was in the ring is given up.
        """
        head, tail = int(self._head[0]), int(self._tail[0])
        start, count = tail // 8 % len(self._data), (head - tail) // 8
        until = min(start + count, len(self._data))
        words = np.concatenate([self._data[start:until], self._data[: count - (until - start)]])
        self._tail[0] = head
        return self._sorted(words)

    def close(self) -> None:
        """Unmap it, without which the first event stays open; again is allowed."""
        self._head = self._tail = self._data = np.empty(0, np.uint64)

    def _sorted(self, words: Words) -> Batch:
        starts = record_starts(words, self._ids)
        types = words.view(np.uint32)[starts * 2]
        samples, gaps = starts[types == SAMPLE], starts[types == LOST]
        times_ns = np.concatenate([[self.last_ns], words[samples + _TIME_WORD].astype(np.int64)])
        self.last_ns = int(times_ns[-1])
        losses = taken(words, gaps * 8, _LOST.itemsize).view(_LOST)
        before_ns = times_ns[np.searchsorted(samples, gaps)]
        return Batch(
            words,
            samples,
            words[samples + 1],
            int(words[samples + _WEIGHT_WORD].sum()),
            losses["lost"].copy(),
            before_ns,
            losses["time_ns"].copy(),
        )


def record_starts(words: Words, ids: range) -> NDArray[np.int64]:
    """Find where the records start.

    If all have the header of the first one, they lie at equal distances. Else, a word may be the header of a sample or
    of a loss if it says so and an identifier follows; if each of these records ends where the next one starts, they are
    all there are. If not, the sizes are followed one by one, which is slow.

    Parameters
    ----------
    words : ndarray of uint64, shape (n,)
        Whole records.
    ids
        The identifiers that may occur.

    Raises
    ------
    FormatError
        They are not.
    """
    size = int(words[0] >> _SIZE_SHIFT) if len(words) else 0
    if size and len(words) % size == 0 and bool((words[::size] == words[0]).all()):
        return np.arange(0, len(words), size)
    types = words.view(np.uint32)[::2]
    # The last word is no header.
    found = np.flatnonzero((types[:-1] == SAMPLE) | (types[:-1] == LOST))
    following = words[found + 1]
    found = found[(following >= ids.start) & (following < ids.stop)]
    ends = found + (words[found] >> _SIZE_SHIFT).astype(np.int64)
    if len(found) and found[0] == 0 and ends[-1] == len(words) and bool((ends[:-1] == found[1:]).all()):
        return found
    return _followed(words)


def _followed(words: Words) -> NDArray[np.int64]:
    sizes = (words >> _SIZE_SHIFT).tolist()
    starts, at = [], 0
    while at < len(sizes):
        starts.append(at)
        at += sizes[at]
        if at == starts[-1]:
            break
    if at != len(sizes):
        raise FormatError(f"a ring of perf events has no record at byte {8 * starts[-1]} of {8 * len(sizes)}")
    return np.array(starts, np.int64)


def taken(words: Words, positions: NDArray[np.int64], size: int) -> NDArray[np.void]:
    """Return `size` bytes from each position in bytes, as one opaque item each.

    Raises
    ------
    IndexError
        A position is too near to the end.
    """
    if not len(positions) or not size:
        return np.empty(len(positions), f"V{size}")
    # All windows of that size, of which the index copies some.
    windows = np.ndarray((max(words.nbytes - size + 1, 0),), f"V{size}", words.data, strides=(1,))
    return windows[positions]
