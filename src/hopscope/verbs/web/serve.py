# SPDX-License-Identifier: Apache-2.0
"""The processes behind the page: who measures, who reads the recording, and who talks to browsers are not the same.

What a browser sends is read by a process that has no right but to talk to the others; a recording by its owner, who is
confined to reading; and the process that measures takes options that select traffic alone. All are forked before
anything is loaded.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import secrets
import socket
import struct
import sys
import tempfile
import webbrowser
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hopscope.agent.tls_listen import listen
from hopscope.errors import HopscopeError, UsageError
from hopscope.live.privileges import owner_of, unprivileged_user
from hopscope.live.processes import check_processes, child_processes, forked, how_ended, http_server
from hopscope.live.stop import stop_on_signal
from hopscope.recorded.confine import confine
from hopscope.verbs.web.wire import READERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from starlette.types import ASGIApp

    from hopscope.live.clients import Clients
    from hopscope.verbs.web.guard import Place

_HERE: Final = ("127.0.0.1", "localhost")
_CHECK_S: Final = 0.5


def serve(  # noqa: PLR0913 # what the options say
    folder: Path | None,
    other: Path | None,
    *,
    interval_s: float | None,
    port: int,
    browser: bool,
    clients: Clients | None,
) -> int:
    """Serve the page until a signal comes.

    Parameters
    ----------
    folder, other
        The recording, and one that it can be compared with; None: none.
    interval_s
        Between frames of this host; None: it is not measured.
    port
        Of this machine's own address; 0: any that is free.
    clients
        Who may come from other machines, and to which address; None: nobody may.

    Raises
    ------
    HopscopeError
        The port is taken, the recording cannot be opened, or this host cannot be measured.
    """
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(listen(clients.host, clients.port) if clients else _listening(port))
        children = stack.enter_context(child_processes())
        readers: tuple[socket.socket, ...] = ()
        keeper = _keeper(folder, other, children) if folder else None
        if keeper:
            stack.enter_context(keeper)
            first = stack.enter_context(_reader(keeper, 0, children))
            _expect(first, keeper)  # it may have to join hosts, which the others find done
            readers = first, *(_reader(keeper, number, children) for number in range(1, READERS))
        collector = _collector(interval_s, children) if interval_s is not None else None
        token = secrets.token_urlsafe(32)
        from hopscope.verbs.web.app import make_app  # noqa: PLC0415 # Starlette takes a tenth of a second

        app = functools.partial(make_app, token, readers=readers, keeper=keeper, collector=collector)
        address = _server(listening, clients, app, children)
        for each in filter(None, (listening, *readers, keeper, collector)):
            each.close()
        url = f"{address}/#token={token}"
        who = "that has a client's certificate" if clients else "on this machine"
        print(f"{url}\nOpen this address in a browser {who}; Ctrl-C ends.")  # noqa: T201 # what it is for
        sys.stdout.flush()
        if browser and not clients:
            stack.enter_context(_shown(url))
        with stop_on_signal() as stop:
            while not stop.wait(_CHECK_S):
                check_processes(children, "web")
    return 0


def _listening(port: int) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((_HERE[0], port))
        made.listen(128)
    except OSError as error:
        made.close()
        raise UsageError(f"Port {port} of {_HERE[0]} cannot be used: {error.strerror}", "Name another one") from error
    return made


def _keeper(folder: Path, other: Path | None, children: dict[int, str]) -> socket.socket:
    """Start the process that starts those that read the recording, and return the socket to ask it."""
    from hopscope.verbs.web.keeper import keep  # noqa: PLC0415

    ours, theirs = socket.socketpair()
    try:
        user = owner_of(str(folder))
    except OSError:
        user = os.geteuid(), os.getegid()  # and reading it says what is wrong

    def run() -> None:
        ours.close()
        keep(folder, other, theirs)

    children[forked(run, user)] = "reads the recording"
    theirs.close()
    return ours


def _reader(keeper: socket.socket, number: int, children: dict[int, str]) -> socket.socket:
    """Start a process that reads the recording, and return the socket to ask it.

    Raises
    ------
    HopscopeError
        It cannot be started, or who starts it has ended.
    """
    from hopscope.verbs.web.keeper import ask_for, received  # noqa: PLC0415

    try:
        ask_for(keeper, number)
        return received(keeper)
    except ConnectionError:  # it is the only one yet
        (pid,) = children
        del children[pid]
        raise _has_ended(how_ended(os.waitpid(pid, 0)[1])) from None
    except OSError as error:
        raise HopscopeError(
            f"No process can be started that reads the recording: {error.strerror}",
            "Raise the limits of open files and of processes (`ulimit -n`, `ulimit -u`), or that of the cgroup",
        ) from None


def _expect(line: socket.socket, keeper: socket.socket) -> None:
    """Wait until the first process has the recording open.

    Raises
    ------
    HopscopeError
        It cannot be opened.
    """
    from hopscope.verbs.web.keeper import answered_how, ask_how  # noqa: PLC0415

    data = b""
    while not data.endswith(b"e\0\0\0\0"):
        part = line.recv(1 << 16)
        if not part:
            ask_how(keeper, 0)
            raise _has_ended(answered_how(keeper))
        data += part
    length = struct.unpack("!I", data[1:5])[0]
    head = json.loads(data[5 : 5 + length])
    if head["status"] != 200:
        error = HopscopeError(json.loads(data[5 + length + 5 : -5])["error"])
        error.exit_code = head["exit_code"]
        raise error


def _has_ended(how: str) -> HopscopeError:
    return HopscopeError(f"The process that reads the recording {how}", "Start `hopscope web` again")


def _collector(interval_s: float, children: dict[int, str]) -> socket.socket:
    """Start the process that measures, and return the socket from which its frames come."""
    from hopscope.kernel.capabilities import require_rights  # noqa: PLC0415 # a recording needs none of it

    require_rights()
    ours, theirs = socket.socketpair()

    def run() -> None:
        from hopscope.verbs.web.collector import collect  # noqa: PLC0415 # in this process alone

        ours.close()
        collect(interval_s, theirs)

    children[forked(run)] = "measures"
    theirs.close()
    return ours


def _server(
    listening: socket.socket, clients: Clients | None, make_app: Callable[[Place], ASGIApp], children: dict[int, str]
) -> str:
    """Start the process that talks to browsers, and return the page's address."""
    from hopscope.verbs.web.guard import Place  # noqa: PLC0415

    port = listening.getsockname()[1]
    place = Place("https", (clients.host_in_url,), port) if clients else Place("http", _HERE, port)
    # All is loaded before: the other user need not be able to read where hopscope is installed.
    run_app = http_server(make_app(place), listening, clients)

    def run() -> None:
        confine()
        run_app()

    children[forked(run, unprivileged_user())] = "serves the page"
    return place.origins()[0]


@contextlib.contextmanager
def _shown(url: str) -> Iterator[None]:
    """Open a browser, unless we are root, whose browser should not run, or there is no screen.

    What is in an address on a command line can be read by every user: the browser gets a file that leads there.
    """
    if os.geteuid() == 0 or not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        yield
        return
    with tempfile.NamedTemporaryFile("w", suffix=".html", encoding="utf-8") as file:
        file.write(f'<!doctype html><meta http-equiv="refresh" content="0;url={escape(url)}"><title>hopscope</title>')
        file.flush()
        webbrowser.open(Path(file.name).as_uri())
        yield
