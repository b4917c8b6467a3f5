# SPDX-License-Identifier: Apache-2.0
"""The gate between what others wrote and a terminal: all text that hopscope prints passes through it.

Names of processes, interfaces and cgroups, recordings, and agents on other hosts can contain escape sequences, which
would make a terminal overwrite what was printed, or worse. :func:`guarded` therefore puts a :class:`Gate` in place of
the standard output and the standard error. It replaces every control character, whatever module printed it and wherever
it came from; line ends, tabs, and the sequences of this module are all that it lets through. ``tests/test_gate.py``
checks that no other module writes past it or has escape sequences of its own.
"""

from __future__ import annotations

import codecs
import contextlib
import itertools
import os
import re
import sys
import threading
from typing import TYPE_CHECKING, BinaryIO, ClassVar, Final, TextIO, cast

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

REPLACEMENT: Final = "?"
# C0 and C1 with DEL, marks and overrides of the writing direction, separators of lines and paragraphs, and halves of
# surrogate pairs, which are no text at all.
_LAYOUT: Final = "\t\n"
_CLASS: Final = "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_CONTROL_BYTES: Final = bytes(sorted({*range(32), 127} - set(_LAYOUT.encode())))
# What a name in a database may not have, other than surrogates, which cannot be there.
_CONTROL: Final = re.compile(f"[{_LAYOUT}{_CLASS}]")
CONTROLS: Final = "".join(filter(_CONTROL.match, map(chr, (*range(1, 0xA0), 0x61C, *range(0x2000, 0x2070)))))

# A style begins with characters that only this process knows: a name cannot contain a style.
_SECRET: Final = os.urandom(8).hex()
_LOOKS: Final = {
    "dim": "2",
    "bold": "1",
    "warn": "33",
    "cyan": "36",
    "red": "31",
    "yellow": "33",
    "magenta": "35",
    "green": "32",
}
_LOOK_OF: Final = {f"[{code}m": look for look, code in _LOOKS.items()}
# A class first, which `re` looks for quickly.
_STYLE_OR_CONTROL: Final = re.compile(rf"[{_CLASS}](?:(?<=\x1b){_SECRET}(\[\d+m))?")

# What a library that draws a screen sends: control sequences without text in them, and no other kind of sequence.
_SCREEN: Final = re.compile(rf"\x1b\[[0-9;:?<>=$]*[A-Za-z]|\r|[{_CLASS}]")
# Leaves what such a library may have switched on: the alternate screen, a hidden cursor, reports of mouse, focus,
# pasting and keys, lines that are not wrapped.
_SWITCHED_OFF: Final = "".join(f"\x1b[?{mode}l" for mode in (1000, 1003, 1004, 1006, 2004))
_LEAVE: Final = f"\x1b[<u{_SWITCHED_OFF}\x1b[?7h\x1b[0m\x1b[?1049l\x1b[?25h"

# Lines that are written at once.
_BATCH: Final = 1000


def style(text: str, look: str) -> str:
    """Return a text as `dim`, `bold`, `warn` or in a colour, in a form that only the gate makes a style of."""
    return f"\x1b{_SECRET}[{_LOOKS[look]}m{text}\x1b{_SECRET}[0m"


def passed(text: str) -> str:
    """Return what the gate makes of a text: styles as escape sequences, other control characters replaced."""
    return _STYLE_OR_CONTROL.sub(_replaced, text)


def _replaced(match: re.Match[str]) -> str:
    return f"\x1b{match[1]}" if match[1] else REPLACEMENT


def styled_parts(text: str) -> list[tuple[str, str]]:
    """Return a line as parts of text without any control character, each with its look; empty: none."""
    parts, look, end = [], "", 0
    for match in _STYLE_OR_CONTROL.finditer(text):
        if match[1]:
            parts.append((one_line(text[end : match.start()]), look))
            look, end = _LOOK_OF.get(match[1], ""), match.end()
    parts.append((one_line(text[end:]), look))
    return [part for part in parts if part[0]]


def one_line(text: str) -> str:
    """Return a text that cannot be printed in full as one line that can: a blank for a line end, else ``?``."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else " " if char == "\n" else REPLACEMENT for char in text)


class Gate:
    """A text stream that writes what passes the gate. It has no `buffer`, so that nobody writes bytes past it.

    Parameters
    ----------
    stream
        Where to write to.
    """

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.encoding = stream.encoding
        self.errors = stream.errors

    def write(self, text: str | bytes) -> int:
        """Write a text, and return its length; click has what completes a word as bytes."""
        Passing.end_any()
        self.stream.write(passed(text if isinstance(text, str) else text.decode(errors="replace")))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write texts, many at once."""
        rest = iter(lines)
        while batch := "".join(itertools.islice(rest, _BATCH)):
            self.write(batch)

    def flush(self) -> None:
        """Write what the stream still has."""
        self.stream.flush()

    def isatty(self) -> bool:
        """Tell whether it is a terminal."""
        return self.stream.isatty()

    def fileno(self) -> int:
        """Return the descriptor, for programs that hopscope starts."""
        return self.stream.fileno()

    def writable(self) -> bool:
        """Tell that it can be written to."""
        return True


class Screen:
    """A stream for a library that draws a screen: its control sequences pass, all others are replaced.

    What the screen shows has to be made of :func:`styled_parts`: here, a sequence in it could not be told from its own.
    """

    def __init__(self) -> None:
        Passing.end_any()
        self._stream = _behind(sys.stdout)

    def write(self, text: str) -> int:
        """Write a text, and return its length."""
        self._stream.write(_SCREEN.sub(_of_screen, text))
        return len(text)

    def flush(self) -> None:
        """Write what the stream still has."""
        self._stream.flush()

    def fileno(self) -> int:
        """Return the descriptor of the terminal."""
        return self._stream.fileno()

    def leave(self) -> None:
        """Show the terminal as it was before, whatever was drawn."""
        os.write(self._stream.fileno(), _LEAVE.encode())


def _of_screen(match: re.Match[str]) -> str:
    return match[0] if len(match[0]) > 1 or match[0] == "\r" else REPLACEMENT


class _Bytes:
    """A binary stream for lines of text in UTF-8 that pass the gate, in parts of any size."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def write(self, raw: bytes) -> int:
        # Nearly all are these, and are not decoded: events come by the hundred million.
        if raw.isascii() and len(raw.translate(None, _CONTROL_BYTES)) == len(raw) and not self._decoder.getstate()[0]:
            self._gate.stream.buffer.write(raw)
        else:
            self._gate.stream.buffer.write(passed(self._decoder.decode(raw)).encode())
        return len(raw)

    def flush(self) -> None:
        self._gate.stream.buffer.flush()


@contextlib.contextmanager
def guarded(*, for_good: bool) -> Iterator[None]:
    """Put a gate in place of the standard output and error; `for_good`: for what Python itself says at the end, too."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (Gate(each) if each and not isinstance(each, Gate) else each for each in before)
    try:
        yield
    finally:
        if not for_good:
            sys.stdout, sys.stderr = before


def tell(sentence: str) -> None:
    """Write a sentence on the standard error, as one line whatever names are in it."""
    if sys.stderr is not None:
        sys.stderr.write(f"{one_line(sentence)}\n")


def rewrite(text: str, lines: int = 0) -> None:
    """Write a text on the standard error, a terminal, in place of its current line, or of so many lines above that."""
    stream = _behind(sys.stderr)
    stream.write((f"\x1b[{lines}A\x1b[J" if lines else "\r\x1b[K") + passed(text))
    stream.flush()


class Passing:
    """A line on the standard error, a terminal, that vanishes as soon as anything else is written; one at most."""

    _there: ClassVar[Passing | None] = None

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shown = False
        self._over = False
        Passing._there = self

    def show(self, text: str) -> None:
        """Rewrite the line, unless it has vanished."""
        with self._lock:
            if not self._over:
                self._shown = True
                rewrite(text)

    def end(self) -> None:
        """Remove it for good; again is allowed."""
        with self._lock:
            if self._shown and not self._over:
                rewrite("")
            self._over = True
            Passing._there = None

    @classmethod
    def end_any(cls) -> None:
        """Remove what is there."""
        if cls._there:
            cls._there.end()


def write_data(lines: Iterable[str]) -> None:
    """Write lines of data on the standard output, each with a line end: as they are, but to a terminal as text."""
    Passing.end_any()
    out = sys.stdout if sys.stdout.isatty() else _behind(sys.stdout)
    out.writelines(f"{line}\n" for line in lines)
    out.flush()


def bytes_out(*, data: bool) -> BinaryIO:
    """Return where lines in UTF-8 go on the standard output, which are text, or data as of :func:`write_data`."""
    Passing.end_any()
    out = sys.stdout
    out.flush()
    if isinstance(out, Gate) and not (data and not out.isatty()):
        return cast("BinaryIO", _Bytes(out))
    return _behind(out).buffer


def _behind(stream: TextIO) -> TextIO:
    return stream.stream if isinstance(stream, Gate) else stream
