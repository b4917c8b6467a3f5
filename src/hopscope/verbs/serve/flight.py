# SPDX-License-Identifier: Apache-2.0
"""The flight recorder as a service: one process keeps events, as root; another, without rights, is asked for them."""

from __future__ import annotations

import contextlib
import signal
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hopscope.kernel.capabilities import require_rights
from hopscope.live.privileges import unprivileged_user
from hopscope.live.processes import forked, http_server
from hopscope.recorded.confine import confine
from hopscope.verbs.serve.unix import listening, remove_stale

if TYPE_CHECKING:
    from pathlib import Path
    from types import FrameType

    from hopscope.verbs.serve.flight_keeper import Flight
    from hopscope.verbs.serve.tally import Tally

_SIGNAL: Final = signal.SIGUSR1


@dataclass(frozen=True, slots=True)
class FlightRecorder:
    """The service; see :class:`~hopscope.verbs.serve.run.Service`.

    Attributes
    ----------
    flight
        What is kept, and when and where it is written.
    tally
        What it has done, for metrics.
    path
        Of the unix socket on which it is asked for a recording; None: there is none.
    """

    flight: Flight
    tally: Tally
    path: Path | None

    def start(self, children: dict[int, str], beats: socket.socket) -> str:
        """Start the processes, have SIGUSR1 ask for a recording, and return what is kept."""
        require_rights()
        with contextlib.ExitStack() as stack:
            bound = stack.enter_context(listening(self.path, -1, "the socket of --dump-socket")) if self.path else None
            pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2)]
            (ours, of_signal), (of_site, theirs) = pairs
            for each in (of_signal, of_site, theirs):
                stack.enter_context(each)

            def run_keeping() -> None:
                from hopscope.verbs.serve.flight_keeper import keep  # noqa: PLC0415 # in this process alone

                for each in (bound, ours, of_site):
                    if each:
                        each.close()
                keep(self.flight, self.tally, (of_signal, theirs), beats)

            children[forked(run_keeping)] = "keeps the last seconds"
            if bound:
                self._start_site(children, bound, of_site, (ours, of_signal, theirs, beats))
        _ask_on_signal(ours)
        where = f"; unix:{self.path}" if self.path else ""
        return f"keeping the last {self.flight.last_s:g} s of events{where}"

    def end(self) -> None:
        """Remove the socket's name; SIGUSR1 means nothing from now on."""
        signal.signal(_SIGNAL, signal.SIG_IGN)
        if self.path:
            with contextlib.suppress(OSError):
                remove_stale(self.path)

    @staticmethod
    def _start_site(
        children: dict[int, str], bound: socket.socket, line: socket.socket, others: tuple[socket.socket, ...]
    ) -> None:
        from hopscope.verbs.serve.flight_site import make_app  # noqa: PLC0415 # Starlette takes a tenth of a second

        # All is loaded before: the other user need not be able to read where hopscope is installed.
        run_server = http_server(make_app(line), bound, None)

        def run_site() -> None:
            for each in others:
                each.close()
            confine()
            run_server()

        children[forked(run_site, unprivileged_user())] = "is asked for recordings"


def _ask_on_signal(line: socket.socket) -> None:
    """Ask for a recording at each signal; the answer is a sentence on stderr, by who writes it."""
    line.setblocking(False)  # noqa: FBT003 # as the library has it

    def ask(_number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(OSError):
            while line.recv(1 << 16):  # answers
                pass
        with contextlib.suppress(OSError):
            line.send(_SIGNAL.name.encode())

    signal.signal(_SIGNAL, ask)
