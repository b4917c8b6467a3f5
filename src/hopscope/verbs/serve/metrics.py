# SPDX-License-Identifier: Apache-2.0
"""Metrics for Prometheus: one process measures, as root, and another, without any rights, talks to the network."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hopscope.agent.tls_listen import listen
from hopscope.kernel.capabilities import require_rights
from hopscope.live.privileges import unprivileged_user
from hopscope.live.processes import forked, http_server
from hopscope.recorded.confine import confine
from hopscope.verbs.serve.app import make_app

if TYPE_CHECKING:
    from hopscope.verbs.serve.access import Access
    from hopscope.verbs.serve.wanted import Wanted

# What attaches nothing.
_READ_ALONE: Final = {"sockets", "check"}


@dataclass(frozen=True, slots=True)
class Metrics:
    """The service; see :class:`~hopscope.verbs.serve.run.Service`.

    Attributes
    ----------
    access
        Where it listens, and for whom.
    wanted
        What is measured.
    """

    access: Access
    wanted: Wanted

    def start(self, children: dict[int, str], beats: socket.socket) -> str:
        """Start both processes, and return the address of the metrics."""
        if not set(self.wanted.collected) <= _READ_ALONE:
            require_rights()
        access = self.access
        ours, theirs = socket.socketpair()
        with listen(access.host, access.port) as listening, ours, theirs:

            def run_measuring() -> None:
                from hopscope.verbs.serve.measure import measure  # noqa: PLC0415 # in this process alone

                listening.close()
                ours.close()
                measure(self.wanted, theirs, beats)

            children[forked(run_measuring)] = "measures"
            app = make_app(ours, self.wanted.interval_s, access.token, access.hosts)
            # All is loaded before: the other user need not be able to read where hopscope is installed.
            run_server = http_server(app, listening, access.secured)

            def run_serving() -> None:
                theirs.close()
                beats.close()
                confine()
                run_server()

            children[forked(run_serving, unprivileged_user())] = "serves metrics"
            return access.url(listening.getsockname()[1])

    def end(self) -> None:
        """Do nothing: it leaves nothing."""
