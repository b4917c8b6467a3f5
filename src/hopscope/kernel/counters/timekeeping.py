# SPDX-License-Identifier: Apache-2.0
"""How right the host's clocks are, as whoever sets them says: what `join --clock tai` needs of each host."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from hopscope.clock import adjustment
from hopscope.clock.daemons import chrony_bound_ns, ptp4l_bound_ns
from hopscope.clock.realtime import difference, read_timer_list
from hopscope.errors import FormatError, KernelError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.kernel.counters.text import Said

# Sockets of daemons, which are there while these run, and a file of one that tells the kernel no bound.
_CHRONY: Final = Path("/run/chrony/chronyd.sock")
_PTP4L: Final = Path("/run/ptp4l")
_TIMESYNCD: Final = Path("/run/systemd/timesync/synchronized")


def timekeeping() -> Iterator[Said]:
    """Yield CLOCK_TAI against CLOCK_MONOTONIC, what the kernel was told of its error, and a bound if there is one.

    ``chrony_bound_ns``, ``ptp4l_bound_ns`` or ``adjtimex_bound_ns``: who says it. The kernel's own figure is a bound
    where ntpd or chronyd sets it: systemd-timesyncd and linuxptp tell the kernel 0, whatever is true.

    Raises
    ------
    FormatError
        The kernel does not say.
    """
    try:
        found = adjustment.read()
    except KernelError as error:
        raise FormatError(error.what) from error
    realtime = difference(read_timer_list)
    yield "", "tai_minus_monotonic_ns", -realtime.offset_ns + found.tai_offset_s * 10**9
    yield "", "reading_bound_ns", realtime.bound_ns
    yield "", "tai_minus_utc_s", found.tai_offset_s
    yield "", "synchronized", int(found.synchronized)
    yield "", "max_error_ns", found.max_error_ns
    yield "", "estimated_error_ns", found.estimated_error_ns
    if found.synchronized:
        yield from _bound(found.max_error_ns)


def _bound(max_error_ns: int) -> Iterator[Said]:
    if _CHRONY.exists() and (bound_ns := chrony_bound_ns()) is not None:
        yield "", "chrony_bound_ns", bound_ns
    elif _PTP4L.exists():
        if (bound_ns := ptp4l_bound_ns()) is not None:
            yield "", "ptp4l_bound_ns", bound_ns
    elif not _TIMESYNCD.exists():
        yield "", "adjtimex_bound_ns", max_error_ns
