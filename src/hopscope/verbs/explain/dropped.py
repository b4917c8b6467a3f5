# SPDX-License-Identifier: Apache-2.0
"""Datagrams that nobody read, as the kernel dropped them on this host: no cause holds them, as they never arrive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.term.format import plural
from hopscope.verbs.explain.suspects import flow_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hopscope.store.trace import Trace

# Reason of the kernel → what it means, and what to try (enum skb_drop_reason).
_MEANINGS: Final = {
    "SOCKET_RCVBUFF": "the receive buffer of the socket was full; ss -uanm shows its limit (SO_RCVBUF, rmem_max)",
    "QDISC_DROP": "a queueing discipline dropped them; tc -s qdisc shows which, and its limit",
    "QDISC_OVERLIMIT": "a queueing discipline was full; tc -s qdisc shows which, and its limit",
    "NETFILTER_DROP": "a rule of netfilter dropped them; sudo hopscope drops shows which",
    "NO_SOCKET": "no socket was bound to the port",
}


def dropped(trace: Trace, messages: int) -> Sequence[str]:
    """Return a sentence for each reason and place by which messages of the table ``explained`` were dropped.

    Parameters
    ----------
    messages
        How many messages there are.
    """
    rows = trace.rows(
        "SELECT reason, place, count(*), mode(flow) FROM ("
        " SELECT m.message, max(coalesce(r.name, CAST(d.reason AS STRING), 'unknown reason')) AS reason,"
        " max(coalesce(s.name, '')) AS place, max(m.flow) AS flow"
        " FROM explained e JOIN messages m ON m.message = e.message LEFT JOIN drops d ON d.time_ns = m.dropped_ns"
        " LEFT JOIN reasons r ON r.reason = d.reason"
        " LEFT JOIN drop_places s ON s.address = d.location"
        " WHERE m.dropped_ns IS NOT NULL GROUP BY m.message) found GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2"
    )
    return [
        f"{count:,} of {plural(messages, 'message')} {'was' if count == 1 else 'were'} dropped on this host"
        f" ({reason}{f' in {place}' if place else ''}), most of them of {flow_name(trace, flow)}"
        f"{f': {_MEANINGS[reason]}' if reason in _MEANINGS else ''}"
        for reason, place, count, flow in rows
    ]
