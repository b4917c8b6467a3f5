# SPDX-License-Identifier: Apache-2.0
"""One host of a joined trace after the other, for analyses that make sense of one host alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.store.schema import BY_NAME
from hopscope.trace.host_numbers import NAMESPACES, host_of_cpu, host_of_netns, hosts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.store.trace import Trace

# Table → what says whose a row is.
_WHOSE: Final = {
    **dict.fromkeys(("packets", "sockets", "cpu", "drops", "losses"), host_of_cpu("cpu")),
    **dict.fromkeys(("counters", "settings", "unread"), host_of_netns("netns")),
    "readings": "host",
}
# Where the host itself is namespace 0.
_OF_HOST: Final = ("counters", "settings", "unread")


def each_host(trace: Trace) -> Iterator[str]:
    """Yield each host's name, while the trace is as if it had events and counters of that one alone.

    Of a trace of one host, it is once, and the name is empty. Relations
    (:mod:`hopscope.trace.relation`) are made anew for each.
    """
    names = hosts(trace)
    if not names:
        yield ""
        return
    try:
        for host, name in names.items():
            for table, whose in _WHOSE.items():
                own = f"CASE WHEN netns = {host * NAMESPACES} THEN 0 ELSE netns END AS netns"
                columns = ", ".join(
                    own if column.name == "netns" and table in _OF_HOST else column.name
                    for column in BY_NAME[table].columns
                )
                rows = f"SELECT {columns} FROM {trace.whole(table)} WHERE {whose} = {host}"
                trace.make_view(table, rows)
            trace.made.clear()
            yield name
    finally:
        for table in _WHOSE:
            trace.make_view(table, f"SELECT * FROM {trace.whole(table)}")
        trace.made.clear()
