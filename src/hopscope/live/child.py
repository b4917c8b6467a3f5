# SPDX-License-Identifier: Apache-2.0
"""The command that is given after ``--``: run beside a collector, and ended with it."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import threading
from typing import TYPE_CHECKING, Final, TextIO

from hopscope.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hopscope.live.stop import Stop

# What a terminal sends to all that run in it: Ctrl-C, Ctrl-\, and its end.
_OF_TERMINALS: Final = frozenset({signal.SIGINT, signal.SIGQUIT, signal.SIGHUP})
# How long a command may take to end by itself, and when it is asked to.
_MOMENT_S: Final = 1.0
_GRACE_S: Final = 5.0


def exit_code(child: subprocess.Popen[bytes]) -> int:
    """Return the exit code of a command that has ended, as a shell gives it."""
    return 128 - child.returncode if child.returncode < 0 else int(child.returncode)


@contextlib.contextmanager
def running(command: Sequence[str], stop: Stop, output: TextIO | None) -> Iterator[subprocess.Popen[bytes] | None]:
    """Start the command, set `stop` when it ends, and end it when we do; yield None where there is none.

    Raises
    ------
    UsageError
        It cannot be started.
    """
    if not command:
        yield None
        return
    try:
        child = subprocess.Popen(command, stdout=output)
    except OSError as error:
        raise UsageError(
            f"{command[0] or 'An empty name'} cannot be started: {error.strerror}",
            "Give the name of a program and its arguments",
        ) from error

    def wait_and_stop() -> None:
        child.wait()
        stop.set()

    waiter = threading.Thread(target=wait_and_stop, name="hopscope-command", daemon=True)
    waiter.start()
    try:
        yield child
    finally:
        if stop.signal in _OF_TERMINALS:
            waiter.join(_MOMENT_S)  # it has reached the command, too
        child.terminate()
        waiter.join(_GRACE_S)
        child.kill()
        waiter.join()
