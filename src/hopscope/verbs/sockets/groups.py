# SPDX-License-Identifier: Apache-2.0
"""Sockets that have something in common, summed up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hopscope.kernel.sockets.address import addresses, ports
from hopscope.kernel.sockets.signs import rtt_inflation
from hopscope.verbs.sockets.report import rtt_us, state_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from hopscope.verbs.sockets.report import SocketReport

NOT_KNOWN: Final = "-"


@dataclass(frozen=True, slots=True)
class SocketGroup:
    """Sums and extremes of some sockets.

    Attributes
    ----------
    group
        What they have in common: grouping key → value.
    in_trouble
        How many of them have a sign of trouble.
    worst
        The largest score of any.
    sent_bytes, received_bytes, retransmitted, data_segments, drops
        Sums of the interval, or since each began.
    rtt_us, rtt_max_us
        Median and largest round-trip time; None where none is known.
    rtt_inflation
        The largest.
    receive_queue_bytes, send_queue_bytes
        Sums, without listeners.
    """

    group: Mapping[str, str]
    sockets: int
    in_trouble: int
    worst: float
    sent_bytes: int
    received_bytes: int
    retransmitted: int
    data_segments: int
    drops: int
    rtt_us: float | None
    rtt_max_us: float | None
    rtt_inflation: float | None
    receive_queue_bytes: int
    send_queue_bytes: int


def groups(report: SocketReport, by: Sequence[str]) -> list[SocketGroup]:
    """Return a group for each combination of values of the keys, in the order of its first socket in the report.

    Parameters
    ----------
    by
        Keys of :data:`GROUPS`.
    """
    if not len(report):
        return []
    report = report.head(0)
    columns = [GROUPS[key](report) for key in by]
    numbers = np.zeros(len(report), np.int64)
    for column in columns:
        _, numbers = np.unique(numbers * (len(report) + 1) + _codes(column), return_inverse=True)
    _, firsts, numbers = np.unique(numbers, return_index=True, return_inverse=True)
    order = np.argsort(numbers, kind="stable")
    bounds = np.searchsorted(numbers[order], np.arange(len(firsts) + 1))
    found = [
        (int(firsts[group]), _group(report, order[bounds[group] : bounds[group + 1]], dict(_key(by, columns, first))))
        for group, first in enumerate(firsts.tolist())
    ]
    return [each for _, each in sorted(found, key=lambda pair: pair[0])]


def _codes(column: Sequence[str]) -> NDArray[np.int64]:
    known: dict[str, int] = {}
    return np.array([known.setdefault(value, len(known)) for value in column], np.int64)


def _key(by: Sequence[str], columns: Sequence[Sequence[str]], row: int) -> Iterator[tuple[str, str]]:
    return zip(by, (column[row] for column in columns), strict=True)


def _group(report: SocketReport, members: NDArray[np.intp], key: dict[str, str]) -> SocketGroup:
    rows, change = report.sockets.rows[members], report.change.take(members)
    scores = report.signs.scores[members]
    rtts = rtt_us(report)[members]
    rtts = rtts[~np.isnan(rtts)]
    inflations = rtt_inflation(rows)
    connected = rows["message"]["state"] != 10
    return SocketGroup(
        group=key,
        sockets=len(members),
        in_trouble=int(np.count_nonzero(scores)),
        worst=float(scores.max()),
        sent_bytes=int(change.sent_bytes.sum()),
        received_bytes=int(change.received_bytes.sum()),
        retransmitted=int(change["total_retrans"].sum()),
        data_segments=int(change["data_segs_out"].sum()),
        drops=int(change["drops"].sum()),
        rtt_us=float(np.median(rtts)) if len(rtts) else None,
        rtt_max_us=float(rtts.max()) if len(rtts) else None,
        rtt_inflation=None if np.isnan(inflations).all() else float(np.nanmax(inflations)),
        receive_queue_bytes=int(rows["message"]["rqueue"][connected].sum()),
        send_queue_bytes=int(rows["message"]["wqueue"][connected].sum()),
    )


def _process(report: SocketReport) -> list[str]:
    owners = report.owners
    texts = {inode: f"{found[0].comm} ({found[0].pid})" for inode, found in owners.items() if found}
    return [texts.get(inode, NOT_KNOWN) for inode in report.sockets.rows["message"]["inode"].tolist()]


def _command(report: SocketReport) -> list[str]:
    texts = {inode: found[0].comm for inode, found in report.owners.items() if found}
    return [texts.get(inode, NOT_KNOWN) for inode in report.sockets.rows["message"]["inode"].tolist()]


def cgroup_names(report: SocketReport) -> list[str]:
    """Return the cgroup of each socket; ``-`` where the kernel does not tell."""
    return [
        report.cgroups.get(number, f"cgroup {number}") if number else NOT_KNOWN
        for number in report.sockets.rows["cgroup_id"].tolist()
    ]


def namespace_names(report: SocketReport) -> list[str]:
    """Return the network namespace of each socket."""
    known: Mapping[int, str] = report.sockets.namespaces
    return [known.get(inode, f"netns {inode}") for inode in report.sockets.rows["netns"].tolist()]


def _states(report: SocketReport) -> list[str]:
    return [state_name(state) for state in report.sockets.rows["message"]["state"].tolist()]


def congestion_names(report: SocketReport) -> list[str]:
    """Return the congestion control of each socket; ``-`` where it has none."""
    return [name.decode(errors="replace") or NOT_KNOWN for name in report.sockets.rows["cong"].tolist()]


GROUPS: Final[Mapping[str, Callable[[SocketReport], list[Any]]]] = {
    "process": _process,
    "comm": _command,
    "cgroup": cgroup_names,
    "netns": namespace_names,
    "state": _states,
    "peer": lambda report: addresses(report.sockets.rows, "peer"),
    "local-port": lambda report: [str(port) for port in ports(report.sockets.rows, "local").tolist()],
    "peer-port": lambda report: [str(port) for port in ports(report.sockets.rows, "peer").tolist()],
    "congestion": congestion_names,
}
