# SPDX-License-Identifier: Apache-2.0
"""Who held messages, and for how long: the sums over all of them, and those of single ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from hopscope.analysis.messages_path import LAYERS, STEPS, layer_of, layer_sql, stage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from hopscope.store.trace import Trace

I64: TypeAlias = "NDArray[np.int64]"
Columns: TypeAlias = "Mapping[str, NDArray[Any]]"


@dataclass(frozen=True, slots=True)
class Stage:
    """A part of one message's time.

    Parameters
    ----------
    column
        Of the point that it ends at; the point is :data:`hopscope.analysis.messages_path.BY_COLUMN` of it.
    after_ns
        When it begins, since the message's begin.
    duration_ns
        How long it is.
    layer
        Who is to blame.
    """

    column: str
    after_ns: int
    duration_ns: int
    layer: str


def layer_totals(trace: Trace) -> dict[str, int]:
    """Return layer → for how long it held the messages of the table ``messages``, all together, ns; longest first."""
    parts = " UNION ALL ".join(
        f"SELECT layer, sum(held_ns) AS held_ns FROM (SELECT {layer_sql(step.column)} AS layer,"
        f" {stage(step.column)} AS held_ns FROM messages) s WHERE held_ns IS NOT NULL GROUP BY layer"
        for step in STEPS[1:]
    )
    rows = trace.rows(f"SELECT layer, sum(held_ns) FROM ({parts}) p GROUP BY layer ORDER BY 2 DESC")
    return {layer: int(held_ns) for layer, held_ns in rows if held_ns}


def stages(times_ns: Mapping[str, int | None], resent_ns: int | None) -> Iterator[Stage]:
    """Iterate over a message's stages.

    Parameters
    ----------
    times_ns
        Column → when it passed that point; None where that was not seen.
    resent_ns
        When bytes of it were last sent again, on the same clock; None: never.
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
            layer = layer_of(step.column, previous, resent=resent)
            yield Stage(step.column, last_ns - begin_ns, at_ns - last_ns, layer)
        previous = step.column


def most_blamed(rows: Columns) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return who held each message longest and for how long (ns), masked where no stage was seen.

    Parameters
    ----------
    rows
        Columns of the table ``messages``.
    """
    count = len(rows["retransmits"])
    held = np.zeros((len(LAYERS), count), np.int64)
    everyone = np.arange(count)
    for part_ns, layers in _parts(rows):
        held[layers, everyone] += part_ns
    longest = held.argmax(axis=0)
    held_ns = held[longest, everyone]
    nothing = held_ns == 0
    return np.ma.MaskedArray(np.array(LAYERS, dtype=object)[longest], nothing), np.ma.MaskedArray(held_ns, nothing)


def _parts(rows: Columns) -> Iterator[tuple[I64, I64]]:
    """Iterate over points: for each message, the duration of the stage that ends there (0: none), its layer's index."""
    count = len(rows["retransmits"])
    resent_ns = np.asarray(np.ma.filled(rows["resent_ns"], -1), np.int64)
    last_ns, last = np.zeros(count, np.int64), np.full(count, -1)
    for place, step in enumerate(STEPS):
        seen = ~np.ma.getmaskarray(rows[step.column])
        at_ns = np.asarray(np.ma.filled(rows[step.column], 0), np.int64)
        ends = seen & (last >= 0)
        again = (last_ns < resent_ns) & (resent_ns < at_ns)
        layers = np.zeros(count, np.int64)
        for before in np.unique(last[ends]).tolist():
            for resent in (False, True):
                layer = layer_of(step.column, STEPS[before].column, resent=resent)
                layers[ends & (last == before) & (again == resent)] = LAYERS.index(layer)
        yield np.where(ends, at_ns - last_ns, 0), layers
        last_ns, last = np.where(seen, at_ns, last_ns), np.where(seen, place, last)
