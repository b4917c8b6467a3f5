# SPDX-License-Identifier: Apache-2.0
"""The stamps that a NIC puts on probes, as CLOCK_MONOTONIC: by readings of its clock before and after them."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, NamedTuple

from hopscope.clock.exchange import Stamped
from hopscope.clock.of_host import STEERED
from hopscope.clock.phc import HardwareClock
from hopscope.clock.relation import Track
from hopscope.errors import HopscopeError, KernelError
from hopscope.timestamping import HwFilter, HwTx, hardware_config, hardware_stamping

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hopscope.clock.relation import ClockReading, Relation

_SECOND: Final = 1_000_000_000


class Between(NamedTuple):
    """The time between two readings of a NIC's clock.

    Attributes
    ----------
    relation
        The line through both.
    from_ns, until_ns
        The readings, by the NIC's clock.
    bound_ns
        How far what is converted in between may be off.
    """

    relation: Relation
    from_ns: int
    until_ns: int
    bound_ns: int

    def convert(self, stamps: Iterable[Stamped]) -> list[Stamped]:
        """Return numbers with stamps in CLOCK_MONOTONIC; those that were not taken in between are left out."""
        return [
            Stamped(number, self.relation.monotonic_ns(device_ns))
            for number, device_ns in stamps
            if self.from_ns <= device_ns <= self.until_ns
        ]


class NicTrack:
    """Goes from reading to reading of a NIC's clock."""

    def __init__(self, first: ClockReading) -> None:
        self._last = first
        self._track: Track | None = None

    def advance(self, reading: ClockReading) -> Between | None:
        """Return the time since the last reading; None if the clock was set, and the first time.

        Two readings tell how fast it ran on the whole. Whether it ran evenly, the line from before tells: if the
        frequency changed once, that one is off at the end by more than the line through both ever was. What a daemon
        changes all the time is less than `STEERED`, and all of it at once, halfway, would do the most.
        """
        last, self._last = self._last, reading
        if self._track is None:
            if reading.device_ns > last.device_ns:
                self._track = Track(last, reading)
            return None
        self._track.advance(reading)
        if self._track.was_set:
            return None
        apart_s = (reading.monotonic_ns - last.monotonic_ns) / _SECOND
        bend_ns = STEERED * apart_s**2 / 4 * _SECOND
        bound_ns = self._track.error_ns + int(bend_ns) + 1
        return Between(self._track.relation, last.device_ns, reading.device_ns, bound_ns)


class NicStamps:
    """The NIC by which the first probes leave, if it stamps all that it sends and receives.

    Parameters
    ----------
    phc_of
        Returns N of ``/dev/ptpN``, an interface's clock; None where it has none.
    switch_on
        Let the NIC stamp until this is closed, if it can; otherwise it is used as it is.

    Attributes
    ----------
    ifindex
        The interface; None as long as none is used.
    """

    def __init__(self, phc_of: Callable[[str], int | None], *, switch_on: bool) -> None:
        self._phc_of = phc_of
        self._switch_on = switch_on
        self._opened = ExitStack()
        self._tried = False
        self.ifindex: int | None = None

    def close(self) -> None:
        """Let the NIC stamp as before; idempotent."""
        self.ifindex = None
        self._opened.close()

    def look(self, left_by: int | None) -> Between | None:
        """Read the clock of the NIC by which probes leave; call it after their stamps were taken.

        Returns
        -------
        Between or None
            The time since the last call, None if there are no stamps in it that can be used.
        """
        if (
            left_by is not None and not self._tried
        ):  # once: whoever has several ways must not have NICs switched to and fro
            self._tried = True
            self._use(left_by)
            return None
        if self.ifindex is None:
            return None
        try:
            return self._track.advance(self._clock.read())
        except KernelError:  # it went away
            self.close()
            return None

    def _use(self, ifindex: int) -> None:
        with ExitStack() as stack:
            try:
                name = socket.if_indextoname(ifindex)
                self._clock = stack.enter_context(HardwareClock(_clock_of(name, self._phc_of)))
                self._let_stamp(name, stack)
                self._track = NicTrack(self._clock.read())
            except (HopscopeError, OSError):  # the kernel's stamps are good enough
                return
            self._opened = stack.pop_all()
            self.ifindex = ifindex

    def _let_stamp(self, name: str, stack: ExitStack) -> None:
        config = hardware_config(name)
        if self._switch_on and (config.tx == HwTx.OFF or config.rx != HwFilter.ALL):
            config = stack.enter_context(hardware_stamping(name))
        if config.tx == HwTx.OFF or config.rx != HwFilter.ALL:
            raise KernelError(f"{name} does not stamp all that it sends and receives")


def _clock_of(name: str, phc_of: Callable[[str], int | None]) -> int:
    index = phc_of(name)
    if index is None:
        raise KernelError(f"{name} has no clock")
    return index
