# SPDX-License-Identifier: Apache-2.0
"""Processes of a command that serves: who measures, who reads files, and who talks to the network are not the same.

All are forked before anything is loaded that the other side could make use of, and end with the command.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
from typing import TYPE_CHECKING, Final, Protocol

from hopscope.errors import HopscopeError, limit_reached
from hopscope.gate import tell
from hopscope.live.privileges import give_up

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Callable, Iterator, Mapping
    from types import FrameType

    from starlette.types import ASGIApp
    from uvicorn.protocols.http.h11_impl import H11Protocol

_PR_SET_PDEATHSIG: Final = 1
# mallopt(3): M_ARENA_MAX, and how many there may be.
_M_ARENA_MAX, _ARENAS = -8, 2
_SHUTDOWN_S: Final = 1
# Answers say which second it is.
_TICK_S: Final = 1.0


class Secured(Protocol):
    """How a server that others than this machine can reach protects itself."""

    def context(self) -> ssl.SSLContext:
        """Return what it asks of secured."""

    def protocol(self) -> type[H11Protocol]:
        """Return what reads requests."""


@contextlib.contextmanager
def child_processes() -> Iterator[dict[int, str]]:
    """Give a table of processes to fill, PID → what it does; they are ended at the end."""
    found: dict[int, str] = {}
    try:
        yield found
    finally:
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        for pid in found:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def check_processes(children: Mapping[int, str], command: str) -> None:
    """Look whether all of them are still there.

    Raises
    ------
    HopscopeError
        One has ended.
    """
    pid, status = os.waitpid(-1, os.WNOHANG)
    if name := children.get(pid):
        raise HopscopeError(f"The process that {name} {how_ended(status)}", f"Start `hopscope {command}` again")


def how_ended(status: int) -> str:
    """Return what a wait status says of how a process ended, as the end of a sentence."""
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"has ended with exit code {code}" if code else "has ended"
    perhaps = " (perhaps for want of memory: see `dmesg`)" if code == -signal.SIGKILL else ""
    return f"was killed by {signal.Signals(-code).name}{perhaps}"


def forked(run: Callable[[], None], user: tuple[int, int] | None = None) -> int:
    """Run a function in a process of its own, which ends with us; return its PID.

    Parameters
    ----------
    user
        Who it is, without any rights; None: as we are.
    """
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who started us, who ends all
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # as is what this may mean there
        if user:
            give_up(*user)
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # a change of the user would undo it
        if os.getppid() == parent:
            run()
        code = 0
    except (BrokenPipeError, ConnectionResetError):
        code = 0
    except Exception as error:  # noqa: BLE001 # there is nobody to raise it to
        limit = limit_reached(error)
        what = f"{type(error).__name__}: {error}); please report it" if limit is None else f"{limit})"
        tell(f"hopscope: a process behind the server failed ({what}")
    finally:
        os._exit(code)


def share_arenas() -> None:
    """Have the threads of this process share their memory, where it runs for long and makes threads that end.

    glibc gives each an arena of its own, up to eight for each CPU, and each arena keeps what its largest array took.
    """
    with contextlib.suppress(AttributeError):  # another libc
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, _ARENAS)


def http_server(app: ASGIApp, listening: socket.socket, secured: Secured | None) -> Callable[[], None]:
    """Return what serves an application until a signal comes.

    All is loaded now: the user that it runs as need not be able to read where hopscope is installed.
    """
    import uvicorn  # noqa: PLC0415 # it takes a tenth of a second
    from anyio._backends import _asyncio  # noqa: F401, PLC0415 # which anyio would load with the first request

    class Server(uvicorn.Server):
        """Sleeps, where uvicorn's own looks ten times a second for whether it is to end: half a per cent of a CPU."""

        _over, _loop = asyncio.Event(), None

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            super().handle_exit(sig, frame)
            if self._loop:
                self._loop.call_soon_threadsafe(self._over.set)

        async def main_loop(self) -> None:
            self._loop = asyncio.get_running_loop()
            while not await self.on_tick(0):  # which dates answers
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._over.wait(), _TICK_S)

    config = uvicorn.Config(
        app, log_level="critical", access_log=False, server_header=False, ws="none", loop="asyncio",
        http=secured.protocol() if secured else "h11",
        ssl_context_factory=(lambda *_: secured.context()) if secured else None,
        timeout_graceful_shutdown=_SHUTDOWN_S, proxy_headers=False,
    )  # fmt: skip
    config.load()
    server = Server(config)
    return lambda: server.run(sockets=[listening])
