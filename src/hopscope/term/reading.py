# SPDX-License-Identifier: Apache-2.0
"""A snapshot in sentences: where most of the time went, and what that means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.model.share import TOTAL_SUFFIX, shares
from hopscope.term import format as fmt

if TYPE_CHECKING:
    from hopscope.model.snapshot import HopRow, Snapshot

# What the time in a hop was spent on, by the last part of the hop's name.
_MEANINGS: Final = {
    "core": "between the driver and the core: in GRO, or in the backlog queue through which lo and veth pass",
    "ip": "between the core and IP: taps, tc, XDP and bridges work there",
    "tcp": "between IP and TCP: netfilter and routing",
    "udp": "between IP and UDP: netfilter and routing",
    "tcp_queue": "before the socket: its owner held its lock, and the segment waited in the backlog",
    "tcp_order": "waiting for segments that should have come before",
    "queue": "between UDP and the socket's queue",
    "wake": "in the socket's queue while the reader was not on a CPU: it slept, or waited for its turn",
    "read": "in the socket's queue while the reader was on a CPU and had not read yet: it was busy, or is being woken",
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
        paragraphs.append("\n".join([_summary(total, stem), *(_blame(row, part) for row, part in largest)]))
    return "\n\n".join(paragraphs) or "No packet was read: there is nothing to explain."


def _summary(total: HopRow, stem: str) -> str:
    times = total.histogram
    what = fmt.noun_of(times.count, "segment" if stem.endswith("tcp") else "datagram")
    were = fmt.noun_of(times.count, "was", "were")
    name = stem.rpartition(".")[2].upper()
    half, most, slowest = (fmt.time(value) for value in (times.percentile(50), times.percentile(99), times.max_ns))
    return (
        f"{name}: {fmt.count(times.count)} {what} {were} read, half of them within {half} of the driver, "
        f"99% within {most}, the slowest after {slowest}."
    )


def _blame(row: HopRow, part: float) -> str:
    last = row.hop.rpartition(".")[2]
    meaning = _MEANINGS.get(last) or _MEANINGS[last.rpartition("_")[2]]
    return f"  {fmt.part(part)} of that time is {row.hop}: {meaning}."
