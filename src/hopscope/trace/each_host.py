# SPDX-License-Identifier: Apache-2.0
"""The hosts of a joined trace one after the other, for analyses of single hosts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.store.schema import BY_NAME, EVENT_TABLES
from hopscope.trace.host_numbers import NAMESPACES, host_of_cpu, host_of_netns, hosts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.store.trace import Trace

# Table → the expression for the host of a row.
_WHOSE: Final = {
    **dict.fromkeys((*EVENT_TABLES, "drops", "losses"), host_of_cpu("cpu")),
    **dict.fromkeys(("counters", "settings", "unread"), host_of_netns("netns")),
    "readings": "host",
}
# Tables in which namespace 0 is the host itself.
_OF_HOST: Final = ("counters", "settings", "unread")


def each_host(trace: Trace) -> Iterator[str]:
    """Yield the name of each host, while the trace appears to contain only its events and counters.

    For a trace of one host, yield an empty name once. Relations (:mod:`hopscope.trace.relation`) are rebuilt for each
    host.
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
