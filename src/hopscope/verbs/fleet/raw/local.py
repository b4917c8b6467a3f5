# SPDX-License-Identifier: Apache-2.0
"""The engine of one machine: processes that each read a trace after the other, and this one, which adds up.

Each is a process of its own program, confined before it reads anything: a recording that exploits a mistake in the
engine has that process alone, and one that ends it is named.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import asdict
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, Self

from hopscope.errors import HopscopeError
from hopscope.live.processes import how_ended
from hopscope.progress import doing
from hopscope.recorded.confine import confine, is_own_process
from hopscope.verbs.fleet.raw.answer import Found
from hopscope.verbs.fleet.raw.asked import Asked
from hopscope.verbs.fleet.raw.parts import part_of, unread
from hopscope.verbs.fleet.raw.question import (
    NOTES,
    Merged,
    lines_of,
    merged,
    none,
    note_lines,
    packed,
    sorted_lines,
    unpacked,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType

    from hopscope.store.fleet.raw import Leaf

_LEAST: Final = 2
_AT_ONCE: Final = 32
_LENGTH_BYTES: Final = 8
_MODULE: Final = "hopscope.verbs.fleet.raw.local"


def found_here(asked: Asked, leaves: Sequence[Leaf], processes: int | None = None) -> Found:
    """Answer a question on this machine.

    Parameters
    ----------
    asked, leaves
        The question, and the traces that it is about.
    processes
        How many read them; None: as there are CPUs, two at least.
    """
    count = processes or max(_LEAST, len(os.sched_getaffinity(0)))
    with _Pool(asked, min(count, max(len(leaves), 1))) as pool:
        whole = pool.parts(leaves)
    lines, of_all = lines_of(asked.asked, whole.rows, asked.limit)
    return Found(sorted_lines(asked.asked, [lines], asked.limit), of_all, note_lines(whole.notes).to_pylist())


class _Pool:
    """Processes, and a thread for each."""

    def __init__(self, asked: Asked, count: int) -> None:
        self._asked = asked
        told = json.dumps([count, is_own_process(), asdict(asked)])
        self._processes = [
            subprocess.Popen([sys.executable, "-P", "-m", _MODULE, told], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            for _ in range(count)
        ]
        if is_own_process():
            confine()
        self._lock = threading.Lock()
        self._found: list[Merged] = [none(asked.asked)]
        self._done = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for process in self._processes:
            if error:
                process.kill()
            process.communicate()  # it ends when there is no more to read

    def parts(self, leaves: Sequence[Leaf]) -> Merged:
        """Return what all traces say."""
        left = iter(leaves)
        failed: list[BaseException] = []
        threads = [
            threading.Thread(target=self._feed, args=(process, left, len(leaves), failed), daemon=True)
            for process in self._processes
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failed:
            raise failed[0]
        for leaf in left:
            self._add(unread(self._asked, leaf.host, leaf.name, "all processes that read recordings have ended"))
        return merged(self._asked.asked, self._found)

    def _feed(
        self, process: subprocess.Popen[bytes], left: Iterator[Leaf], of_all: int, failed: list[BaseException]
    ) -> None:
        try:
            while not failed:
                with self._lock:
                    leaf = next(left, None)
                    doing("reading the recordings of the fleet", self._done, of_all)
                if leaf is None or not self._read(process, leaf):
                    return
        except BaseException as error:  # noqa: BLE001 # it is raised where it can be seen
            failed.append(error)

    def _read(self, process: subprocess.Popen[bytes], leaf: Leaf) -> bool:
        """Have a process read a trace; return whether it is still there."""
        stdin, stdout = process.stdin, process.stdout
        if stdin is None or stdout is None:
            raise HopscopeError("A process that reads recordings has no pipes")
        try:
            stdin.write(json.dumps([leaf.host, leaf.name, str(leaf.folder)]).encode() + b"\n")
            stdin.flush()
            rows, notes = _received(stdout), _received(stdout)
        except (BrokenPipeError, EOFError):
            code = process.wait()
            said = how_ended(code << 8 if code >= 0 else -code)  # as wait(2) has it
            self._add(unread(self._asked, leaf.host, leaf.name, f"the process that read it {said}"))
            return False
        part = Merged(unpacked(rows), unpacked(notes))
        if (part.rows.schema, part.notes.schema) != (self._asked.asked.schema, NOTES):
            raise HopscopeError("A process that reads recordings gave other rows than it was asked for")
        self._add(part)
        return True

    def _add(self, part: Merged) -> None:
        with self._lock:
            self._done += 1
            self._found.append(part)
            if len(self._found) >= _AT_ONCE:
                self._found = [merged(self._asked.asked, self._found)]


def _received(stream: IO[bytes]) -> bytes:
    length = stream.read(_LENGTH_BYTES)
    data = stream.read(int.from_bytes(length)) if len(length) == _LENGTH_BYTES else b""
    if len(length) < _LENGTH_BYTES or len(data) < int.from_bytes(length):
        raise EOFError
    return data


def main(told: str) -> None:
    """Read traces as standard input names them, and write what they say to standard output."""
    from hopscope.store.budget import shared_among  # noqa: PLC0415 # of this process alone

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who started us, who ends all
    processes, confined, asked_for = json.loads(told)
    asked = Asked(**asked_for)
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing else is written there
    shared_among(processes)
    if confined:
        confine()
    for line in sys.stdin.buffer:
        host, name, folder = json.loads(line)
        part = part_of(asked, host, name, Path(folder))
        for table in (part.rows, part.notes):
            data = packed(table)
            out.write(len(data).to_bytes(_LENGTH_BYTES) + data)
        out.flush()


if __name__ == "__main__":
    main(sys.argv[1])
