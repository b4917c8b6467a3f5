# SPDX-License-Identifier: Apache-2.0
"""The reverse of each flow.

In a joined trace, unrelated flows of several hosts may have the same addresses and ports: the reverse of a local flow
is a flow of the same host.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from hopscope.store.trace import Trace

_ENDS: Final = ("source", "destination")
_SAME_ENDS: Final = " AND ".join(
    f"back.{one}{what} = forth.{other}{what}" for one, other in (_ENDS, _ENDS[::-1]) for what in ("", "_port")
)
_REVERSES: Final = (
    "SELECT forth.flow, back.flow AS back FROM flows forth JOIN flows back"
    f" ON {_SAME_ENDS} AND back.protocol = forth.protocol"
)


def reverses(trace: Trace) -> str:
    """Return the query for each `flow` and its reverse (`back`)."""
    alone = [(flow, int(host)) for host, flows in trace.metadata.joined.get("alone", {}).items() for flow in flows]
    if not alone:
        return _REVERSES
    whose = f"(SELECT flow, host FROM (VALUES {', '.join(map(str, alone))}) AS t(flow, host))"
    return (
        f"{_REVERSES} LEFT JOIN {whose} f ON f.flow = forth.flow LEFT JOIN {whose} b ON b.flow = back.flow"
        " WHERE coalesce(f.host, -1) = coalesce(b.host, -1)"
    )
