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
from queue import SimpleQueue
from typing import TYPE_CHECKING, BinaryIO, Final, cast

from hopscope.errors import HopscopeError
from hopscope.verbs.web.wire import LONGEST, STOP, Answerer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from socket import socket
    from types import FrameType

    from hopscope.verbs.web.answers import Answers

_AGAIN_S: Final = 0.5
_BAD: Final = 400
# Answers that are kept, and the size of the longest.
_KEPT: Final = 200
_LONGEST_KEPT: Final = 1 << 19


class _Stopped(BaseException):
    """Nobody waits for the answer any more; no `except Exception` of a library may keep it."""


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
        questions: SimpleQueue[Asked | None] = SimpleQueue()
        threading.Thread(target=_listen, args=(asked, questions, answers.interrupt), daemon=True).start()
        while question := questions.get():
            if question.line in kept:
                question.end()
                out.write(kept[question.line])
                out.flush()
            else:
                _answer(answers, question, Answerer(cast("BinaryIO", _Copy(kept, question, out))))


def _listen(asked: BinaryIO, questions: SimpleQueue[Asked | None], interrupt: Callable[[], None]) -> None:
    """Pass questions on until the other side ends, and stop one where it says so: before the next one is read."""
    current: Asked | None = None
    with contextlib.suppress(OSError):
        while line := asked.readline(LONGEST):
            if line != STOP:
                current = Asked(line, interrupt)
                questions.put(current)
            elif current:
                current.stop()
    questions.put(None)


class _Copy:
    """Writes an answer, and keeps it: the recording does not change, and a page that is loaded again asks the same."""

    def __init__(self, kept: dict[bytes, bytes], question: Asked, out: BinaryIO) -> None:
        self._kept, self._question, self._out = kept, question, out
        self._parts: list[bytes] = []
        self._size = 0

    def write(self, data: bytes, /) -> int:
        self._size += len(data)
        if self._size <= _LONGEST_KEPT:
            self._parts.append(data)
        with _undisturbed():
            return self._out.write(data)

    def flush(self) -> None:
        """Send it; an answer is flushed once, at its end."""
        with _undisturbed():
            self._out.flush()
        if self._size <= _LONGEST_KEPT and not self._question.is_stopped:
            self._kept[self._question.line] = b"".join(self._parts)
            while len(self._kept) > _KEPT:
                del self._kept[next(iter(self._kept))]


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Have what is written be written as a whole: the other side could not tell where the next answer begins."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})


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


def _answer(answers: Answers, asked: Asked, out: Answerer) -> None:
    try:
        with asked.answering():
            answers.answer(json.loads(asked.line), out)
    except (Exception, _Stopped, KeyboardInterrupt) as error:  # noqa: BLE001 # the page says so, and others are still answered
        # The engine makes an error of its own of what interrupts it.
        if asked.is_stopped:
            _say(out, "This was given up.")
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


class Asked:
    """A question, and how to stop answering it.

    Parameters
    ----------
    line
        As it came.
    interrupt
        Ends a query that runs: the engine does not look for signals in all of them.

    Attributes
    ----------
    is_stopped
        Nobody waits for the answer.
    """

    def __init__(self, line: bytes, interrupt: Callable[[], None]) -> None:
        self.line = line
        self.is_stopped = False
        self._interrupt = interrupt
        self._answered = threading.Event()

    @contextlib.contextmanager
    def answering(self) -> Iterator[None]:
        """Raise what nobody catches when it is stopped; of the main thread."""
        signal.signal(signal.SIGUSR1, self._give_up)
        try:
            if self.is_stopped:
                raise _Stopped
            yield
        finally:
            self.end()

    def end(self) -> None:
        """Say that it is answered."""
        self._answered.set()

    def stop(self) -> None:
        """Have it end, and wait until it has; of another thread."""
        self.is_stopped = True
        while not self._answered.is_set():
            self._interrupt()
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
            self._answered.wait(_AGAIN_S)  # it may have been between two queries

    def _give_up(self, _number: int, _frame: FrameType | None) -> None:
        if self.is_stopped and not self._answered.is_set():
            raise _Stopped
