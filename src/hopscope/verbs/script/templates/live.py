# SPDX-License-Identifier: Apache-2.0
"""What received packets go through on this host, each second. Run as root: python THIS_FILE [SECONDS]."""

from __future__ import annotations

import sys

import hopscope


def main(duration_s: float) -> None:
    """Print the percentiles of each hop, a table a second, then those of the whole time."""
    # The options are those of `hopscope rx`: port=[443], comm=["nginx"], group_by="process", ...
    with hopscope.live("rx", interval=1.0, duration=duration_s) as rx:
        for snapshot in rx:
            show(snapshot)
        print("\nThe whole time:")
        show(rx.total())


def show(snapshot: hopscope.Snapshot) -> None:
    """Print one snapshot."""
    print(f"\n{snapshot.duration_s:.1f} s, {snapshot.sample_count:,} samples, {snapshot.lost:,} lost")
    for row in snapshot.hops:
        p50_ns, p99_ns = row.histogram.percentile(50), row.histogram.percentile(99)
        if p50_ns is not None and p99_ns is not None:  # None: no sample
            print(f"  {row.hop:14} {row.histogram.count:8,}  p50 {p50_ns / 1e3:8.1f} µs  p99 {p99_ns / 1e3:8.1f} µs")
    for note in snapshot.notes:
        print(f"  {note}")


if __name__ == "__main__":
    try:
        main(float(sys.argv[1]) if len(sys.argv) > 1 else 5.0)
    except hopscope.HopscopeError as error:  # such as a missing right: one sentence, and what to do
        sys.exit(str(error))
