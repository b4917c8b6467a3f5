# SPDX-License-Identifier: Apache-2.0
"""Flows of a socket: one that is unconnected, or bound to any address, has packets of many flows."""

from __future__ import annotations

from typing import Final

_ANY: Final = "('0.0.0.0', '::')"


def _open(end: str) -> str:
    """Return the condition that the socket's flow leaves an end open."""
    return f"s.{end}_port = 0 AND s.{end} IN {_ANY}"


def _meant(open_end: str, own_end: str) -> str:
    return (
        f"SELECT s.flow, p.flow AS meant, FALSE AS exact FROM flows s JOIN flows p ON p.protocol = s.protocol"
        f" AND p.{own_end}_port = s.{own_end}_port WHERE {_open(open_end)} AND s.{own_end}_port > 0"
        f" AND p.{open_end}_port > 0 AND (p.{own_end} = s.{own_end} OR s.{own_end} IN {_ANY})"
    )


# For the `flow` of a socket, the flows of its packets (`meant`): its own (`exact`), and if it is unconnected, any from
# or to its port.
MEANT: Final = (
    f"SELECT flow, flow AS meant, TRUE AS exact FROM flows UNION ALL {_meant('source', 'destination')}"
    f" UNION ALL {_meant('destination', 'source')}"
)
