# SPDX-License-Identifier: Apache-2.0
"""The process that reads a recording: its owner, without capabilities, confined to what reading needs."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, cast

from hopscope.errors import HopscopeError
from hopscope.verbs.web.wire import LONGEST, Answerer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from socket import socket
    from types import FrameType

    from hopscope.verbs.web.answers import Answers

# A question that takes longer is given up, so that others are answered; a download may take as long as it likes.
_LONGEST_S: Final = 60.0
_AGAIN_S: Final = 0.5
# So may what is prepared once, and is then at hand.
_FREE: Final = frozenset({"export", "timeline", "details"})
_BAD: Final = 400
# Answers that are kept, and the size of the longest.
_KEPT: Final = 200
_LONGEST_KEPT: Final = 1 << 19


class _TooLong(BaseException):
    """The time for a question is over; no `except Exception` of a library may keep it."""


def read(folder: Path, other: Path | None, line: socket, *, quiet: bool) -> None:
    """Answer questions until the other side ends; the first answer is to none, when the recording is open.

    Parameters
    ----------
    quiet
        Write nothing to the standard error: another process has said it.
    """
    if quiet:
        _be_quiet()
    with line.makefile("rb") as asked, line.makefile("wb") as out, contextlib.ExitStack() as stack:
        try:
            answers = _opened(folder, other, stack)
        except HopscopeError as error:
            _fail(Answerer(out), error)
            return
        except (ImportError, PermissionError) as error:
            _fail(Answerer(out), _unreadable(folder, error))
            return
        ready = Answerer(out)
        ready.begin({"status": 200})
        ready.end()
        _be_quiet()  # what a page asks for shows no progress in the terminal
        kept: dict[bytes, bytes] = {}
        while question := asked.readline(LONGEST):
            if question in kept:
                out.write(kept[question])
                out.flush()
            else:
                _answer(answers, question, Answerer(cast("BinaryIO", _Copy(kept, question, out))))


class _Copy:
    """Writes an answer, and keeps it: the recording does not change, and a page that is loaded again asks the same."""

    def __init__(self, kept: dict[bytes, bytes], question: bytes, out: BinaryIO) -> None:
        self._kept, self._question, self._out = kept, question, out
        self._parts: list[bytes] = []
        self._size = 0

    def write(self, data: bytes, /) -> int:
        self._size += len(data)
        if self._size <= _LONGEST_KEPT:
            self._parts.append(data)
        return self._out.write(data)

    def flush(self) -> None:
        """Send it; an answer is flushed once, at its end."""
        self._out.flush()
        if self._size <= _LONGEST_KEPT:
            self._kept[self._question] = b"".join(self._parts)
            while len(self._kept) > _KEPT:
                del self._kept[next(iter(self._kept))]


def _be_quiet() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def _unreadable(folder: Path, error: ImportError | PermissionError) -> HopscopeError:
    """Return what is wrong where a module or a file is that the owner of the recording cannot read."""
    file = getattr(error, "filename", None)
    what = f"{file}" if file else f"Python in {sys.base_prefix}, or hopscope in {Path(__file__).parents[2]}"
    return HopscopeError(
        f"User {os.geteuid()}, who owns {folder} and reads it for the page, cannot read {what}",
        "Copy the recording, so that it is yours, or install hopscope where every user can read it",
    )


def _opened(folder: Path, other: Path | None, stack: contextlib.ExitStack) -> Answers:
    from hopscope.recorded.options import opened  # noqa: PLC0415 # DuckDB in this process alone
    from hopscope.verbs.web.answers import Answers  # noqa: PLC0415

    trace = stack.enter_context(opened(folder))
    return Answers(trace, folder, stack.enter_context(opened(other)) if other else None, other)


def _answer(answers: Answers, line: bytes, out: Answerer) -> None:
    limit = _Limit(answers.interrupt)
    try:
        question = json.loads(line)
        with limit.of(question):
            answers.answer(question, out)
    except (Exception, _TooLong, KeyboardInterrupt) as error:  # noqa: BLE001 # the page says so, and others are still answered
        # The engine makes an error of its own of what interrupts it.
        if limit.is_over:
            _say(out, f"This took longer than {_LONGEST_S:.0f} s and was given up. Select a shorter period.")
        elif isinstance(error, HopscopeError):
            _fail(out, error)
        else:
            _say(out, f"This failed in a way that was not foreseen ({type(error).__name__}): please report it.")
        return
    out.end()


def _fail(out: Answerer, error: HopscopeError) -> None:
    out.begin({"status": _BAD, "type": "application/json", "exit_code": error.exit_code})
    out.write(json.dumps({"error": str(error)}).encode())
    out.end()


def _say(out: Answerer, sentence: str) -> None:
    _fail(out, HopscopeError(sentence))


class _Limit:
    """How long a question may take.

    Parameters
    ----------
    interrupt
        Ends a query that runs: the engine does not look for signals in all of them.
    """

    def __init__(self, interrupt: Callable[[], None]) -> None:
        self.is_over = False
        self._interrupt = interrupt
        self._answered = threading.Event()

    @contextlib.contextmanager
    def of(self, question: Any) -> Iterator[None]:  # noqa: ANN401 # whatever was sent
        """Raise what nobody catches when the time for a question is over."""
        if isinstance(question, dict) and question.get("ask") in _FREE:
            yield
            return
        signal.signal(signal.SIGALRM, self._give_up)
        watching = threading.Thread(target=self._watch, name="limit", daemon=True)
        watching.start()
        try:
            yield
        finally:
            self._answered.set()
            watching.join()

    def _watch(self) -> None:
        wait_s = _LONGEST_S
        while not self._answered.wait(wait_s):
            self.is_over = True
            self._interrupt()
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)
            wait_s = _AGAIN_S  # it may have been between two queries

    def _give_up(self, _number: int, _frame: FrameType | None) -> None:
        if not self._answered.is_set():
            raise _TooLong
