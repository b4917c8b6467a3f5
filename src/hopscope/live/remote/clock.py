# SPDX-License-Identifier: Apache-2.0
"""Service ``clock``: a peer of the clocks' comparison on this host, and the hosts of some channels that are to compare.

A stream has one peer, which probes one other: n hosts have n - 1 streams each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from hopscope.agent.stream import Block
from hopscope.clock import peer
from hopscope.clock.pairs import Host
from hopscope.errors import FormatError, UsageError
from hopscope.kernel.nic import timestamp_info

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hopscope.agent.channel import Channel
    from hopscope.agent.stream import Stream

_SERVICE: Final = "clock"


class StreamLine:
    """A stream as a line of messages alone."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self.send, self.close = stream.send, stream.close

    def receive(self, timeout_s: float | None = None) -> Mapping[str, Any] | None:
        """Return the next message, as `Stream.receive`."""
        found = self._stream.receive(timeout_s)
        if isinstance(found, Block):
            raise FormatError("A comparison of clocks has no data blocks")
        return None if found is None else found.body


def serve(stream: Stream, _request: dict[str, Any]) -> None:
    """Be a peer, until the stream ends."""
    peer.serve(StreamLine(stream), lambda interface: timestamp_info(interface).phc_index)


def host(channel: Channel, address: str | None = None) -> Host:
    """Return the host at the other end of a channel, for `Pairs`.

    Parameters
    ----------
    channel
        To it.
    address
        Where the other hosts reach it; None: as its agent says, which is where we have reached it.

    Raises
    ------
    UsageError
        Nobody knows where.
    """
    found = address or next(iter(channel.hello.addresses), None)
    if found is None:
        raise UsageError(
            f"The address at which other hosts reach {channel.name} is not known",
            f"Specify it: --host …,name={channel.name},address=IP",
        )
    return Host(channel.name, found, lambda: StreamLine(channel.open(_SERVICE, {})))
