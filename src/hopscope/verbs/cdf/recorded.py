# SPDX-License-Identifier: Apache-2.0
"""The times of messages, and of packets on a hop, in a recording, as curves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.errors import UsageError
from hopscope.model.cdf import Curve
from hopscope.model.histogram import Histogram
from hopscope.trace.messages.udp import UDP
from hopscope.trace.relation import build
from hopscope.trace.selection import Selection
from hopscope.verbs.report.hops import hops_of_groups, recorded_hops

if TYPE_CHECKING:
    from hopscope.store.trace import Trace

MESSAGE: Final = "message"


def curves(trace: Trace, hop: str, by: str | None, most: int) -> list[Curve]:
    """Return the durations of a hop, of all packets or of the groups with the most of them.

    Parameters
    ----------
    hop
        :data:`MESSAGE`: of messages, from the send call to the read. Else `FROM:TO`, or the point at which it ends, if
        one hop alone does.
    by
        A grouping of `report hops`; messages have flows alone.
    most
        Maximum number of groups.

    Raises
    ------
    UsageError
        There is no such hop, or messages are not grouped so.
    """
    if hop == MESSAGE:
        return _messages(trace, by, most)
    ends = _ends(hop, recorded_hops(trace, Selection(), by), str(trace.folder))
    found = hops_of_groups(trace, Selection(), ends, by, most)
    return [Curve(" ".join(filter(None, (name, ":".join(ends)))), each) for name, each in found]


def _messages(trace: Trace, by: str | None, most: int) -> list[Curve]:
    if by not in {None, "flow"}:
        raise UsageError(f"Messages are not grouped by {by}", "Group them by flow, or name a hop of packets")
    build(trace, "messages", "flow_names", selection=Selection())
    # Of a datagram, the first point is the device, unless calls are recorded.
    name = "f.name" if by else f"'{MESSAGE}'"
    rows = trace.rows(
        f"SELECT {name}, list(total_ns) FROM messages m JOIN flow_names f ON f.flow = m.flow"
        f" WHERE coalesce(call_ns, send_ns, CASE WHEN m.protocol = {UDP} THEN queue_ns END) IS NOT NULL"
        " AND received_ns IS NOT NULL"
        f" GROUP BY 1 ORDER BY count(*) DESC, 1 LIMIT {most}"
    )
    if not rows:
        raise UsageError(
            f"{trace.folder} has no message from its send call to its read", "`hopscope report messages` says why"
        )
    return [Curve(str(name), Histogram.from_values(times)) for name, times in rows]


def _ends(hop: str, hops: list[tuple[str, str]], where: str) -> tuple[str, str]:
    found = [each for each in hops if hop in {":".join(each), each[1]}]
    if len(found) == 1:
        return found[0]
    known = ", ".join([MESSAGE, *(":".join(each) for each in found or hops)])
    what = f"Several hops of {where} end at {hop}" if found else f"{where} has no hop {hop}"
    raise UsageError(f"{what}. It has {known}")
