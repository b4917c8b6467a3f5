# SPDX-License-Identifier: Apache-2.0
"""What a command is at that takes over a second: a line on the terminal, until anything is printed."""

from __future__ import annotations

import contextlib
import shutil
import sys
import threading
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from hopscope.gate import Passing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_AFTER_S: Final = 1.0
_EVERY_S: Final = 0.25


class _Step(NamedTuple):
    what: str
    done: int
    of: int
    began_s: float
    share: Callable[[], float | None] | None = None


_now = _Step("", 0, 0, 0.0)


def doing(what: str, done: int = 0, of: int = 0, *, share: Callable[[], float | None] | None = None) -> None:
    """Say what is being done, in words that continue "hopscope: ".

    Parameters
    ----------
    what
        The same words while `done` grows: the time that is left is estimated from how long they have been there.
    done, of
        How much of it is done; 0 and 0: that is not known.
    share
        Returns which part of it is done, 0 to 1, where somebody else estimates that, such as the engine of queries;
        None: not known now. It is called in another thread. No time is estimated from it: it need not grow evenly.
    """
    global _now  # noqa: PLW0603 # one process does one thing
    _now = _Step(what, done, of, _now.began_s if what == _now.what else time.monotonic(), share)


@contextlib.contextmanager
def progress() -> Iterator[None]:
    """Show it while the ``with`` lasts, if the standard error is a terminal, and after a second alone."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    doing("")
    line, over = Passing(), threading.Event()
    thread = threading.Thread(target=_show, args=(line, over), name="hopscope-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        line.end()


def _show(line: Passing, over: threading.Event) -> None:
    began_s = time.monotonic()
    wait_s = _AFTER_S
    while not over.wait(wait_s):
        wait_s = _EVERY_S
        if _now.what:
            line.show(_words(_now, began_s, time.monotonic())[: shutil.get_terminal_size().columns - 1])


def _words(step: _Step, began_s: float, now_s: float) -> str:
    said = f"hopscope: {step.what}"
    if step.of:
        said += f", {step.done:,} of {step.of:,}"
    share = step.share() if step.share else None
    if share is not None:
        said += f", about {share:.0%} of it"
    said += f", {now_s - began_s:.0f} s"
    left_s = (now_s - step.began_s) * (step.of - step.done) / step.done if step.done else 0.0
    return f"{said}, about {left_s:.0f} s left" if left_s >= 1 else said
