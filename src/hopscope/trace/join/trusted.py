# SPDX-License-Identifier: Apache-2.0
"""The common time axis by CLOCK_TAI, where somebody else keeps it the same on all hosts: trusted, not compared.

Each recording has, at each reading of the counters, how far CLOCK_TAI was ahead of CLOCK_MONOTONIC, and how wrong
whoever keeps it says that it is. Between two readings, the larger of both bounds counts, and what the clock was set by;
before the first and after the last it grows by 500 ppm, as the kernel's own does (MAXFREQ, kernel/time/ntp.c).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from hopscope.errors import UsageError
from hopscope.trace.clock_bounds import SLOT_NS
from hopscope.trace.join.clocks import Axis

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from hopscope.store.trace import Trace
    from hopscope.trace.join.sources import Source

    Ns = NDArray[np.int64]

# Name of a bound in the recording → who says it.
_BOUNDS: Final = {"chrony_bound_ns": "chronyd", "ptp4l_bound_ns": "ptp4l", "adjtimex_bound_ns": "adjtimex"}
_NEEDED: Final = ("tai_minus_monotonic_ns", "reading_bound_ns", "tai_minus_utc_s", "synchronized")
_GROWTH: Final = 500e-6
# With a larger bound, or with recordings further apart, these clocks are not one.
_DAY_NS: Final = 86_400 * 10**9
# The largest value of each that can be true: CLOCK_TAI is 3e18 ns in 2065.
_RANGES: Final = {**dict.fromkeys(("reading_bound_ns", *_BOUNDS), _DAY_NS), "tai_minus_monotonic_ns": 3 * 10**18}
_OTHERWISE: Final = "Join without --clock tai, by probes and packets"


@dataclass(frozen=True, slots=True)
class _Kept:
    """CLOCK_TAI of a host.

    Attributes
    ----------
    at_ns
        Of the readings, CLOCK_MONOTONIC; ascending, one at least.
    ahead_ns
        How far CLOCK_TAI was ahead of that.
    bound_ns
        How far it may be off, from this reading to the next.
    utc_s
        TAI minus UTC, as the kernel was told.
    by
        Who said so.
    """

    at_ns: Ns
    ahead_ns: Ns
    bound_ns: Ns
    utc_s: int
    by: tuple[str, ...]

    def last(self, times_ns: Ns) -> NDArray[np.intp]:
        """Return the reading before each time; before all of them, the first."""
        found: NDArray[np.intp] = np.maximum(np.searchsorted(self.at_ns, times_ns, side="right") - 1, 0)
        return found

    def span_of(self, first: _Kept, span_ns: tuple[int, int]) -> tuple[int, int]:
        """Return a span in about the time of the first host."""
        more_ns = int(self.ahead_ns[0] - first.ahead_ns[0])
        return span_ns[0] + more_ns, span_ns[1] + more_ns

    def bounds_ns(self, edges_ns: Ns) -> Ns:
        """Return the largest bound between each of these times and the next."""
        first, last = self.last(edges_ns[:-1]), self.last(edges_ns[1:])
        largest = np.array([self.bound_ns[a : b + 1].max() for a, b in zip(first, last, strict=True)], np.int64)
        outside = np.maximum(np.maximum(self.at_ns[0] - edges_ns[:-1], edges_ns[1:] - self.at_ns[-1]), 0)
        bounds_ns: Ns = largest + np.ceil(outside * _GROWTH).astype(np.int64)
        return bounds_ns


def trusted_axes(sources: Sequence[Source], traces: Sequence[Sequence[Trace]]) -> tuple[list[Axis], dict[str, str]]:
    """Return the axis of each host, and who keeps its clock, by its name.

    Raises
    ------
    UsageError
        The clock of a host was not kept all the time, or nobody says how well, or in another count of leap seconds; or
        what is said cannot be.
    """
    kept = [_kept(source.name, parts) for source, parts in zip(sources, traces, strict=True)]
    named = list(zip((source.name for source in sources), kept, strict=True))
    for name, each in named:
        if each.utc_s != kept[0].utc_s:
            raise UsageError(
                f"CLOCK_TAI is {each.utc_s} s ahead of UTC on {name} and {kept[0].utc_s} s on {sources[0].name}, as "
                "their kernels were told: these are not the same clock",
                f"Let the time daemons set it; or: {_lower(_OTHERWISE)}",
            )
    spans = [each.span_of(kept[0], source.span_ns) for source, each in zip(sources, kept, strict=True)]
    for source, span in zip(sources, spans, strict=True):
        if max(span[0] - spans[0][1], spans[0][0] - span[1]) > _DAY_NS:
            raise UsageError(
                f"By CLOCK_TAI of {source.name} and {sources[0].name}, their recordings are more than a day apart",
                f"Join those of one time; or: {_lower(_OTHERWISE)}",
            )
    first, last = min(span[0] for span in spans), max(span[1] for span in spans)
    grid = np.arange(first // SLOT_NS - 1, last // SLOT_NS + 3, dtype=np.int64) * SLOT_NS
    still = Axis(grid, np.zeros(len(grid), np.int64), np.zeros(len(grid), np.int64))
    others = [_axis(name, kept[0], each, grid) for name, each in named[1:]]
    return [still, *others], {name: " and ".join(each.by) for name, each in named}


def contradiction_ns(trusted: Axis, compared: Axis) -> int:
    """Return by how much packets exclude a trusted offset, at most: 0 if both may be right."""
    apart = np.abs(trusted.offset_ns - np.interp(trusted.at_ns, compared.at_ns, compared.offset_ns))
    allowed = trusted.bound_ns + np.interp(trusted.at_ns, compared.at_ns, compared.bound_ns)
    inside = (trusted.at_ns >= compared.at_ns[0]) & (trusted.at_ns <= compared.at_ns[-1])
    return int(np.max((apart - allowed)[inside], initial=0))


def _axis(name: str, first: _Kept, other: _Kept, grid: Ns) -> Axis:
    ahead_ns = first.ahead_ns[first.last(grid)]
    theirs_ns = grid + ahead_ns - other.ahead_ns[0]
    offset_ns = ahead_ns - other.ahead_ns[other.last(theirs_ns)]
    if not (np.diff(grid + offset_ns) > 0).all():
        raise UsageError(f"The clock of {name} was set back, so its times are ambiguous", _OTHERWISE)
    bound_ns = first.bounds_ns(grid) + other.bounds_ns(theirs_ns)
    return Axis(grid, offset_ns, np.append(bound_ns, bound_ns[-1]))


def _kept(name: str, parts: Sequence[Trace]) -> _Kept:
    at_ns, found = [], []
    for trace in parts:
        for time_ns, values in _readings(trace):
            _require_kept(name, values, f"{(time_ns - trace.metadata.started_ns) / 1e9:.3f} s after the start")
            at_ns.append(time_ns)
            found.append(values)
    if not found:
        raise UsageError(
            f"The recording of {name} does not say how its clocks were kept",
            f"`hopscope record` reads that with the counters, unless --counters 0 is given; or: {_lower(_OTHERWISE)}",
        )
    ahead_ns = np.array([values["tai_minus_monotonic_ns"] for values in found], np.int64)
    own = [values["reading_bound_ns"] + min(values[each] for each in _BOUNDS if each in values) for values in found]
    bound_ns = np.array(own, np.int64)
    after = np.append(np.arange(1, len(found)), len(found) - 1)
    larger = np.maximum(bound_ns, bound_ns[after]) + np.abs(ahead_ns[after] - ahead_ns)
    by = dict.fromkeys(_BOUNDS[each] for values in found for each in _BOUNDS if each in values)
    return _Kept(np.array(at_ns, np.int64), ahead_ns, larger, found[-1]["tai_minus_utc_s"], tuple(by))


def _require_kept(name: str, values: Mapping[str, int], when: str) -> None:
    if not values.keys() >= {*_NEEDED}:
        raise UsageError(f"The recording of {name} does not say how its clocks were kept {when}", _OTHERWISE)
    for each, most in _RANGES.items():
        if not 0 <= values.get(each, 0) <= most:
            raise UsageError(
                f"{each} of {name} was {values[each]:,} {when}, which cannot be trusted",
                f"Check its time daemon before recording; or: {_lower(_OTHERWISE)}",
            )
    if not values["synchronized"]:
        raise UsageError(
            f"The clock of {name} was not synchronized {when}: no time daemon had told the kernel that it is right",
            f"Start chronyd, ntpd, or ptp4l with phc2sys there before recording; or: {_lower(_OTHERWISE)}",
        )
    if not values.keys() & _BOUNDS.keys():
        raise UsageError(
            f"Nobody said how far the clock of {name} could be off {when}",
            "chronyd and ntpd do, and ptp4l where pmc is installed, but systemd-timesyncd does not; or: "
            + _lower(_OTHERWISE),
        )


def _readings(trace: Trace) -> list[tuple[int, dict[str, int]]]:
    """Return what each reading said; the trace has the first, and then changes."""
    changes = trace.rows(
        "SELECT time_ns, name, value, present FROM counters WHERE source = 'timekeeping' ORDER BY time_ns, present"
    )
    values: dict[str, int] = {}
    said, at = [], 0
    for (time_ns,) in trace.rows("SELECT time_ns FROM readings ORDER BY time_ns"):
        while at < len(changes) and changes[at][0] <= time_ns:
            _, name, value, present = changes[at]
            values = {**values, name: value} if present else {each: values[each] for each in values if each != name}
            at += 1
        said.append((int(time_ns), values))
    return said if changes else []


def _lower(sentence: str) -> str:
    return sentence[0].lower() + sentence[1:]
