# SPDX-License-Identifier: Apache-2.0
"""What is served runs until a signal comes: each service in processes of its own, and this one watches them.

SIGHUP reads the configuration again and starts all of them anew, so that counters begin at 0. The service manager is
told when there is something to read, and, each time that there is something new, that all is well.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from hopscope.errors import HopscopeError
from hopscope.gate import tell
from hopscope.kernel.capabilities import not_held
from hopscope.live.processes import check_processes, child_processes
from hopscope.live.stop import stop_on_signal
from hopscope.verbs.serve.beats import heed
from hopscope.verbs.serve.notify import notify

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hopscope.live.stop import Stop

_CHECK_S: Final = 0.5
# docs/privileges.md says what for.
_SHOW_MORE: Final = ("CAP_SYSLOG", "CAP_SYS_ADMIN", "CAP_SYS_PTRACE")


class Service(Protocol):
    """Something that is served."""

    def start(self, children: dict[int, str], beats: socket.socket) -> str:
        """Start its processes, and return an address, or another sentence for who started it.

        Parameters
        ----------
        children
            PID → what the process does; to be filled.
        beats
            For :func:`~hopscope.verbs.serve.beats.beat` in its processes, whenever there is something new, and for
            :func:`~hopscope.verbs.serve.beats.fail`.

        Raises
        ------
        HopscopeError
            It cannot be started.
        """

    def end(self) -> None:
        """Remove what it left in the file system, once its processes have ended or none could be started."""


def serve(services: Sequence[Service], again: Callable[[], Sequence[Service]]) -> int:
    """Run services until a signal comes; return the exit code.

    Parameters
    ----------
    services
        At least one.
    again
        Reads the configuration once more.

    Raises
    ------
    HopscopeError
        One cannot be started, or has ended.
    """
    reloads = not _has_terminal()
    while _run(services) == signal.SIGHUP and reloads:
        try:
            services = again()
        except HopscopeError as error:
            tell(f"hopscope: the configuration is as before: {error}")
    notify("STOPPING=1")
    return 0


def _run(services: Sequence[Service]) -> int | None:
    """Run services until a signal comes, and return it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    with contextlib.ExitStack() as stack:
        stop = stack.enter_context(stop_on_signal())
        stack.enter_context(ours)
        stack.enter_context(theirs)
        for service in services:
            stack.callback(service.end)
        children = stack.enter_context(child_processes())
        for service in services:
            print(service.start(children, theirs))  # noqa: T201 # what it is for
        sys.stdout.flush()
        if missing := not_held(_SHOW_MORE):
            tell(f"hopscope: without {', '.join(missing)}, some names and namespaces are missing (docs/privileges.md)")
        _watch(stop, children, ours)
    return stop.signal


def _watch(stop: Stop, children: dict[int, str], beats: socket.socket) -> None:
    ready = False
    while not stop.wait(_CHECK_S):
        try:
            check_processes(children, "serve")
        except HopscopeError:
            heed(beats)  # it may have said why
            raise
        if heed(beats):
            notify("WATCHDOG=1", *([] if ready else ["READY=1", f"MAINPID={os.getpid()}"]))
            ready = True


def _has_terminal() -> bool:
    """Tell whether a terminal controls us, whose end SIGHUP then means."""
    terminal = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[4]
    return terminal != "0"
