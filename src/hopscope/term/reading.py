# SPDX-License-Identifier: Apache-2.0
"""A snapshot in sentences: where most of the time went, and what that means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.model.share import TOTAL_SUFFIX, shares
from hopscope.model.snapshot import PARTS_OF_WAKE
from hopscope.term import format as fmt

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hopscope.model.snapshot import HopRow, Snapshot

# What the time in a hop was spent on, by the last part of the hop's name.
_MEANINGS: Final = {
    "core": "between the driver and the core: in GRO, or in the backlog queue that lo and veth use",
    "ip": "between the core and IP: taps, tc, XDP and bridges work there",
    "tcp": "between IP and TCP: netfilter and routing",
    "udp": "between IP and UDP: netfilter and routing",
    "tcp_queue": "in front of the socket: its owner held the socket lock, and the segment waited in the backlog",
    "tcp_order": "waiting for earlier segments that were missing",
    "queue": "between UDP and the socket's queue",
    "wake": "in the socket's queue while the reader was not on a CPU",
    "read": "in the socket's queue while the reader was on a CPU but had not read yet: it did other work, or copied",
}


def explain(snapshot: Snapshot) -> str:
    """Return a paragraph a protocol: how many, how long, and where most of the time passed."""
    found = list(zip(snapshot.hops, shares(snapshot.hops), strict=True))
    paragraphs = []
    for total, _ in found:
        if not total.hop.endswith(TOTAL_SUFFIX) or not total.histogram.count:
            continue
        stem = total.hop.removesuffix(TOTAL_SUFFIX)
        largest = [(row, share.part) for row, share in found if share and share.largest and row.hop.startswith(stem)]
        parts = {row.hop: row.histogram.sum_ns for row, _ in found if row.group == total.group}
        blamed = [_blame(row, part) + _split(row, parts) for row, part in largest]
        paragraphs.append("\n".join([_summary(total, stem), *blamed]))
    return "\n\n".join(paragraphs) or "No packet was read: there is nothing to explain."


def _summary(total: HopRow, stem: str) -> str:
    times = total.histogram
    what = fmt.noun_of(times.count, "segment" if stem.endswith("tcp") else "datagram")
    were = fmt.noun_of(times.count, "was", "were")
    name = stem.rpartition(".")[2].upper()
    half, most, slowest = (fmt.time(value) for value in (times.percentile(50), times.percentile(99), times.max_ns))
    return (
        f"{name}: {fmt.count(times.count)} {what} {were} read, half of them within {half} after the driver, "
        f"99% within {most}, the slowest after {slowest}."
    )


def _blame(row: HopRow, part: float) -> str:
    last = row.hop.rpartition(".")[2]
    meaning = _MEANINGS.get(last) or _MEANINGS[last.rpartition("_")[2]]
    return f"  {fmt.part(part)} of that time is {row.hop}: {meaning}."


def _split(row: HopRow, sums_ns: Mapping[str, int]) -> str:
    """Return how much of the wait for the reader it slept, and how much it waited for a CPU."""
    stem, _, last = row.hop.rpartition("_")
    if last != "wake":
        return ""
    asleep, runnable = (fmt.part(sums_ns.get(f"{stem}_{each}", 0) / row.histogram.sum_ns) for each in PARTS_OF_WAKE)
    return f" It slept {asleep} of it (reader-asleep), and waited for a CPU {runnable} (reader-runnable)."
