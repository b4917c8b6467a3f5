# SPDX-License-Identifier: Apache-2.0
"""HTTP/1 (RFC 9112): a request line, and the status line of the last answer to it."""

from __future__ import annotations

import re
from typing import Final

from hopscope.model.protocols.turn import CUT, MORE, Named, Turn

NAME: Final = "http1"
_LINE: Final = re.compile(rb"([A-Z][A-Z-]{1,20}) ([\x21-\x7e\x80-\xff]+) HTTP/1\.[01]\r?\n")
# Of which not all was recorded.
_BEGINNING: Final = re.compile(rb"([A-Z][A-Z-]{1,20}) ([/*a-z][\x21-\x7e\x80-\xff]*)( H?T?T?P?/?1?\.?[01]?\r?)?")
_STATUS: Final = re.compile(rb"HTTP/1\.[01] ([1-5][0-9][0-9])[ \r\n]")
_AUTHORITY: Final = re.compile(r"\A[a-z][a-z0-9+.-]*://[^/?#]*", re.IGNORECASE)
# Of another URL in a path; what is last of it, if that is not all, may be a user as well.
_USER: Final = re.compile(r"//[^/]*@")
_UNFINISHED: Final = re.compile(r"//[^/]*\Z")
_HAS_BODY: Final = re.compile(rb"\r?\n(?:content-length|transfer-encoding):", re.IGNORECASE)
_HEAD_ENDS: Final = re.compile(rb"\r?\n\r?\n")
_SWITCHING: Final = "101"


def http1(request: Turn, answer: Turn) -> Named | None:
    """Return the request if it is one of HTTP/1: its method, and its path without the query."""
    status_line = _STATUS.match(answer.data)
    if line := _LINE.match(request.data):
        return Named(NAME, _operation(line, "") + _more(request.data, line.end()), _status(answer))
    if not status_line:
        return None
    beginning = None if request.is_whole else _BEGINNING.fullmatch(request.data)
    cut = CUT if beginning and not beginning[3] else ""
    return Named(NAME, _operation(beginning, cut) if beginning else None, _status(answer))


def _operation(line: re.Match[bytes], cut: str) -> str:
    method, target = line[1].decode(), line[2].decode("latin-1")
    if cut and not target.startswith("/"):
        return f"{method} {cut}"  # what is there may be a user and a password
    if method == "CONNECT":
        return f"{method} {target.rpartition('@')[2]}"
    path, *behind = re.split("[?#]", _AUTHORITY.sub("", target), maxsplit=1)
    path, cut = _USER.sub("//", path or "/"), "" if behind else cut
    return f"{method} {_UNFINISHED.sub('//', path) if cut else path}{cut}"


def _more(data: bytes, behind_line: int) -> str:
    """Return :data:`~hopscope.model.protocols.turn.MORE` where another request follows one without a body."""
    end = _HEAD_ENDS.search(data, behind_line - 2)
    if not end or _HAS_BODY.search(data, behind_line - 2, end.start()):
        return ""
    return MORE if _LINE.match(data, end.end()) else ""


def _status(answer: Turn) -> str | None:
    """Return the final status: others may come before it, such as 100 Continue, which may also be all of the answer."""
    at, status = 0, None
    while line := _STATUS.match(answer.data, at):
        status = line[1].decode()
        if not status.startswith("1") or status == _SWITCHING:
            return status
        end = _HEAD_ENDS.search(answer.data, at)
        if not end:
            return None
        at = end.end()
    return status if at == answer.len_bytes else None
