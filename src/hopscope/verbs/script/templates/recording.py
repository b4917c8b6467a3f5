# SPDX-License-Identifier: Apache-2.0
"""An analysis of a recording of `hopscope record`. Run: python THIS_FILE [TRACE]."""

from __future__ import annotations

import sys

import numpy as np

import hopscope


def main(path: str | None = None) -> None:
    """Print what a recording has, a histogram, the result of a query, and the slowest messages."""
    with hopscope.open(path) as recording:
        hosts = ", ".join(f"{host.name} (Linux {host.kernel})" for host in recording.hosts)
        print(f"{recording.path}: {hosts}, {recording.started:%Y-%m-%d %H:%M:%S} UTC, {recording.lost:,} events lost")

        print("\nRelations, and what a row is:")
        for name, row in recording.relations().items():
            print(f"  {name:14} {row}")

        # A report is what `hopscope report hops` shows, with the same options.
        hops = recording.report("hops")
        print("\nHops, with the number of packets and the 99th percentile:")
        for hop, count, p99_ns in zip(*map(hops.column, ("hop", "count", "p99_ns")), strict=True):
            print(f"  {hop:28} {count:8,} {p99_ns / 1e3:12,.1f} µs")
        if len(hops):
            longest = int(np.argmax(hops.values["sum_ns"]))  # where packets spent most time
            histogram(recording, hops.values["from_point"][longest], hops.values["to_point"][longest])

        print("\nThe flows with most packets:")
        query = "SELECT name, count(*) AS events FROM packets JOIN flow_names USING (flow) GROUP BY name"
        for found in recording.sql(f"{query} ORDER BY events DESC, name LIMIT 5"):
            print(f"  {found['events']:8,}  {found['name']}")

        messages = recording.report("messages", limit=5)
        print("\nThe slowest messages:")
        for total_ns, blame, flow in zip(*map(messages.column, ("total_ns", "blame", "flow_name")), strict=True):
            print(f"  {(total_ns or 0) / 1e3:12,.1f} µs  {flow}, held longest by {blame}")
        for note in messages.notes:
            print(f"  {note}")


def histogram(recording: hopscope.Recording, begin: str, end: str) -> None:
    """Print how long packets took for one hop: `skb_lifetimes` has their events, with the packet of each."""
    query = f"""
        SELECT min(b.time_ns - a.time_ns) AS took_ns
        FROM skb_lifetimes a JOIN skb_lifetimes b ON b.packet = a.packet AND b.time_ns > a.time_ns
        JOIN points p ON p.point = a.point AND p.name = '{begin}'
        JOIN points q ON q.point = b.point AND q.name = '{end}'
        GROUP BY a.packet, a.time_ns"""
    # NumPy's arrays, by column; .arrow(), .pandas() and .rows() give the same in other forms.
    took_us = recording.sql(query).numpy()["took_ns"] / 1e3
    print(f"\n{begin} → {end}, µs:")
    counts, edges = np.histogram(took_us, bins=np.geomspace(took_us.min(), took_us.max() * 1.001, 9))
    for count, low, high in zip(counts, edges[:-1], edges[1:], strict=True):
        print(f"  {low:10,.1f} to {high:10,.1f} {count:8,}  {'#' * round(40 * count / counts.max())}")


if __name__ == "__main__":
    if len(sys.argv) > 2:
        sys.exit(f"usage: python {sys.argv[0]} [TRACE]")
    try:
        main(*sys.argv[1:])  # without a path, the last recording that `hopscope record` made without -o
    except hopscope.HopscopeError as error:  # one sentence on what is wrong, and what to do
        sys.exit(str(error))
