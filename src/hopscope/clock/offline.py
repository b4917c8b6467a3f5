# SPDX-License-Identifier: Apache-2.0
"""The difference of two clocks when all is recorded: of each moment, what packets before and after it say."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from hopscope.clock.block import Block, Origin, Window
from hopscope.clock.curve import WANDER, Curve
from hopscope.clock.knots import Knots
from hopscope.clock.online import TURN, contradicts, two_sided
from hopscope.clock.samples import Direction, Samples
from hopscope.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hopscope.clock.change import Change
    from hopscope.clock.samples import Ns

WINDOW_NS: Final = 500_000_000
# 20 s of windows of 0.5 s, half of them before a moment and half after it
HORIZON: Final = 40
# One line for so many windows: drawn anew for each, it would hardly be another.
_STRIDE: Final = 4


def smooth(
    samples: Samples,
    *,
    changes: Sequence[Change] = (),
    window_ns: int = WINDOW_NS,
    horizon: int = HORIZON,
    wander: float = WANDER,
) -> Curve:
    """Return the second clock minus the first one, from all packets that both hosts stamped, in any order.

    Parameters
    ----------
    samples
        Probes, or packets of applications, or both.
    changes
        What was done to either clock, by the first clock's time, as far as is known. Steps that are larger than the gap
        between both directions' least delays are found as well.
    window_ns, horizon, wander
        How long a window is, of how many a line is drawn, and how fast the ratio of both frequencies may change (1/s).

    Raises
    ------
    UsageError
        No while has packets of both directions.
    """
    if not len(samples.there) or not len(samples.back):
        raise UsageError("Clocks can only be compared by packets of both directions")
    origin = Origin.of(samples)
    cuts = _cuts([change for change in changes if abs(change.rate) >= TURN], window_ns)
    every = [Window.of(part, origin) for part in split(samples, window_ns, cuts)]
    windows = [window for window in every if not contradicts([window], wander)]
    windows = _turned(windows, changes, origin)
    knots = Knots()
    parts = _segments(windows, cuts - origin.at_ns, horizon, wander)
    for (part, _), (after, told) in zip(parts, [*parts[1:], ([], True)], strict=True):
        sure = len(part) - (0 if told else _doubtful(part, after, horizon, wander))
        for first in range(0, sure, _STRIDE):
            _add(knots, part[:sure], range(first, min(first + _STRIDE, sure)), horizon, wander)
        if sure:
            knots.end()
        for index in range(sure, len(part)):
            _add(knots, part[index : index + 1], range(1), horizon, wander)
            knots.end()
    if not len(knots):
        raise UsageError("Packets of both directions never come within the same while")
    curve = knots.curve(samples.first, samples.second, origin, wander)
    return replace(curve, contradictory=len(every) - len(windows))


def split(samples: Samples, window_ns: int, cuts: Ns) -> list[Samples]:
    """Return samples by the window of the first clock that they are in; cuts end windows, and empty ones are left out.

    Parameters
    ----------
    samples
        In any order.
    window_ns
        How long a window is.
    cuts
        int64, ascending: where else one ends.
    """
    there, upper = _sorted(samples.there, samples.upper()[0])
    back, lower = _sorted(samples.back, samples.lower()[0])
    upper, lower = (at // window_ns + np.searchsorted(cuts, at, side="right") for at in (upper, lower))
    numbers = np.union1d(upper, lower)
    return [
        Samples(samples.first, samples.second, _part(there, *ends), _part(back, *others), samples.bound_ns)
        for ends, others in zip(_ends(upper, numbers), _ends(lower, numbers), strict=True)
    ]


def _part(direction: Direction, first: int, last: int) -> Direction:
    return Direction(direction.sent_ns[first:last], direction.received_ns[first:last])


def _ends(sorted_numbers: Ns, numbers: Ns) -> list[tuple[int, int]]:
    first, last = (np.searchsorted(sorted_numbers, numbers, side=side).tolist() for side in ("left", "right"))
    return list(zip(first, last, strict=True))


def _sorted(direction: Direction, at_ns: Ns) -> tuple[Direction, Ns]:
    order = np.argsort(at_ns, kind="stable")
    return Direction(direction.sent_ns[order], direction.received_ns[order]), at_ns[order]


def _cuts(changes: Sequence[Change], window_ns: int) -> Ns:
    """Return where another line begins: before and after each change; in between, each window is alone."""
    found = [np.append(np.arange(change.from_ns, change.until_ns, window_ns), change.until_ns) for change in changes]
    return np.unique(np.concatenate([np.zeros(0, np.int64), *found]).astype(np.int64))


def _turned(windows: list[Window], changes: Sequence[Change], origin: Origin) -> list[Window]:
    """Return windows that know of changes of frequency: those that it may have been in, of small ones the next, too."""
    turns = np.zeros(len(windows))
    first, last = np.array([window.ends_ns for window in windows]).reshape(-1, 2).T
    for change in changes:
        rate = abs(change.rate)
        if np.isfinite(rate):
            begin = np.searchsorted(last, change.from_ns - origin.at_ns)
            end = np.searchsorted(first, change.until_ns - origin.at_ns, side="right")
            turns[begin : end + (rate < TURN)] += rate
    return [
        replace(window, turn=turn) if turn else window for window, turn in zip(windows, turns.tolist(), strict=True)
    ]


def _segments(windows: list[Window], cuts: Ns, horizon: int, wander: float) -> list[tuple[list[Window], bool]]:
    """Cut where a clock was set; of each part, tell whether its beginning was known beforehand."""
    found: list[tuple[list[Window], bool]] = []
    sides = np.searchsorted(cuts, [window.ends_ns[0] for window in windows], side="right").tolist()
    begin = 0
    for end in [*(at for at in range(1, len(windows)) if sides[at] != sides[at - 1]), len(windows)]:
        found.append(([], True))
        while begin < end:
            part = found[-1][0]
            # Several at once, as there hardly ever is a step; else each by itself.
            for count in (_STRIDE, 1):
                more = windows[begin : min(begin + count, end)]
                fits = not contradicts([*part, *more][-horizon:], wander)
                if fits:
                    break
            if not fits:
                found.append(([], False))
            found[-1][0].extend(more)
            begin += len(more)
    return found


def _doubtful(part: list[Window], after: list[Window], horizon: int, wander: float) -> int:
    """Return how many of the last windows before a break may as well have come after it."""
    count = 0
    while count < len(part) and after and not contradicts([*part[-count - 1 :], *after[:horizon]], wander):
        count += 1
    return count


def _add(knots: Knots, windows: list[Window], which: range, horizon: int, wander: float) -> None:
    """Add knots at some windows that follow each other, from as many before them as after them."""
    middle = which[len(which) // 2]
    first = max(0, min(middle - horizon // 2, len(windows) - horizon))
    around = windows[first : first + horizon]
    block = Block.of(around, wander)
    if block is not None:
        at = np.array([sum(windows[index].ends_ns) / 2 for index in which])
        knots.add(at, block.at(at))
    elif two_sided(around):
        # Each line that fitted so far was through other windows: what these say by themselves is true in any case.
        for index in which:
            alone = Block.of(windows[index : index + 1], wander)
            if alone is not None:
                at = np.array([sum(windows[index].ends_ns) / 2])
                knots.add(at, alone.at(at))
