# SPDX-License-Identifier: Apache-2.0
"""What ``clock`` prints, and how it runs."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hopscope.agent.connect_all import connected
from hopscope.clock.pairs import Pairs
from hopscope.errors import HopscopeError
from hopscope.live.interval import Reports
from hopscope.live.remote import clock
from hopscope.live.stop import stop_on_signal
from hopscope.verbs.clock.book import ClockBook
from hopscope.verbs.clock.json import clocks_to_json
from hopscope.verbs.clock.plot import render_plot
from hopscope.verbs.clock.report import ClockReport
from hopscope.verbs.clock.table import render_clocks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hopscope.agent.ssh import Ssh
    from hopscope.agent.target import Target
    from hopscope.agent.tls import Tls
    from hopscope.live.stop import Stop

_LOOK_S: Final = 0.1


@dataclass
class ClockOutput(Reports[ClockReport]):
    """How clocks are printed: as ``table`` or ``json``."""

    def show(self, snapshot: ClockReport) -> None:
        """Print a report; with the whole, plots."""
        if self.style == "json":
            self._print_json(clocks_to_json(snapshot))
            return
        self._print(render_clocks(snapshot, self._terminal()))
        if snapshot.kind == "total":
            for row in snapshot.pairs:
                plot = render_plot(row, self._terminal())
                if plot:
                    self._print("\n".join(plot))


def run(  # noqa: PLR0913 # how to reach whom, how to probe, how to report
    targets: Sequence[Target],
    ssh: Ssh,
    tls: Tls | None,
    output: ClockOutput,
    *,
    port: int,
    nic_stamps: bool,
    interval_s: float,
    duration_s: float | None,
) -> int:
    """Probe until the time is over or a signal comes, and report at intervals, then the whole.

    Raises
    ------
    HopscopeError
        A host cannot be reached or cannot take part; or nothing was learnt of any pair.
    """
    with ExitStack() as stack:
        channels = stack.enter_context(connected(targets, ssh, tls))
        stop = stack.enter_context(stop_on_signal())
        hosts = [clock.host(channel, target.address) for channel, target in zip(channels, targets, strict=True)]
        pairs = stack.enter_context(Pairs(hosts, port=port, nic_stamps=nic_stamps))
        book = ClockBook(pairs, pairs.daemons())
        pairs.start()
        end_s = time.monotonic() + duration_s if duration_s else float("inf")
        tick_s = time.monotonic()
        stopped = False
        while not stopped and tick_s < end_s and len(pairs.failed) < len(pairs.ends):
            tick_s = min(tick_s + interval_s, end_s)
            stopped = _fill(book, pairs, stop, tick_s)
            output.show(book.interval())
        total = book.total()
        output.show(total)
    if not any(row.now for row in total.pairs):
        raise HopscopeError("The clocks could not be compared", "See the messages above, and docs/clocks.md")
    return 0


def _fill(book: ClockBook, pairs: Pairs, stop: Stop, until_s: float) -> bool:
    """Take windows until that time of CLOCK_MONOTONIC or until something asks to stop; say whether it did."""
    while (left_s := until_s - time.monotonic()) > 0:
        window = pairs.take(min(left_s, _LOOK_S))
        if window is not None:
            book.add(window)
        if stop.wait(0):
            return True
    return False
