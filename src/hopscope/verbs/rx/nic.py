# SPDX-License-Identifier: Apache-2.0
"""The hop from a NIC's own receive stamp to the driver: which NICs stamp, and how their clocks relate to ours.

A NIC stamps by its own clock. The kernel side converts a stamp by the line that was last drawn through readings of both
clocks; each interval ends with a reading, which tells how far the line was off and draws the next one.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

import numpy as np

from hopscope.bpf.layout import HOP_INTERFACE_DTYPE, HOP_NIC_CLOCK_DTYPE
from hopscope.clock.phc import HardwareClock
from hopscope.clock.relation import Track
from hopscope.errors import HopscopeError, KernelError
from hopscope.kernel import netns
from hopscope.kernel.nic import HWTSTAMP_FILTER, timestamp_info
from hopscope.model.snapshot import PlanRow
from hopscope.timestamping.device import StampConfig, set_stamp_config, stamp_config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

    from hopscope.clock.relation import ClockReading
    from hopscope.libbpf import Map

POINT: Final = "rx.nic"
_NONE: Final = HWTSTAMP_FILTER.index("HWTSTAMP_FILTER_NONE")
_ALL: Final = HWTSTAMP_FILTER.index("HWTSTAMP_FILTER_ALL")
# Between the two readings that the first line is drawn through: the longer, the better it knows the drift.
_BASE_S: Final = 0.1
_FRACTION: Final = 1 << 32  # of struct hop_nic_clock.drift


@dataclass(frozen=True, slots=True)
class Nic:
    """An interface with a hardware clock.

    Attributes
    ----------
    name
        In its namespace.
    ifindex, namespace
        Its identity.
    phc
        N of its clock ``/dev/ptpN``.
    config
        What its hardware stamps now.
    """

    name: str
    ifindex: int
    namespace: netns.Namespace
    phc: int
    config: StampConfig

    @property
    def shown(self) -> str:
        """Name and, unless it is the host's, namespace."""
        return self.name if self.namespace.name == "host" else f"{self.name}@{self.namespace.name}"

    @property
    def key(self) -> bytes:
        """As ``struct hop_interface``."""
        return np.array((self.ifindex, self.namespace.inode), HOP_INTERFACE_DTYPE).tobytes()

    def now(self) -> str:
        """Return the present name.

        Raises
        ------
        OSError
            It went away.
        """
        return socket.if_indextoname(self.ifindex)


def find_nics(wanted: Callable[[int, int], bool]) -> list[Nic]:
    """Return the interfaces with a hardware clock that tell what they stamp, of all namespaces.

    Parameters
    ----------
    wanted
        Says of ifindex and inode of the namespace whether the interface matters.
    """
    found = []
    for namespace in netns.namespaces().values():
        with contextlib.suppress(OSError):  # the namespace went away
            found += netns.inside(namespace, functools.partial(_nics_here, namespace, wanted))
    return found


def _nics_here(namespace: netns.Namespace, wanted: Callable[[int, int], bool]) -> list[Nic]:
    found = []
    for ifindex, name in socket.if_nameindex():
        if not wanted(ifindex, namespace.inode):
            continue
        with contextlib.suppress(OSError, HopscopeError):  # it does not tell, or it went away
            phc = timestamp_info(name).phc_index
            if phc is not None:
                found.append(Nic(name, ifindex, namespace, phc, stamp_config(name)))
    return found


class NicStamps:
    """The NICs whose stamps are used, and their clocks. Leaving it puts stamping back as it was.

    Parameters
    ----------
    nics
        Those to look at.
    switch_on
        Let them stamp all packets meanwhile; otherwise those that stamp already are used as they are.
    """

    def __init__(self, nics: Iterable[Nic], *, switch_on: bool) -> None:
        self._nics = list(nics)
        self._refused: dict[Nic, HopscopeError] = {}
        self._clocks: dict[int, HardwareClock] = {}
        self._first: dict[int, ClockReading] = {}
        self._tracks: dict[int, Track] = {}
        self._error_ns: int | None = 0
        with contextlib.ExitStack() as stack:
            for nic in self._nics:
                try:
                    self._use(nic, stack, switch_on=switch_on)
                except HopscopeError as error:
                    self._refused[nic] = error
            self._opened = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._opened.close()

    @property
    def used(self) -> list[Nic]:
        """The NICs that are not refused."""
        return [nic for nic in self._nics if nic not in self._refused]

    def rows(self) -> list[PlanRow]:
        """Return what became of each NIC."""
        if not self._nics:
            return [PlanRow(POINT, "hardware stamp", "unavailable", reason="no interface has a hardware clock")]
        return [self._row(nic) for nic in self._nics]

    def start(self, clocks: Map) -> None:
        """Relate the clocks and tell the kernel side."""
        self._map = clocks
        for phc, first in self._first.items():
            time.sleep(max(0.0, _BASE_S + (first.monotonic_ns - time.monotonic_ns()) / 1e9))
            try:
                self._tracks[phc] = _track(first, self._clocks[phc].read())
            except KernelError as error:
                self._refuse(phc, error)
        self._tell()
        self._error_ns = self._largest_error_ns()

    def refresh(self) -> int | None:
        """Read the clocks again; call it after the counters were read.

        Returns
        -------
        int or None
            How far the intervals in these counters may be off, in ns. None if they cannot be used, since a clock was
            set or went away: after the last call, or before it, for what was recorded between its look at the clock
            and its telling the kernel side is in these counters, too.
        """
        before_ns = self._error_ns
        was_set = False
        for phc, track in list(self._tracks.items()):
            try:
                track.advance(self._clocks[phc].read())
            except KernelError as error:
                del self._tracks[phc]
                self._refuse(phc, error)
                was_set = True
            else:
                was_set |= track.was_set
        self._tell()
        self._error_ns = None if was_set else self._largest_error_ns()
        return None if before_ns is None or self._error_ns is None else max(before_ns, self._error_ns)

    def notes(self, error_ns: int | None) -> list[str]:
        """Return what is to be said of samples that may be off by `error_ns`; None if they cannot be used."""
        if not self._tracks:
            return []
        clocks = [
            f"the clock of {', '.join(nic.shown for nic in self.used if nic.phc == phc)} is read by "
            f"{self._clocks[phc].method.name}; drift relative to the system clock: "
            f"{-track.relation.drift * 1e6:.3f} ppm"
            for phc, track in self._tracks.items()
        ]
        bound = "has no bound" if error_ns is None else f"may be off by {error_ns:,} ns"
        return [f"{POINT} {bound}; {'; '.join(clocks)}"]

    # ---- inside ----

    def _use(self, nic: Nic, stack: contextlib.ExitStack, *, switch_on: bool) -> None:
        if switch_on and nic.config.rx_filter != _ALL:
            try:
                _switch_on(nic, stack)
            except KernelError:
                if nic.config.rx_filter == _NONE:
                    raise
        elif nic.config.rx_filter == _NONE:
            raise KernelError("it does not time-stamp received packets", "Enable them with --nic-stamps")
        if nic.phc not in self._clocks:
            clock = stack.enter_context(HardwareClock(nic.phc))
            self._first[nic.phc] = clock.read()
            self._clocks[nic.phc] = clock

    def _refuse(self, phc: int, error: HopscopeError) -> None:
        self._refused |= {nic: error for nic in self.used if nic.phc == phc}

    def _row(self, nic: Nic) -> PlanRow:
        way = f"{nic.shown} /dev/ptp{nic.phc}"
        if nic in self._refused:
            error = self._refused[nic]
            return PlanRow(POINT, way, "unavailable", reason=error.what, next_step=error.next_step)
        return PlanRow(POINT, way, "attached")

    def _largest_error_ns(self) -> int:
        return max((track.error_ns for track in self._tracks.values()), default=0)

    def _tell(self) -> None:
        for nic in self.used:
            track = self._tracks[nic.phc]
            line = track.relation
            drift = round(line.drift * _FRACTION)
            value = (line.reading.device_ns, line.reading.monotonic_ns, drift, track.error_ns)
            self._map.update(nic.key, np.array(value, HOP_NIC_CLOCK_DTYPE).tobytes())
        for nic in self._refused:
            if self._map.lookup(nic.key):
                self._map.delete(nic.key)


def _track(first: ClockReading, second: ClockReading) -> Track:
    track = Track(first, second)
    if track.was_set:
        raise KernelError("its clock runs too fast or too slow, or is being set")
    return track


def _switch_on(nic: Nic, stack: contextlib.ExitStack) -> None:
    """Let a NIC stamp all that it receives, until the stack is closed."""

    def switch_on() -> StampConfig:
        set_stamp_config(nic.now(), nic.config._replace(rx_filter=_ALL))
        return stamp_config(nic.now())

    try:
        made = _act(nic, switch_on)
    except OSError as error:
        raise KernelError(f"it cannot time-stamp all received packets: {error.strerror}") from error
    stack.callback(_put_back, nic, made)
    if made.rx_filter != _ALL:
        raise KernelError("it cannot time-stamp all received packets")


def _act(nic: Nic, act: Callable[[], StampConfig]) -> StampConfig:
    return netns.inside(nic.namespace, act)


def _put_back(nic: Nic, made: StampConfig) -> None:
    """Let the NIC stamp as before, unless somebody else has changed it since."""

    def put_back() -> StampConfig:
        now = stamp_config(nic.now())
        return set_stamp_config(nic.now(), nic.config) if now == made else now

    try:
        _act(nic, put_back)
    except OSError as error:
        if error.errno not in {errno.ENODEV, errno.ENXIO, errno.ENOENT}:  # the NIC or its namespace is gone
            raise KernelError(
                f"{nic.shown} still time-stamps all received packets: {error.strerror}",
                f"Restore it: hwstamp_ctl -i {nic.name} -r {nic.config.rx_filter}",
            ) from error
