# SPDX-License-Identifier: Apache-2.0
"""A recording of what the screen shows: ``hopscope record`` in a process of its own, as it may outlive an interval."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import tempfile
from typing import IO, TYPE_CHECKING, Any, Final, Self

from hopscope.live.words import words_of
from hopscope.verbs.frames.source import Said
from hopscope.verbs.record.command import command

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from hopscope.verbs.frames.source import Event

_PATIENCE_S: Final = 30.0


class OwnRecording:
    """Starts and ends the recording; leaving it ends it. `post` gets sentences."""

    def __init__(self, post: Callable[[Event], object]) -> None:
        self._post = post
        self._child: subprocess.Popen[bytes] | None = None
        self._said: IO[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._child:
            self._end(self._child)

    def toggle(self, chosen: Mapping[str, Any]) -> None:
        """Start one of this traffic, or end that which runs."""
        if self._child:
            self._end(self._child)
            return
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 # it is read when the recording has ended
        # Without -P, Python would look for modules in the current folder, which may be anybody's.
        argv = [sys.executable, "-P", "-m", "hopscope", "record", *words_of(command, chosen)]
        self._child = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=self._said, stderr=self._said, start_new_session=True
        )
        self._post(Said("recording; r ends it", recording=True))

    def look(self) -> None:
        """Say so where it has ended by itself."""
        if self._child and self._child.poll() is not None:
            self._end(self._child)

    def _end(self, child: subprocess.Popen[bytes]) -> None:
        child.send_signal(signal.SIGINT)  # nothing where it has ended
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(_PATIENCE_S)
        if child.poll() is None:
            child.kill()
            child.wait()
        said = ""
        if self._said:
            self._said.seek(0)
            said = " ".join(self._said.read().decode(errors="replace").split())
            self._said.close()
        self._child = self._said = None
        self._post(Said(said or "recorded", recording=False))
