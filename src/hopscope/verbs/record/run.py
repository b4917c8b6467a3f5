# SPDX-License-Identifier: Apache-2.0
"""Record this host until it is enough, and say how it goes."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TYPE_CHECKING, Final

from hopscope.gate import rewrite, tell
from hopscope.live.child import exit_code, running
from hopscope.live.stop import stop_on_signal
from hopscope.store.destination import Folder
from hopscope.term.recording import render_end, render_progress
from hopscope.verbs.record.pipeline import Pipeline, prior

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from hopscope.store.folder import OpenFolder
    from hopscope.verbs.record.pipeline import Flight, Limits, Source

_PROGRESS_S: Final = 1.0
# Of records that are taken and not written yet.
_BACKLOG_BYTES: Final = 256 << 20


def record(  # noqa: PLR0913 # one parameter a part
    source: AbstractContextManager[Source],
    folder: OpenFolder,
    limits: Limits,
    *,
    counters_s: float | None,
    flight: Flight | None,
    command: Sequence[str],
    quiet: bool = False,
) -> int:
    """Record until the command ends, a limit is reached, a trigger is seen or a signal comes.

    `quiet`: do not say at the end what was recorded, and where it is.

    Returns
    -------
    int
        The exit code: that of the command, as a shell gives it, unless the command was ended before its time.

    Raises
    ------
    DiskFullError
        There is no room for more; what was recorded can be read.
    UsageError
        The folder cannot be used, or the command not be started.
    """
    with stop_on_signal() as stop, contextlib.ExitStack() as stack:
        with prior():  # the rings fill from their first moment on
            recorder = stack.enter_context(source)
            pipeline = stack.enter_context(
                Pipeline(recorder, Folder(folder), flight=flight, counters_s=counters_s, backlog_bytes=_BACKLOG_BYTES)
            )
        tell_of(recorder)
        progress = _Progress(pipeline)
        # The command begins with the priority that it would have without us.
        with running(command, stop, None) as child, prior():
            ended = pipeline.run(stop.wait, limits, progress.show)
        over = pipeline.finish()
        progress.clear()
        for remark in pipeline.remarks():
            tell(remark)
        if not quiet:
            sys.stderr.write(render_end(over, str(folder.path)) + "\n")
    return 0 if child is None or not ended else exit_code(child)


def tell_of(recorder: Source) -> None:
    """Tell what is not recorded."""
    if missing := recorder.not_granted():
        tell(f"not granted by this kernel: {', '.join(missing)} (`hopscope probes` says why)")
    for note in recorder.notes():
        tell(note)


class _Progress:
    """A line that is written over, on a terminal."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._live = sys.stderr.isatty()
        self._shown_s, self._before = time.monotonic(), pipeline.now()

    def show(self) -> None:
        """Write it, if that is some time ago."""
        if self._live and time.monotonic() - self._shown_s >= _PROGRESS_S:
            now = self._pipeline.now()
            rewrite(render_progress(now, self._before))
            self._shown_s, self._before = time.monotonic(), now

    def clear(self) -> None:
        """Take it away."""
        if self._live:
            rewrite("")
