# SPDX-License-Identifier: Apache-2.0
"""The layers that delayed messages, and for how long: in total, and for single messages."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from hopscope.trace.host_numbers import hosts
from hopscope.trace.messages.path import LAYERS, NETWORK, STEPS, held_sql, layer_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from hopscope.store.trace import Trace

I64: TypeAlias = "NDArray[np.int64]"
Columns: TypeAlias = "Mapping[str, NDArray[Any]]"


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
    layer
        The layer responsible for it.
    told
        Whether its duration is known; otherwise it is at most the duration plus the bound of the clocks.
    """

    column: str
    after_ns: int
    duration_ns: int
    layer: str
    told: bool = True


def layer_totals(trace: Trace, source: str = "messages") -> dict[str, int]:
    """Return layer → total time for which it held the messages of a table or query, ns; longest first."""
    joined = bool(hosts(trace))
    parts = [part for step in STEPS[1:] for part in held_sql(step.column, joined=joined).items()]
    totals = dict.fromkeys(LAYERS, 0)
    (row,) = trace.rows(f"SELECT {', '.join(f'sum({held})' for _, held in parts)} FROM {source} m")
    for (layer, _), held_ns in zip(parts, row, strict=True):
        totals[layer] += int(held_ns or 0)
    return {layer: totals[layer] for layer in sorted(totals, key=lambda layer: -totals[layer]) if totals[layer]}


def stages(
    times_ns: Mapping[str, int | None], resent_ns: int | None, *, across: bool = False, network_ns: int | None = None
) -> Iterator[Stage]:
    """Iterate over a message's stages.

    Parameters
    ----------
    times_ns
        Column → time at that point; None: not seen.
    resent_ns
        When bytes of it were last retransmitted, on the same clock; None: never.
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
            layer = layer_of(step.column, previous, resent=resent, across=across)
            told = layer != NETWORK or network_ns is not None
            yield Stage(step.column, last_ns - begin_ns, at_ns - last_ns, layer, told)
        previous = step.column


def most_blamed(rows: Columns) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the layer that held each message longest, and the time (ns); masked where no stage was seen.

    Parameters
    ----------
    rows
        Columns of the table ``messages``.
    """
    return longest(LAYERS, held_by(rows))


def longest(names: Sequence[str], held: I64) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the name with the maximum time, and the maximum (ns), of shape (names, items); masked where all are 0."""
    who = held.argmax(axis=0)
    held_ns = held[who, np.arange(held.shape[1])]
    nothing = held_ns == 0
    return np.ma.MaskedArray(np.array(names, dtype=object)[who], nothing), np.ma.MaskedArray(held_ns, nothing)


def held_by(rows: Columns) -> I64:
    """Return the time for which each layer held each message, ns, shape (layers, messages); `rows` as above."""
    count = len(rows["retransmits"])
    held = np.zeros((len(LAYERS), count), np.int64)
    everyone = np.arange(count)
    for part_ns, layers in _parts(rows):
        held[layers, everyone] += part_ns
    return held


def _parts(rows: Columns) -> Iterator[tuple[I64, I64]]:
    """Iterate over points: for each message, duration of the stage ending there (0: none), and its layer's index."""
    count = len(rows["retransmits"])
    resent_ns = np.asarray(np.ma.filled(rows["resent_ns"], -1), np.int64)
    last_ns, last = np.zeros(count, np.int64), np.full(count, -1)
    across = ~np.ma.getmaskarray(rows["network_bound_ns"])
    untold = across & np.ma.getmaskarray(rows["network_ns"])
    for place, step in enumerate(STEPS):
        seen = ~np.ma.getmaskarray(rows[step.column])
        at_ns = np.asarray(np.ma.filled(rows[step.column], 0), np.int64)
        ends = seen & (last >= 0)
        again = (last_ns < resent_ns) & (resent_ns < at_ns)
        layers = np.zeros(count, np.int64)
        for before in np.unique(last[ends]).tolist():
            for resent, far in product((False, True), repeat=2):
                layer = layer_of(step.column, STEPS[before].column, resent=resent, across=far)
                layers[ends & (last == before) & (again == resent) & (across == far)] = LAYERS.index(layer)
        said = ends & ~(untold & (layers == LAYERS.index(NETWORK)))
        yield np.where(said, at_ns - last_ns, 0), layers
        last_ns, last = np.where(seen, at_ns, last_ns), np.where(seen, place, last)
