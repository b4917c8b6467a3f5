# SPDX-License-Identifier: Apache-2.0
"""Rows of a fleet from a recording: histograms of its hops by minute, its drops, and what is true of its host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hopscope.errors import UsageError
from hopscope.model.histogram import Histogram
from hopscope.store.fleet.batches import Rows, add_rows, identity
from hopscope.store.fleet.schema import (
    DRIVER,
    KERNEL,
    MINUTES_OF_HOUR,
    NS_OF_MINUTE,
    OF_DROPS,
    OF_HOPS,
    PROGRAM,
)
from hopscope.store.hosts import Hosts, is_of_hosts
from hopscope.store.lock import is_locked
from hopscope.store.trace import Trace
from hopscope.trace.gaps import attached
from hopscope.trace.recorded_counters import last_settings
from hopscope.trace.relation import build
from hopscope.trace.selection import Selection
from hopscope.verbs.report.hops import hops_by

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from hopscope.model.counters.readings import Key
    from hopscope.store.fleet.place import Place

MESSAGE: Final = "message"
_DROP: Final = "skb.drop"
# They differ between hosts that are the same: where interrupts were moved to, and addresses.
_OWN: Final = frozenset({"interrupt_setting", "clock"})
_OWN_NAMES: Final = frozenset({"bus_info", "ifindex", "address", "broadcast", "numa_node"})
# Of a namespace that is the host's.
_HOST_NETNS: Final = "SELECT netns FROM namespaces WHERE name = 'host'"
_MOST_TEXT: Final = 200


def add_recording(place: Place, folder: Path) -> tuple[int, int]:
    """Add a recording of a host, or of several, to a fleet; what is there already stays as it is.

    Returns
    -------
    tuple of int
        How many batches were added, and how many were there.

    Raises
    ------
    UsageError
        It is being recorded, or does not say of which host it is.
    FormatError
        It is damaged.
    DiskFullError
        There is no room.
    """
    added = there = 0
    for part, host in _parts(folder):
        if is_locked(part):
            raise UsageError(f"{part} is being recorded", "Add it when it has ended")
        with Trace(part) as trace:
            name = host or trace.metadata.host.get("name", "")
            if trace.metadata.joined or not name:
                raise UsageError(
                    f"{part} does not say of which host it is", "Add the recordings of single hosts, as recorded"
                )
            for hour, found in _hours(trace, name):
                boot, started = _boot(trace), trace.metadata.started_ns
                fresh = add_rows(place, hour, identity(name, boot, started, hour), found)
                added, there = added + fresh, there + (not fresh)
    return added, there


def _parts(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield the traces of a recording, each with the name of its host, if the recording has given one."""
    if not is_of_hosts(folder):
        yield folder, ""
        return
    for host in Hosts.read(folder).hosts:
        for part in host.parts:
            yield folder / part, host.name


def _boot(trace: Trace) -> str:
    return trace.metadata.host.get("boot", "") or "unknown"


def _hours(trace: Trace, host: str) -> Iterator[tuple[int, Rows]]:
    """Yield the rows of each hour."""
    minutes = _minutes(trace)
    hops = _hops(trace)
    drops = _drops(trace)
    first = min(minutes)
    for hour in sorted({minute // MINUTES_OF_HOUR for minute in minutes}):
        within = range(hour * MINUTES_OF_HOUR, (hour + 1) * MINUTES_OF_HOUR)
        mine = {minute: each for minute, each in minutes.items() if minute in within}
        facts = _facts(trace) if first in within else {}
        yield (
            hour,
            rows_of(
                host,
                _boot(trace),
                {key: each for key, each in hops.items() if key[1] in within},
                mine,
                {key: each for key, each in drops.items() if key[0] in within},
                {(first, name): value for name, value in facts.items()},
            ),
        )


def rows_of(  # noqa: PLR0913, PLR0917 # one parameter a table
    host: str,
    boot: str,
    hops: Mapping[tuple[str, int, str], Histogram],
    minutes: Mapping[int, tuple[int, str, int, float]],
    drops: Mapping[tuple[int, str, str], int],
    facts: Mapping[tuple[int, str], str],
) -> Rows:
    """Return the rows of a host in an hour.

    Parameters
    ----------
    hops
        Hop, minute, and labels → durations.
    minutes
        Minute → how much of it was measured in ns, what was measured, how many events were lost, and which part of the
        packets was measured.
    drops
        Minute, reason and place → packets.
    facts
        Minute and name → value.
    """
    used = {key: each for key, each in sorted(hops.items()) if each.count}
    figures = [(*key, each.count, each.sum_ns, each.max_ns, *_seen(minutes, key[1])) for key, each in used.items()]
    found = [np.flatnonzero(each.counts) for each in used.values()]
    names = ("hop", "minute", "labels", "count", "sum_ns", "max_ns", "lost", "coverage")
    return Rows(
        _columns(host, boot, names, figures),
        {
            "row": np.repeat(np.arange(len(found)), [len(each) for each in found]),
            "slot": np.concatenate(found) if found else np.empty(0, np.int64),
            "samples": np.concatenate([each.counts[slots] for each, slots in zip(used.values(), found, strict=True)])
            if found
            else np.empty(0, np.int64),
        },
        {
            "minutes": _columns(
                host,
                boot,
                ("minute", "measured_ns", "measured", "lost"),
                [(minute, *each[:3]) for minute, each in minutes.items()],
            ),
            "drops": _columns(
                host, boot, ("minute", "reason", "place", "count"), [(*key, each) for key, each in drops.items()]
            ),
            "facts": _columns(host, boot, ("minute", "name", "value"), [(*key, each) for key, each in facts.items()]),
        },
    )


def _seen(minutes: Mapping[int, tuple[int, str, int, float]], minute: int) -> tuple[int, float]:
    measured_ns, _, lost, part = minutes.get(minute, (0, "", 0, 0.0))
    return lost, part * min(measured_ns / NS_OF_MINUTE, 1.0)


def _columns(host: str, boot: str, names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> dict[str, NDArray[Any]]:
    texts = {"hop", "labels", "measured", "reason", "place", "name", "value"}
    columns: dict[str, NDArray[Any]] = {
        "host": np.array([host] * len(rows), object),
        "boot": np.array([boot] * len(rows), object),
    }
    for index, name in enumerate(names):
        kind = object if name in texts else np.float64 if name == "coverage" else np.int64
        columns[name] = np.array([row[index] for row in rows], kind)
    return columns


def _minutes(trace: Trace) -> dict[int, tuple[int, str, int, float]]:
    """Return the minutes of a recording, as :func:`rows_of` takes them."""
    began_ns = trace.metadata.started_ns
    ended_ns = trace.metadata.ended_ns or int(
        trace.rows("SELECT max(time_ns) FROM (SELECT time_ns FROM packets UNION ALL SELECT time_ns FROM sockets) e")[0][
            0
        ]
        or began_ns
    )
    shift_ns = trace.metadata.realtime_ns - began_ns
    points = attached(trace)
    # Of a recording that does not say what was attached, what it has is known.
    drops = not points or _DROP in points
    measured = " ".join([OF_HOPS, *([OF_DROPS] if drops else [])])
    part = 1 / max(int(trace.metadata.options.get("sampling_1_in", 1)), 1)
    found: dict[int, tuple[int, str, int, float]] = {}
    for minute in range(
        (began_ns + shift_ns) // NS_OF_MINUTE, (max(ended_ns, began_ns + 1) + shift_ns - 1) // NS_OF_MINUTE + 1
    ):
        from_ns = max(minute * NS_OF_MINUTE, began_ns + shift_ns)
        until_ns = min((minute + 1) * NS_OF_MINUTE, ended_ns + shift_ns)
        found[minute] = max(until_ns - from_ns, 0), measured, 0, part
    for minute, lost in trace.rows(
        f"SELECT {_minute('until_ns', shift_ns)} AS minute, CAST(sum(lost) AS BIGINT) FROM losses GROUP BY 1"
    ):
        nearest = min(max(int(minute), min(found)), max(found))
        found[nearest] = (*found[nearest][:2], found[nearest][2] + int(lost), part)
    return found


def _minute(time_ns: str, shift_ns: int) -> str:
    """Return the expression for the minute since 1970 of a time of a recording."""
    return f"CAST(({time_ns} + {shift_ns} - ({time_ns} + {shift_ns}) % {NS_OF_MINUTE}) / {NS_OF_MINUTE} AS BIGINT)"


def _hops(trace: Trace) -> dict[tuple[str, int, str], Histogram]:
    shift_ns = trace.metadata.realtime_ns - trace.metadata.started_ns
    found = {
        (":".join(ends), minute, ""): histogram
        for ends, parts in hops_by(trace, Selection(), _minute("s.time_ns", shift_ns)).items()
        for minute, histogram in parts.items()
    }
    build(trace, "messages", selection=Selection())
    for minute, totals in trace.rows(
        f"SELECT {_minute('ends_ns', shift_ns)} AS minute, list(total_ns) FROM messages"
        " WHERE total_ns > 0 AND (read_ns IS NOT NULL OR received_ns IS NOT NULL) GROUP BY 1"
    ):
        found[MESSAGE, int(minute), ""] = Histogram.from_values(totals)
    return found


def _drops(trace: Trace) -> dict[tuple[int, str, str], int]:
    shift_ns = trace.metadata.realtime_ns - trace.metadata.started_ns
    build(trace, "drop_places")
    return {
        (int(minute), reason, place): int(count)
        for minute, reason, place, count in trace.rows(
            f"SELECT {_minute('d.time_ns', shift_ns)} AS minute, coalesce(r.name, CAST(d.reason AS STRING)),"
            # Offsets differ between builds of a kernel.
            " coalesce(split_part(split_part(p.name, '+0x', 1), ' ', 1), '-'), count(*)"
            " FROM drops d LEFT JOIN reasons r ON r.reason = d.reason LEFT JOIN drop_places p ON p.address = d.location"
            " GROUP BY 1, 2, 3"
        )
    }


def _facts(trace: Trace) -> dict[str, str]:
    """Return what is true of the host: kernel, driver, and its settings at the last reading."""
    metadata = trace.metadata
    found = {KERNEL: metadata.host.get("release", ""), PROGRAM: metadata.hopscope}
    found |= {name: metadata.host.get(name, "") for name in ("machine", "cpus")}
    own = {0, *(int(netns) for (netns,) in trace.rows(_HOST_NETNS))}
    settings = {key: value for key, value in last_settings(trace).items() if key.netns in own}
    found |= facts_of(settings)
    return {name: value[:_MOST_TEXT] for name, value in found.items() if value}


def facts_of(settings: Mapping[Key, str]) -> dict[str, str]:
    """Return the settings of a host as facts, without those that are its own in any case, and its NICs' driver."""
    found = {
        " ".join(filter(None, (key.source, key.subject, key.name))): str(value)
        for key, value in settings.items()
        if key.source not in _OWN and key.name not in _OWN_NAMES
    }
    drivers = {key.subject: value for key, value in settings.items() if key.source == "driver" and key.name == "driver"}
    on_bus = {
        key.subject for key, value in settings.items() if key.source == "driver" and key.name == "bus_info" and value
    }
    if of_nics := {value for subject, value in drivers.items() if subject in on_bus} or set(drivers.values()):
        found[DRIVER] = " ".join(sorted(of_nics))
    return found
