# SPDX-License-Identifier: Apache-2.0
"""What the output device can show, and text that fits it."""

from __future__ import annotations

import itertools
import os
import textwrap
import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final, TextIO

from hopscope.gate import one_line, style

if TYPE_CHECKING:
    from collections.abc import Mapping

MIN_WIDTH: Final = 40
DEFAULT_WIDTH: Final = 80

_NEEDED = "µ…→∞▁█▏"
_ASCII = str.maketrans({"µ": "u", "…": "~", "→": "->", "∞": "inf"})
_C_LOCALES = {"C", "POSIX"}
_COERCED = "C.UTF-8"


@dataclass(frozen=True, slots=True)
class Terminal:
    """Width in columns, and whether colour and characters beyond ASCII can be used."""

    width: int = DEFAULT_WIDTH
    colour: bool = False
    unicode: bool = True

    @classmethod
    def of(cls, stream: TextIO, environ: Mapping[str, str]) -> Terminal:
        """Return what a stream can show; below 40 columns, 40."""
        tty = stream.isatty()
        colour = tty and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"
        return cls(max(_width_of(stream, environ, tty=tty), MIN_WIDTH), colour, _has_unicode(stream, environ))

    def text(self, text: str) -> str:
        """Make any text printable: no control characters, nothing but ASCII where that is all there is."""
        text = one_line(text)
        if self.unicode or text.isascii():
            return text
        return text.translate(_ASCII).encode("ascii", "replace").decode()

    def paint(self, text: str, look: str) -> str:
        """Return the text as `dim`, `bold`, `warn` or in a colour, if there is colour."""
        return style(text, look) if self.colour and text else text

    def fold(self, text: str, indent: int = 2) -> list[str]:
        """Break a sentence into lines that fit; the second and later ones are indented by `indent` columns."""
        return textwrap.wrap(self.text(text), self.width, subsequent_indent=" " * indent, break_on_hyphens=False)

    def cut(self, text: str, width: int) -> str:
        """Shorten a name to `width` columns. A path keeps its end, anything else its beginning."""
        text = self.text(text)
        if columns(text) <= width:
            return text
        mark = "…" if self.unicode else "~"
        if text.startswith("/"):
            return mark + _beginning(text[::-1], width - 1)[::-1]
        return _beginning(text, width - 1) + mark


def columns(text: str) -> int:
    """Return how many columns a printable text takes: East Asian wide characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(map(_columns_of, text))


# As many as a screen may have of different characters: bars and sparklines are measured at each refresh.
@lru_cache(maxsize=1024)
def _columns_of(char: str) -> int:
    return 0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _beginning(text: str, width: int) -> str:
    """Return as many characters as fit. Each is looked at once, as names can be as long as whoever gave them liked."""
    ends = itertools.accumulate(map(columns, text))
    return text[: next((place for place, end in enumerate(ends) if end > width), len(text))]


def pad(text: str, width: int) -> str:
    """Fill a text up with blanks on its right."""
    return text + " " * (width - columns(text))


def _width_of(stream: TextIO, environ: Mapping[str, str], *, tty: bool) -> int:
    given = environ.get("COLUMNS", "")
    if given.isdecimal() and int(given):
        return int(given)
    try:
        return (os.get_terminal_size(stream.fileno()).columns if tty else 0) or DEFAULT_WIDTH
    except OSError:
        return DEFAULT_WIDTH


def _has_unicode(stream: TextIO, environ: Mapping[str, str]) -> bool:
    lang = environ.get("LANG", "")
    ctype = environ.get("LC_CTYPE", "")
    if ctype == _COERCED and lang in _C_LOCALES:
        ctype = ""  # Python itself sets LC_CTYPE to this in a C locale (PEP 538); the user said LANG=C.
    if (environ.get("LC_ALL") or ctype or lang) in _C_LOCALES:
        return False
    try:
        _NEEDED.encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
