# SPDX-License-Identifier: Apache-2.0
"""A subscription to what another host serves, through its agent (``hopscope.verbs.serve.relayed``)."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING, Any, Final, cast

from hopscope.agent.connect import connect
from hopscope.agent.ssh import Ssh
from hopscope.agent.stream import Block, Message
from hopscope.agent.target import Target
from hopscope.errors import FormatError, HopscopeError
from hopscope.live.subscribing import Subscribed
from hopscope.model.checked_json import Fields

if TYPE_CHECKING:
    from collections.abc import Mapping
    from io import BufferedIOBase

    from hopscope.agent.stream import Stream

SERVICE: Final = "subscribe"
# How soon it is seen that nobody reads any more.
_LOOK_S: Final = 0.5


def subscribed_at(host: str, request: Mapping[str, Any]) -> Subscribed:
    """Subscribe to events of another host.

    Parameters
    ----------
    host
        As ``--host`` takes it; how it is reached, the environment says (docs/remote.md).
    request
        As docs/subscribe.md describes it.

    Raises
    ------
    HopscopeError
        The host cannot be reached, nobody serves there, one may not subscribe, or what is asked for cannot be recorded.
    """
    with contextlib.ExitStack() as stack:
        channel = stack.enter_context(connect(Target.parse(host), Ssh.of()))
        stream = stack.enter_context(channel.open(SERVICE, request))
        answer = stream.answer()
        if not isinstance(answer, Message):
            raise FormatError(f"{channel.name} does not say what it serves")
        head = _checked(answer.body)
        line, far = socket.socketpair()
        carrier = _Carrier(stream, far, stack.pop_all())
        carrier.start()
    return Subscribed(line, cast("BufferedIOBase", line.makefile("rb")), head, carrier.failure)


def _checked(head: Mapping[str, Any]) -> dict[str, Any]:
    fields = Fields(head, "The first line of a subscription")
    return {
        "fields": fields.texts("fields"),
        "not_granted": fields.texts("not_granted"),
        "realtime_offset_ns": fields.whole("realtime_offset_ns"),
    }


class _Carrier(threading.Thread):
    """Takes what comes, and puts it into a socket; where nobody takes it from there, the other host is held back.

    Parameters
    ----------
    stream
        To the agent.
    line
        Where to.
    opened
        What is closed with it.
    """

    def __init__(self, stream: Stream, line: socket.socket, opened: contextlib.ExitStack) -> None:
        super().__init__(name="hopscope-subscription", daemon=True)
        self._stream, self._line, self._opened = stream, line, opened
        self._error: HopscopeError | None = None

    def failure(self) -> HopscopeError | None:
        """Return why no more comes, if that is no end in order."""
        self.join()
        return self._error

    def run(self) -> None:
        """Carry until either side ends it."""
        with self._opened, self._line:
            try:
                self._carry()
            except HopscopeError as error:
                self._error = error
            except OSError:
                pass  # nobody reads any more

    def _carry(self) -> None:
        while True:
            try:
                found = self._stream.receive(_LOOK_S)
            except TimeoutError:
                if self._is_closed():
                    return
                continue
            if found is None:
                return
            if not isinstance(found, Block):
                raise FormatError("A subscription has more than blocks")
            self._line.sendall(found.data)

    def _is_closed(self) -> bool:
        try:
            return not self._line.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
