# SPDX-License-Identifier: Apache-2.0
"""The traffic of our own that a host has because it is asked: what its agent leaves out of what it measures.

The client knows all connections, any of which may cross any host, and whatever else it has started. It says so in the
request of a service, and again when something of it has changed: ``{"own": [flow, ...]}``. The agent adds the
connection by which its client came.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from hopscope.errors import UsageError
from hopscope.live.own_flows import OwnFlow, own_flow

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hopscope.agent.handshake import Connection
    from hopscope.live.own_flows import SelfTrafficFilter

OWN: Final = "own"
_MOST_FLOWS: Final = 128


def flows_of(connections: Iterable[Connection | None]) -> list[list[Any]]:
    """Return connections, as far as they are known, as a request has them."""
    return [["tcp", *connection] for connection in connections if connection]


class OwnTraffic:
    """What a collector of the agent leaves out.

    Parameters
    ----------
    collector
        Not entered yet.
    connection
        By which the client came, if that is known.
    request
        Of the service. Where it has nothing to say of this, and there is no connection, nothing is left out.

    Raises
    ------
    UsageError
        What is to be left out is no list of flows, or too long.
    """

    def __init__(self, collector: SelfTrafficFilter, connection: Connection | None, request: Mapping[str, Any]) -> None:
        self._collector = collector
        self._connection = [own_flow(each) for each in flows_of([connection])]
        if self._connection or request.get(OWN) is not None:
            self._leave_out(request.get(OWN) or [])

    def changed(self, message: Mapping[str, Any]) -> bool:
        """Do what a message of the client says of it; say whether it was about that.

        Raises
        ------
        UsageError
            As above.
        """
        if OWN not in message:
            return False
        self._leave_out(message[OWN])
        return True

    def _leave_out(self, given: object) -> None:
        if not isinstance(given, list) or len(given) > _MOST_FLOWS:
            raise UsageError("The flows to exclude are malformed")
        flows: list[OwnFlow] = [own_flow(each if isinstance(each, list) else ()) for each in given]
        self._collector.leave_out([*flows, *self._connection])
