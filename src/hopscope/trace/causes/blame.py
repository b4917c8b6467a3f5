# SPDX-License-Identifier: Apache-2.0
"""The causes that held messages, and for how long: in total, and for single messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from hopscope.model.cause import CAUSES, UNKNOWN
from hopscope.trace.causes.table import SHARED
from hopscope.trace.messages.path import GROUPS, NETWORK, SENDER, STEPS, cause_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from hopscope.store.trace import Trace

I64: TypeAlias = "NDArray[np.int64]"
Columns: TypeAlias = "Mapping[str, NDArray[Any]]"

NAMES: tuple[str, ...] = tuple(cause.name for cause in CAUSES)
# Between the last of these points before the read, the reader was in one state.
_AFTER = {
    ("wake_ns", "switch_ns"): "reader-runnable",
    ("switch_ns", "copy_ns"): "reader-running",
    ("switch_ns", "read_ns"): "reader-running",
    ("switch_ns", "received_ns"): "reader-running",
}
# Stages of one cause that others take time from, by the cause and the point at which they end.
_TAKEN = {
    ("driver", "driver_ns"): ("softirq-wait",),
    ("backlog", "core_ns"): ("softirq-wait", "gro"),
    ("stack", "l4_ns"): ("netfilter",),
}
# Of the causes that share a stage, those with a smaller part are not named.
_LEAST_PART = 0.05


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of a message.

    Parameters
    ----------
    column
        Column of the point at which it ends (see :data:`hopscope.trace.messages.path.BY_COLUMN`).
    after_ns
        Its beginning, relative to the beginning of the message.
    duration_ns
        Its duration.
    causes
        What held the message, longest first.
    told
        Whether its duration is known; otherwise it is at most the duration plus the bound of the clocks.
    """

    column: str
    after_ns: int
    duration_ns: int
    causes: tuple[str, ...]
    told: bool = True


def cause_totals(trace: Trace, source: str = "message_causes") -> dict[str, int]:
    """Return cause → total time for which it held the messages of a table or query, ns; longest first."""
    (row,) = trace.rows(f"SELECT {', '.join(f'sum({cause.column})' for cause in CAUSES)} FROM {source} m")
    totals = {name: int(held_ns or 0) for name, held_ns in zip(NAMES, row, strict=True)}
    return {name: totals[name] for name in sorted(totals, key=lambda name: -totals[name]) if totals[name]}


def stages(
    times_ns: Mapping[str, int | None],
    resent_ns: int | None,
    held_ns: Mapping[str, int],
    *,
    across: bool = False,
    network_ns: int | None = None,
) -> Iterator[Stage]:
    """Iterate over a message's stages.

    Parameters
    ----------
    times_ns
        Column → time at that point; None: not seen.
    resent_ns
        When bytes of it were last retransmitted, on the same clock; None: never.
    held_ns
        Cause → the time for which it held the message, ns.
    across, network_ns
        Whether it went to another host; the network time, None: unknown.
    """
    begin_ns = previous = None
    for step in STEPS:
        at_ns = times_ns[step.column]
        if at_ns is None:
            continue
        if previous is None or begin_ns is None:
            begin_ns = at_ns
        else:
            last_ns = times_ns[previous]
            assert last_ns is not None  # noqa: S101 # it was seen
            resent = resent_ns is not None and last_ns < resent_ns < at_ns
            cause = cause_of(step.column, previous, resent=resent, across=across)
            told = cause != NETWORK or network_ns is not None
            if cause in GROUPS:
                causes = _shared(cause, step.column, previous, held_ns)
            else:
                taken = _TAKEN.get((cause, step.column), ())
                causes = _longest({each: held_ns.get(each, 0) for each in (cause, *taken)}) or (cause,)
            yield Stage(step.column, last_ns - begin_ns, at_ns - last_ns, causes, told)
        previous = step.column


def _shared(group: str, column: str, previous: str, held_ns: Mapping[str, int]) -> tuple[str, ...]:
    """Return the causes that held a message in a group's stages, longest first."""
    own = _AFTER.get((previous, column))
    if own and held_ns.get(own):
        return (own,)
    parts = {cause: held_ns.get(cause, 0) for cause in SHARED[group]}
    if any(parts.values()):
        parts[UNKNOWN] = held_ns.get(UNKNOWN, 0) if group == SENDER else 0
    return _longest(parts) or (UNKNOWN,)


def _longest(parts: Mapping[str, int]) -> tuple[str, ...]:
    """Return the causes with enough time to be named, longest first."""
    whole_ns = sum(parts.values())
    named = [cause for cause, part_ns in parts.items() if part_ns and part_ns >= _LEAST_PART * whole_ns]
    return tuple(sorted(named, key=lambda cause: -parts[cause]))


def most_blamed(rows: Columns) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the cause that held each message longest, and the time (ns); masked where no stage was seen.

    Parameters
    ----------
    rows
        Columns of the table ``message_causes``.
    """
    return longest(NAMES, held_by(rows))


def longest(names: Sequence[str], held: I64) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the name with the maximum time, and the maximum (ns), of shape (names, items); masked where all are 0."""
    who = held.argmax(axis=0)
    held_ns = held[who, np.arange(held.shape[1])]
    nothing = held_ns == 0
    return np.ma.MaskedArray(np.array(names, dtype=object)[who], nothing), np.ma.MaskedArray(held_ns, nothing)


def held_by(rows: Columns) -> I64:
    """Return the time for which each cause held each message, ns, shape (causes, messages); `rows` as above."""
    return np.stack([np.asarray(np.ma.filled(rows[cause.column], 0), np.int64) for cause in CAUSES])
