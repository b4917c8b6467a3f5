# SPDX-License-Identifier: Apache-2.0
"""Record several hosts at once, each by an agent there, with probes of their clocks beside it."""

from __future__ import annotations

import contextlib
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from hopscope.agent.connect_all import connected
from hopscope.errors import HopscopeError
from hopscope.gate import rewrite, tell
from hopscope.live.child import exit_code, running
from hopscope.live.remote.own import OWN, flows_of
from hopscope.live.stop import stop_on_signal
from hopscope.store.hosts import FILE, HostsWriter, check_names
from hopscope.term.recording import render_hosts, render_hosts_end
from hopscope.verbs.record.clocks import Clocks
from hopscope.verbs.record.host import HostRecording, begin

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from hopscope.agent.channel import Channel
    from hopscope.agent.target import Target
    from hopscope.live.stop import Stop
    from hopscope.store.folder import OpenFolder
    from hopscope.verbs.record.host import Began, Transports
    from hopscope.verbs.record.pipeline import Limits

_LOOK_S: Final = 0.1
# How long nothing may come of a host whose agent runs, while it completes its recording.
_COMPLETES_S: Final = 120.0
_PROGRESS_S: Final = 1.0


def record_hosts(  # noqa: PLR0913 # one parameter a part
    targets: Sequence[Target],
    transports: Transports,
    words: Sequence[str],
    folder: OpenFolder,
    limits: Limits,
    *,
    command: Sequence[str],
) -> int:
    """Record until the command ends, a limit is reached, a trigger is seen on one of them or a signal comes.

    Returns
    -------
    int
        The exit code: that of the command, as a shell gives it, unless the command was ended before its time.

    Raises
    ------
    HopscopeError
        A host cannot be reached, or cannot record: then there is no recording. Or one was missing for a while, or
        there was no room for more: what was recorded can be read.
    """
    check_names(target.name for target in targets)
    with contextlib.ExitStack() as stack:
        channels = stack.enter_context(connected(targets, *transports))
        clocks = stack.enter_context(Clocks(targets, channels))
        requests = [
            {"words": list(words), OWN: _own(number, channels, clocks) or None} for number in range(len(targets))
        ]
        begun = _begun(channels, requests)
        # From here on there is something to complete.
        stop = stack.enter_context(stop_on_signal())
        writer = stack.enter_context(HostsWriter(folder, [(each.name, each.destination) for each in targets]))
        hosts = [
            HostRecording(target, transports, request, writer)
            for target, request in zip(targets, requests, strict=True)
        ]
        stack.callback(_cut, hosts)
        stack.callback(clocks.end)
        for host, began in zip(hosts, begun, strict=True):
            if began.not_granted:
                tell(f"not granted by the kernel of {host.name}: {', '.join(began.not_granted)}")
            host.start(began)
        clocks.start(hosts, writer)
        work = _Work(hosts, clocks)
        with running(command, stop, None) as child:
            ended = work.run(stop, limits)
        work.finish()
        work.report(folder.path)
    return 0 if child is None or not ended else exit_code(child)


def _own(host: int, channels: Iterable[Channel | None], clocks: Clocks) -> list[list[Any]]:
    """Return what a host is to leave out: its probes, and all of our connections, which may cross any host."""
    return [*clocks.flows(host), *flows_of(channel.hello.connection for channel in channels if channel)]


def _begun(channels: Sequence[Channel], requests: Sequence[dict[str, Any]]) -> list[Began]:
    """Let all begin at the same time.

    Raises
    ------
    HopscopeError
        One cannot.
    """
    with ThreadPoolExecutor(len(channels)) as pool:
        try:
            return list(pool.map(begin, channels, requests))
        except BaseException:  # nobody waits for the others
            for channel in channels:
                channel.close()
            raise


def _cut(hosts: Sequence[HostRecording]) -> None:
    for host in hosts:
        host.cut()


class _Work:
    """The recordings of all hosts."""

    def __init__(self, hosts: Sequence[HostRecording], clocks: Clocks) -> None:
        self._hosts = hosts
        self._clocks = clocks
        self._known = self._state()
        self._screen = _Screen(hosts)
        self._started_s = time.monotonic()

    def run(self, stop: Stop, limits: Limits) -> bool:
        """Wait; say whether something asked to stop, rather than a limit or one of the hosts.

        Raises
        ------
        HopscopeError
            All must end.
        """
        end_s = self._started_s + (limits.duration_s or float("inf"))
        most_bytes = limits.size_bytes or float("inf")
        while not stop.wait(min(_LOOK_S, max(end_s - time.monotonic(), 0))):
            self._look()
            size_bytes = sum(host.now().size_bytes for host in self._hosts)
            if any(host.ended for host in self._hosts) or time.monotonic() >= end_s or size_bytes >= most_bytes:
                return False
        return True

    def finish(self) -> None:
        """Have all hosts complete what they recorded, and take it.

        Raises
        ------
        HopscopeError
            That went wrong.
        """
        self._clocks.end()
        for host in self._hosts:
            host.stop()
        for host in self._hosts:
            self._wait_for(host)
        self._look()
        self._screen.clear()

    def _wait_for(self, host: HostRecording) -> None:
        """Wait until a host has completed what it recorded, or nothing has come of it for too long."""
        known, since_s = host.now(), time.monotonic()
        while not host.join(_LOOK_S) and not host.absent:
            self._look()
            now = replace(host.now(), elapsed_s=known.elapsed_s)  # which goes on by itself
            if now != known:
                known, since_s = now, time.monotonic()
            elif time.monotonic() - since_s > _COMPLETES_S:
                host.give_up(f"it did not complete its recording within {_COMPLETES_S:g} s")

    def report(self, folder: Path) -> None:
        """Say what there is.

        Raises
        ------
        HopscopeError
            Something is missing.
        """
        for host in self._hosts:
            for remark in host.remarks:
                tell(f"{host.name}: {remark}")
        sys.stderr.write(
            render_hosts_end([(host.name, host.now(), host.cpu_s) for host in self._hosts], str(folder)) + "\n"
        )
        missing = [
            f"{host.name} for {seconds:.1f} s ({reason})" for host in self._hosts for seconds, reason in host.missing()
        ]
        if missing:
            raise HopscopeError(
                f"The recording is incomplete: {'; '.join(missing)}",
                f"{folder / FILE} lists the times that are covered; the recorded parts are readable",
            )

    def _state(self) -> tuple[int, ...]:
        """Return what is another when there are other connections or probes."""
        return (self._clocks.generation, *(host.returns for host in self._hosts))

    def _look(self) -> None:
        for host in self._hosts:
            if host.error:
                raise host.error
        self._clocks.look()
        while self._clocks.news:
            self._screen.clear()
            tell(self._clocks.news.popleft())
        if (state := self._state()) != self._known:
            self._known = state
            for number, host in enumerate(self._hosts):
                host.leave_out(_own(number, (each.channel for each in self._hosts), self._clocks))
        self._screen.show()


class _Screen:
    """A line for each host that is written over, on a terminal."""

    def __init__(self, hosts: Sequence[HostRecording]) -> None:
        self._hosts = hosts
        self._live = sys.stderr.isatty()
        self._lines = 0
        self._shown_s, self._before = time.monotonic(), [host.now() for host in hosts]

    def show(self) -> None:
        """Write them, if that is some time ago."""
        if self._live and time.monotonic() - self._shown_s >= _PROGRESS_S:
            now = [host.now() for host in self._hosts]
            states = [f"missing: {host.absent.reason}" if host.absent else "" for host in self._hosts]
            names = [host.name for host in self._hosts]
            self.clear()
            lines = render_hosts(names, now, self._before, states)
            sys.stderr.write("".join(f"{line}\n" for line in lines))
            sys.stderr.flush()
            self._lines = len(lines)
            self._shown_s, self._before = time.monotonic(), now

    def clear(self) -> None:
        """Take them away."""
        if self._lines:
            rewrite("", self._lines)
        self._lines = 0
