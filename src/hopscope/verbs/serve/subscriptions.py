# SPDX-License-Identifier: Apache-2.0
"""Events for subscribers: one process records, as root, and another, without any rights, talks to them."""

from __future__ import annotations

import asyncio
import contextlib
import grp
import socket
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from hopscope.errors import UsageError
from hopscope.kernel.capabilities import require_rights
from hopscope.live.privileges import unprivileged_user
from hopscope.live.processes import forked
from hopscope.recorded.confine import confine
from hopscope.verbs.serve.unix import listening, remove_stale

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

GROUP: Final = "hopscope"


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
        with listening(self.path, gid, "the socket of subscriptions") as bound, ours, theirs:

            def run_recording() -> None:
                from hopscope.verbs.serve.source import record  # noqa: PLC0415 # in this process alone

                bound.close()
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
                asyncio.run(Publisher(ours, self.keep_s).serve(bound))

            children[forked(run_publishing, unprivileged_user())] = "serves subscribers"
        return f"unix:{self.path}"

    def end(self) -> None:
        """Remove the socket's name, if nobody listens there."""
        with contextlib.suppress(OSError):
            remove_stale(self.path)


def _gid(name: str | None) -> int:
    """Return the number of a group; -1: none is wanted."""
    try:
        return grp.getgrnam(name or GROUP).gr_gid
    except KeyError:
        if name is None:
            return -1
        raise UsageError(f"There is no group {name}", f"Create it: groupadd --system {name}") from None
