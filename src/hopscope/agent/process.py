# SPDX-License-Identifier: Apache-2.0
"""An agent that a program of ours reaches, over its standard input and output."""

from __future__ import annotations

import codecs
import contextlib
import os
import signal
import subprocess
import sys
import threading
from typing import IO, TYPE_CHECKING, Final

from hopscope.agent.transport import Pipes
from hopscope.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

# Ctrl-C, Ctrl-\, and the terminal's end.
_OF_TERMINALS: Final = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)
# How long it may take to end by itself, and when it is asked to.
_GRACE_S: Final = 2.0
_PART_BYTES: Final = 4096


class Process:
    """The pipes of a program, which is ended with them.

    What a terminal sends is for us alone: we end it in order.

    Parameters
    ----------
    argv
        The program and its arguments.
    explain
        What an exit code of it means, as a part of a sentence; negative: the signal that killed it.
    stderr
        Where its standard error goes; None: through the gate to ours, since what it says is the user's. It asks on the
        terminal itself.
    environ
        Its environment, None for ours.

    Raises
    ------
    UsageError
        It cannot be started.
    """

    def __init__(
        self,
        argv: Sequence[str],
        explain: Callable[[int], str],
        *,
        stderr: int | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._explain = explain
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, _OF_TERMINALS)
        try:
            self._child = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE if stderr is None else stderr,
                env=environ,
                bufsize=0,
            )
        except OSError as error:
            raise UsageError(f"{argv[0]} cannot be started: {error.strerror}", "Give a program that exists") from error
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        assert self._child.stdin is not None  # noqa: S101 - for the type checker
        assert self._child.stdout is not None  # noqa: S101 - for the type checker
        with self._child.stdin as to_it, self._child.stdout as from_it:
            self._pipes = Pipes(os.dup(from_it.fileno()), os.dup(to_it.fileno()))
        self._repeating = threading.Thread(target=_repeat, args=(self._child.stderr,), daemon=True)
        self._repeating.start()
        self._ending = threading.Lock()
        self.read_into, self.write = self._pipes.read_into, self._pipes.write

    @property
    def pid(self) -> int:
        """Its number."""
        return self._child.pid

    @property
    def exit_code(self) -> int | None:
        """Its exit code, negative: the signal that killed it; None: it was not seen to end."""
        return self._child.returncode

    def close(self) -> None:
        """Close the pipes, and see to it that the program ends; idempotent."""
        self._pipes.close()
        with self._ending:
            for end in (self._child.terminate, self._child.kill, lambda: None):
                try:
                    self._child.wait(_GRACE_S)
                except subprocess.TimeoutExpired:
                    end()
                else:
                    break
            self._repeating.join(_GRACE_S)  # another program may still have the pipe

    def why_ended(self) -> str:
        """Return what its exit code means, once it has ended or was ended."""
        self.close()
        return self._explain(self._child.returncode) if self._child.returncode is not None else ""


def _repeat(said: IO[bytes] | None) -> None:
    """Write on the standard error what a program says: another host may have said it."""
    if said is None:
        return
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    with said, contextlib.suppress(OSError, ValueError):  # ours is closed
        while part := said.read(_PART_BYTES):
            sys.stderr.write(decoder.decode(part))
            sys.stderr.flush()
