# SPDX-License-Identifier: Apache-2.0
"""What questions on a fleet share: how hosts are grouped, which hop is meant, and what is said of what is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from hopscope.errors import UsageError
from hopscope.model.blocked_ranks import Durations
from hopscope.model.histogram import SLOTS, Histogram, thresholds_ns
from hopscope.store.fleet.fleet import text, text_of_hour
from hopscope.term.format import plural

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from hopscope.store.fleet.fleet import Fleet

HOST: Final = "host"
_NAMED: Final = 5
_SHOWN: Final = 12


def heading(fleet: Fleet) -> list[str]:
    """Return the lines above a report: of which time it is."""
    return [f"{text_of_hour(fleet.hours.start)} to {text_of_hour(fleet.hours.stop)} UTC", ""]


def hops(fleet: Fleet, wanted: str | None) -> list[str]:
    """Return the names of the hops that are there, or the one that is wanted.

    Raises
    ------
    UsageError
        There is none, or not that one.
    """
    found = [name for (name,) in fleet.rows("SELECT DISTINCT hop FROM hop_hours ORDER BY hop")]
    if not found:
        raise UsageError(f"{fleet.shown} has no hops in that time", "Give other times with --from and --until")
    if wanted is None:
        return found
    if wanted in found:
        return [wanted]
    ending = [name for name in found if name.endswith(f":{wanted}")]
    if len(ending) == 1:
        return ending
    what = f"Several hops of {fleet.shown} end at {wanted}" if ending else f"{fleet.shown} has no hop {wanted}"
    raise UsageError(f"{what}. It has {', '.join((ending or found)[:_SHOWN])}", "Name one of them with --hop")


def host_names(fleet: Fleet) -> list[str]:
    """Return the hosts of which there is anything, in order."""
    return [name for (name,) in fleet.rows("SELECT DISTINCT host FROM minutes ORDER BY host")]


def check_hosts(fleet: Fleet, wanted: Sequence[str]) -> None:
    """Refuse hosts that are not there.

    Raises
    ------
    UsageError
        One is not.
    """
    known = host_names(fleet)
    for name in wanted:
        if name not in known:
            few = ", ".join(known[:_NAMED]) + (f" and {len(known) - _NAMED:,} more" if len(known) > _NAMED else "")
            raise UsageError(
                f"{fleet.shown} has no host {name} in that time. It has {few}", "`hopscope fleet hosts` lists them"
            )


def groups(fleet: Fleet, by: str, hosts: Sequence[str]) -> dict[str, str]:
    """Return the group of each host, as far as it is known: what a fact or a label says of it.

    Raises
    ------
    UsageError
        Nothing says that of any host.
    """
    if by == HOST:
        return {name: name for name in hosts}
    found = dict(fleet.rows(f"SELECT host, arg_max(value, minute) FROM facts WHERE name = {text(by)} GROUP BY host"))
    found |= dict(fleet.rows(f"SELECT host, value FROM labels WHERE name = {text(by)}"))
    of_these = {name: found[name] for name in hosts if name in found}
    if not of_these:
        labels = [name for (name,) in fleet.rows("SELECT DISTINCT name FROM labels ORDER BY 1")]
        raise UsageError(
            f"{fleet.shown} does not say which {by} a host has. It knows {', '.join(['kernel', 'driver', *labels])}",
            f"{fleet.shown}/hosts.csv can say so: its first line names the columns, as in host,rack,role",
        )
    return of_these


def durations(fleet: Fleet, hop: str, numbers: Mapping[str, int]) -> Durations:
    """Return the histograms of a hop, by host and hour; those of all labels and boots are added up."""
    names = ", ".join(f"({text(name)}, {number})" for name, number in numbers.items())
    found = fleet.columns(
        f"SELECT n.number AS host, hour - {fleet.hours.start} AS block, unnest(slots) AS slot,"
        " unnest(counts) AS samples"
        f" FROM hop_hours h JOIN (VALUES {names}) AS n(name, number) ON n.name = h.host WHERE hop = {text(hop)}"
    )
    host, block, slot, samples = (
        np.ma.getdata(found[name]).astype(np.int64) for name in ("host", "block", "slot", "samples")
    )
    return Durations(host, block, slot, samples, len(numbers), len(fleet.hours))


def three(value: float | None) -> float | None:
    """Return a ratio with as many digits as it is good for."""
    return None if value is None else float(f"{value:.3g}")


def histogram(counts: NDArray[np.int64]) -> Histogram:
    """Return the histogram of counts by slot, whose sum and maximum are not known."""
    used = np.flatnonzero(counts)
    most = thresholds_ns()[min(int(used[-1]), SLOTS - 2)] if len(used) else 0
    return Histogram(counts, 0, most)


def absences(fleet: Fleet) -> list[str]:
    """Return sentences on what was not measured: a gap is no zero."""
    ((hosts, partly, missing, lost),) = fleet.rows(
        "SELECT count(*), count(*) FILTER (missing > 0), coalesce(sum(missing), 0), coalesce(sum(lost), 0) FROM ("
        "  SELECT host, max(minute) - min(minute) + 1 - count(DISTINCT minute) AS missing, sum(lost) AS lost"
        "  FROM minutes GROUP BY host)"
    )
    notes = list(fleet.notes)
    if missing:
        notes.append(
            f"not measured: {plural(int(missing), 'minute')} of {partly:,} of {plural(hosts, 'host')}, between the"
            " first and the last that was; they count nowhere"
        )
    if lost:
        notes.append(
            f"lost: {plural(int(lost), 'event')}, because a ring or the disk was full; durations and drops lack them"
        )
    return notes
