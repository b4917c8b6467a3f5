# SPDX-License-Identifier: Apache-2.0
"""Metrics: one process measures, as root, and others, without any rights, talk to the network.

One is read by Prometheus, and one sends to a receiver of OpenTelemetry.
"""

from __future__ import annotations

import contextlib
import importlib
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hopscope.agent.tls_listen import listen
from hopscope.kernel.capabilities import require_rights
from hopscope.live.privileges import unprivileged_user
from hopscope.live.processes import forked, http_server
from hopscope.recorded.confine import confine
from hopscope.store.fleet.objects import shown
from hopscope.verbs.serve.family import handed
from hopscope.verbs.serve.otlp import pushed
from hopscope.verbs.serve.push import push

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hopscope.verbs.serve.access import Access
    from hopscope.verbs.serve.push import Receiver
    from hopscope.verbs.serve.tally import Tally
    from hopscope.verbs.serve.wanted import Wanted

# What attaches nothing.
_READ_ALONE: Final = {"sockets", "check"}


@dataclass(frozen=True, slots=True)
class Metrics:
    """The service; see :class:`~hopscope.verbs.serve.run.Service`.

    Attributes
    ----------
    access
        Where it listens, and for whom; None: nowhere.
    receiver
        Where metrics are pushed to; None: nowhere.
    wanted
        What is measured.
    fleet
        Directory into which histograms are written by minute; None: they are not.
    """

    access: Access | None
    receiver: Receiver | None
    wanted: Wanted
    fleet: Path | str | None = None

    def start(self, children: dict[int, str], beats: socket.socket) -> str:
        """Start the processes, and return the address of the metrics, or of where they are pushed to."""
        if not set(self.wanted.collected) <= _READ_ALONE:
            require_rights()
        with contextlib.ExitStack() as stack:
            listening = stack.enter_context(listen(self.access.host, self.access.port)) if self.access else None
            served, to_served = map(stack.enter_context, socket.socketpair())
            pushing, to_pushing = map(stack.enter_context, socket.socketpair())
            writing, to_writing = map(stack.enter_context, socket.socketpair())
            naming, to_naming = map(stack.enter_context, socket.socketpair())
            ours = (listening, served, to_served, pushing, to_pushing, writing, to_writing, naming, to_naming, beats)

            def keep(*kept: socket.socket) -> None:
                """Close what belongs to the other processes, in one that was forked."""
                for each in ours:
                    if each and each not in kept:
                        each.close()

            def run_measuring() -> None:
                from hopscope.verbs.serve.measure import measure  # noqa: PLC0415 # in this process alone

                keep(to_served, to_pushing, to_writing, to_naming, beats)
                lines = [(to_served, handed)] if self.access else []
                lines += [(to_pushing, pushed)] if self.receiver else []
                measure(self.wanted, lines, beats, to_naming, to_writing if self.fleet else None)

            children[forked(run_measuring)] = "measures"
            self._start_naming(children, naming, keep)
            if self.fleet:
                self._start_writing(children, self.fleet, writing, keep)
            if self.receiver and (pushes := self.wanted.pushes):
                self._start_pushing(children, self.receiver, pushing, pushes, keep)
            if not (self.access and listening):
                where = f"writing histograms to {shown(str(self.fleet))}"
                return f"pushing to {self.receiver.url}" if self.receiver else where
            from hopscope.verbs.serve.app import make_app  # noqa: PLC0415 # Starlette takes a tenth of a second

            access = self.access
            app = make_app(served, self.wanted.interval_s, access.token, access.hosts)
            # All is loaded before: the other user need not be able to read where hopscope is installed.
            run_server = http_server(app, listening, access.secured)

            def run_serving() -> None:
                keep(served, listening)
                confine()
                run_server()

            children[forked(run_serving, unprivileged_user())] = "serves metrics"
            return access.url(listening.getsockname()[1])

    @staticmethod
    def _start_pushing(
        children: dict[int, str],
        receiver: Receiver,
        line: socket.socket,
        pushes: Tally,
        keep: Callable[[socket.socket], None],
    ) -> None:
        """Start the process that pushes what comes over a line."""

        def run_pushing() -> None:
            keep(line)
            push(receiver, line, pushes)

        # What a name means is asked for by modules that are loaded now: the other user may not be able to.
        importlib.import_module("encodings.idna")
        children[forked(run_pushing, unprivileged_user())] = "pushes metrics"

    def _start_writing(
        self, children: dict[int, str], fleet: Path | str, line: socket.socket, keep: Callable[[socket.socket], None]
    ) -> None:
        """Start the process that writes histograms of what comes over a line."""

        def run_writing() -> None:
            from hopscope.verbs.serve.fleet_minutes import keep_minutes  # noqa: PLC0415 # in this process alone

            keep(line)
            keep_minutes(fleet, line, self.wanted.most_groups)

        # Who talks to the network has no rights; all is loaded before, as the other user may not be able to.
        user = unprivileged_user() if isinstance(fleet, str) else None
        importlib.import_module("hopscope.verbs.serve.fleet_minutes")
        if user:
            importlib.import_module("pyarrow.fs")
        children[forked(run_writing, user)] = "writes histograms"

    def _start_naming(self, children: dict[int, str], naming: socket.socket, keep: Callable[..., None]) -> None:
        if self.wanted.kubernetes is None:
            return
        from hopscope.verbs.serve.cri import name_pods  # noqa: PLC0415 # h2 is optional

        importlib.import_module("tempfile")  # as below: which `confine` looks for

        def run_naming() -> None:
            keep(naming)
            confine()
            name_pods(naming)

        children[forked(run_naming, unprivileged_user())] = "asks for names of pods"

    def end(self) -> None:
        """Do nothing: it leaves nothing."""
