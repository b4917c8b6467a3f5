# SPDX-License-Identifier: Apache-2.0
"""Sentences about the hosts of a joined trace: error bounds of their times, and absences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hopscope.trace.host_numbers import hosts
from hopscope.trace.relation import build

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hopscope.store.trace import Trace


_SAID: Final = {
    "breaks": "changes of time or rate of one of the clocks",
    "contradictory": "windows discarded as contradictory",
    "refused": "packets discarded because the probes contradict them",
}


def host_lines(trace: Trace) -> list[str]:
    """Return a line per host and per pair of compared clocks; nothing for a trace of one host."""
    names = hosts(trace)
    if not names:
        return []
    build(trace, "clock_bounds")
    lines = []
    trusted = trace.metadata.joined.get("trusted", {})
    for host, name in names.items():
        bounds = np.asarray(trace.columns(f"SELECT bound_ns FROM clock_bounds WHERE host = {host}")["bound_ns"])
        if host == 0:
            line = f"{name}: its clock is the time axis; the date is from its wall clock at the start"
        else:
            line = f"{name}: error bound {np.median(bounds):,.0f} ns (median), {bounds.max():,} ns (maximum)"
        lines.append(f"{line}; CLOCK_TAI is trusted, as {trusted[name]} keeps it" if name in trusted else line)
    for pair in trace.metadata.joined.get("pairs", []):
        first, second = (names.get(host, f"host {host}") for host in (pair["first"], pair["second"]))
        counts = [
            f"{there:,} {kind} in one direction and {back:,} in the other{_stamped(pair) if kind == 'probes' else ''}"
            for kind, (there, back) in (("probes", pair["probes"]), ("packets", pair["packets"]))
            if there or back
        ]
        line = f"clocks of {first} and {second}: {'checked' if trusted else 'compared'} using {', '.join(counts)}"
        median, worst = pair["residual_ns"]
        if worst >= 1:
            line += f"; deviation from the consensus of all pairs: {median:,.0f} ns (median), {worst:,.0f} ns (maximum)"
        numbers: Mapping[str, object] = pair
        for field, what in _SAID.items():
            if numbers.get(field):
                line += f"; {what}: {numbers[field]:,}"
        lines.append(line)
    return lines


def _stamped(pair: Mapping[str, Any]) -> str:
    """Tell what time-stamped the probes of a pair, if known."""
    by_nics = pair.get("by_nics")
    if by_nics is None:
        return ""
    if not by_nics:
        return " (time-stamped by the kernels)"
    every = sum(pair["probes"])
    return (
        " (time-stamped by the NICs)"
        if by_nics == every
        else f" ({by_nics:,} time-stamped by the NICs, the rest by the kernels)"
    )


def absence_notes(trace: Trace) -> list[str]:
    """Return a sentence for each period in which a host was not recorded."""
    names, started_ns = hosts(trace), trace.metadata.started_ns
    return [
        f"{names.get(host, host)}: no data from {(from_ns - started_ns) / 1e9:.3f} s to "
        f"{(until_ns - started_ns) / 1e9:.3f} s: {reason}"
        for host, from_ns, until_ns, reason in trace.rows(
            "SELECT host, from_ns, until_ns, reason FROM absences ORDER BY host, from_ns"
        )
    ]
