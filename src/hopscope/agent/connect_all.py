# SPDX-License-Identifier: Apache-2.0
"""Channels to several hosts, which take together about as long as the slowest of them alone."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Final

from hopscope.agent.connect import reached, started
from hopscope.agent.process import Process
from hopscope.agent.ssh import failed_itself
from hopscope.errors import ConnectionLostError, HopscopeError, HostsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from hopscope.agent.channel import Channel
    from hopscope.agent.ssh import Ssh
    from hopscope.agent.target import Target
    from hopscope.agent.tls import Tls
    from hopscope.agent.transport import Transport

_AT_ONCE: Final = 32


@contextlib.contextmanager
def connected(targets: Sequence[Target], ssh: Ssh, tls: Tls | None = None) -> Iterator[list[Channel]]:
    """Yield a channel to each host; all are closed at the end, also those that are just being made.

    Of several hosts behind ssh, none is asked anything at first, for they are reached at the same time. Where ssh fails
    so, it is tried once more, one host after the other: then it may ask.

    Raises
    ------
    HopscopeError
        As from :func:`~hopscope.agent.connect.connect`, of one host.
    HostsError
        The same, of several; in the order of the hosts.
    """
    making = _Making(tls)
    try:
        yield making.channels(targets, ssh)
    finally:
        making.close()


class _Making:
    """What is there of the channels, and what is being made: others may be told to close it at any time."""

    def __init__(self, tls: Tls | None) -> None:
        self._tls = tls
        self._lock = threading.Lock()
        self._over = False
        self._room = threading.Semaphore(_AT_ONCE)
        self._transports: dict[str, Transport] = {}
        self._channels: dict[str, Channel] = {}
        self._errors: dict[str, Exception] = {}

    def channels(self, targets: Sequence[Target], ssh: Ssh) -> list[Channel]:
        several = sum(target.way == "ssh" for target in targets) > 1
        self._make(targets, ssh.again() if several else ssh)
        if several and all(self._may_ask(name) for name in self._errors):
            for target in targets:
                if target.name in self._errors:
                    self._make([target], ssh)
                if target.name in self._errors:
                    break  # why should somebody type more passwords?
        errors = [self._errors[target.name] for target in targets if target.name in self._errors]
        for error in errors:
            if not isinstance(error, HopscopeError):
                raise error
        if errors:
            raise HostsError.of([error for error in errors if isinstance(error, HopscopeError)])
        return [self._channels[target.name] for target in targets]

    def close(self) -> None:
        """Close all of it, at the same time: each waits for a program to end."""
        with self._lock:
            self._over = True
            channels, transports = {**self._channels}, {**self._transports}
        closes: list[Callable[[], object]] = [channel.close for channel in channels.values()]
        closes += [transport.close for name, transport in transports.items() if name not in channels]
        _all_at_once(closes)

    def _make(self, targets: Iterable[Target], ssh: Ssh) -> None:
        _all_at_once([lambda target=target: self._attempt(target, ssh) for target in targets])  # type: ignore[misc]

    def _attempt(self, target: Target, ssh: Ssh) -> None:
        self._errors.pop(target.name, None)
        try:
            with self._room:
                transport = self._transport(target, ssh)
                channel = reached(target, ssh, transport)
        except Exception as error:  # noqa: BLE001 # raised by who waits for all
            self._errors[target.name] = error
            return
        with self._lock:
            self._channels[target.name] = channel
            over = self._over
        if over:
            channel.close()

    def _transport(self, target: Target, ssh: Ssh) -> Transport:
        # To reach an agent that listens takes its time, but leaves no program behind.
        listening = started(target, ssh, self._tls) if target.way == "tls" else None
        with self._lock:  # a program that is started once all is over would be nobody's
            if self._over:
                if listening:
                    listening.close()
                raise ConnectionLostError(f"The connection to {target.name} was closed here", how="closed")
            transport = self._transports[target.name] = listening or started(target, ssh, self._tls)
        return transport

    def _may_ask(self, name: str) -> bool:
        """Whether a host's error may be another one if ssh could ask somebody."""
        error, transport = self._errors[name], self._transports.get(name)
        if not isinstance(error, ConnectionLostError) or not isinstance(transport, Process):
            return False
        return error.how == "silent" or failed_itself(transport)


def _all_at_once(work: Iterable[Callable[[], object]]) -> None:
    """Do all of it and wait; who interrupts us does not wait for what is still being done."""
    threads = [threading.Thread(target=each, name="hopscope-connect", daemon=True) for each in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
