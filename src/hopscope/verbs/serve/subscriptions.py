# SPDX-License-Identifier: Apache-2.0
"""Events for subscribers: one process records, as root, and another, without any rights, talks to them."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import grp
import os
import socket
import stat
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from hopscope.errors import UsageError
from hopscope.kernel.capabilities import require_rights
from hopscope.live.privileges import unprivileged_user
from hopscope.live.processes import forked
from hopscope.recorded.confine import confine

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

GROUP: Final = "hopscope"
_MODE: Final = 0o660


@dataclass(frozen=True, slots=True)
class Subscriptions:
    """The service; see :class:`~hopscope.verbs.serve.run.Service`.

    Attributes
    ----------
    path
        Of the unix socket.
    group
        Whose members may connect, besides the owner; None: the group ``hopscope``, where there is one.
    keep_s
        How much of what subscribers get is kept for those who come later.
    chosen
        The filters, by the options' names in Python.
    ring_bytes
        Size of each CPU's ring.
    """

    path: Path
    group: str | None
    keep_s: float
    chosen: Mapping[str, Any]
    ring_bytes: int

    def start(self, children: dict[int, str], beats: socket.socket) -> str:
        """Start both processes, and return where to subscribe."""
        require_rights()
        gid = _gid(self.group)
        ours, theirs = socket.socketpair()
        with _listening(self.path, gid) as listening, ours, theirs:

            def run_recording() -> None:
                from hopscope.verbs.serve.source import record  # noqa: PLC0415 # in this process alone

                listening.close()
                ours.close()
                record(theirs, beats, self.chosen, self.ring_bytes)

            children[forked(run_recording)] = "records"
            from hopscope.verbs.serve.publisher import Publisher  # noqa: PLC0415

            if find_spec("pyarrow"):
                # The other user need not be able to read where it is installed.
                import pyarrow.compute  # noqa: F401, PLC0415

            def run_publishing() -> None:
                theirs.close()
                beats.close()
                confine()
                asyncio.run(Publisher(ours, self.keep_s).serve(listening))

            children[forked(run_publishing, unprivileged_user())] = "serves subscribers"
        return f"unix:{self.path}"

    def end(self) -> None:
        """Remove the socket's name, if nobody listens there."""
        with contextlib.suppress(OSError):
            _remove_stale(self.path)


def _gid(name: str | None) -> int:
    """Return the number of a group; -1: none is wanted."""
    try:
        return grp.getgrnam(name or GROUP).gr_gid
    except KeyError:
        if name is None:
            return -1
        raise UsageError(f"There is no group {name}", f"Create it: groupadd --system {name}") from None


def _listening(path: Path, gid: int) -> socket.socket:
    """Return a socket with this name, which nobody else listens on.

    Raises
    ------
    UsageError
        The name cannot be used.
    """
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_stale(path)
        before = os.umask(0o777 & ~_MODE if gid >= 0 else 0o177)
        try:
            made.bind(os.fspath(path))
        finally:
            os.umask(before)
        if gid >= 0:
            os.chown(path, -1, gid)
        made.listen()
    except OSError as error:
        made.close()
        used = error.errno == errno.EADDRINUSE
        raise UsageError(
            f"{path} cannot be the socket of subscriptions: {error.strerror or error}",
            "Another program uses it, or a file is there: name another one" if used else "Name another one",
        ) from error
    made.setblocking(False)  # noqa: FBT003 # as the library has it
    return made


def _remove_stale(path: Path) -> None:
    """Remove a socket on which nobody listens any more; never anything else."""
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            return
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as trial:
        try:
            trial.connect(os.fspath(path))
        except ConnectionRefusedError:
            path.unlink()
