# SPDX-License-Identifier: Apache-2.0
"""Redis's protocol, RESP: arrays of strings that are commands, and replies whose first byte says what they are.

https://redis.io/docs/latest/develop/reference/protocol-spec/
"""

from __future__ import annotations

import re
from typing import Final

from hopscope.model.protocols.turn import MORE, Named, Turn

NAME: Final = "redis"
_COMMAND: Final = re.compile(rb"\*([1-9][0-9]{0,6})\r\n\$([1-9][0-9]?)\r\n")
_WORD: Final = re.compile(rb"[A-Za-z][A-Za-z0-9._|-]*")
_LENGTH: Final = re.compile(rb"\$([0-9]{1,9})\r\n")
_REPLY: Final = re.compile(rb"[+\-:$*_#,(!=%~>|]")
_ERROR: Final = re.compile(rb"(?:-|![0-9]+\r\n)([A-Z][A-Z0-9_]*)[ \r]")
_ERRORS: Final = (b"-", b"!")
# What the server sends of its own accord, or before a reply.
_APART: Final = (b">", b"|")


def redis(request: Turn, answer: Turn) -> Named | None:
    """Return the request if it is one of Redis: the first command, without its arguments."""
    data = request.data
    head = _COMMAND.match(data)
    if not head or (answer.data and not _REPLY.match(answer.data)):
        return None
    length = int(head[2])
    word = data[head.end() : head.end() + length]
    if len(word) < length or not _WORD.fullmatch(word):
        return None
    end = _arguments_end(data, head.end() + length + 2, int(head[1]) - 1)
    more = MORE if end is not None and _COMMAND.match(data, end) else ""
    return Named(NAME, word.decode().upper() + more, _status(answer.data))


def _arguments_end(data: bytes, at: int, count: int) -> int | None:
    """Return where a command ends, None where that was not recorded."""
    while count and at < len(data):
        length = _LENGTH.match(data, at)
        if not length:
            return None
        at = length.end() + int(length[1]) + 2
        count -= 1
    return at if not count and at <= len(data) else None


def _status(data: bytes) -> str | None:
    if not data or data.startswith(_APART):
        return None
    if not data.startswith(_ERRORS):
        return "OK"
    error = _ERROR.match(data)
    return error[1].decode() if error else None
