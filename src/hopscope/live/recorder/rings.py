# SPDX-License-Identifier: Apache-2.0
"""The recorder's rings for records: those of each class of events (``record --class``), and those of all else."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hopscope.bpf.layout import HOP_PACKET_DTYPE
from hopscope.errors import FormatError
from hopscope.libbpf import RingReader, possible_cpus
from hopscope.live.recorder.tables import events_in, since
from hopscope.store.unrecorded import CLASSES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from hopscope.libbpf import BpfObject
    from hopscope.live.recorder.options import EventClass

Array = np.ndarray[Any, np.dtype[Any]]

_MAP: Final = "rings"


def configure_rings(bpf: BpfObject, classes: Sequence[EventClass]) -> None:
    """Say how many rings there are, before the programs are loaded."""
    bpf.set_const("cfg_classes", len(classes))
    bpf.maps[_MAP].set_max_entries(possible_cpus() * (1 + len(classes)))


class Rings:
    """Makes the rings of each CPU, reads them, and counts what they lose.

    Parameters
    ----------
    bpf
        The loaded recorder.
    ring_bytes
        Of each CPU's ring for the events of no class.
    classes
        Each has a ring of its own on each CPU.

    Attributes
    ----------
    lost : int
        Records that :meth:`counts` gave.
    """

    def __init__(self, bpf: BpfObject, ring_bytes: int, classes: Sequence[EventClass]) -> None:
        counters = bpf.data(".bss.counts")["record_counters"]
        self._classes = classes
        self._main_lost, self._class_lost = counters["lost"], counters["class_lost"][:, : len(classes)]
        self._skipped = np.zeros(len(self._main_lost), np.uint64)
        self._events = np.zeros(len(classes), np.int64)
        self._readers: list[RingReader] = []
        try:
            for place, size in enumerate((ring_bytes, *(each.ring_bytes for each in classes))):
                self._readers.append(
                    RingReader.per_cpu(bpf.maps[_MAP], HOP_PACKET_DTYPE, size, first=place, stride=1 + len(classes))
                )
        except BaseException:
            self.close()
            raise
        self.lost = 0
        self.start()

    def start(self) -> int:
        """Begin: what was seen before is not kept, and what was lost of it is no loss. Returns the time."""
        self._started_ns = self._read_ns = time.monotonic_ns()
        self._is_first_take = True
        self._lost, self._of_classes = self._lost_now(), self._class_lost.sum(axis=0)
        return self._started_ns

    def take(self) -> list[tuple[int, Array]]:
        """Return CPU and records of each ring that had any.

        A ring that holds bytes that are no record is skipped there and counted as lost.
        """
        taken = []
        for place, reader in enumerate(self._readers):
            for cpu in reader.cpus:
                found = self._read(reader, cpu)
                if len(found):
                    taken.append((cpu, found))
                    if place:
                        self._events[place - 1] += events_in(found)
        self._is_first_take = False
        return taken

    def counts(self) -> Iterator[tuple[str, dict[str, Array]]]:
        """Yield the rows of the tables `losses` and `classes` since the last call."""
        now_ns, lost, of_classes = time.monotonic_ns(), self._lost_now(), self._class_lost.sum(axis=0)
        more = lost - self._lost
        cpus = np.flatnonzero(more)
        if len(cpus):
            self.lost += int(more.sum())
            period = self._period(len(cpus), now_ns)
            yield "losses", {**period, "cpu": cpus.astype(np.int16), "lost": more[cpus].astype(np.int64)}
        yield from self._class_counts(of_classes - self._of_classes, now_ns)
        self._lost, self._of_classes, self._read_ns = lost, of_classes, now_ns

    def lost_by_now(self) -> int:
        """Return :attr:`lost` and what has been lost since; from any thread."""
        return self.lost + int((self._lost_now() - self._lost).sum())

    def fullness(self) -> float:
        """Return how full the fullest ring is, 0 to 1: a look at it is not worth mentioning."""
        return max(reader.fullness() for reader in self._readers)

    def close(self) -> None:
        """Unmap the rings; again is allowed."""
        for reader in self._readers:
            reader.close()

    def _read(self, reader: RingReader, cpu: int) -> Array:
        skipped = reader.skipped_records
        try:
            found = reader.read_cpu(cpu)
        except FormatError:
            self._skipped[cpu] += reader.skipped_records - skipped
            return np.empty(0, HOP_PACKET_DTYPE)
        return since(found, self._started_ns) if self._is_first_take else found

    def _class_counts(self, lost: NDArray[np.uint64], now_ns: int) -> Iterator[tuple[str, dict[str, Array]]]:
        some = np.flatnonzero(self._events + lost.astype(np.int64))
        if len(some):
            names = np.array([self._classes[int(at)].name for at in some], object)
            counts = {"class": names, "events": self._events[some], "lost": lost[some].astype(np.int64)}
            yield CLASSES.name, self._period(len(some), now_ns) | counts
            self._events[:] = 0

    def _period(self, rows: int, now_ns: int) -> dict[str, Array]:
        return {"from_ns": np.full(rows, self._read_ns, np.int64), "until_ns": np.full(rows, now_ns, np.int64)}

    def _lost_now(self) -> NDArray[np.uint64]:
        """Return what each CPU has lost since the programs were loaded, shape (CPUs,)."""
        return np.asarray(self._main_lost + self._class_lost.sum(axis=1) + self._skipped)
