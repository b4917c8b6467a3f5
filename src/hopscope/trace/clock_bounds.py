# SPDX-License-Identifier: Apache-2.0
"""Error bounds of times in a joined trace, and of differences between times of different hosts.

There is one bound per host and half second (`clocks`): the time of an event in the trace differs from its true time on
the trace's axis by at most this bound. The axis is the clock of host 0, whose bound is 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from hopscope.trace.host_numbers import hosts
from hopscope.trace.relation import build, columns, fixed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hopscope.store.trace import Trace

SLOT_NS: Final = 500_000_000

fixed(
    "clock_bounds",
    "a half second of a host, with the maximum error of its times",
    columns("host slot_ns bound_ns", bound_ns="maximum error of the host's times within it"),
    "SELECT host, time_ns AS slot_ns, greatest(offset_ns - low_ns, high_ns - offset_ns) AS bound_ns FROM clocks",
    kind="view",
)


def slot(time_ns: str) -> str:
    """Return the expression for the half second that contains a time."""
    return f"({time_ns} - {time_ns} % {SLOT_NS})"


def bound_join(name: str, host: str, time_ns: str) -> str:
    """Return the join that adds the bound of a time of a host as ``name.bound_ns``.

    It is NULL in a trace of one host, and where it is unknown.
    """
    return f"LEFT JOIN clock_bounds {name} ON {name}.host = {host} AND {name}.slot_ns = {slot(time_ns)}"


def difference_bound(first: str, first_host: str, second: str, second_host: str) -> str:
    """Return the expression for the error bound of the difference of two times; NULL: unknown.

    Parameters
    ----------
    first, second
        Names of the :func:`bound_join` of each time.
    first_host, second_host
        Expressions for the hosts. Within one host, the bound is 0.
    """
    return f"CASE WHEN {first_host} = {second_host} THEN 0 ELSE {first}.bound_ns + {second}.bound_ns END"


def order_bound_ns(trace: Trace) -> int | None:
    """Return the maximum error of the difference of times of two hosts; None in a trace of one host."""
    build(trace, "clock_bounds")
    most = trace.rows("SELECT max(bound_ns) FROM clock_bounds GROUP BY host ORDER BY 1 DESC LIMIT 2")
    return sum(int(bound_ns) for (bound_ns,) in most) if hosts(trace) else None


def bounds_ns(trace: Trace, host: int, times_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the error bound of each of a host's times, in any order; -1 where it is unknown."""
    build(trace, "clock_bounds")
    known = trace.columns(f"SELECT slot_ns, bound_ns FROM clock_bounds WHERE host = {host} ORDER BY slot_ns")
    slots, bounds = (np.asarray(known[name], np.int64) for name in ("slot_ns", "bound_ns"))
    if not len(slots):
        return np.full(len(times_ns), -1, np.int64)
    wanted = times_ns - times_ns % SLOT_NS
    place = np.minimum(np.searchsorted(slots, wanted), len(slots) - 1)
    return np.where(slots[place] == wanted, bounds[place], -1)
