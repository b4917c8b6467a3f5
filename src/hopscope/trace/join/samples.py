# SPDX-License-Identifier: Apache-2.0
"""Packets that two hosts stamped, of those that are joined: what their clocks are compared by."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from hopscope.clock.change import Change
from hopscope.clock.samples import Direction, Samples
from hopscope.progress import doing
from hopscope.store.hosts import BACK, CHANGES, THERE, UNKNOWN_RATE
from hopscope.store.probes import read_changes, read_probes
from hopscope.trace.join.packets import Seen, fewest, matched, one_in, received, sent

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from hopscope.store.trace import Trace
    from hopscope.trace.join.sources import Probed, Source

    Ends = tuple[int, int]


def probes(sources: Sequence[Source], probed: Iterable[Probed]) -> dict[Ends, Samples]:
    """Return pair of joined hosts (the lower number first) → probes."""
    found: dict[Ends, list[Samples]] = {}
    for recording in probed:
        columns = read_probes(recording.folder)
        for number, (first, second) in recording.pairs.items():
            ours = columns["pair"] == number
            way = {each: _direction(columns, ours & (columns["way"] == each)) for each in (THERE, BACK)}
            there, back = (way[THERE], way[BACK]) if first < second else (way[BACK], way[THERE])
            ends = min(first, second), max(first, second)
            found.setdefault(ends, []).append(between(sources, ends, there, back))
    return {ends: Samples.joined(parts) for ends, parts in found.items()}


def stamped_by_nics(probed: Iterable[Probed]) -> dict[Ends, int]:
    """Return pair → number of probes time-stamped by both NICs, where this is known."""
    found: dict[Ends, int] = {}
    unknown = set()
    for recording in probed:
        columns = read_probes(recording.folder)
        for number, (first, second) in recording.pairs.items():
            ends = min(first, second), max(first, second)
            kinds = columns["by_nics"][columns["pair"] == number]
            found[ends] = found.get(ends, 0) + int((kinds > 0).sum())
            if (kinds < 0).any():
                unknown.add(ends)
    return {ends: count for ends, count in found.items() if ends not in unknown}


def changes(probed: Iterable[Probed]) -> dict[Ends, tuple[list[Change], list[Change]]]:
    """Return pair (the lower number first) → changes of both clocks, each by its own clock."""
    found: dict[Ends, tuple[list[Change], list[Change]]] = {}
    for recording in probed:
        columns = read_changes(recording.folder)
        for row in zip(*(columns[column.name].tolist() for column in CHANGES.columns), strict=True):
            number, side, from_ns, until_ns, rate_ppt, step_ns = row
            if number in recording.pairs:
                ends = recording.pairs[number]
                both = found.setdefault((min(ends), max(ends)), ([], []))
                rate = np.inf if rate_ppt == UNKNOWN_RATE else rate_ppt * 1e-12
                both[side if ends[0] < ends[1] else 1 - side].append(Change(from_ns, until_ns, rate, step_ns))
    return found


def packets(
    sources: Sequence[Source], traces: Sequence[Sequence[Trace]], flows: Sequence[Collection[int]]
) -> dict[Ends, Samples]:
    """Return the packets of applications that two of the hosts recorded, as :func:`probes` does.

    Parameters
    ----------
    sources
        The hosts.
    traces
        Of each, its parts.
    flows
        Of each, those that may be between hosts.
    """
    shared = [flow for flow, times in Counter(flow for each in flows for flow in each).items() if times > 1]
    common = [set(shared) & set(each) for each in flows]
    every = one_in([trace for parts in traces for trace in parts])
    looks: dict[str, tuple[Callable[..., Seen], list[Seen]]] = {"sent": (sent, []), "received": (received, [])}
    for name, (look, seen) in looks.items():
        for number, (parts, ours) in enumerate(zip(traces, common, strict=True)):
            doing(f"looking for packets that host {number + 1} of {len(traces)} {name}", share=share_of(parts))
            seen.append(Seen.joined([look(trace, ours, every=every) for trace in parts]))
    left, came = (seen for _, seen in looks.values())
    found = {}
    pairs = list(combinations(range(len(sources)), 2))
    for number, (first, second) in enumerate(pairs):
        doing("comparing the clocks of hosts, pair", number, len(pairs))
        there, back = (Direction(*fewest(*matched(left[a], came[b]))) for a, b in ((first, second), (second, first)))
        if len(there) or len(back):
            found[first, second] = between(sources, (first, second), there, back)
    return found


def share_of(parts: Sequence[Trace]) -> Callable[[], float | None]:
    """Return what says which part of the query is done that runs in one of the traces."""
    return lambda: next((share for each in parts if (share := each.share_done()) is not None), None)


def between(sources: Sequence[Source], ends: Ends, there: Direction, back: Direction) -> Samples:
    """Return the samples of two hosts."""
    return Samples(sources[ends[0]].domain, sources[ends[1]].domain, there, back)


def _direction(columns: Mapping[str, NDArray[np.int64]], ours: NDArray[np.bool_]) -> Direction:
    # The error of the time stamps is added to the arrival time, so that each packet has its own bound.
    return Direction(columns["sent_ns"][ours], columns["received_ns"][ours] + columns["bound_ns"][ours])
