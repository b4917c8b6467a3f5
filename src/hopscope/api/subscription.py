# SPDX-License-Identifier: Apache-2.0
"""Events as they come, from a running ``hopscope serve --socket``: no right is needed but to connect."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any, Final, Self

from hopscope.errors import HopscopeError, UsageError
from hopscope.live.subscribing import SOCKET, subscribed

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncIterator, Iterator, Sequence
    from types import TracebackType

    import pyarrow as pa

    from hopscope.live.subscribing import Subscribed

_LOST: Final = ("lost_before", "kernel_lost_before")


class Subscription:
    """A subscription; a context manager, and an iterator of events, also with ``async for``.

    Iterating gives an event as a dictionary by the names of the fields, None where a value is not known.
    :meth:`batches` gives many at once. Either ends when the server does.

    Attributes
    ----------
    fields : tuple of str
        Names of the columns.
    realtime_offset_ns : int
        What is to be added to ``time_ns`` for CLOCK_REALTIME, as of when the server attached its programs.
    not_granted : tuple of str
        Probe points that were asked for, and that the kernel does not grant.
    lost : int
        Events that this subscription would have had, and that were left out as it read too slowly; those of which it
        has been told so far.
    kernel_lost : int
        Events, of any kind, that were lost in the kernel since the subscription began, as a ring was full.
    """

    def __init__(self, subscribed: Subscribed) -> None:
        self._line, self._file, head, self._failure = subscribed
        self.lost = self.kernel_lost = 0
        self._closed = False
        self._reader: pa.RecordBatchStreamReader | None = None
        self.fields: tuple[str, ...] = tuple(head["fields"])
        self.realtime_offset_ns: int = head["realtime_offset_ns"]
        self.not_granted: tuple[str, ...] = tuple(head["not_granted"])

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield events as they come, some at a time.

        Yields
        ------
        pyarrow.RecordBatch
            With a column for each of the fields, and two more: ``lost_before`` and ``kernel_lost_before`` say in its
            first row what was lost before it (see :attr:`lost`, :attr:`kernel_lost`).
        """
        import pyarrow as pa  # noqa: PLC0415 # it is optional, and slow to import

        while True:
            try:
                self._reader = self._reader or pa.ipc.open_stream(self._file)
                found = self._reader.read_next_batch_with_custom_metadata()
            except (StopIteration, pa.ArrowInvalid, OSError) as error:
                if self._closed:
                    return
                if self._failure and (failure := self._failure()):
                    raise failure from error
                if isinstance(error, StopIteration):
                    return
                raise HopscopeError("The server ended the connection", "Look at what `hopscope serve` says") from error
            if self._failure:
                found.batch.validate(full=True)  # another host made it
            said = found.custom_metadata or {}
            self.lost += int(said.get(_LOST[0].encode(), 0))
            self.kernel_lost += int(said.get(_LOST[1].encode(), 0))
            if found.batch.num_rows:
                yield found.batch

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield one event after the other."""
        for batch in self.batches():
            yield from batch.select(list(self.fields)).to_pylist()

    async def __aiter__(self) -> AsyncIterator[dict[str, Any]]:
        """Yield one event after the other, while other tasks run."""
        batches = self.batches()
        while (batch := await asyncio.to_thread(next, batches, None)) is not None:
            for event in batch.select(list(self.fields)).to_pylist():
                yield event

    def close(self) -> None:
        """End it; also from another thread, where iterating then ends."""
        if not self._closed:
            self._closed = True
            self._line.shutdown(socket.SHUT_RDWR)
        self._line.close()

    def __enter__(self) -> Self:
        """Return it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End it."""
        self.close()


def subscribe(  # noqa: PLR0913 # one parameter an option
    *,
    points: Sequence[str] = ("messages",),
    events: Sequence[str] = (),
    where: str = "",
    fields: Sequence[str] = (),
    since: float = 0,
    queue: int = 16,
    path: str | os.PathLike[str] = SOCKET,
    host: str | None = None,
) -> Subscription:
    """Subscribe to events of this host, or of another one.

    Parameters
    ----------
    points
        Probe points, and profiles of `hopscope record`.
    events
        Tracepoints, as `hopscope record -e` takes them.
    where
        A condition (docs/conditions.md), such as ``"rx.tcp_queue > 1ms and port == 443"``; empty: every event.
    fields
        What an event has, by the names of docs/conditions.md; empty: what most want.
    since
        Seconds of what the server has kept (`--keep`) that come first.
    queue
        MiB that may wait in the server while the program does not read, 1 to 256.
    path
        The socket of `hopscope serve --socket` on this host.
    host
        Another host, whose server it is; as ``--host`` takes it: ``web1``, ``tls://db2:7400`` (docs/remote.md).

    Returns
    -------
    Subscription
        What iterates over the events.

    Raises
    ------
    HopscopeError
        The host cannot be reached, nobody serves there, one may not connect, or what is asked for cannot be recorded;
        the sentence says which.
    """
    asked = {"version": 1, "points": [*points], "events": [*events], "where": where, "fields": [*fields]}
    request = {**asked, "format": "arrow", "since": since, "queue": queue}
    if host is None:
        return Subscription(subscribed(path, request))
    if path != SOCKET:
        raise UsageError("path is a socket of this host", "There, the variable HOPSCOPE_SOCKET of the agent names it")
    from hopscope.live.remote.subscription import subscribed_at  # noqa: PLC0415 # what few need

    return Subscription(subscribed_at(host, request))
