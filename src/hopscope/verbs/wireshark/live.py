# SPDX-License-Identifier: Apache-2.0
"""Packets as they come, in Wireshark or tshark, with the fields and the profile that those of recordings have."""

from __future__ import annotations

import contextlib
import os
import platform
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hopscope.errors import UsageError
from hopscope.live.recorder.tables import point_names
from hopscope.live.subscribing import SOCKET, require_server
from hopscope.verbs.wireshark.packets import Packets
from hopscope.verbs.wireshark.show import profiled, run, settings, viewer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hopscope.recorded.options import Common

# Between attempts to reach who will wait for packets.
_LOOK_S: Final = 0.05


def show_live(common: Common, more: Sequence[str], *, text: bool, where: str, socket: str | None) -> int:
    """Show packets until the user ends it, and return the exit code of what shows them.

    Parameters
    ----------
    common
        Nothing: packets are selected by `where`.
    more
        Further arguments of the program.
    text
        Whether tshark is to print them.
    where
        A condition on events.
    socket
        Where `hopscope serve` serves; None: the usual place.

    Raises
    ------
    HopscopeError
        The program is not there, a recording is named, or nobody serves at the socket.
    """
    if common.selection:
        raise UsageError("With --live, there is no recording to select from", "Select by --where")
    if common.folder:  # the first argument, as no recording is named
        more = (str(common.folder), *more)
    program = viewer(text=text)
    socket = socket or SOCKET
    require_server(socket)
    with tempfile.TemporaryDirectory(prefix="hopscope-") as folder:
        place = Path(folder)
        pipe, catalogue = place / "packets", place / "catalogue.pcapng"
        os.mkfifo(pipe, 0o600)
        catalogue.write_bytes(Packets(point_names().values(), platform.node(), 0).begin())
        words = ["--fifo", str(pipe), "--where", where, "--socket", socket]
        with _writing(words, pipe) as writer:
            argv = [program, *([] if text else ["-k"]), "-i", str(pipe), *settings(catalogue), *more]
            code = run(argv, profiled(place), text=text)
            failed = writer.poll()
    return failed or code


@contextlib.contextmanager
def _writing(words: Sequence[str], pipe: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run what writes to the pipe; where it ends before it opens that, who waits there for it sees the end."""
    with subprocess.Popen([sys.executable, "-P", "-m", "hopscope.verbs.wireshark.extcap", *words]) as child:
        over = threading.Event()

        def end() -> None:
            failed = child.wait()
            while failed and not over.is_set():
                try:
                    os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
                except OSError:  # nobody waits there yet
                    over.wait(_LOOK_S)
                else:
                    return

        thread = threading.Thread(target=end, daemon=True)
        thread.start()
        try:
            yield child
        finally:
            over.set()
            child.terminate()
            thread.join()
